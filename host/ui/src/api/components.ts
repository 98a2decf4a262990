// Revisions of components, and calls of their tools.

import { getJson, path, sendJson, HostError } from "./http";
import type { Comparison, JsonObject, ToolCall } from "./types";

export function compareRevisions(component: string, from: string, to: string): Promise<Comparison> {
  return getJson<Comparison>(`components/${path(component)}/compare?${new URLSearchParams({ from, to })}`);
}

/** Calls a tool in a new session. */
export async function callTool(component: string, tool: string, args: JsonObject, state: JsonObject): Promise<ToolCall> {
  const call = await sendJson<ToolCall>("POST", `components/${path(component)}/tools/${path(tool)}/call`, { args, state });
  if (!call) throw new HostError(200, "ERROR", "The host has not returned the result.");
  return call;
}
