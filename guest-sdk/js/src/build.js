// Steps of `hatchery build` for JavaScript and TypeScript. The folder WORK has the program and its packages in `app/`; generated files are
// written next to them.
//
// `node build.js prepare MODULE CONTRACT WORK TOOLS` bundles the program and imports it in Node, to find its exports. Then it generates a WIT
// world with these exports, and bundles the program with the implementation of the contract.
//
// `node build.js componentize WORK TOOLS OUT` runs that bundle in WebAssembly and takes a snapshot.
//
// `node build.js interpreter CONTRACT WORK TOOLS OUT` creates the interpreter of development components, for all programs. `node build.js
// develop MODULE WORK TOOLS OUT` checks the program as `prepare` does, and writes it for the interpreter. It ends with the status 3 if the
// interpreter cannot run the program.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { bundle, bundleProgram } from "./build/bundle.js";
import { linesOf } from "./build/source-map.js";
import { markStatements } from "./build/statements.js";
import { translateStack, useLines } from "./stack.js";

const EXPORTS = {
  agents: ["guest-agents", "guestAgents"],
  tools: ["guest-tools", "guestTools"],
  toolsets: ["guest-toolsets", "guestToolsets"],
  callbacks: ["guest-callbacks", "guestCallbacks"],
  plugins: ["guest-plugins", "guestPlugins"],
  codeExecutors: ["guest-code-executors", "guestCodeExecutors"],
  summarizers: ["guest-summarizers", "guestSummarizers"],
  examples: ["guest-examples", "guestExamples"],
  models: ["guest-models", "guestModels"],
  liveModels: ["guest-live-models", "guestLiveModels"],
};

/** The functions of WASI that components use. */
const WASI = {
  "wasi:random": {
    version: "0.2.0", imports: "random", text: "interface random {\n  get-random-bytes: func(len: u64) -> list<u8>;\n}\n",
  },
  "wasi:clocks": {
    version: "0.2.0", imports: "monotonic-clock", text: "interface monotonic-clock {\n  type instant = u64;\n  now: func() -> instant;\n}\n",
  },
};

/** Additional interfaces of a development component. */
const DEVELOPMENT = {
  "hatchery:development": { version: "0.1.0", imports: "program", text: "interface program {\n  read: func() -> list<u8>;\n}\n" },
};

/** The status of `develop` for a program that only a snapshot can run. */
const NEEDS_SNAPSHOT = 3;

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

const esbuildOf = (tools) => createRequire(join(tools, "package.json"))("esbuild");

/** Bundles a module, and prints warnings and mistakes. */
function bundleModule(module, folder, entry, outfile, tools) {
  try {
    for (const warning of bundle(esbuildOf(tools), folder, entry, outfile)) console.error(`warning: ${warning}`);
  } catch (error) {
    console.error(error.message);
    fail(`\`${module}\` cannot be bundled`);
  }
}

/** Imports a program and returns the kinds of its exports. */
async function importProgram(folder, module, work, tools) {
  if (!existsSync(join(folder, module))) {
    fail(`there is no \`${module}\`; set the module in package.json: "hatchery": {"module": "…"}`);
  }
  const program = join(work, "program.mjs");
  bundleModule(module, folder, `./${module}`, program, tools);
  let imported;
  try {
    imported = await import(pathToFileURL(program));
  } catch (error) {
    // The program is imported from a copy; messages name the files as the project does.
    const stack = (error.stack ?? String(error)).replaceAll(`${pathToFileURL(folder).href}/`, "").replaceAll(`${folder}/`, "");
    console.error(stack.split("\n").filter((line) => !/node:internal|node_modules\/hatchery-guest\//.test(line)).join("\n"));
    fail(`\`${module}\` cannot be imported`);
  }
  const kinds = Object.keys(EXPORTS).filter((kind) => Object.keys(imported.default?.[kind] ?? {}).length);
  if (!imported.default?.isComponent || !kinds.length) {
    fail(`\`${module}\` exports nothing; end it with \`export default component({ agents: […], tools: […] })\``);
  }
  return kinds;
}

/** Writes the WIT world. Returns the version of the contract. */
function writeWorld(kinds, contract, work, packages = WASI) {
  const wit = join(work, "wit");
  rmSync(wit, { recursive: true, force: true });
  const copies = join(wit, "deps", "hatchery");
  mkdirSync(copies, { recursive: true });
  for (const file of readdirSync(contract)) copyFileSync(join(contract, file), join(copies, file));
  const version = /^package hatchery:agent@(.*);$/m.exec(readFileSync(join(contract, "types.wit"), "utf8"))[1];
  for (const [name, { version: number, text }] of Object.entries(packages)) {
    const folder = join(wit, "deps", name.replace(":", "-"));
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "package.wit"), `package ${name}@${number};\n\n${text}`);
  }
  const exports = kinds.map((kind) => `  export hatchery:agent/${EXPORTS[kind][0]}@${version};\n`).join("");
  const others = Object.entries(packages).map(([name, { version: number, imports }]) => `  import ${name}/${imports}@${number};\n`).join("");
  const imports = `  include hatchery:agent/sync-imports@${version};\n${others}`;
  writeFileSync(join(wit, "app.wit"), `package hatchery:app;\n\nworld app {\n${imports}${exports}}\n`);
  return version;
}

