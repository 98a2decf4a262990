import assert from "node:assert/strict";
import { test } from "node:test";

import { check } from "./index.js";

test("an empty text is answered", () => {
  assert.deepEqual(check.run({ tool: "any", args: { text: "" } }), { error: "there is no text" });
  assert.equal(check.run({ tool: "any", args: { text: "words" } }), undefined);
});
