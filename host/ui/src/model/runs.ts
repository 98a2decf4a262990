// The runs of a session and their time by activity, derived from the times of events.

import type { SessionEvent, StoredRun } from "../api/types";
import { messageText } from "./conversation";

export type SpanKind = "model" | "tool" | "agent" | "person" | "host";

/** The time between two events. Times are seconds since the run began. */
export interface Span {
  key: string;
  kind: SpanKind;
  name: string;
  agent: string;
  start: number;
  end: number;
  event: SessionEvent;
}

export const RUN_STATES = ["running", "interrupted", "ended", "waiting", "failed"] as const;

export type RunState = (typeof RUN_STATES)[number];

/** The state of a run by its stored state. That of any other run follows from its events. */
const UNFINISHED: { [state in StoredRun["state"]]?: RunState } = { accepted: "running", running: "running", interrupted: "interrupted" };

export interface Run {
  id: string;
  message: string;
  events: SessionEvent[];
  start: number;
  end: number;
  tokens: number;
  modelCalls: number;
  toolCalls: number;
  state: RunState;
  error?: string;
}

/** Returns the runs of a session. `stored` are those that the host knows. */
export function buildRuns(events: readonly SessionEvent[], stored: readonly Pick<StoredRun, "id" | "state">[] = []): Run[] {
  const unfinished = new Map(stored.map(({ id, state }) => [id, UNFINISHED[state]]));
  const groups = new Map<string, SessionEvent[]>();
  for (const event of events) {
    // State changes by a client are not runs.
    if (event.partial || event.invocationId === "" || event.invocationId.startsWith("p-")) continue;
    const group = groups.get(event.invocationId);
    if (group) group.push(event);
    else groups.set(event.invocationId, [event]);
  }
  return [...groups].map(([id, events]) => {
    const run = buildRun(id, events);
    return { ...run, state: unfinished.get(id) ?? run.state };
  });
}

function buildRun(id: string, events: SessionEvent[]): Run {
  const calls = events.flatMap((event) => (event.content?.parts ?? []).flatMap((part) => part.functionCall ?? []));
  const answered = new Set(
    events.flatMap((event) => (event.content?.parts ?? []).flatMap((part) => part.functionResponse?.id ?? [])),
  );
  const waiting = events.some((event) => event.longRunningToolIds?.some((id) => !answered.has(id)));
  const failed = events.findLast((event) => event.errorCode !== undefined);
  const message = events.find((event) => event.author === "user");
  return {
    id,
    events,
    message: message ? messageText(message) : "",
    start: events[0]?.timestamp ?? 0,
    end: events.at(-1)?.timestamp ?? 0,
    tokens: events.reduce((sum, event) => sum + (event.usageMetadata?.totalTokenCount ?? 0), 0),
    modelCalls: events.filter((event) => event.usageMetadata !== undefined).length,
    toolCalls: calls.filter((call) => !call.name.startsWith("adk_request_")).length,
    state: failed ? "failed" : waiting ? "waiting" : "ended",
    error: failed ? (failed.errorMessage ?? failed.errorCode) : undefined,
  };
}

function isAnswered(event: SessionEvent): boolean {
  return (event.content?.parts ?? []).some((part) => part.functionResponse);
}

/**
 * Returns whether branches belong to different agents below one parallel agent. A branch is a list of pairs, each of them
 * a parallel agent and one of the agents below it.
 */
export function areParallel(one: string, other: string): boolean {
  const [path, otherPath] = [one.split("."), other.split(".")];
  const index = path.findIndex((name, index) => name !== otherPath[index]);
  return index % 2 === 1 && index < otherPath.length;
}

/** Returns the span that each event of a run ended: a model call, tool calls, an agent's step or the wait for a person. */
export function buildSpans(run: Run): Span[] {
  const spans: Span[] = [];
  const lastOf = new Map<string, number>();
  // Parallel agents do not wait for each other, so a step begins when the last step that is not parallel to it ended.
  const begin = (branch: string): number => {
    const before = [...lastOf].filter(([other]) => !areParallel(branch, other)).map(([, time]) => time);
    return before.length === 0 ? run.start : Math.max(...before);
  };
  for (const event of run.events) {
    const branch = event.branch ?? "";
    const start = begin(branch) - run.start;
    const end = event.timestamp - run.start;
    const common = { agent: event.author, start, end: Math.max(start, end), event };
    if (event.author === "user") {
      if (end > 0) spans.push({ ...common, key: event.id, kind: "person", name: "answer of a person" });
    } else if (isAnswered(event)) {
      for (const { functionResponse } of event.content?.parts ?? []) {
        if (!functionResponse) continue;
        const { id, name } = functionResponse;
        spans.push({ ...common, key: `${event.id}:${id ?? name}`, kind: "tool", name });
      }
    } else if (event.usageMetadata || event.modelVersion) {
      spans.push({ ...common, key: event.id, kind: "model", name: event.modelVersion ?? "model" });
    } else {
      spans.push({ ...common, key: event.id, kind: "agent", name: event.author });
    }
    lastOf.set(branch, event.timestamp);
  }
  return spans;
}

/** Returns the time in which at least one span of each kind was active. */
export function timeByKind(spans: readonly Span[]): Map<SpanKind, number> {
  const kinds = new Map<SpanKind, Span[]>();
  for (const span of spans) kinds.set(span.kind, [...(kinds.get(span.kind) ?? []), span]);
  return new Map([...kinds].map(([kind, spans]) => [kind, covered(spans)]));
}

function covered(spans: Span[]): number {
  let total = 0;
  let until = Number.NEGATIVE_INFINITY;
  for (const { start, end } of [...spans].sort((one, other) => one.start - other.start)) {
    total += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return total;
}

/** Returns the runs whose message, error or ids contain `text` and that are in `state`, if these are given. */
export function filterRuns<R extends Run & { session: string }>(runs: readonly R[], { state, text }: { state?: RunState; text?: string }): R[] {
  const query = text?.trim().toLowerCase() ?? "";
  return runs.filter((run) => {
    const searched = `${run.message}\n${run.error ?? ""}\n${run.session}\n${run.id}`;
    return (state === undefined || run.state === state) && searched.toLowerCase().includes(query);
  });
}
