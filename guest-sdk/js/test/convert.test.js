// Events survive the way through the types of the contract.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { toEvent } from "../src/content.js";
import { contentToWit, eventFromWit, eventToWit } from "../src/convert.js";
import { inspect, isEqual, parse, stringify } from "../src/json.js";

const EVENTS = parse(readFileSync(new URL("../../../tests/fixtures/events.json", import.meta.url), "utf8"));

const MICROS = 1e6;

/** Applies a function to the bytes of an event's parts. */
function mapBytes(event, convert) {
  const parts = event.content?.parts.map(({ inlineData, thoughtSignature, ...part }) => ({
    ...part,
    ...(inlineData && { inlineData: { mimeType: "", ...inlineData, data: convert(inlineData.data) } }),
    ...(thoughtSignature !== undefined && { thoughtSignature: convert(thoughtSignature) }),
  }));
  return { ...event, ...(parts && { content: { ...event.content, parts } }) };
}

/** Converts ADK's JSON to the event that authors see, which has bytes and microseconds. */
function eventFromJson({ timestamp, ...event }) {
  const bytes = (base64) => new Uint8Array(Buffer.from(base64, "base64"));
  return mapBytes({ partial: false, longRunningToolIds: [], ...event, timestampMicros: Math.round(timestamp * MICROS) }, bytes);
}

for (const [name, json] of Object.entries(EVENTS)) {
  test(`the shared event is unchanged by a round trip: ${name}`, () => {
    const event = eventFromJson(json);
    assert.deepEqual(eventFromWit(eventToWit(event)), event);
  });
}

test("an integer keeps all its digits", () => {
  const { largest, smallest, unsafe, safe } = EVENTS.numbers.customMetadata;
  assert.deepEqual([largest, smallest, unsafe, safe], [2n ** 64n - 1n, -(2n ** 63n), 2n ** 53n + 1n, 2 ** 53 - 1]);
  const text = '{"n1":[18446744073709551615,"n2","s\\"18446744073709551615"],"x":-9007199254740993}';
  assert.equal(stringify(parse(text)), text);
});

test("a value that JSON has no form for is named by its type", () => {
  assert.throws(() => stringify(() => 1), /a function is not JSON/);
  for (const number of [NaN, Infinity]) assert.throws(() => stringify(number), new RegExp(`^TypeError: ${number} is not JSON$`));
  assert.throws(() => stringify(new Map([[1, 2]])), /^TypeError: a Map is not JSON; use Object.fromEntries\(map\)$/);
  assert.throws(() => stringify(new Set([1])), /^TypeError: a Set is not JSON; use \[\.\.\.set\]$/);
  assert.throws(() => stringify({ itself: (() => { const cycle = {}; cycle.cycle = cycle; return cycle; })() }), TypeError);
});

test("a value in another one that JSON has no form for is an error, and not another value", () => {
  for (const [value, message] of [
    [{ ratio: NaN }, "NaN is not JSON"],
    [[1n, -Infinity], "-Infinity is not JSON"],
    [{ all: [new Map([[1, 2]])] }, "a Map is not JSON; use Object.fromEntries(map)"],
    [{ all: new Set([1]) }, "a Set is not JSON; use [...set]"],
    [{ weather: Promise.resolve("sunny") }, "a Promise is not JSON; write `await` before the call that returned it"],
    [Promise.resolve(1), "a Promise is not JSON; write `await` before the call that returned it"],
    [{ image: new Uint8Array([1, 2]) }, "the bytes of a Uint8Array are not JSON; use an artifact, or Array.from(bytes)"],
    [{ image: new Uint8Array() }, "the bytes of a Uint8Array are not JSON; use an artifact, or Array.from(bytes)"],
  ]) {
    assert.throws(() => stringify(value), { name: "TypeError", message });
  }
  const allowed = { no: null, none: {}, at: new Date(0), by: { 0: "a" }, big: 2n ** 60n, left: undefined };
  assert.equal(stringify(allowed), '{"no":null,"none":{},"at":"1970-01-01T00:00:00.000Z","by":{"0":"a"},"big":1152921504606846976}');
});

test("a text in the place of a content or a part is an error that says what to write", () => {
  const missing = { name: "TypeError", message: "a content is an object with a list `parts`, not a text or a part; content(text) creates one" };
  for (const message of ["hi", undefined, { text: "hi" }]) assert.throws(() => contentToWit(message), missing);
  assert.throws(() => eventToWit({ content: "hi" }), missing);
  assert.throws(() => contentToWit({ parts: ["hi"] }), { name: "TypeError", message: "a part is an object such as `{ text }`, not a string" });
  assert.throws(() => toEvent({ text: "hi" }), { message: "an event has its parts in a content: `{ content: { parts: [part] } }`" });
  const event = { author: "a", text: "kept", content: { parts: [] } };
  assert.equal(toEvent(event), event);
});

test("people can read any value", () => {
  const cycle = {};
  cycle.cycle = cycle;
  for (const [value, text] of [
    [{ a: [1, "b", null] }, '{"a":[1,"b",null]}'],
    [new Map([["a", 2n ** 60n]]), '{"a":"1152921504606846976"}'],
    [{ all: new Set([NaN]), bytes: new Uint8Array([1]) }, '{"all":["NaN"],"bytes":[1]}'],
    [{ error: new TypeError("bad"), later: Promise.resolve() }, '{"error":"TypeError: bad","later":"[object Promise]"}'],
    [cycle, "[object Object]"],
    [undefined, "undefined"],
  ]) {
    assert.equal(inspect(value), text);
  }
});

test("values are equal if they are the same in JSON, with the same bytes", () => {
  const value = { a: [1, { b: null }], data: new Uint8Array([1, 2]) };
  assert.ok(isEqual(value, { data: new Uint8Array([1, 2]), a: [1, { b: null }], c: undefined }));
  for (const other of [
    { ...value, a: [1] }, { ...value, data: new Uint8Array([1, 3]) }, { ...value, c: null }, { a: value.a },
    { ...value, a: { 0: 1, 1: { b: null } } }, null, "x",
  ]) {
    assert.ok(!isEqual(value, other), inspect(other));
  }
  assert.ok(!isEqual({}, new Map()), "the error of a Map must not be lost");
});
