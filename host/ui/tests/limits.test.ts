import { describe, expect, it } from "vitest";
import { limitRows } from "../src/model/limits";

const limits = { memory: 64 << 20, cpuSeconds: 5, wallSeconds: 30, agentWallSeconds: 600, result: 8 << 20, log: 64 << 10 };
const quantiles = (p99: number, max: number) => ({ p50: p99, p99, max });

describe("the limits of a component", () => {
  it("have the usage of its calls, and whether it is close to the limit", () => {
    const usage = { calls: 9, memory: quantiles(22 << 20, 31 << 20), wallSeconds: quantiles(2.1, 28), limitHits: {} };
    const rows = limitRows({ limits, usage });
    expect(rows.map(({ name, limit, p99, max, isTight }) => [name, limit, p99, max, isTight])).toEqual([
      ["memory", "64 MiB", "22 MiB", "31 MiB", false],
      ["CPU time of a call", "5.00 s", undefined, undefined, false],
      ["time of a call", "30.0 s", "2.10 s", "28.0 s", true],
      ["time of an agent", "10 min 0 s", undefined, undefined, false],
      ["result", "8.0 MiB", undefined, undefined, false],
      ["log", "64 KiB", undefined, undefined, false],
    ]);
    expect(rows[0]!.share).toBeCloseTo(31 / 64);
  });

  it("have the number of calls that ended at them, also for other limits", () => {
    const usage = { calls: 9, wallSeconds: quantiles(30, 31), limitHits: { "limits.wall": 2, "limits.tool_calls": 1, fixed: 3 } };
    const rows = limitRows({ limits, usage });
    expect(rows.filter(({ hits }) => hits > 0).map(({ name, share, hits }) => [name, share, hits])).toEqual([
      ["time of a call", 1, 2],
      ["limits.tool_calls", undefined, 1],
      ["fixed limits", undefined, 3],
    ]);
  });
});
