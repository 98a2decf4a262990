// Events survive the way through the types of the contract.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { eventFromWit, eventToWit } from "../src/convert.js";
import { parse, stringify } from "../src/json.js";

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
