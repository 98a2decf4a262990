import assert from "node:assert/strict";
import { test } from "node:test";

import { MockHost, collect } from "hatchery-guest/testing";
import { countSyllables, haiku } from "./index.js";

const RAIN = "Rain on the window\nthe kettle begins to sing\nI open a book";

test("syllables are counted by line", () => {
  assert.deepEqual(countSyllables.run({ poem: RAIN }), [5, 7, 5]);
});

test("a poem of the wrong size is asked for again", async () => {
  const host = new MockHost({ userMessage: "rain", responses: ["Rain", RAIN] });
  assert.deepEqual(await collect(haiku.run(host.context())), ["Not quite: 1 syllables. Once more.", RAIN]);
  assert.deepEqual(host.state, { haikus: 1 });
});
