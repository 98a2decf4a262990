// The exports of a development component: an interpreter with this SDK, whose file ends with the program. The program runs at the first call of
// each instance. A component of a release is a snapshot of its program instead.

import file from "hatchery:development/program@0.1.0";

import { exportsOf, useLines } from "./component.js";
import * as sdk from "./index.js";
import { decode } from "./utf8.js";

let loaded;

function exportsOfProgram() {
  loaded ??= exportsOf(runProgram(JSON.parse(decode(new Uint8Array(file.read())))));
  return loaded;
}

/** Runs a bundle in the format of CommonJS, and returns its default export. */
function runProgram({ code, lines }) {
  useLines(lines);
  const module = { exports: {} };
  try {
    (0, eval)(`(function (require, module, exports) {${code}\n})`)(requireModule, module, module.exports);
  } catch (error) {
    console.error(error);
    throw error;
  }
  return module.exports.default;
}

function requireModule(name) {
  if (name === "hatchery-guest") return sdk;
  throw new Error(`there is no module \`${name}\``);
}

/** Returns the functions of an interface, which run the program first. */
function loadFirst(name, functions) {
  const call = (key) => (...args) => exportsOfProgram()[name][key](...args);
  return Object.fromEntries(Object.keys(functions).map((key) => [key, call(key)]));
}

const all = Object.entries(exportsOf(sdk.component({}))).map(([name, functions]) => [name, loadFirst(name, functions)]);

export const {
  guestAgents, guestTools, guestToolsets, guestCallbacks, guestPlugins, guestCodeExecutors, guestSummarizers, guestExamples, guestModels,
  guestLiveModels,
} = Object.fromEntries(all);
