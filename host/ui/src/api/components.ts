// Revisions of components, and calls of their tools.

import { getJson, path, sendJson, HostError } from "./http";
import type { Json, JsonObject, TraceSpan } from "./types";

export interface ItemChange {
  kind: string;
  name: string;
  keys?: string[];
  /** `undefined` if it was added. */
  from?: Json;
  /** `undefined` if it was removed. */
  to?: Json;
}

export interface RevisionSummary {
  sha256: string;
  size: number;
  contract?: string;
}

export interface Comparison {
  from: RevisionSummary;
  to: RevisionSummary;
  changes: ItemChange[];
}

export function compareRevisions(component: string, from: string, to: string): Promise<Comparison> {
  return getJson<Comparison>(`components/${path(component)}/compare?${new URLSearchParams({ from, to })}`);
}

export interface ToolCall {
  result?: Json;
  error?: { code: string; message: string };
  stateDelta: JsonObject;
  artifacts: string[];
  spans: TraceSpan[];
}

/** Calls a tool in a session of its own. */
export async function callTool(component: string, tool: string, args: JsonObject, state: JsonObject): Promise<ToolCall> {
  const call = await sendJson<ToolCall>("POST", `components/${path(component)}/tools/${path(tool)}/call`, { args, state });
  if (!call) throw new HostError(200, "ERROR", "The host has not returned the result.");
  return call;
}
