import { describe, expect, it } from "vitest";
import type { JsonObject, Part, SessionEvent } from "../src/api/types";
import {
  buildTurns,
  confirmationAnswer,
  isReported,
  openConfirmations,
  sessionTitle,
  titledState,
  toolError,
} from "../src/model/conversation";
import { noActions } from "./events";

let time = 0;

function event(author: string, parts: Part[], more: Partial<SessionEvent> = {}): SessionEvent {
  time += 1;
  return { id: `event-${time}`, invocationId: "e-1", author, timestamp: time, content: { parts }, actions: noActions, ...more };
}

const ask = (text: string) => event("user", [{ text }]);
const call = (id: string, name = "roll_die") => ({ functionCall: { id, name, args: { sides: 6 } } });
const response = (id: string, result: number) => ({ functionResponse: { id, name: "roll_die", response: { result } } });

function consent(id: string, toolConfirmation = { hint: "50 euros", confirmed: false }): SessionEvent {
  const args = { originalFunctionCall: { id: "c1", name: "send_money", args: { euros: 50 } }, toolConfirmation };
  return event("payments", [{ functionCall: { id, name: "adk_request_confirmation", args } }], { longRunningToolIds: [id] });
}

const decide = (id: string, confirmed: boolean) =>
  event("user", [{ functionResponse: { id, name: "adk_request_confirmation", response: { confirmed } } }]);

describe("a conversation", () => {
  it("is a turn for each message", () => {
    const turns = buildTurns([ask("one"), event("dice", [{ text: "1" }]), ask("two"), event("dice", [{ text: "2" }])]);
    expect(turns.map((turn) => turn.items.map((item) => item.kind))).toEqual([["text"], ["text"]]);
  });

  it("joins calls with their responses, also of parallel calls", () => {
    const events = [ask("two dice"), event("dice", [call("a"), call("b")]), event("dice", [response("b", 2), response("a", 5)])];
    const tools = buildTurns(events)[0]?.items.map((item) => item.kind === "tool" && [item.call.id, item.response]);
    expect(tools).toEqual([
      ["a", { result: 5 }],
      ["b", { result: 2 }],
    ]);
  });

  it("shows the newest progress of a call", () => {
    const report = (id: string, progress: JsonObject) =>
      event("dice", [], { partial: true, customMetadata: { tool_progress: { name: "roll_die", id, ...progress } } });
    const reports = [report("a", { progress: 1, total: 4, message: "one" }), report("a", { progress: 3, total: 4 }), report("lost", { progress: 1 })];
    const tools = buildTurns([ask("two dice"), event("dice", [call("a"), call("b")]), ...reports])[0]?.items;
    expect(tools?.map((item) => item.kind === "tool" && item.progress)).toEqual([{ call: "a", amount: 3, total: 4, message: "" }, undefined]);
  });

  it("shows a response without its call", () => {
    const item = buildTurns([ask("x"), event("dice", [response("lost", 3)])])[0]?.items[0];
    expect(item).toMatchObject({ kind: "tool", call: { name: "roll_die" }, response: { result: 3 } });
  });

  it("adds up tokens of final events only", () => {
    const usageMetadata = { totalTokenCount: 7 };
    const partial = event("dice", [{ text: "a" }], { usageMetadata, partial: true });
    expect(buildTurns([ask("x"), partial, event("dice", [{ text: "a" }], { usageMetadata })])[0]?.tokens).toBe(7);
  });

  it("shows state, artifacts, transfers and errors of an event", () => {
    const actions = { stateDelta: { n: 1, __session_metadata__: {} }, artifactDelta: { "a.txt": 0 }, transferToAgent: "other" };
    const items = buildTurns([event("dice", [], { actions, errorCode: "DENIED", errorMessage: "no" })])[0]?.items;
    expect(items?.map((item) => item.kind)).toEqual(["transfer", "artifact", "state", "error"]);
    expect(items?.find((item) => item.kind === "state")).toMatchObject({ delta: { n: 1 } });
  });

  it("shows a cancelled run without an error", () => {
    const cancelled = event("dice", [], { errorCode: "CANCELLED", errorMessage: "the run was cancelled" });
    expect(buildTurns([ask("x"), cancelled])[0]?.items.map((item) => item.kind)).toEqual(["cancelled"]);
  });

  it("does not show answers of people to calls as messages", () => {
    expect(buildTurns([ask("pay"), consent("f1"), decide("f1", true)])).toHaveLength(1);
  });
});

