// The types of the package.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import * as sdk from "../src/index.js";

const source = (path) => readFileSync(new URL(`../src/${path}`, import.meta.url), "utf8");

test("every value that the package exports is declared in one of the files that its types consist of", () => {
  const files = [...source("index.d.ts").matchAll(/^export \* from "\.\/(types\/\w+)\.js";$/gm)].map(([, path]) => `${path}.d.ts`);
  const declared = files.flatMap((path) => [...source(path).matchAll(/^export (?:function|const|class) (\w+)/gm)].map(([, name]) => name));
  assert.deepEqual(declared.sort(), Object.keys(sdk).sort());
});