/** Writes the version of the contract into the copy of the SDK. */
function setVersion(version, folder) {
  const sdk = join(folder, "node_modules", "hatchery-guest", "src", "component.js");
  writeFileSync(sdk, readFileSync(sdk, "utf8").replaceAll("@@VERSION@", `@${version}`));
}

/** Bundles the program with the implementation of the contract, and writes the entry module. */
function writeComponent(kinds, module, version, folder, tools) {
  setVersion(version, folder);
  const names = kinds.map((kind) => EXPORTS[kind][1]).join(", ");
  const lines = [
    'import { exportsOf, useLines } from "hatchery-guest/component";',
    `import component from "./${module}";`,
    `export const { ${names} } = exportsOf(component);`,
    "export { useLines };",
  ];
  writeFileSync(join(folder, "hatchery-component.js"), `${lines.join("\n")}\n`);
  const bundled = join(folder, "hatchery-bundle.js");
  bundleModule(module, folder, "./hatchery-component.js", bundled, tools);
  const map = readMap(folder);
  writeFileSync(bundled, markStatements(readFileSync(bundled, "utf8"), map));
  const places = linesOf(map);
  writeFileSync(
    join(folder, "hatchery-entry.js"),
    `import { ${names}, useLines } from "./hatchery-bundle.js";\nuseLines(${JSON.stringify(places)});\nexport { ${names} };\n`,
  );
}

/** Writes the program for the interpreter: its code, and the source positions of its lines. */
function writeProgram(module, folder, tools, out) {
  const bundled = join(folder, "hatchery-bundle.js");
  let external;
  try {
    external = bundleProgram(esbuildOf(tools), folder, `./${module}`, bundled);
  } catch {
    // It was bundled as a module before, so it has what only modules have, such as `await` outside of functions.
    process.exit(NEEDS_SNAPSHOT);
  }
  if (external.some((name) => name !== "hatchery-guest")) process.exit(NEEDS_SNAPSHOT);
  const map = readMap(folder);
  const code = markStatements(readFileSync(bundled, "utf8"), map);
  // Modules are strict.
  writeFileSync(out, JSON.stringify({ code: `"use strict";${code}`, lines: linesOf(map) }));
}

const readMap = (folder) => JSON.parse(readFileSync(join(folder, "hatchery-bundle.js.map"), "utf8"));

const STEPS = {
  async prepare(module, contract, work, tools) {
    const folder = join(work, "app");
    const kinds = await importProgram(folder, module, work, tools);
    writeComponent(kinds, module, writeWorld(kinds, contract, work), folder, tools);
    // Timers of the program would keep Node running.
    process.exit(0);
  },

  componentize(work, tools, out) {
    const folder = join(work, "app");
    const message = runInWebAssembly("hatchery-entry.js", folder, work, tools, out);
    if (message === undefined) return;
    useLines(linesOf(readMap(folder)));
    console.error(translateStack(message).replace(/^Error: : /, "").trimEnd());
    fail("the program cannot be run in WebAssembly");
  },

  interpreter(contract, work, tools, out) {
    const folder = join(work, "app");
    setVersion(writeWorld(Object.keys(EXPORTS), contract, work, { ...WASI, ...DEVELOPMENT }), folder);
    const bundled = "hatchery-interpreter.js";
    bundleModule("hatchery-guest", folder, "./node_modules/hatchery-guest/src/development.js", join(folder, bundled), tools);
    const message = runInWebAssembly(bundled, folder, work, tools, out);
    if (message !== undefined) fail(`the interpreter cannot be created: ${message}`);
  },

  async develop(module, work, tools, out) {
    const folder = join(work, "app");
    await importProgram(folder, module, work, tools);
    writeProgram(module, folder, tools, out);
    process.exit(0);
  },
};

/** Runs a module in WebAssembly and takes a snapshot. Returns the message of a failure. */
function runInWebAssembly(module, folder, work, tools, out) {
  const tool = join(tools, "node_modules/componentize-qjs/bin/componentize-qjs");
  const args = ["--js", module, "--module-root", ".", "--wit", join(work, "wit"), "--world", "app", "--output", out];
  const { status, stderr, error } = spawnSync(process.execPath, [tool, ...args], { cwd: folder, encoding: "utf8" });
  return status === 0 ? undefined : (error?.message ?? stderr);
}

const [step, ...args] = process.argv.slice(2);
await STEPS[step](...args);
