// The trace of a run: its spans as a tree, and its time by activity.

import type { JsonObject, TraceLog, TraceSpan } from "../api/types";

export type SpanKind = "run" | "agent" | "model" | "attempt" | "tool" | "guest" | "network";

/** The activities of a run. `host` is all other time: scheduling, storing events, converting values. */
export type Share = "queue" | "model" | "tool" | "guest" | "network" | "host";

/** If several are active at once, the first one counts: a tool waits for its component, not the other way. */
const PRECEDENCE = ["network", "model", "guest", "tool"] as const;

export interface TraceNode {
  id: string;
  kind: SpanKind;
  name: string;
  /** The agent that it belongs to. */
  agent: string;
  depth: number;
  /** Seconds of activity since the run began. */
  start: number;
  end: number;
  error?: { code: string; message: string };
  /** The event that a model call produced. */
  eventId?: string;
  attributes: JsonObject;
  /** The log entries of the component. */
  logs: readonly TraceLog[];
}

/** A period of activity: a resumed run has several. */
export interface Attempt {
  /** Seconds since 1970. */
  start: number;
  /** Seconds of earlier activity. */
  offset: number;
  duration: number;
}

/** A time as the host has measured it: calls at the same time are added up. */
export interface MeasuredTime {
  name: string;
  seconds: number;
}

export interface RunTrace {
  /** In depth-first order: each node is followed by its descendants. */
  nodes: TraceNode[];
  attempts: Attempt[];
  /** Seconds of activity. */
  total: number;
  /** The parts of `total`. They add up to it. */
  shares: Map<Share, number>;
  measured: MeasuredTime[];
  inputTokens: number;
  outputTokens: number;
}

const MEASURED = ["queue", "model", "tool", "guest", "guest_cpu", "store"];
const NANOSECONDS = 1e9;

function kindOf(span: TraceSpan): SpanKind | undefined {
  const { attributes } = span;
  switch (attributes["gen_ai.operation.name"]) {
    case "invoke_workflow":
      return "run";
    case "invoke_agent":
      return "agent";
    case "execute_tool":
      return "tool";
    case "chat":
    case "generate_content":
      return "model";
  }
  if (attributes["hatchery.model.attempt"] !== undefined) return "attempt";
  if (attributes["hatchery.component"] !== undefined) return "guest";
  return attributes["http.request.method"] === undefined ? undefined : "network";
}

const NAME_KEYS: { [kind in SpanKind]?: string } = {
  run: "gen_ai.workflow.name",
  agent: "gen_ai.agent.name",
  model: "gen_ai.request.model",
  tool: "gen_ai.tool.name",
  guest: "hatchery.component",
};

export function textOf(attributes: JsonObject, key: string): string | undefined {
  const value = attributes[key];
  return typeof value === "string" && value !== "" ? value : undefined;
}

function attemptName(attributes: JsonObject): string {
  return `attempt ${numberOf(attributes, "hatchery.model.attempt")} ${textOf(attributes, "gen_ai.request.model") ?? ""}`.trim();
}

