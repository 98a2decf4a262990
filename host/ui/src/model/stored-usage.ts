// Tokens of stored runs, by day and by model.

import type { SessionEvent, Usage } from "../api/types";

export interface TokenSum {
  input: number;
  output: number;
  cached: number;
  calls: number;
}

export interface StoredUsage {
  total: TokenSum;
  models: Map<string, TokenSum>;
  /** By date, without gaps from the first to the last. */
  days: Map<string, TokenSum>;
  runs: number;
}

/** Days that a chart shows. */
const MAX_DAYS = 30;

const none = (): TokenSum => ({ input: 0, output: 0, cached: 0, calls: 0 });

/** Returns the tokens that a model has read: the prompt, and the results of tools that ran inside the model. */
export function inputTokens(usage: Usage & { toolUsePromptTokenCount?: number }): number {
  return (usage.promptTokenCount ?? 0) + (usage.toolUsePromptTokenCount ?? 0);
}

/** Returns the tokens that a model has written, thoughts included. */
export function outputTokens(usage: Usage): number {
  return (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0);
}

function add(sum: TokenSum, usage: Usage): void {
  sum.input += inputTokens(usage);
  sum.output += outputTokens(usage);
  sum.cached += usage.cachedContentTokenCount ?? 0;
  sum.calls += 1;
}

/** Returns the local date of a time. */
function dateOf(time: Date): string {
  const part = (value: number) => String(value).padStart(2, "0");
  return `${time.getFullYear()}-${part(time.getMonth() + 1)}-${part(time.getDate())}`;
}

export function sumTokens(events: readonly SessionEvent[], now: number): StoredUsage {
  const usage: StoredUsage = { total: none(), models: new Map(), days: new Map(), runs: 0 };
  const runs = new Set<string>();
  const days = new Map<string, TokenSum>();
  for (const event of events) {
    if (event.partial) continue;
    if (event.invocationId !== "") runs.add(event.invocationId);
    if (!event.usageMetadata) continue;
    const day = dateOf(new Date(event.timestamp * 1000));
    const model = event.modelVersion ?? "unknown";
    for (const [map, key] of [[usage.models, model], [days, day]] as const) {
      const sum = map.get(key) ?? none();
      add(sum, event.usageMetadata);
      map.set(key, sum);
    }
    add(usage.total, event.usageMetadata);
  }
  const today = new Date(now * 1000);
  for (let index = MAX_DAYS - 1; index >= 0; index -= 1) {
    // Calendar days, as days with a clock change have 23 or 25 hours. Noon exists on every day.
    const day = dateOf(new Date(today.getFullYear(), today.getMonth(), today.getDate() - index, 12));
    const sum = days.get(day);
    if (sum || usage.days.size > 0) usage.days.set(day, sum ?? none());
  }
  usage.runs = runs.size;
  return usage;
}
