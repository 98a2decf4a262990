import assert from "node:assert/strict";
import { test } from "node:test";

import { callback, component, content, plugin } from "hatchery-guest";
import { MockHost } from "hatchery-guest/testing";
import { createExports } from "../src/exports.js";

const REQUEST = { model: "", contents: [], systemInstructions: [], tools: [], modelTools: [], config: null };
const CALL = { tool: "roll", args: "{}" };
const ERROR = { code: "BROKEN", message: "it broke" };

/** Calls a callback that returns a value, as a host does. */
function call(hook, result, ...values) {
  const returns = callback({ name: "returns", hook, run: () => result });
  return createExports(component({ callbacks: [returns] }), new MockHost(), () => {}).guestCallbacks[hook]("returns", ...values);
}

test("a result that a hook does not have is an error that names the hook", async () => {
  for (const [hook, result, values, message] of [
    ["beforeAgent", 5, [], "`beforeAgent` returns a string, a content or nothing, not a number"],
    ["afterAgent", { content: content("hi") }, [], "`afterAgent` returns a string, a content or nothing, not an object with `content`"],
    ["beforeModel", "hi", [REQUEST], "`beforeModel` returns a response such as `{ content }` or nothing, not a string"],
    ["onModelError", content("hi"), [REQUEST, ERROR],
      "`onModelError` returns a response such as `{ content }` or nothing, not an object with `role`, `parts`"],
    ["beforeTool", true, [CALL], "`beforeTool` returns an object or nothing, not a boolean"],
    ["afterTool", [], [CALL, "{}"], "`afterTool` returns an object or nothing, not an array"],
    ["onToolError", "hi", [CALL, ERROR], "`onToolError` returns an object or nothing, not a string"],
  ]) {
    await assert.rejects(() => call(hook, result, ...values), { code: "COMPONENT_FAILED", message }, hook);
  }
});

test("a result that cannot be converted is an error of the component", async () => {
  const message = "inlineData.data must be a Uint8Array";
  const image = { role: "model", parts: [{ inlineData: { mimeType: "image/png", data: "abc" } }] };
  await assert.rejects(() => call("beforeAgent", image), { code: "COMPONENT_FAILED", message });
  const draws = plugin({ name: "draws", onUserMessage: () => image });
  const { guestPlugins } = createExports(component({ plugins: [draws] }), new MockHost(), () => {});
  const asked = { role: "user", parts: [] };
  await assert.rejects(() => guestPlugins.onUserMessage("draws", asked), { code: "COMPONENT_FAILED", message });
});

test("results of hooks are converted", async () => {
  assert.equal(await call("beforeAgent", undefined), null);
  assert.equal(await call("beforeAgent", null), null);
  assert.equal((await call("afterAgent", "hi")).parts[0].data.val, "hi");
  assert.deepEqual((await call("beforeModel", { content: content("hi") }, REQUEST)).val.content.parts[0].data.val, "hi");
  assert.deepEqual(await call("beforeTool", { sides: 6 }, CALL), { tag: "respond", val: '{"sides":6}' });
  assert.equal(await call("afterTool", undefined, CALL, "5"), null);
});

test("every change of an event in place is noticed", async () => {
  const event = () => ({
    id: "e", invocationId: "i", author: "a", partial: false, longRunningToolIds: ["1"], timestamp: 0,
    actions: { stateDelta: [], artifactDelta: [], deletedArtifactIds: ["old"] },
  });
  for (const [change, changed] of [
    [(revised) => revised.longRunningToolIds.push("2"), { longRunningToolIds: ["1", "2"] }],
    [(revised) => { revised.longRunningToolIds.length = 0; }, { longRunningToolIds: [] }],
    [(revised) => { revised.custom = 1; }, { extra: '{"custom":1}' }],
  ]) {
    const revises = plugin({ name: "revises", onEvent(revised) { change(revised); } });
    const { guestPlugins } = createExports(component({ plugins: [revises] }), new MockHost(), () => {});
    const sent = await guestPlugins.onEvent("revises", event());
    for (const [key, value] of Object.entries(changed)) assert.deepEqual(sent?.[key], value);
  }
  const revises = plugin({ name: "revises", onEvent: (revised) => void revised.actions.deletedArtifactIds.pop() });
  const { guestPlugins } = createExports(component({ plugins: [revises] }), new MockHost(), () => {});
  assert.deepEqual((await guestPlugins.onEvent("revises", event())).actions.deletedArtifactIds, []);
});

test("images in a request are compared by their bytes, and not as JSON, which takes many times as much memory", async () => {
  const data = new Uint8Array([1, 2, 3]);
  data.toJSON = () => assert.fail("bytes are not JSON");
  const image = { tag: "inline-data", val: { mimeType: "image/png", data, displayName: null } };
  const part = { data: image, thought: false, thoughtSignature: null, extra: null };
  const request = { ...REQUEST, contents: [{ role: "user", parts: [part] }] };
  assert.deepEqual(await call("beforeModel", undefined, request), { tag: "proceed" });
  const blanks = callback({
    name: "blanks", hook: "beforeModel", run({ contents }) { contents[0].parts[0].inlineData.data = new Uint8Array(3); },
  });
  const revised = await createExports(component({ callbacks: [blanks] }), new MockHost(), () => {}).guestCallbacks.beforeModel("blanks", request);
  assert.deepEqual([revised.tag, [...revised.val.contents[0].parts[0].data.val.data]], ["revise", [0, 0, 0]]);
});
