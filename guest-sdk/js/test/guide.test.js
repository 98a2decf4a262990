// The examples of the guides and of the README run, and their exports can be described.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { createExports } from "../src/exports.js";
import { MockHost } from "hatchery-guest/testing";

const GUIDES = ["../../../docs/components.md", "../../../docs/agents.md", "../README.md"];

/** Returns the complete modules of a guide, with their lines. */
function modulesOf(guide) {
  const text = readFileSync(new URL(guide, import.meta.url), "utf8");
  const blocks = [...text.matchAll(/^```js\n([^]*?)^```/gm)];
  const located = blocks.map((block) => ({ line: text.slice(0, block.index).split("\n").length, code: block[1] }));
  return located.filter(({ code }) => code.includes("export default component"));
}

// Beside the package, so that the modules find it by its name.
const folder = mkdtempSync(join(fileURLToPath(new URL("..", import.meta.url)), ".guide-"));

let count = 0;

for (const guide of GUIDES) {
  for (const { line, code } of modulesOf(guide)) {
    count += 1;
    const file = join(folder, `${count}.mjs`);
    writeFileSync(file, code);
    test(`the example runs: ${guide}:${line}`, async () => {
      const { default: component } = await import(pathToFileURL(file));
      for (const exported of Object.values(createExports(component, new MockHost(), () => {}))) exported.describe();
    });
  }
}

test("there are examples", () => assert.ok(count >= 3, `${count}`));

process.on("exit", () => rmSync(folder, { recursive: true }));
