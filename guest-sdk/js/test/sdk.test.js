import assert from "node:assert/strict";
import { test } from "node:test";

import { FatalError, agent, callback, component, content, llmAgent, s, textOf, tool } from "hatchery-guest";
import { MockHost, collect } from "hatchery-guest/testing";

const scale = tool({
  name: "scale",
  description: "Multiplies a number.",
  parameters: s.object({ number: s.number("The number."), by: s.integer().default(2), tags: s.array(s.string()).optional() }),
  run: ({ number, by }, ctx) => {
    ctx.state.set("last", number);
    return { result: number * by };
  },
});

test("a schema is built from its properties", () => {
  assert.deepEqual(JSON.parse(JSON.stringify(scale.parameters)), {
    type: "object",
    properties: {
      number: { type: "number", description: "The number." },
      by: { type: "integer", default: 2 },
      tags: { type: "array", items: { type: "string" } },
    },
    required: ["number"],
  });
});

test("a tool is called with checked arguments and defaults", () => {
  const host = new MockHost();
  assert.deepEqual(scale.call({ number: 3 }, host.context()), { result: 6 });
  assert.deepEqual(host.state, { last: 3 });
  for (const [args, message] of [
    [{}, /the arguments has no `number`/],
    [{ number: "3" }, /the arguments\.number must be a number/],
    [{ number: 3, tags: ["a", 1] }, /the arguments\.tags\[1\] must be a string/],
    [{ number: 3, size: 1 }, /`scale` has no argument `size`; it has number, by, tags/],
  ]) {
    assert.throws(() => scale.call(args, host.context()), message);
  }
});

test("a custom agent yields texts and contents", async () => {
  const poet = agent({
    name: "poet",
    async *run(ctx) {
      yield "one";
      yield textOf(await ctx.generate("More?"));
      for (const response of ctx.stream("And more?")) if (!response.partial) yield response.content;
    },
  });
  const host = new MockHost({ responses: ["two", "three four"] });
  const outputs = await collect(poet.run(host.context()));
  assert.deepEqual(outputs.map((output) => (typeof output === "string" ? output : textOf(output))), ["one", "two", "three four"]);
  assert.equal(textOf(host.requests[0].contents[0]), "More?");
});

test("a tool controls the run and calls other tools and agents", async () => {
  const host = new MockHost({ tools: { double: ({ number }) => 2 * number }, subAgents: { helper: [{ content: content("done") }] } });
  const ctx = host.context();
  ctx.transferTo("helper");
  ctx.escalate();
  ctx.skipSummarization();
  ctx.requestConfirmation("Sure?", { days: 2 });
  assert.deepEqual([host.transferredTo, host.escalated, host.skippedSummarization], ["helper", true, true]);
  assert.deepEqual(host.requestedConfirmation, { hint: "Sure?", payload: { days: 2 } });
  assert.equal(ctx.callTool("double", { number: 2 }), 4);
  assert.throws(() => ctx.callTool("triple"), /tool `triple` not found/);
  assert.deepEqual((await collect(ctx.subAgent("helper"))).map(textOf), ["done"]);
});

test("an integer argument can be larger than a number represents exactly", () => {
  const next = tool({ name: "next", parameters: s.object({ id: s.integer() }), run: ({ id }) => BigInt(id) + 1n });
  assert.equal(next.call({ id: 2n ** 60n }, new MockHost().context()), 2n ** 60n + 1n);
});

test("an invalid export is named", () => {
  assert.throws(() => component({ tools: [{}] }), /`tools` has an item of another kind; create its items with tool\(/);
  assert.throws(() => component({ models: [] }), /exports agents, tools and callbacks, not `models`/);
  assert.throws(() => component({ tools: [scale, tool({ name: "scale", run() {} })] }), /two tools are named `scale`/);
  assert.throws(() => tool({ name: "x" }), /tool `x` needs a function `run`/);
  assert.throws(() => callback({ name: "x", hook: "before_tool", run() {} }), /unknown hook `before_tool`; use one of beforeAgent/);
});

test("sub-agents are exported with their agent", () => {
  const child = llmAgent({ name: "child" });
  const { agents } = component({ agents: [llmAgent({ name: "parent", subAgents: [child, "other/agent"] })] });
  assert.deepEqual(Object.keys(agents), ["parent", "child"]);
});

test("errors have codes", () => {
  const error = new FatalError("BROKEN", "it is broken");
  assert.deepEqual([error.code, error.message, error instanceof Error], ["BROKEN", "it is broken", true]);
});
