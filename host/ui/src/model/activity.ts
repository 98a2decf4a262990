// Which agents and tools of an app are active in a run, and which were before, from its events so far.

import type { App, SessionEvent } from "../api/types";
import { CONFIRMATION } from "./conversation";
import { CREDENTIAL } from "./credential";

export interface Activity {
  /** By name. */
  agents: Set<string>;
  /** By agent and name, as `toolKey` joins them. */
  tools: Set<string>;
}

export interface RunActivity {
  active: Activity;
  past: Activity;
}

export const toolKey = (agent: string, tool: string) => `${agent}\n${tool}`;

const none = (): Activity => ({ agents: new Set(), tools: new Set() });

/** Returns the last message of a person, and the events since then. */
export function eventsOfLastTurn(events: readonly SessionEvent[]): readonly SessionEvent[] {
  const start = events.findLastIndex(({ author, content }) => author === "user" && content?.parts?.some((part) => !part.functionResponse));
  return events.slice(Math.max(0, start));
}

/** Returns the active agents and tools after the events of a run. If the run has ended, there are none. */
export function activityOf(app: App, events: readonly SessionEvent[], isRunning: boolean): RunActivity {
  const known = new Set(app.agents.map(({ name }) => name));
  const past = none();
  const open = new Map<string, { agent: string; tool: string }>();
  // The agent that acted last in each parallel branch.
  const current = new Map<string, string>([["", app.rootAgentName]]);
  for (const event of events) {
    if (!known.has(event.author)) continue;
    past.agents.add(event.author);
    const branch = event.branch ?? "";
    if (branch !== "") current.delete("");
    current.set(branch, event.actions?.transferToAgent ?? event.author);
    for (const { functionCall, functionResponse } of event.content?.parts ?? []) {
      if (functionCall?.id && ![CONFIRMATION, CREDENTIAL].includes(functionCall.name)) {
        open.set(functionCall.id, { agent: event.author, tool: functionCall.name });
        past.tools.add(toolKey(event.author, functionCall.name));
      }
      if (functionResponse?.id) open.delete(functionResponse.id);
    }
    const isFinal = !event.partial && (event.content?.parts ?? []).every(({ functionCall, functionResponse }) => !functionCall && !functionResponse);
    // A parallel branch that has answered is done.
    if (branch !== "" && isFinal) current.delete(branch);
  }
  const active = none();
  if (isRunning) {
    for (const { agent, tool } of open.values()) {
      active.tools.add(toolKey(agent, tool));
      active.agents.add(agent);
    }
    if (open.size === 0) for (const agent of current.values()) active.agents.add(agent);
  }
  return { active, past };
}

/** Returns a description of the active agents and tools for screen readers. */
export function describeActivity({ agents, tools }: Activity): string {
  const names = [...tools].map((key) => key.split("\n")[1] ?? key);
  const list = names.length > 0 ? names : [...agents];
  return list.length === 0 ? "" : `Active now: ${list.join(", ")}`;
}
