import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeHost } from "hatchery-guest/testing";
import { countWords } from "./index.js";

test("words are counted, and the count is stored", () => {
  const host = new FakeHost();
  assert.equal(countWords.call({ text: "one two  three" }, host.context()), 3);
  assert.deepEqual(host.stored, { last_count: 3 });
});
