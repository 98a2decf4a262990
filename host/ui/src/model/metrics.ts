// Usage since the start of the host, from its metrics in the text format of OpenMetrics.

export interface Sample {
  name: string;
  labels: { [name: string]: string };
  value: number;
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES: { [character: string]: string } = { n: "\n", "\\": "\\", '"': '"' };

/** Parses the samples of a text. Other lines are skipped. */
export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : SAMPLE.exec(line);
    const value = Number(match?.[3]);
    if (!match?.[1] || Number.isNaN(value)) continue;
    const labels: Sample["labels"] = {};
    for (const [, name, quoted] of (match[2] ?? "").matchAll(LABEL)) {
      if (name !== undefined) labels[name] = (quoted ?? "").replace(/\\(.)/g, (_, character: string) => ESCAPES[character] ?? character);
    }
    samples.push({ name: match[1], labels, value });
  }
  return samples;
}

export interface UsageRow {
  name: string;
  calls: number;
  /** The number of failures by their code. */
  errors: Map<string, number>;
  /** Seconds of all calls. */
  seconds: number;
  p50?: number;
  p95?: number;
  inputTokens: number;
  outputTokens: number;
  /** Seconds by activity. */
  times: Map<string, number>;
}

export interface Usage {
  apps: UsageRow[];
  models: UsageRow[];
  tools: UsageRow[];
  components: UsageRow[];
}

const SUBJECTS = [
  { key: "apps", label: "app", calls: "hatchery_runs", duration: "hatchery_run_duration_seconds" },
  { key: "models", label: "model", calls: "hatchery_model_calls", duration: "hatchery_model_call_duration_seconds" },
  { key: "tools", label: "tool", calls: "hatchery_tool_calls", duration: "hatchery_tool_call_duration_seconds" },
  { key: "components", label: "component", calls: "hatchery_component_calls", duration: "hatchery_component_call_duration_seconds" },
] as const;

/** Quantiles of fewer calls are meaningless, as the buckets are wide. */
const MIN_CALLS = 4;

/** Returns the usage of apps, models, tools and components, the longest total time first. */
export function buildUsage(samples: readonly Sample[]): Usage {
  const usage: Usage = { apps: [], models: [], tools: [], components: [] };
  for (const { key, label, calls, duration } of SUBJECTS) {
    const rows = new Map<string, UsageRow>();
    const buckets = new Map<string, [bound: number, count: number][]>();
    for (const { name, labels, value } of samples) {
      const subject = labels[label];
      if (subject === undefined) continue;
      let row = rows.get(subject);
      if (!row) {
        row = { name: subject, calls: 0, errors: new Map(), seconds: 0, inputTokens: 0, outputTokens: 0, times: new Map() };
        rows.set(subject, row);
      }
      if (name === `${calls}_total`) {
        row.calls += value;
        const error = labels.error;
        if (error) row.errors.set(error, (row.errors.get(error) ?? 0) + value);
      } else if (name === `${duration}_sum`) row.seconds += value;
      else if (name === `${duration}_bucket`) {
        const bound = labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le);
        buckets.set(subject, [...(buckets.get(subject) ?? []), [bound, value]]);
      } else if (name === "hatchery_model_tokens_total") {
        if (labels.type === "input") row.inputTokens += value;
        else row.outputTokens += value;
      } else if (name === "hatchery_run_time_seconds_total" && labels.kind !== undefined) {
        row.times.set(labels.kind, (row.times.get(labels.kind) ?? 0) + value);
      }
    }
    for (const row of rows.values()) {
      const sorted = (buckets.get(row.name) ?? []).sort(([one], [other]) => one - other);
      if (row.calls >= MIN_CALLS) [row.p50, row.p95] = [quantile(sorted, 0.5), quantile(sorted, 0.95)];
    }
    usage[key] = [...rows.values()].filter((row) => row.calls > 0).sort((one, other) => other.seconds - one.seconds);
  }
  return usage;
}

/** Estimates a quantile from the counts of the values up to each bound, as Prometheus does. */
export function quantile(buckets: readonly [bound: number, count: number][], part: number): number | undefined {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return undefined;
  let [lower, below] = [0, 0];
  for (const [bound, count] of buckets) {
    if (count >= total * part && count > below) {
      if (bound === Number.POSITIVE_INFINITY) return lower;
      return lower + ((bound - lower) * (total * part - below)) / (count - below);
    }
    [lower, below] = [bound === Number.POSITIVE_INFINITY ? lower : bound, count];
  }
  return lower;
}

export interface Hit {
  component: string;
  code: string;
  count: number;
}

/** Returns how often calls of components were ended by a limit or refused, most first. */
export function limitHits(usage: Usage): Hit[] {
  const hits = usage.components.flatMap(({ name, errors }) => [...errors].map(([code, count]) => ({ component: name, code, count })));
  return hits.sort((one, other) => other.count - one.count);
}

const quoted = (value: string) => (/[",\n\r]/.test(value) || /^[=+\-@]/.test(value) ? `"${value.replace(/"/g, '""').replace(/^([=+\-@])/, "'$1")}"` : value);

/** Returns the usage as CSV. Names that spreadsheets would take for formulas are escaped. */
export function usageCsv(usage: Usage): string {
  const header = "kind,name,calls,errors,seconds,p50,p95,input_tokens,output_tokens";
  const lines = Object.entries(usage).flatMap(([kind, rows]: [string, UsageRow[]]) =>
    rows.map((row) => {
      const errors = [...row.errors.values()].reduce((sum, count) => sum + count, 0);
      return [kind, quoted(row.name), row.calls, errors, row.seconds, row.p50 ?? "", row.p95 ?? "", row.inputTokens, row.outputTokens].join(",");
    }),
  );
  return [header, ...lines, ""].join("\n");
}
