import assert from "node:assert/strict";
import { test } from "node:test";

import { MockHost } from "hatchery-guest/testing";
import { countWords } from "./index.ts";

test("words are counted, and the count is stored", () => {
  const host = new MockHost();
  assert.equal(countWords.call({ text: "one two  three" }, host.context()), 3);
  assert.deepEqual(host.state, { last_count: 3 });
});