export function numberOf(attributes: JsonObject, key: string): number {
  const value = attributes[key];
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

function errorOf(attributes: JsonObject): TraceNode["error"] {
  const code = textOf(attributes, "error.type");
  return code === undefined ? undefined : { code, message: textOf(attributes, "error.message") ?? code };
}

interface Interval {
  kind: SpanKind | "queue";
  start: number;
  end: number;
}

/** Returns the trace of a run, or `undefined` if none of the spans belongs to it. */
export function buildTrace(spans: readonly TraceSpan[], run: string): RunTrace | undefined {
  const own = spans.filter((span) => span.attributes["gcp.vertex.agent.invocation_id"] === run);
  const first = own[0];
  if (!first) return undefined;
  const origin = own.reduce((time, span) => Math.min(time, span.start_time), first.start_time);
  const seconds = (time: number) => (time - origin) / NANOSECONDS;
  const attempts = findAttempts(own, seconds, origin);
  const active = (time: number) => {
    const attempt = attempts.findLast(({ start }) => start - origin / NANOSECONDS <= time + 1e-9) ?? attempts[0];
    return attempt === undefined ? time : attempt.offset + (time - (attempt.start - origin / NANOSECONDS));
  };
  const nodes = orderNodes(withoutSoleAttempts(own), (time) => active(seconds(time)));
  const roots = own.filter((span) => kindOf(span) === "run");
  const measured = MEASURED.map((name) => {
    const sum = roots.reduce((sum, span) => sum + numberOf(span.attributes, `hatchery.time.${name}_ns`), 0);
    return { name, seconds: sum / NANOSECONDS };
  });
  const queues = roots.map((span): Interval => {
    const start = active(seconds(span.start_time));
    return { kind: "queue", start, end: start + numberOf(span.attributes, "hatchery.time.queue_ns") / NANOSECONDS };
  });
  const total = attempts.reduce((sum, attempt) => sum + attempt.duration, 0);
  const tokens = (key: string) =>
    nodes.reduce((sum, node) => sum + (node.kind === "model" ? numberOf(node.attributes, key) : 0), 0);
  return {
    nodes,
    attempts,
    total,
    shares: divide([...nodes, ...queues], total),
    measured: measured.filter(({ seconds }) => seconds > 0),
    inputTokens: tokens("gen_ai.usage.input_tokens"),
    outputTokens: tokens("gen_ai.usage.output_tokens"),
  };
}

/** Returns the periods in which any span was active. Between them, the run waited for a person. */
function findAttempts(spans: readonly TraceSpan[], seconds: (time: number) => number, origin: number): Attempt[] {
  const attempts: Attempt[] = [];
  const sorted = [...spans].sort((one, other) => one.start_time - other.start_time);
  let until = Number.NEGATIVE_INFINITY;
  for (const span of sorted) {
    const [start, end] = [seconds(span.start_time), seconds(span.end_time)];
    const last = attempts.at(-1);
    if (!last || (kindOf(span) === "run" && start > until)) {
      const offset = last ? last.offset + last.duration : 0;
      attempts.push({ start: origin / NANOSECONDS + start, offset, duration: end - start });
      until = end;
    } else {
      last.duration += Math.max(0, end - until);
      until = Math.max(until, end);
    }
  }
  return attempts;
}

/** Returns the spans without the attempts of model calls that had only one: the call has the same data. */
function withoutSoleAttempts(spans: readonly TraceSpan[]): TraceSpan[] {
  const counts = new Map<string | undefined, number>();
  for (const span of spans) {
    if (kindOf(span) === "attempt") counts.set(span.parent_span_id, (counts.get(span.parent_span_id) ?? 0) + 1);
  }
  return spans.filter((span) => kindOf(span) !== "attempt" || counts.get(span.parent_span_id) !== 1);
}

function orderNodes(spans: readonly TraceSpan[], time: (nanoseconds: number) => number): TraceNode[] {
  const ids = new Set(spans.map((span) => span.span_id));
  const children = new Map<string, TraceSpan[]>();
  for (const span of spans) {
    // Active and dropped spans are missing: their children are roots.
    const parent = span.parent_span_id !== undefined && ids.has(span.parent_span_id) ? span.parent_span_id : "";
    children.set(parent, [...(children.get(parent) ?? []), span]);
  }
  const nodes: TraceNode[] = [];
  const visit = (parent: string, depth: number, agent: string) => {
    const below = children.get(parent) ?? [];
    children.delete(parent);
    for (const span of below.sort((one, other) => one.start_time - other.start_time)) {
      const kind = kindOf(span);
      const key = kind && NAME_KEYS[kind];
      const name = kind === "attempt" ? attemptName(span.attributes) : ((key && textOf(span.attributes, key)) ?? span.name);
      const owner = kind === "agent" ? name : agent;
      if (kind) {
        const { attributes } = span;
        nodes.push({
          id: span.span_id,
          kind,
          name,
          agent: owner,
          depth,
          start: time(span.start_time),
          end: Math.max(time(span.start_time), time(span.end_time)),
          error: errorOf(attributes),
          eventId: textOf(attributes, "gcp.vertex.agent.event_id"),
          attributes,
          logs: span.logs ?? [],
        });
      }
      visit(span.span_id, depth + 1, owner);
    }
  };
  visit("", 0, "");
  return nodes;
}

/** Divides the time among the activities. */
function divide(intervals: readonly Interval[], total: number): Map<Share, number> {
  const shares = new Map<Share, number>([["queue", 0], ["model", 0], ["tool", 0], ["guest", 0], ["network", 0], ["host", 0]]);
  const add = (share: Share, time: number) => shares.set(share, (shares.get(share) ?? 0) + time);
  const counted = intervals.filter(({ kind }) => kind === "queue" || PRECEDENCE.some((other) => other === kind));
  const marks = counted
    .flatMap(({ kind, start, end }) => [{ time: start, kind, step: 1 }, { time: end, kind, step: -1 }])
    .sort((one, other) => one.time - other.time);
  const open = new Map<string, number>();
  let before = 0;
  for (const { time, kind, step } of [...marks, { time: total, kind: "host", step: 0 }]) {
    const share: Share = PRECEDENCE.find((kind) => (open.get(kind) ?? 0) > 0) ?? ((open.get("queue") ?? 0) > 0 ? "queue" : "host");
    add(share, Math.max(0, Math.min(time, total) - before));
    before = Math.max(before, Math.min(time, total));
    open.set(kind, (open.get(kind) ?? 0) + step);
  }
  for (const [share, time] of shares) if (time <= 0) shares.delete(share);
  return shares;
}

export interface ModelCall {
  instruction?: string;
  tools: string[];
  contents: JsonObject[];
  /** Older contents that are not part of the trace. */
  omitted: number;
  /** The difference to the previous call of the same model by the same agent. */
  newContents?: number;
  hasNewInstruction: boolean;
}

function objects(value: unknown): JsonObject[] {
  const isObject = (item: unknown): item is JsonObject => typeof item === "object" && item !== null && !Array.isArray(item);
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function parseRequest(node: TraceNode): { instruction?: string; tools: string[]; contents: JsonObject[]; omitted: number } | undefined {
  let request: JsonObject;
  try {
    request = JSON.parse(textOf(node.attributes, "gcp.vertex.agent.llm_request") ?? "null") as JsonObject;
  } catch {
    return undefined;
  }
  if (typeof request !== "object" || request === null) return undefined;
  const config = objects([request.config])[0] ?? {};
  const declarations = objects(config.tools).flatMap((tool) => objects(tool.function_declarations));
  return {
    instruction: textOf(config, "system_instruction"),
    tools: declarations.flatMap((declaration) => textOf(declaration, "name") ?? []),
    contents: objects(request.contents),
    omitted: numberOf(request, "omittedContents"),
  };
}

/** Returns the request of a model call and its new parts, or `undefined` if it is not part of the trace. */
export function readModelCall(nodes: readonly TraceNode[], node: TraceNode): ModelCall | undefined {
  const request = parseRequest(node);
  if (!request) return undefined;
  const isEarlier = (other: TraceNode) => other.kind === "model" && other.agent === node.agent && other.name === node.name;
  const earlier = nodes.slice(0, nodes.indexOf(node)).findLast(isEarlier);
  const before = earlier && parseRequest(earlier);
  if (!before) return { ...request, hasNewInstruction: false };
  // Contents have the same index in both requests, even if older ones are left out of the trace.
  const contentAt = ({ contents, omitted }: typeof request, index: number) => JSON.stringify(contents[index - omitted]);
  const [end, endBefore] = [request, before].map(({ contents, omitted }) => omitted + contents.length) as [number, number];
  let shared = Math.max(request.omitted, before.omitted);
  while (shared < Math.min(end, endBefore) && contentAt(request, shared) === contentAt(before, shared)) shared += 1;
  return {
    ...request,
    newContents: end - Math.min(shared, end, endBefore),
    hasNewInstruction: request.instruction !== before.instruction,
  };
}
