import assert from "node:assert/strict";
import { test } from "node:test";

import { check } from "./index.ts";

test("an empty text is refused", () => {
  assert.deepEqual(check.run({ tool: "any", args: { text: "" } }), { error: "`text` must not be empty" });
  assert.equal(check.run({ tool: "any", args: { text: "words" } }), undefined);
});
