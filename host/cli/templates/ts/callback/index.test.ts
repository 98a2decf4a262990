import assert from "node:assert/strict";
import { test } from "node:test";

import { MockHost } from "hatchery-guest/testing";
import { check } from "./index.ts";

test("an empty text is refused", () => {
  const ctx = new MockHost().context();
  assert.deepEqual(check.run({ tool: "any", args: { text: "" } }, ctx), { error: "`text` must not be empty" });
  assert.equal(check.run({ tool: "any", args: { text: "words" } }, ctx), undefined);
});
