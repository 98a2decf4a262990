// The exports of callbacks and plugins.

import { content, toEvent } from "./content.js";
import * as convert from "./convert.js";
import { HatcheryError } from "./errors.js";
import { parse, stringify } from "./json.js";
import * as specs from "./specs.js";

export function createCallbackExports(items, calls) {
  return {
    describe: () => Object.values(items).map(specs.callbackToWit),
    ...createHooks((name, hook, ...values) =>
      calls.call(items, "callback", name, async (callback, ctx) => (await callback.run(...values, ctx)) ?? undefined)),
  };
}

export function createPluginExports(items, calls) {
  const call = (name, hook, ...values) =>
    calls.call(items, "plugin", name, async (plugin, ctx) => (await plugin.hooks[hook](...values, ctx)) ?? undefined);
  return {
    describe: () => Object.values(items).map(specs.pluginToWit),
    ...createHooks(call),
    async onUserMessage(name, message) {
      const revised = convert.contentFromWit(message);
      const replacement = await call(name, "onUserMessage", revised);
      if (replacement === undefined && isEqual(revised, convert.contentFromWit(message))) return null;
      return toContent(replacement ?? revised, "user");
    },
    beforeRun: async (name) => toContent(await call(name, "beforeRun")),
    async onEvent(name, event) {
      const revised = convert.eventFromWit(event);
      const replacement = await call(name, "onEvent", revised);
      const isUnchanged = replacement === undefined && isEqual(revised, convert.eventFromWit(event));
      return isUnchanged ? null : convert.eventToWit(toEvent(replacement ?? revised));
    },
    afterRun: async (name) => void (await call(name, "afterRun")),
    onRunError: async (name, error) => void (await call(name, "onRunError", toError(error))),
    close: async (name) => void (await call(name, "close")),
  };
}

/** Creates the hooks that callbacks and plugins share. */
function createHooks(call) {
  return {
    beforeAgent: async (name) => toContent(await call(name, "beforeAgent")),
    afterAgent: async (name) => toContent(await call(name, "afterAgent")),
    onAgentError: async (name, error) => toContent(await call(name, "onAgentError", toError(error))),
    async beforeModel(name, request) {
      const revised = convert.requestFromWit(request);
      const response = await call(name, "beforeModel", revised);
      if (response !== undefined) return { tag: "respond", val: convert.responseToWit(response) };
      const isUnchanged = isEqual(revised, convert.requestFromWit(request));
      return isUnchanged ? { tag: "proceed" } : { tag: "revise", val: convert.requestToWit(revised) };
    },
    async afterModel(name, response) {
      const revised = convert.responseFromWit(response);
      const replacement = await call(name, "afterModel", revised);
      const isUnchanged = replacement === undefined && isEqual(revised, convert.responseFromWit(response));
      return isUnchanged ? null : convert.responseToWit(replacement ?? revised);
    },
    async onModelError(name, request, error) {
      const response = await call(name, "onModelError", convert.requestFromWit(request), toError(error));
      return response === undefined ? null : convert.responseToWit(response);
    },
    async beforeTool(name, { tool, args }) {
      const revised = { tool, args: parse(args) };
      const response = await call(name, "beforeTool", revised);
      if (response !== undefined) return { tag: "respond", val: stringify(response) };
      return isEqual(revised.args, parse(args)) ? { tag: "proceed" } : { tag: "revise", val: stringify(revised.args) };
    },
    async afterTool(name, { tool, args }, response) {
      const revised = parse(response);
      const replacement = await call(name, "afterTool", { tool, args: parse(args) }, revised);
      const isUnchanged = replacement === undefined && isEqual(revised, parse(response));
      return isUnchanged ? null : stringify(replacement ?? revised);
    },
    async onToolError(name, { tool, args }, error) {
      const response = await call(name, "onToolError", { tool, args: parse(args) }, toError(error));
      return response === undefined ? null : stringify(response);
    },
  };
}

function toContent(output, role = "model") {
  if (output === undefined) return null;
  return convert.contentToWit(typeof output === "string" ? content(output, role) : output);
}

const toError = ({ code, message }) => new HatcheryError(message, code);

const isEqual = (one, other) => stringify(one) === stringify(other);
