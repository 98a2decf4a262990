// The exports of callbacks and plugins.

import { content, toEvent } from "./content.js";
import * as convert from "./convert.js";
import { HatcheryError } from "./errors.js";
import { isEqual, parse, stringify } from "./json.js";
import * as specs from "./specs.js";

export function createCallbackExports(items, calls) {
  return {
    describe: () => Object.values(items).map(specs.callbackToWit),
    ...createHooks((name, hook, toAnswer, ...values) =>
      calls.call(items, "callback", name, async (callback, ctx) => toAnswer((await callback.run(...values, ctx)) ?? undefined))),
  };
}

export function createPluginExports(items, calls) {
  const call = (name, hook, toAnswer, ...values) =>
    calls.call(items, "plugin", name, async (plugin, ctx) => toAnswer((await plugin.hooks[hook](...values, ctx)) ?? undefined));
  return {
    describe: () => Object.values(items).map(specs.pluginToWit),
    ...createHooks(call),
    async onUserMessage(name, message) {
      const revised = convert.contentFromWit(message);
      return call(name, "onUserMessage", (replacement) => {
        if (replacement === undefined && isEqual(revised, convert.contentFromWit(message))) return null;
        return contentToWit("onUserMessage", replacement ?? revised, "user");
      }, revised);
    },
    beforeRun: (name) => call(name, "beforeRun", toContent("beforeRun")),
    async onEvent(name, event) {
      const revised = convert.eventFromWit(event);
      return call(name, "onEvent", (replacement) => {
        const isUnchanged = replacement === undefined && isEqual(revised, convert.eventFromWit(event));
        return isUnchanged ? null : convert.eventToWit(toEvent(replacement ?? revised));
      }, revised);
    },
    afterRun: (name) => call(name, "afterRun", ignore),
    onRunError: (name, error) => call(name, "onRunError", ignore, toError(error)),
    close: (name) => call(name, "close", ignore),
  };
}

/** Creates the hooks that callbacks and plugins share. `call` calls the code of a hook, and converts its result. */
function createHooks(call) {
  return {
    beforeAgent: (name) => call(name, "beforeAgent", toContent("beforeAgent")),
    afterAgent: (name) => call(name, "afterAgent", toContent("afterAgent")),
    onAgentError: (name, error) => call(name, "onAgentError", toContent("onAgentError"), toError(error)),
    async beforeModel(name, request) {
      const revised = convert.requestFromWit(request);
      return call(name, "beforeModel", (response) => {
        if (response !== undefined) return { tag: "respond", val: responseToWit("beforeModel", response) };
        const isUnchanged = isEqual(revised, convert.requestFromWit(request));
        return isUnchanged ? { tag: "proceed" } : { tag: "revise", val: convert.requestToWit(revised) };
      }, revised);
    },
    async afterModel(name, response) {
      const revised = convert.responseFromWit(response);
      return call(name, "afterModel", (replacement) => {
        const isUnchanged = replacement === undefined && isEqual(revised, convert.responseFromWit(response));
        return isUnchanged ? null : responseToWit("afterModel", replacement ?? revised);
      }, revised);
    },
    onModelError: async (name, request, error) =>
      call(name, "onModelError", (response) => (response === undefined ? null : responseToWit("onModelError", response)),
        convert.requestFromWit(request), toError(error)),
    async beforeTool(name, { tool, args }) {
      const revised = { tool, args: parse(args) };
      return call(name, "beforeTool", (response) => {
        if (response !== undefined) return { tag: "respond", val: stringifyObject("beforeTool", response) };
        return isEqual(revised.args, parse(args)) ? { tag: "proceed" } : { tag: "revise", val: stringify(revised.args) };
      }, revised);
    },
    async afterTool(name, { tool, args }, response) {
      const revised = parse(response);
      return call(name, "afterTool", (replacement) => {
        if (replacement !== undefined) return stringifyObject("afterTool", replacement);
        return isEqual(revised, parse(response)) ? null : stringify(revised);
      }, { tool, args: parse(args) }, revised);
    },
    onToolError: async (name, { tool, args }, error) =>
      call(name, "onToolError", (response) => (response === undefined ? null : stringifyObject("onToolError", response)),
        { tool, args: parse(args) }, toError(error)),
  };
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Creates the error of a hook that does not have results like this one. */
function createTypeError(hook, expected, result) {
  const actual = isObject(result) ? `an object with ${Object.keys(result).map((key) => `\`${key}\``).join(", ") || "no keys"}`
    : Array.isArray(result) ? "an array" : `a ${typeof result}`;
  return new TypeError(`\`${hook}\` returns ${expected} or nothing, not ${actual}`);
}

const toContent = (hook) => (output) => (output === undefined ? null : contentToWit(hook, output, "model"));

function contentToWit(hook, output, role) {
  if (typeof output === "string") return convert.contentToWit(content(output, role));
  if (!Array.isArray(output?.parts)) throw createTypeError(hook, "a string, a content", output);
  return convert.contentToWit(output);
}

function responseToWit(hook, response) {
  // A content is not the response that has it.
  if (!isObject(response) || response.parts) throw createTypeError(hook, "a response such as `{ content }`", response);
  return convert.responseToWit(response);
}

function stringifyObject(hook, result) {
  if (!isObject(result)) throw createTypeError(hook, "an object", result);
  return stringify(result);
}

const ignore = () => undefined;

const toError = ({ code, message }) => new HatcheryError(message, code);
