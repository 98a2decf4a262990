// The comparison of two runs: their steps, aligned where they are equal.

import type { Json, SessionEvent } from "../api/types";
import { visibleDelta } from "./conversation";
import type { Run } from "./runs";

export interface RunStep {
  /** Steps with equal keys are aligned. */
  identity: string;
  kind: "message" | "text" | "call" | "result" | "state" | "error";
  author: string;
  title: string;
  /** The content that is compared. */
  content: string;
  eventId: string;
}

/** A row of the comparison: a step of one run, of the other, or of both. */
export interface StepPair {
  one?: RunStep;
  other?: RunStep;
  isEqual: boolean;
}

const format = (value: Json | undefined) => (typeof value === "string" ? value : JSON.stringify(value ?? null, null, 2));

function stepsOfEvent(event: SessionEvent): RunStep[] {
  const { author, id: eventId } = event;
  const step = (kind: RunStep["kind"], title: string, content: string): RunStep => ({
    identity: `${kind} ${author} ${title}`,
    kind,
    author,
    title,
    content,
    eventId,
  });
  const parts = (event.content?.parts ?? []).flatMap((part) => {
    if (part.text) return step(author === "user" ? "message" : "text", part.thought ? "thought" : "", part.text);
    if (part.functionCall) return step("call", part.functionCall.name, format(part.functionCall.args ?? {}));
    if (part.functionResponse) return step("result", part.functionResponse.name, format(part.functionResponse.response));
    return [];
  });
  const delta = Object.entries(visibleDelta(event)).map(([key, value]) => step("state", key, format(value)));
  const error = event.errorCode ? [step("error", event.errorCode, event.errorMessage ?? "")] : [];
  return [...parts, ...delta, ...error];
}

export function stepsOfRun(run: Run): RunStep[] {
  return run.events.flatMap(stepsOfEvent);
}

/** Aligns the steps of two runs by their longest common subsequence. */
export function alignSteps(one: readonly RunStep[], other: readonly RunStep[]): StepPair[] {
  // `lengths[i][j]` is the length of the subsequence of the steps from `i` and from `j` on.
  const lengths = Array.from({ length: one.length + 1 }, () => new Array<number>(other.length + 1).fill(0));
  const at = (i: number, j: number) => lengths[i]?.[j] ?? 0;
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      const row = lengths[i];
      if (row) row[j] = one[i]?.identity === other[j]?.identity ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const pairs: StepPair[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    const [left, right] = [one[i], other[j]];
    if (left && right && left.identity === right.identity) {
      pairs.push({ one: left, other: right, isEqual: left.content === right.content });
      [i, j] = [i + 1, j + 1];
    } else if (left && (!right || at(i + 1, j) >= at(i, j + 1))) {
      pairs.push({ one: left, isEqual: false });
      i += 1;
    } else {
      pairs.push({ other: right, isEqual: false });
      j += 1;
    }
  }
  return pairs;
}
