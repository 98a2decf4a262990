import assert from "node:assert/strict";
import { test } from "node:test";

import { MockHost } from "hatchery-guest/testing";
import { countWords } from "./index.ts";

test("words are counted", () => {
  assert.equal(countWords.call({ text: "one two  three" }, new MockHost().context()), 3);
});
