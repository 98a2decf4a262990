// Error messages of builds, and the positions in stack traces. `hatchery build` itself is tested with the command.

import assert from "node:assert/strict";
import { test } from "node:test";

import { bundle } from "../src/build/bundle.js";
import { linesOf } from "../src/build/source-map.js";
import { markStatements } from "../src/build/statements.js";
import { translateStack, useLines } from "../src/stack.js";

/** Returns the message of a bundler that reports these mistakes. */
function messageOf(...errors) {
  const esbuild = {
    buildSync() {
      throw Object.assign(new Error("build failed"), { errors });
    },
  };
  try {
    bundle(esbuild, "/project", "./index.ts", "/project/out.js");
  } catch (error) {
    return error.message;
  }
  return assert.fail("it did not fail");
}

const location = { file: "index.ts", line: 3, column: 6, lineText: "const 1b = 2;" };

test("mistakes are named with their place and the line", () => {
  const note = { text: "The name was declared here:", location: { ...location, line: 1, column: 0, lineText: "let a;" } };
  assert.equal(
    messageOf({ text: "Syntax error", location, notes: [] }, { text: "Declared twice", location: null, notes: [note] }),
    "index.ts:3:7: Syntax error\n    const 1b = 2;\n          ^\nDeclared twice",
  );
  assert.equal(
    messageOf({ text: "Declared twice", location, notes: [note, { text: "no place", location: null }] }),
    "index.ts:3:7: Declared twice\n    const 1b = 2;\n          ^\n  index.ts:1:1: The name was declared here:\n    let a;\n    ^",
  );
});

test("a module that is not found is distinguished from a missing package and from a module of Node", () => {
  const missing = (name) => messageOf({ text: `Could not resolve "${name}"`, location: null, notes: [] });
  assert.equal(missing("./lib/x.js"), 'Could not resolve "./lib/x.js"');
  assert.match(missing("@a/b/c.js"), /; add the package to package\.json and package-lock\.json with `npm install @a\/b`$/);
  assert.match(missing("left-pad/x"), /with `npm install left-pad`$/);
  for (const name of ["fs", "node:fs/promises"]) assert.match(missing(name), /; it is a part of Node, which components do not have; use fetch/);
});

test("warnings are returned, and other failures of the bundler are thrown as they are", () => {
  const warned = bundle({ buildSync: () => ({ warnings: [{ text: "odd", location, notes: [] }] }) }, "/x", "y", "z");
  assert.deepEqual(warned, ["index.ts:3:7: odd\n    const 1b = 2;\n          ^"]);
  const broken = { buildSync: () => { throw new Error("no such program"); } };
  assert.throws(() => bundle(broken, "/x", "y", "z"), { message: "no such program" });
});

test("declarations are marked in their lines, and template literals stay as they are", () => {
  // Each line has its own place, except the fourth, which continues a template literal, and the last, which has none.
  const lines = ["var a = b;", "function f() {", "  const text = `", "var c = d;`;", "  call();", "}", "if (a) f();", "var helper;"];
  const marked = markStatements(lines.join("\n"), { mappings: "AAAC;AACA,AAAI;AACA,MAAM;AAAA;AACA;AACA;AACA;" }).split("\n");
  const expected = ["0;var a = b;", lines[1], "0;  const text = `", lines[3], lines[4], lines[5], "0;if (a) f();", lines[7]];
  assert.deepEqual(marked, expected);
});

test("a stack trace names the lines of the sources, without the lines of the SDK", () => {
  // Lines 1 and 2 of the bundle are lines 5 and 7 of `a.ts`, line 3 has no place, lines 4 and 5 are lines 1 and 3 of `b.js`.
  const lines = linesOf({ sources: ["a.ts", "node_modules/hatchery-guest/src/b.js"], mappings: "AAIA,EACA;AACA;;ACNA;AAEA" });
  assert.deepEqual(lines, {
    files: ["a.ts", "node_modules/hatchery-guest/src/b.js"], runs: [[1, 0, 5], [2, 0, 7], [4, 1, 1], [5, 1, 3]],
  });
  useLines(lines);
  const stack = [
    "    at run (/hatchery-bundle.js:1:15)", "    at inner (/hatchery-bundle.js:3:1)", "    at call (/hatchery-bundle.js:4:3)",
    "    at <anonymous> (/hatchery-entry.js:3:1)", "    at main (<input>:2:1)", "    at <anonymous> (/hatchery-interpreter.js:9:1)",
  ];
  assert.equal(translateStack(stack.join("\n")), "    at run (a.ts:5)\n    at inner (a.ts:8)\n    at main (a.ts:7)");
  useLines({ files: [], runs: [] });
  assert.equal(translateStack(stack[0]), stack[0]);
});
