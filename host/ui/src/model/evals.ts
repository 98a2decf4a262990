// Eval sets, their cases and the results of evaluations.

import type { EvalCaseResult, EvalInvocation, EvalSet, EvalSetResult, EvalStatus, MetricResult, Part } from "../api/types";

/** A case in the list of its set. */
export interface CaseSummary {
  id: string;
  message: string;
  turns: number;
}

export function textOfParts(parts: readonly Part[] | undefined): string {
  return (parts ?? []).map((part) => part.text ?? "").join("");
}

export function summarizeCases(set: EvalSet): CaseSummary[] {
  return set.eval_cases.map(({ eval_id: id, conversation }) => ({
    id,
    message: textOfParts(conversation[0]?.user_content.parts),
    turns: conversation.length,
  }));
}

export const STATUS: { [status in EvalStatus]: { label: string; tone: "ok" | "bad" | "warn" } } = {
  1: { label: "passed", tone: "ok" },
  2: { label: "failed", tone: "bad" },
  3: { label: "not evaluated", tone: "warn" },
};

export interface CaseRow {
  id: string;
  /** The worst of its runs. */
  status: EvalStatus;
  runs: EvalCaseResult[];
  /** The mean of its runs by metric; without the runs that have no score. */
  scores: Map<string, { score?: number; passed: boolean }>;
}

/** Returns a row for each case of a result, with all its runs. */
export function caseRows(result: EvalSetResult): CaseRow[] {
  const rows = new Map<string, CaseRow>();
  for (const run of result.evalCaseResults) {
    const row: CaseRow = rows.get(run.evalId) ?? { id: run.evalId, status: run.finalEvalStatus, runs: [], scores: new Map() };
    row.runs.push(run);
    if (run.finalEvalStatus === 2 || (run.finalEvalStatus === 3 && row.status === 1)) row.status = run.finalEvalStatus;
    rows.set(run.evalId, row);
  }
  for (const row of rows.values()) {
    const metrics = new Map<string, MetricResult[]>();
    for (const metric of row.runs.flatMap((run) => run.overallEvalMetricResults)) {
      metrics.set(metric.metricName, [...(metrics.get(metric.metricName) ?? []), metric]);
    }
    for (const [name, results] of metrics) {
      const scores = results.flatMap(({ score }) => score ?? []);
      const score = scores.length === 0 ? undefined : scores.reduce((sum, score) => sum + score, 0) / scores.length;
      row.scores.set(name, { score, passed: results.every(({ evalStatus }) => evalStatus !== 2) });
    }
  }
  return [...rows.values()];
}

/** The number of characters of an app's name that the host puts into the ids of results. */
const MAX_APP_NAME = 80;

/**
 * Returns the ids of results of a set: `{app}_{set}_{seconds}`. The host shortens the names of apps, and replaces other
 * characters by `_`.
 */
export function resultIdsOf(ids: readonly string[], app: string, set: string): string[] {
  const prefix = `${[...app].slice(0, MAX_APP_NAME).join("")}_${set}_`.replace(/[^A-Za-z0-9_.-]/gu, "_");
  // The name of another set can begin with the same characters, so only a number may follow.
  return ids.filter((id) => id.startsWith(prefix) && /^\d+(\.\d+)?$/.test(id.slice(prefix.length)));
}

/** Returns the metrics of a result with their thresholds. */
export function metricsOf(result: EvalSetResult): { name: string; threshold: number }[] {
  const metrics = new Map<string, number>();
  for (const { metricName, threshold } of result.evalCaseResults.flatMap((run) => run.overallEvalMetricResults)) {
    metrics.set(metricName, threshold);
  }
  return [...metrics].map(([name, threshold]) => ({ name, threshold }));
}

/** Returns how many of the cases have passed. */
export function countPassed(result: EvalSetResult): { passed: number; total: number } {
  const rows = caseRows(result);
  return { passed: rows.filter(({ status }) => status === 1).length, total: rows.length };
}

export interface Word {
  text: string;
  isSame: boolean;
}

/** Longer texts are not compared word by word. */
const MAX_WORDS = 400;

/** Marks the words of both texts that are not part of their longest common subsequence. */
export function compareWords(expected: string, actual: string): { expected: Word[]; actual: Word[] } {
  const split = (text: string) => text.match(/\s+|[^\s]+/g) ?? [];
  const [one, other] = [split(expected), split(actual)];
  if (one.length > MAX_WORDS || other.length > MAX_WORDS) {
    const isSame = expected === actual;
    return { expected: [{ text: expected, isSame }], actual: [{ text: actual, isSame }] };
  }
  // The lengths of the longest common subsequences of the suffixes.
  const lengths = Array.from({ length: one.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      lengths[i]![j] = one[i] === other[j] ? lengths[i + 1]![j + 1]! + 1 : Math.max(lengths[i + 1]![j]!, lengths[i]![j + 1]!);
    }
  }
  const result = { expected: [] as Word[], actual: [] as Word[] };
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      result.expected.push({ text: one[i++]!, isSame: true });
      result.actual.push({ text: other[j++]!, isSame: true });
    } else if (j >= other.length || (i < one.length && lengths[i + 1]![j]! >= lengths[i]![j + 1]!)) {
      result.expected.push({ text: one[i++]!, isSame: false });
    } else result.actual.push({ text: other[j++]!, isSame: false });
  }
  return result;
}

/** Returns the tool calls of a turn, one line each. */
export function callLines(invocation: EvalInvocation | undefined): string[] {
  return (invocation?.intermediateData?.toolUses ?? []).map(({ name, args }) => `${name}(${JSON.stringify(args ?? {})})`);
}
