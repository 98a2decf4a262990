// Prepares a module for the build tool: `node build.js MODULE CONTRACT WORK`. The folder WORK has the program and its packages in `app/`;
// generated files are written beside them.
//
// The program is first imported by Node, to find its exports. Then a WIT world with these exports is generated. The build tool runs the
// program in WebAssembly and takes a snapshot.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

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

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

/** Returns Node's message about the first module with a syntax error: a caught error has neither file nor line. */
function syntaxErrorPlace(folder) {
  const files = readdirSync(folder, { recursive: true }).filter((file) => /\.m?js$/.test(file));
  const isPackage = (file) => file.startsWith("node_modules");
  for (const file of files.sort((one, other) => isPackage(one) - isPackage(other))) {
    const checked = spawnSync(process.execPath, ["--check", join(folder, file)], { encoding: "utf8" });
    if (checked.status !== 0) return checked.stderr.split("\n    at ")[0];
  }
  return undefined;
}

/** Imports a program and returns the kinds of its exports. */
async function importProgram(program, module) {
  if (!existsSync(program)) {
    fail(`there is no \`${module}\`; set the module in package.json: "hatchery": {"module": "…"}`);
  }
  // The program is imported from a copy; messages name the files as the project does.
  const folder = program.slice(0, -module.length);
  const plain = (text) => text.replaceAll(pathToFileURL(folder).href, "").replaceAll(folder, "");
  let imported;
  try {
    imported = await import(pathToFileURL(program));
  } catch (error) {
    if (error.code === "ERR_MODULE_NOT_FOUND") {
      const message = plain(error.message.split("\n")[0]);
      const isPackage = message.startsWith("Cannot find package");
      fail(`${message}${isPackage ? "; add the package to package.json and package-lock.json with `npm install`" : ""}`);
    }
    const place = error instanceof SyntaxError ? syntaxErrorPlace(folder) : undefined;
    console.error(plain(place ?? error.stack ?? String(error)));
    fail(`\`${module}\` cannot be imported`);
  }
  const kinds = Object.keys(EXPORTS).filter((kind) => Object.keys(imported.default?.[kind] ?? {}).length);
  if (!imported.default?.isComponent || !kinds.length) {
    fail(`\`${module}\` exports nothing; end it with \`export default component({ agents: […], tools: […] })\``);
  }
  return kinds;
}

/** Writes the WIT world and the entry module. */
function generate(kinds, module, contract, work) {
  const wit = join(work, "wit");
  const copies = join(wit, "deps", "hatchery");
  mkdirSync(copies, { recursive: true });
  for (const file of readdirSync(contract)) copyFileSync(join(contract, file), join(copies, file));
  const version = /^package hatchery:agent@(.*);$/m.exec(readFileSync(join(contract, "types.wit"), "utf8"))[1];
  mkdirSync(join(wit, "deps", "random"), { recursive: true });
  const random = "interface random {\n  get-random-bytes: func(len: u64) -> list<u8>;\n}\n";
  writeFileSync(join(wit, "deps", "random", "random.wit"), `package wasi:random@0.2.0;\n\n${random}`);
  const exports = kinds.map((kind) => `  export hatchery:agent/${EXPORTS[kind][0]}@${version};\n`).join("");
  const imports = `  include hatchery:agent/sync-imports@${version};\n  import wasi:random/random@0.2.0;\n`;
  writeFileSync(join(wit, "app.wit"), `package hatchery:app;\n\nworld app {\n${imports}${exports}}\n`);
  const sdk = join(dirname(fileURLToPath(import.meta.url)), "component.js");
  writeFileSync(sdk, readFileSync(sdk, "utf8").replaceAll("@@VERSION@", `@${version}`));
  const names = kinds.map((kind) => EXPORTS[kind][1]).join(", ");
  const lines = [
    'import { exportsOf } from "hatchery-guest/component";',
    `import component from "./${module}";`,
    `export const { ${names} } = exportsOf(component);`,
  ];
  writeFileSync(join(work, "app", "hatchery-entry.js"), `${lines.join("\n")}\n`);
}

const [module, contract, work] = process.argv.slice(2);
const kinds = await importProgram(join(work, "app", module), module);
generate(kinds, module, contract, work);
