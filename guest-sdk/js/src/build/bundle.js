// Bundles a program with its packages: ES modules, CommonJS, TypeScript and JSON become one ES module.

import { builtinModules } from "node:module";

/** Modules of the host. */
const HOST_MODULES = ["hatchery:*", "wasi:*"];

/**
 * Bundles a module with esbuild, and writes a source map next to it. Throws an error whose message has the locations of all mistakes.
 *
 * @param esbuild The API of esbuild.
 * @param folder The folder of the program, to which the names of files are relative.
 */
export function bundle(esbuild, folder, entry, outfile) {
  try {
    const { warnings } = esbuild.buildSync({ ...optionsFor(folder, entry, outfile), external: HOST_MODULES });
    return warnings.map(describe);
  } catch (error) {
    if (!Array.isArray(error.errors)) throw error;
    throw new Error(error.errors.map(describe).join("\n"));
  }
}

/** As `bundle`, in the format of CommonJS and without the SDK. Returns the names of the modules that are not in the bundle. */
export function bundleProgram(esbuild, folder, entry, outfile) {
  const external = [...HOST_MODULES, "hatchery-guest"];
  const { metafile } = esbuild.buildSync({ ...optionsFor(folder, entry, outfile), format: "cjs", external, metafile: true });
  const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports);
  return imported.filter((each) => each.external).map(({ path }) => path);
}

function optionsFor(folder, entry, outfile) {
  return {
    absWorkingDir: folder,
    entryPoints: [entry],
    outfile,
    bundle: true,
    format: "esm",
    target: "es2022",
    // Components have what web browsers have, not what Node has.
    platform: "browser",
    mainFields: ["browser", "module", "main"],
    define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
    loader: { ".txt": "text", ".md": "text" },
    charset: "utf8",
    legalComments: "none",
    sourcemap: "linked",
    sourcesContent: false,
    logLevel: "silent",
  };
}

/** Formats a message of esbuild: its location, the line of the source, and the next step. */
function describe({ text, location, notes }) {
  const advice = adviceFor(text);
  const message = advice ? `${text}; ${advice}` : text;
  if (!location) return message;
  const { file, line, column, lineText } = location;
  const others = notes.filter((note) => note.location && !advice).map((note) => `  ${describe({ notes: [], ...note })}`);
  return [`${file}:${line}:${column + 1}: ${message}`, `    ${lineText}`, `    ${" ".repeat(column)}^`, ...others].join("\n");
}

/** Returns the next step for a module that is not found; `undefined` for other mistakes. */
function adviceFor(text) {
  const name = /^Could not resolve "([^"]+)"/.exec(text)?.[1];
  if (!name || name.startsWith(".") || name.startsWith("/")) return undefined;
  if (name.startsWith("node:") || builtinModules.includes(name)) {
    return "it is a part of Node, which components do not have; use fetch for HTTP, artifacts for files, or a package for web browsers";
  }
  return `add the package to package.json and package-lock.json with \`npm install ${packageOf(name)}\``;
}

/** Returns the package of a module such as `@scope/package/module`. */
const packageOf = (name) => name.split("/", name.startsWith("@") ? 2 : 1).join("/");
