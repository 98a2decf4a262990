// Steps of `hatchery build` for JavaScript and TypeScript. The folder WORK has the program and its packages in `app/`; generated files are
// written beside them.
//
// `node build.js prepare MODULE CONTRACT WORK TOOLS` bundles the program and imports it in Node, to find its exports. Then it generates a WIT
// world with these exports, and bundles the program with the implementation of the contract.
//
// `node build.js componentize WORK TOOLS OUT` runs that bundle in WebAssembly and takes a snapshot.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { bundle } from "./build/bundle.js";
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
};

/** The functions of WASI that components use. */
const WASI = {
  random: "interface random {\n  get-random-bytes: func(len: u64) -> list<u8>;\n}\n",
  clocks: "interface monotonic-clock {\n  type instant = u64;\n  now: func() -> instant;\n}\n",
};

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

/** Bundles a module, and prints warnings and mistakes. */
function bundleModule(module, folder, entry, outfile, tools) {
  const esbuild = createRequire(join(tools, "package.json"))("esbuild");
  try {
    for (const warning of bundle(esbuild, folder, entry, outfile)) console.error(`warning: ${warning}`);
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
    console.error(stack.split("\n").filter((line) => !/node:internal|hatchery-guest\/src\/build\.js/.test(line)).join("\n"));
    fail(`\`${module}\` cannot be imported`);
  }
  const kinds = Object.keys(EXPORTS).filter((kind) => Object.keys(imported.default?.[kind] ?? {}).length);
  if (!imported.default?.isComponent || !kinds.length) {
    fail(`\`${module}\` exports nothing; end it with \`export default component({ agents: […], tools: […] })\``);
  }
  return kinds;
}

/** Writes the WIT world. Returns the version of the contract. */
function writeWorld(kinds, contract, work) {
  const wit = join(work, "wit");
  const copies = join(wit, "deps", "hatchery");
  mkdirSync(copies, { recursive: true });
  for (const file of readdirSync(contract)) copyFileSync(join(contract, file), join(copies, file));
  const version = /^package hatchery:agent@(.*);$/m.exec(readFileSync(join(contract, "types.wit"), "utf8"))[1];
  for (const [name, text] of Object.entries(WASI)) {
    mkdirSync(join(wit, "deps", name), { recursive: true });
    writeFileSync(join(wit, "deps", name, `${name}.wit`), `package wasi:${name}@0.2.0;\n\n${text}`);
  }
  const exports = kinds.map((kind) => `  export hatchery:agent/${EXPORTS[kind][0]}@${version};\n`).join("");
  const wasi = "  import wasi:random/random@0.2.0;\n  import wasi:clocks/monotonic-clock@0.2.0;\n";
  const imports = `  include hatchery:agent/sync-imports@${version};\n${wasi}`;
  writeFileSync(join(wit, "app.wit"), `package hatchery:app;\n\nworld app {\n${imports}${exports}}\n`);
  return version;
}

/** Bundles the program with the implementation of the contract, and writes the entry module. */
function writeComponent(kinds, module, version, folder, tools) {
  const sdk = join(folder, "node_modules", "hatchery-guest", "src", "component.js");
  writeFileSync(sdk, readFileSync(sdk, "utf8").replaceAll("@@VERSION@", `@${version}`));
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
    const tool = join(tools, "node_modules/componentize-qjs/bin/componentize-qjs");
    const args = ["--js", "hatchery-entry.js", "--module-root", ".", "--wit", join(work, "wit"), "--world", "app", "--output", out];
    const { status, stderr, error } = spawnSync(process.execPath, [tool, ...args], { cwd: folder, encoding: "utf8" });
    if (status === 0) return;
    useLines(linesOf(readMap(folder)));
    console.error(error?.message ?? translateStack(stderr).replace(/^Error: : /, "").trimEnd());
    fail("the program cannot be run in WebAssembly");
  },
};

const [step, ...args] = process.argv.slice(2);
await STEPS[step](...args);
