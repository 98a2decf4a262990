// Errors of programs that cannot be built.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const BUILD = fileURLToPath(new URL("../src/build.js", import.meta.url));

/** Returns the error of a build of these files. */
function errorOf(files) {
  const work = mkdtempSync(join(tmpdir(), "hatchery-build-"));
  try {
    mkdirSync(join(work, "app"));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(work, "app", name), text);
    const { status, stderr } = spawnSync(process.execPath, [BUILD, "index.js", work, work], { encoding: "utf8" });
    assert.equal(status, 1, stderr);
    return stderr;
  } finally {
    rmSync(work, { recursive: true });
  }
}

const PACKAGE = { "package.json": '{"type": "module"}' };

test("the errors of a missing module, a missing import and a missing package differ", () => {
  assert.match(errorOf(PACKAGE), /there is no `index\.js`; set the module in package\.json/);
  const helper = errorOf({ ...PACKAGE, "index.js": 'import "./helper.js";\n' });
  assert.match(helper, /Cannot find module '.*helper\.js' imported from .*index\.js\n/);
  assert.doesNotMatch(helper, /there is no `index\.js`|npm install/);
  const lodash = errorOf({ ...PACKAGE, "index.js": 'import _ from "no-such-package";\n' });
  assert.match(lodash, /Cannot find package 'no-such-package' imported from .*; add the package to package\.json/);
});

test("the error of a module without exports shows the last line to add", () => {
  assert.match(errorOf({ ...PACKAGE, "index.js": "export default 1;\n" }), /exports nothing; end it with `export default component\(/);
});

test("mistakes are named with their file and line, as in the project", () => {
  const syntax = errorOf({ ...PACKAGE, "index.js": 'import "./other.js";\n', "other.js": "const a = 1;\nconst 1b = 2;\n" });
  assert.match(syntax, /^other\.js:2\nconst 1b = 2;/);
  const run = errorOf({ ...PACKAGE, "index.js": "\n\nmissing.method();\n" });
  assert.match(run, /ReferenceError: missing is not defined\n    at index\.js:3:1\n/);
});
