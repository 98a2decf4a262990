import { afterEach, describe, expect, it, vi } from "vitest";
import type { SessionEvent } from "../src/api/types";
import { buildUsage, limitHits, parseMetrics, quantile, usageCsv } from "../src/model/metrics";
import { sumTokens } from "../src/model/stored-usage";
import { noActions } from "./events";

const TEXT = `# HELP hatchery_runs Runs that have ended.
# TYPE hatchery_runs counter
hatchery_runs_total{app="dice",error=""} 3
hatchery_runs_total{app="dice",error="COMPONENT_CPU"} 1
hatchery_run_duration_seconds_sum{app="dice"} 2.5
hatchery_run_duration_seconds_bucket{app="dice",le="0.5"} 2
hatchery_run_duration_seconds_bucket{app="dice",le="1.0"} 4
hatchery_run_duration_seconds_bucket{app="dice",le="+Inf"} 4
hatchery_run_time_seconds_total{app="dice",kind="model"} 1.5
hatchery_model_calls_total{model="a \\"quoted\\" \\\\ {name}",error=""} 2
hatchery_model_tokens_total{model="a \\"quoted\\" \\\\ {name}",type="input"} 70
hatchery_model_tokens_total{model="a \\"quoted\\" \\\\ {name}",type="output"} 7
hatchery_component_calls_total{component="loop",error="COMPONENT_CPU"} 2
hatchery_component_calls_total{component="=cmd()",error="DENIED"} 5
hatchery_active_runs 0
# EOF
`;

describe("metrics", () => {
  const usage = buildUsage(parseMetrics(TEXT));

  it("are read with labels that have any character", () => {
    expect(usage.models).toMatchObject([{ name: 'a "quoted" \\ {name}', calls: 2, inputTokens: 70, outputTokens: 7 }]);
  });

  it("are summed by name, with failures by code and estimated quantiles", () => {
    const [dice] = usage.apps;
    expect(dice).toMatchObject({ name: "dice", calls: 4, seconds: 2.5, p50: 0.5 });
    expect(dice!.p95).toBeCloseTo(0.95);
    expect([[...dice!.errors], [...dice!.times]]).toEqual([[["COMPONENT_CPU", 1]], [["model", 1.5]]]);
  });

  it("have the limits that were hit, most first", () => {
    expect(limitHits(usage).map(({ component, code, count }) => [component, code, count])).toEqual([
      ["=cmd()", "DENIED", 5],
      ["loop", "COMPONENT_CPU", 2],
    ]);
  });

  it("are exported as CSV without formulas", () => {
    const lines = usageCsv(usage).split("\n");
    expect(lines[0]).toBe("kind,name,calls,errors,seconds,p50,p95,input_tokens,output_tokens");
    expect(lines).toContain(`components,"'=cmd()",5,5,0,,,0,0`);
    expect(lines).toContain('models,"a ""quoted"" \\ {name}",2,0,0,,,70,7');
  });

  it("have no quantile without values, and the largest bound for values above it", () => {
    expect(quantile([], 0.5)).toBeUndefined();
    expect(quantile([[1, 0], [Number.POSITIVE_INFINITY, 3]], 0.5)).toBe(1);
  });
});

describe("tokens of stored runs", () => {
  afterEach(() => {
    vi.unstubAllEnvs();
  });

  const now = new Date(2026, 10, 23, 12).getTime() / 1000;
  const event = (id: string, days: number, tokens: number, model?: string): SessionEvent => ({
    id,
    invocationId: `e-${id}`,
    author: "a",
    actions: noActions,
    timestamp: now - days * 86_400,
    modelVersion: model,
    usageMetadata: { promptTokenCount: tokens, candidatesTokenCount: 1, thoughtsTokenCount: 2, cachedContentTokenCount: 3 },
  });

  it("are summed by model and by day, without gaps", () => {
    const usage = sumTokens([event("a", 2, 10, "x"), event("b", 0, 20, "y"), event("c", 0, 5), { ...event("d", 0, 99), partial: true }], now);
    expect(usage.total).toEqual({ input: 35, output: 9, cached: 9, calls: 3 });
    expect([...usage.models].map(([model, { input }]) => [model, input])).toEqual([["x", 10], ["y", 20], ["unknown", 5]]);
    expect([...usage.days].map(([day, { input }]) => [day, input])).toEqual([["2026-11-21", 10], ["2026-11-22", 0], ["2026-11-23", 25]]);
    expect(usage.runs).toBe(3);
  });

  it("include the results of tools that ran inside the model", () => {
    const { usageMetadata, ...rest } = event("a", 0, 10);
    const searched: SessionEvent = { ...rest, usageMetadata: Object.assign({ toolUsePromptTokenCount: 5 }, usageMetadata) };
    expect(sumTokens([searched], now).total.input).toBe(15);
  });

  it("have a day for each date, also where a day has 23 or 25 hours", () => {
    vi.stubEnv("TZ", "Europe/Berlin");
    const days = (now: Date, first: Date) => {
      const used = { ...event("a", 0, 1), timestamp: first.getTime() / 1000 };
      return [...sumTokens([used], now.getTime() / 1000).days.keys()];
    };
    // Summer time began on 29 March 2026 and ended on 25 October.
    expect(days(new Date(2026, 2, 30, 0, 30), new Date(2026, 2, 28, 12))).toEqual(["2026-03-28", "2026-03-29", "2026-03-30"]);
    expect(days(new Date(2026, 9, 26, 23, 30), new Date(2026, 9, 24, 12))).toEqual(["2026-10-24", "2026-10-25", "2026-10-26"]);
    expect(days(new Date(2026, 9, 25, 23, 30), new Date(2026, 9, 24, 12))).toEqual(["2026-10-24", "2026-10-25"]);
  });
});
