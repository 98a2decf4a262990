// The mock host behaves as a host does.

import assert from "node:assert/strict";
import { test } from "node:test";

import { FatalError, content, s, textOf, tool, toolset } from "hatchery-guest";
import { MockHost } from "hatchery-guest/testing";

test("a mock tool answers as a host does", async () => {
  const price = tool({
    name: "price", parameters: s.object({ product: s.string() }),
    run({ product }) {
      if (product === "lamp") throw new RangeError("the shop is closed");
      if (product === "bomb") throw new FatalError("not for sale", "FORBIDDEN");
      return { product, at: new Date(0), note: undefined };
    },
  });
  const ctx = new MockHost({ tools: [price] }).context();
  assert.deepEqual(ctx.callTool("price", { product: "chair" }), { product: "chair", at: "1970-01-01T00:00:00.000Z" });
  assert.throws(() => ctx.callTool("price", { product: "lamp" }), { name: "HatcheryError", code: "TOOL_FAILED", message: "the shop is closed" });
  assert.throws(() => ctx.callTool("price", { product: "bomb" }), { name: "FatalError", code: "FORBIDDEN" });
  assert.throws(() => ctx.callTool("price"), { code: "TOOL_FAILED", message: "args has no `product`" });
  const others = new MockHost({ tools: { later: async ({ fail }) => (fail ? Promise.reject(new Error("no")) : { at: new Date(0) }), price } }).context();
  assert.deepEqual(await others.callTool("later"), { at: "1970-01-01T00:00:00.000Z" });
  await assert.rejects(others.callTool("later", { fail: true }), { code: "TOOL_FAILED", message: "no" });
  assert.equal(others.callTool("price", { product: "chair" }).product, "chair");
  assert.throws(() => others.callTool("constructor"), /tool `constructor` not found/);
});

test("a mock model streams a response as it streams a text", () => {
  const host = new MockHost({ responses: [{ content: content("one two"), finishReason: "STOP" }] });
  const [...responses] = host.context().stream("x");
  assert.deepEqual(responses.map(textOf), ["one ", "two ", "one two"]);
  assert.deepEqual([responses.map(({ partial }) => partial), responses.at(-1).finishReason], [[true, true, undefined], "STOP"]);
});

test("an offset or a limit that no host understands is an error", () => {
  const ctx = new MockHost({ events: [{ content: content("one") }], sessions: { diary: { today: ["one"] } } }).context();
  const diary = ctx.sessions("diary");
  for (const read of [(...range) => ctx.events(...range), (...range) => diary.list(...range), (offset, limit) => diary.events("today", { offset, limit })]) {
    assert.equal(read(0, 2 ** 32 - 1).length, 1);
    assert.throws(() => read(-9, 10), { name: "RangeError", message: "`offset` is an integer from 0 on, not -9" });
    assert.throws(() => read(0, Infinity), { name: "RangeError", message: "`limit` is an integer from 0 to 4294967295, not Infinity" });
  }
});

test("texts, bytes and parts are artifacts, and other values are errors", () => {
  const host = new MockHost();
  const { artifacts } = host.context();
  const blob = { inlineData: { mimeType: "text/csv", data: new Uint8Array([97, 98]) } };
  for (const data of [new Uint8Array([97, 98]), new Uint8Array([97, 98]).buffer, blob]) artifacts.save("a.csv", data, "text/csv");
  artifacts.save("a.csv", "text");
  assert.deepEqual(host.artifacts["a.csv"], [blob, blob, blob, { text: "text" }]);
  const message = "an artifact is a string, bytes or a part; write other values as text, as with JSON.stringify(value)";
  for (const data of [{ a: 1 }, null, undefined, 5]) assert.throws(() => artifacts.save("a.json", data), { name: "TypeError", message });
});

test("a toolset has tools, and a prompt is a text or a message", async () => {
  const ctx = new MockHost({ responses: ["x"] }).context();
  const roll = tool({ name: "roll", run: () => 6 });
  for (const tools of [undefined, roll, ["roll"], [undefined]]) {
    const message = "toolset `dice` returns a list of tools, which tool({…}) creates";
    await assert.rejects(toolset({ name: "dice", tools: () => tools }).tools(ctx), { name: "TypeError", message });
    await assert.rejects(toolset({ name: "dice", tools: () => tools }).call("roll", {}, ctx), { name: "TypeError", message });
  }
  assert.equal(await toolset({ name: "dice", tools: async () => [roll] }).call("roll", {}, ctx), 6);
  for (const prompt of [undefined, null, 5, { text: "x" }]) {
    assert.throws(() => ctx.generate(prompt), { name: "TypeError", message: "a prompt is a string, a content or a request" });
  }
});

test("names that all objects have are free", () => {
  const ctx = new MockHost().context();
  assert.deepEqual([ctx.state.get("constructor"), ctx.config("constructor", 1), ctx.artifacts.load("constructor")], [undefined, 1, undefined]);
  assert.equal(ctx.sessions("app").get("constructor"), undefined);
  for (const call of [() => [...ctx.subAgent("constructor")], () => ctx.runner.run({ app: "constructor", message: "x" })]) {
    assert.throws(call, { code: "NOT_FOUND" });
  }
});

test("a state key that is set to nothing is deleted", () => {
  const host = new MockHost({ state: { one: 1, two: 2 } });
  const { state } = host.context();
  state.set("one", undefined);
  state.set("two", null);
  assert.deepEqual(host.state, {});
});

test("a run needs a message", () => {
  const { runner } = new MockHost({ apps: { clerk: () => [] } }).context();
  for (const message of [undefined, { text: "x" }]) {
    assert.throws(() => runner.run({ app: "clerk", message }), { name: "TypeError", message: "a run needs a `message`: a string or a content" });
  }
});
