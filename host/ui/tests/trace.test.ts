import { describe, expect, it } from "vitest";
import type { JsonObject, TraceSpan } from "../src/api/types";
import { stepsOfTrace } from "../src/model/steps";
import { buildTrace, readModelCall } from "../src/model/trace";

const BASE = 1_795_415_626_000_000_000;
const MS = 1_000_000;
const OPERATIONS: { [kind: string]: JsonObject } = {
  run: { "gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "dice" },
  agent: { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "dice" },
  model: { "gen_ai.operation.name": "generate_content", "gen_ai.request.model": "scripted" },
  tool: { "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll" },
  guest: { "hatchery.component": "dice" },
  network: { "http.request.method": "GET" },
  attempt: { "gen_ai.request.model": "gemini" },
};

function span(id: string, kind: string, start: number, end: number, parent?: string, attributes: JsonObject = {}): TraceSpan {
  return {
    name: kind,
    trace_id: "t",
    span_id: id,
    parent_span_id: parent,
    start_time: BASE + start * MS,
    end_time: BASE + end * MS,
    attributes: { "gcp.vertex.agent.invocation_id": "e-1", ...OPERATIONS[kind], ...attributes },
  };
}

describe("a trace", () => {
  const spans = [
    span("r", "run", 0, 100, undefined, { "hatchery.time.queue_ns": 10 * MS, "hatchery.time.store_ns": 5 * MS }),
    span("a", "agent", 10, 95, "r"),
    span("m", "model", 20, 50, "a", { "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2 }),
    // Two tools at the same time; one is a component that sends a request to another host.
    span("t", "tool", 50, 80, "a"),
    span("g", "guest", 55, 80, "t"),
    span("n", "network", 60, 70, "g", { "http.response.status_code": 503 }),
    span("u", "tool", 52, 90, "a", { "error.type": "TOOL_FAILED", "error.message": "no" }),
    span("x", "model", 0, 100, undefined, { "gcp.vertex.agent.invocation_id": "e-2" }),
  ];
  const trace = buildTrace(spans, "e-1")!;

  it("is a tree of the spans of one run", () => {
    expect(trace.nodes.map(({ id, depth }) => `${id}${depth}`)).toEqual(["r0", "a1", "m2", "t2", "g3", "n4", "u2"]);
    expect(buildTrace(spans, "e-3")).toBeUndefined();
  });

  it("divides its duration among the activities without overlap", () => {
    const ms = [...trace.shares].map(([share, time]) => [share, Math.round(time * 1000)]);
    expect(Object.fromEntries(ms)).toEqual({ queue: 10, model: 30, tool: 15, guest: 15, network: 10, host: 20 });
    expect([...trace.shares.values()].reduce((sum, time) => sum + time, 0)).toBeCloseTo(trace.total);
  });

  it("has the times that the host measured, and tokens", () => {
    expect(trace.measured.map(({ name, seconds }) => [name, Math.round(seconds * 1000)])).toEqual([["queue", 10], ["store", 5]]);
    expect([trace.inputTokens, trace.outputTokens]).toEqual([7, 2]);
  });

  it("has a row for each span, with its most important attribute", () => {
    const notes = stepsOfTrace(trace).map(({ name, note, failed }) => [name, note, failed]);
    expect(notes).toContainEqual(["scripted", "9 tokens", false]);
    expect(notes).toContainEqual(["network", "HTTP 503", false]);
    expect(notes).toContainEqual(["roll", "TOOL_FAILED", true]);
  });

  it("has the attempts of a model call if there were several", () => {
    const attempt = (number: number, start: number, end: number, parent: string, attributes: JsonObject = {}) =>
      span(`${parent}${number}`, "attempt", start, end, parent, { "hatchery.model.attempt": number, ...attributes });
    const failed = { "error.type": "MODEL_RATE_LIMITED", "error.message": "slow down", "hatchery.model.retry_delay": 0.5 };
    const retried = buildTrace(
      [
        span("a", "agent", 0, 100),
        span("m", "model", 0, 60, "a"),
        attempt(1, 0, 10, "m", { ...failed, "http.response.status_code": 429 }),
        attempt(2, 20, 40, "m", { "http.response.status_code": 200 }),
        span("o", "model", 60, 90, "a"),
        attempt(1, 60, 70, "o", { "http.response.status_code": 200 }),
      ],
      "e-1",
    )!;
    expect(stepsOfTrace(retried).map(({ name, note, depth, failed }) => [name, note, depth, failed])).toEqual([
      ["dice", "agent", 0, false],
      ["scripted", "", 1, false],
      ["attempt 1 gemini", "MODEL_RATE_LIMITED, again after 500 ms", 2, true],
      ["attempt 2 gemini", "HTTP 200", 2, false],
      ["scripted", "", 1, false],
    ]);
    // An attempt has the time of its call.
    expect(Math.round(retried.shares.get("model")! * 1000)).toBe(90);
  });

  it("leaves out the pause of a run that was continued", () => {
    const later = 3_600_000;
    const resumed = buildTrace([...spans, span("r2", "run", later, later + 50), span("m2", "model", later + 10, later + 30, "r2")], "e-1")!;
    expect(resumed.total).toBeCloseTo(0.15);
    expect(resumed.attempts.map(({ offset }) => Math.round(offset * 1000))).toEqual([0, 100]);
    expect(resumed.nodes.find(({ id }) => id === "m2")!.start).toBeCloseTo(0.11, 5);
    expect(Math.round(resumed.shares.get("model")! * 1000)).toBe(50);
  });

  it("is shown while the run is active and the spans above have not ended", () => {
    const active = buildTrace(spans.filter(({ span_id }) => span_id !== "r" && span_id !== "a"), "e-1")!;
    expect(active.nodes.map(({ id, depth }) => `${id}${depth}`)).toEqual(["m0", "t0", "g1", "n2", "u0"]);
    expect(active.total).toBeCloseTo(0.07);
  });
});

describe("a model call", () => {
  const request = (instruction: string, ...texts: string[]) => ({
    "gcp.vertex.agent.llm_request": JSON.stringify({
      config: { system_instruction: instruction, tools: [{ function_declarations: [{ name: "roll" }] }] },
      contents: texts.map((text) => ({ role: "user", parts: [{ text }] })),
      omittedContents: 3,
    }),
  });
  const { nodes } = buildTrace(
    [
      span("a", "agent", 0, 90),
      span("1", "model", 0, 10, "a", request("one", "hi")),
      span("2", "model", 20, 30, "a", request("one", "hi", "ho", "hu")),
      span("3", "model", 40, 50, "a", request("two", "other")),
      span("4", "model", 60, 70, "a", { "gcp.vertex.agent.llm_request": "{cut" }),
    ],
    "e-1",
  )!;
  const call = (id: string) => readModelCall(nodes, nodes.find((node) => node.id === id)!);

  it("is compared with the call before it", () => {
    expect(call("1")).toMatchObject({ instruction: "one", tools: ["roll"], omitted: 3, hasNewInstruction: false });
    expect(call("1")!.newContents).toBeUndefined();
    expect(call("2")).toMatchObject({ newContents: 2, hasNewInstruction: false });
    expect(call("3")).toMatchObject({ newContents: 1, hasNewInstruction: true });
  });

  it("is compared with the call before it, when more of its older contents are left out", () => {
    const long = (omitted: number, ...texts: string[]) => ({
      "gcp.vertex.agent.llm_request": JSON.stringify({ contents: texts.map((text) => ({ parts: [{ text }] })), omittedContents: omitted }),
    });
    const { nodes } = buildTrace(
      [
        span("a", "agent", 0, 90),
        span("1", "model", 0, 10, "a", long(0, "0", "1", "2")),
        span("2", "model", 20, 30, "a", long(2, "2", "3", "4")),
        span("3", "model", 40, 50, "a", long(7, "7", "8", "9")),
      ],
      "e-1",
    )!;
    const counts = nodes.filter(({ kind }) => kind === "model").map((node) => readModelCall(nodes, node)?.newContents);
    expect(counts).toEqual([undefined, 2, 5]);
  });

  it("has no request if it is not JSON", () => {
    expect(call("4")).toBeUndefined();
  });
});