describe("a confirmation", () => {
  it("is open until a person decides", () => {
    const events = [ask("pay"), consent("f1")];
    const [open] = openConfirmations(buildTurns(events));
    expect(open).toMatchObject({ hint: "50 euros", original: { name: "send_money", args: { euros: 50 } } });
    expect(openConfirmations(buildTurns([...events, decide("f1", true)]))).toEqual([]);
  });

  it("shows the decision", () => {
    const decision = (confirmed: boolean) => {
      const item = buildTurns([ask("pay"), consent("f1"), decide("f1", confirmed)])[0]?.items[0];
      return item?.kind === "confirmation" && item.decision;
    };
    expect([decision(true), decision(false)]).toEqual(["agreed", "denied"]);
  });

  it("is not a failure of the call that asked for it", () => {
    const asked = event("payments", [{ functionCall: { id: "c1", name: "send_money" } }]);
    const answer = (response: JsonObject) => event("payments", [{ functionResponse: { id: "c1", name: "send_money", response } }]);
    const events = [ask("pay"), asked, consent("f1"), answer({ error: "needs consent" })];
    expect(buildTurns(events)[0]?.items[0]).toMatchObject({ asksFor: "consent" });
    const decided = [...events, decide("f1", true), answer({ result: 50 })];
    expect(buildTurns(decided)[0]?.items[0]).toMatchObject({ asksFor: undefined, response: { result: 50 } });
  });

  it("is superseded by another message", () => {
    expect(openConfirmations(buildTurns([ask("pay"), consent("f1"), ask("never mind")]))).toEqual([]);
  });

  it("is answered with the id of its call, and the payload if there is one", () => {
    const [open] = openConfirmations(buildTurns([ask("pay"), consent("f1")]));
    if (!open) throw new Error("no confirmation");
    const name = "adk_request_confirmation";
    expect(confirmationAnswer(open, false)).toEqual([{ functionResponse: { id: "f1", name, response: { confirmed: false } } }]);
    const response = { confirmed: true, payload: { days: 2 } };
    expect(confirmationAnswer(open, true, { days: 2 })).toEqual([{ functionResponse: { id: "f1", name, response } }]);
  });

  it("has no hint if its author has written none", () => {
    const hint =
      "Please approve or reject the tool call send_money() by responding with a FunctionResponse with an expected ToolConfirmation payload.";
    expect(openConfirmations(buildTurns([ask("pay"), consent("f1", { hint, confirmed: false })]))[0]?.hint).toBe("");
  });

  it("survives arguments of any shape", () => {
    const strange = event("x", [{ functionCall: { id: "f", name: "adk_request_confirmation", args: { originalFunctionCall: [1] } } }]);
    expect(openConfirmations(buildTurns([strange]))[0]?.original.name).toBe("?");
  });
});

describe("the failure of a run", () => {
  it("is reported if the last event has it", () => {
    const failure = { code: "MODEL_AUTH", message: "no access" };
    const failed = event("dice", [], { errorCode: failure.code, errorMessage: failure.message });
    const turns = (events: SessionEvent[]) => buildTurns([ask("x"), ...events]).at(-1);
    expect(isReported(turns([failed]), failure)).toBe(true);
    expect(isReported(turns([failed]), { ...failure, message: "another" })).toBe(false);
    expect(isReported(turns([failed, event("dice", [{ text: "1" }])]), failure)).toBe(false);
    expect(isReported(undefined, failure)).toBe(false);
  });
});

describe("small readings", () => {
  it("finds the error of a tool", () => {
    expect(toolError({ error: "no oven" })).toBe("no oven");
    expect(toolError({ error: { code: 1 } })).toBe('{"code":1}');
    expect([toolError({ result: 1 }), toolError(null), toolError("error"), toolError({ error: null })]).toEqual(Array(4).fill(undefined));
  });

  it("titles a new session by its first message", () => {
    expect(sessionTitle(titledState(" Roll\n two dice "), "s1")).toBe("Roll two dice");
    expect(sessionTitle(titledState("x".repeat(60)), "s1")).toBe(`${"x".repeat(47)}...`);
    expect(titledState(" ")).toEqual({});
  });

  it("prefers the title of a session to its id", () => {
    expect(sessionTitle({ __session_metadata__: { displayName: "Refund" } }, "s1")).toBe("Refund");
    expect(sessionTitle({ __session_metadata__: 7 }, "s1")).toBe("s1");
  });
});
