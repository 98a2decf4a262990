// The rows of a waterfall, from a trace or from the events of a run.

import { formatBytes, formatDuration, plural } from "./format";
import type { Span } from "./runs";
import { numberOf, type RunTrace, textOf, type TraceNode } from "./trace";

export interface Step {
  key: string;
  /** The class of its colour, and the name of its kind. */
  kind: string;
  name: string;
  note: string;
  depth: number;
  /** Seconds since the run began. */
  start: number;
  end: number;
  failed: boolean;
}

function noteOf({ kind, attributes, agent, error }: TraceNode): string {
  const delay = attributes["hatchery.model.retry_delay"];
  if (error && typeof delay === "number") return `${error.code}, again after ${formatDuration(delay)}`;
  if (error) return error.code;
  switch (kind) {
    case "model": {
      const tokens = numberOf(attributes, "gen_ai.usage.input_tokens") + numberOf(attributes, "gen_ai.usage.output_tokens");
      return tokens > 0 ? plural(tokens, "token") : "";
    }
    case "attempt":
    case "network": {
      const status = numberOf(attributes, "http.response.status_code");
      return status > 0 ? `HTTP ${status}` : "";
    }
    case "tool": {
      const result = textOf(attributes, "gen_ai.tool.call.result");
      return result ? formatBytes(new TextEncoder().encode(result).length) : agent;
    }
    case "guest":
      return "component";
    case "agent":
    case "run":
      return kind;
  }
}

export function stepsOfTrace(trace: RunTrace): Step[] {
  return trace.nodes.map((node) => ({
    key: node.id,
    kind: node.kind,
    name: node.kind === "run" ? "run" : node.name,
    note: noteOf(node),
    depth: node.depth,
    start: node.start,
    end: node.end,
    failed: node.error !== undefined,
  }));
}

export function stepsOfEvents(spans: readonly Span[]): Step[] {
  return spans.map((span) => ({
    key: span.key,
    kind: span.kind,
    name: span.name,
    note: span.kind === "person" ? "" : span.agent,
    depth: 0,
    start: span.start,
    end: span.end,
    failed: span.event.errorCode !== undefined,
  }));
}
