import { expect, test } from "vitest";
import type { App, Part, SessionEvent } from "../src/api/types";
import { activityOf, describeActivity, eventsOfLastTurn, toolKey } from "../src/model/activity";
import { noActions } from "./events";

const agent = (name: string, subAgents: string[] = []) => ({ name, description: "", kind: "llm", subAgents, tools: ["look"] });
const app: App = { name: "trip", rootAgentName: "trip", description: "", isComputerUse: false, agents: [agent("trip", ["hotel", "flight"]), agent("hotel"), agent("flight")] };

function event(author: string, part: Part, more: Partial<SessionEvent> = {}): SessionEvent {
  const actions = { ...noActions, ...more.actions };
  return { id: "", invocationId: "r", author, timestamp: 0, content: { parts: [part] }, ...more, actions };
}
const message = event("user", { text: "Plan" });
const call = (author: string, id: string, more = {}) => event(author, { functionCall: { id, name: "look", args: {} } }, more);
const answer = (author: string, id: string, more = {}) => event(author, { functionResponse: { id, name: "look", response: {} } }, more);
const names = (events: SessionEvent[], isRunning = true) => {
  const { active } = activityOf(app, events, isRunning);
  return [[...active.agents], [...active.tools]];
};

test("the root is active until another agent acts or the run is transferred to one", () => {
  expect(names([message])).toEqual([["trip"], []]);
  expect(names([message, event("trip", { text: "" }, { actions: { ...noActions, transferToAgent: "hotel" } })])).toEqual([["hotel"], []]);
});

test("a tool is active from its call to its answer", () => {
  expect(names([message, call("trip", "1")])).toEqual([["trip"], [toolKey("trip", "look")]]);
  expect(names([message, call("trip", "1"), answer("trip", "1")])).toEqual([["trip"], []]);
});

test("parallel branches are active at once, until they have answered", () => {
  const branch = (name: string) => ({ branch: `trip.${name}` });
  const begun = [message, event("hotel", { text: "I" }, { ...branch("hotel"), partial: true }), event("flight", { text: "I" }, { ...branch("flight"), partial: true })];
  expect(names(begun)).toEqual([["hotel", "flight"], []]);
  expect(names([...begun, event("hotel", { text: "I am done" }, branch("hotel"))])).toEqual([["flight"], []]);
});

test("a turn begins with a message, not with the answer to a call", () => {
  const second = event("user", { text: "And back" });
  const consent = event("user", { functionResponse: { id: "c", name: "adk_request_confirmation", response: { confirmed: true } } });
  const events = [message, call("trip", "1"), second, call("trip", "2"), consent];
  expect(eventsOfLastTurn(events)).toEqual(events.slice(2));
  expect(eventsOfLastTurn([])).toEqual([]);
});

test("nothing is active in a run that has ended, and its agents and tools count as past", () => {
  const events = [message, call("trip", "1"), answer("trip", "1")];
  expect(names(events, false)).toEqual([[], []]);
  const { past } = activityOf(app, events, false);
  expect([[...past.agents], [...past.tools]]).toEqual([["trip"], [toolKey("trip", "look")]]);
  expect(describeActivity(past)).toBe("Active now: look");
  expect(describeActivity({ agents: new Set(), tools: new Set() })).toBe("");
});
