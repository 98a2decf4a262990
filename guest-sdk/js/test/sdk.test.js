import assert from "node:assert/strict";
import { test } from "node:test";

import { FatalError, agent, callback, component, llmAgent, s, textOf, tool } from "hatchery-guest";
import { FakeHost, collect } from "hatchery-guest/testing";

const scale = tool({
  name: "scale",
  description: "Multiplies a number.",
  parameters: s.object({ number: s.number("The number."), by: s.integer().default(2), tags: s.array(s.string()).optional() }),
  run: ({ number, by }, ctx) => {
    ctx.state.set("last", number);
    return { result: number * by };
  },
});

test("a schema is built in a few words", () => {
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
  const host = new FakeHost();
  assert.deepEqual(scale.call({ number: 3 }, host.context()), { result: 6 });
  assert.deepEqual(host.stored, { last: 3 });
  for (const [args, message] of [
    [{}, /the arguments lacks number/],
    [{ number: "3" }, /the arguments\.number must be a number/],
    [{ number: 3, tags: ["a", 1] }, /the arguments\.tags\[1\] must be a text/],
    [{ number: 3, size: 1 }, /`scale` has no argument `size`; it has number, by, tags/],
  ]) {
    assert.throws(() => scale.call(args, host.context()), message);
  }
});

test("a custom agent yields what it says", async () => {
  const poet = agent({
    name: "poet",
    async *run(ctx) {
      yield "one";
      yield textOf(await ctx.generate("More?"));
      for (const piece of ctx.stream("And more?")) if (!piece.partial) yield piece.content;
    },
  });
  const host = new FakeHost({ answers: ["two", "three four"] });
  const said = await collect(poet.run(host.context()));
  assert.deepEqual(said.map((each) => (typeof each === "string" ? each : textOf(each))), ["one", "two", "three four"]);
  assert.equal(textOf(host.requests[0].contents[0]), "More?");
});

test("what cannot be offered is named", () => {
  assert.throws(() => component({ tools: [{}] }), /`tools` lists something that is none; make it with tool\(/);
  assert.throws(() => component({ models: [] }), /offers agents, tools and callbacks, not `models`/);
  assert.throws(() => component({ tools: [scale, tool({ name: "scale", run() {} })] }), /two tools are named `scale`/);
  assert.throws(() => tool({ name: "x" }), /tool `x` needs a function `run`/);
  assert.throws(() => callback({ name: "x", at: "before_tool", run() {} }), /cannot be at `before_tool`; it can be at beforeAgent/);
});

test("agents below an agent are offered with it", () => {
  const below = llmAgent({ name: "below" });
  const offer = component({ agents: [llmAgent({ name: "above", subAgents: [below, "other/agent"] })] });
  assert.deepEqual(Object.keys(offer.agents), ["above", "below"]);
});

test("errors have codes", () => {
  const error = new FatalError("BROKEN", "it is broken");
  assert.deepEqual([error.code, error.message, error instanceof Error], ["BROKEN", "it is broken", true]);
});
