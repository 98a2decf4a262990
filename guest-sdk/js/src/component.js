// The implementation of the contract; only a component can import it. It implements the exports for the items of a module, and the host of
// contexts by the imports.

import random from "wasi:random/random@0.2.0";
import agents from "hatchery:agent/sync-agents@@VERSION@";
import artifacts from "hatchery:agent/sync-artifacts@@VERSION@";
import config from "hatchery:agent/config@@VERSION@";
import log from "hatchery:agent/log@@VERSION@";
import memory from "hatchery:agent/sync-memory@@VERSION@";
import models from "hatchery:agent/sync-models@@VERSION@";
import session from "hatchery:agent/session@@VERSION@";
import tools from "hatchery:agent/sync-tools@@VERSION@";

import { content, toEvent } from "./content.js";
import { Context } from "./context.js";
import * as convert from "./convert.js";
import { BadArguments, FatalError, HatcheryError, describe } from "./errors.js";
import { parse, stringify } from "./json.js";

const { parseOptional } = convert;

/** Calls the host, and converts its errors. */
function callHost(call) {
  try {
    return call();
  } catch (error) {
    // The JavaScript engine wraps errors of the contract.
    const failure = error?.payload ?? error;
    if (failure?.tag === "recoverable") throw new HatcheryError("TOOL_FAILED", failure.val);
    if (failure?.tag === "fatal") throw new FatalError(failure.val.code, failure.val.message);
    if (typeof failure?.code === "string" && !(failure instanceof Error)) throw new HatcheryError(failure.code, failure.message);
    throw error;
  }
}

/** Iterates over a resource of the host, and drops it at the end. */
function* iterate(resource, convertItem) {
  try {
    for (let item = callHost(() => resource.next()); item; item = callHost(() => resource.next())) yield convertItem(item);
  } finally {
    resource[Symbol.dispose]?.();
  }
}

const HOST = {
  info: () => callHost(() => session.current()),
  userContent: () => convert.contentFromWit(callHost(() => session.userContent())),
  getState: (key) => parseOptional(callHost(() => session.getState(key))),
  allState: () => Object.fromEntries(callHost(() => session.getAllState()).map(([key, value]) => [key, parse(value)])),
  setState: (key, value) => callHost(() => session.setState(key, stringify(value))),
  eventCount: () => Number(callHost(() => session.eventCount())),
  events: (offset, limit) => callHost(() => session.events(offset, limit)).map(convert.eventFromWit),
  confirmation: () => {
    const confirmation = callHost(() => session.confirmation());
    return confirmation ? { ...confirmation, payload: parseOptional(confirmation.payload) } : undefined;
  },
  requestConfirmation: (hint, payload) =>
    callHost(() => session.requestConfirmation(hint, payload === undefined ? null : stringify(payload))),
  config: (key) => parseOptional(callHost(() => config.get(key))),
  log: (level, message, fields) =>
    callHost(() => log.write(level, message, Object.entries(fields).map(([name, value]) => [name, String(value)]))),
  transfer: (agent) => callHost(() => agents.transfer(agent)),
  escalate: () => callHost(() => agents.escalate()),
  skipSummarization: () => callHost(() => agents.skipSummarization()),
  saveArtifact: (name, part) => Number(callHost(() => artifacts.save(name, convert.partToWit(part)))),
  loadArtifact: (name, version) => {
    const part = callHost(() => artifacts.load(name, version ?? null));
    return part ? convert.partFromWit(part) : undefined;
  },
  listArtifacts: () => callHost(() => artifacts.list()),
  artifactVersions: (name) => Array.from(callHost(() => artifacts.versions(name)), Number),
  deleteArtifact: (name) => callHost(() => artifacts.delete(name)),
  searchMemory: (query) =>
    callHost(() => memory.search(query)).map((entry) => ({
      content: convert.contentFromWit(entry.content), author: entry.author ?? undefined, timestampMicros: Number(entry.timestamp),
    })),
  callTool: (name, args) => parse(callHost(() => tools.call(name, stringify(args)))),
  *generate(request, streaming) {
    yield* iterate(callHost(() => models.generate(convert.requestToWit(request), streaming)), convert.responseFromWit);
  },
  *runSubAgent(name) {
    yield* iterate(callHost(() => agents.run(name)), convert.eventFromWit);
  },
};

/** False until the first call of the host. The snapshot of the program is taken before it, without imports. */
let isRunning = false;

const builtInRandom = Math.random;

Math.random = () => {
  if (!isRunning) return builtInRandom();
  const bytes = random.getRandomBytes(7);
  let value = bytes[0] & 31;
  for (let index = 1; index < 7; index += 1) value = value * 256 + bytes[index];
  return value / 2 ** 53;
};

const format = (value) => {
  if (value instanceof Error) return `${value}\n${value.stack ?? ""}`.trim();
  return typeof value === "object" && value !== null ? stringify(value) : String(value);
};

const write = (level) => (...values) => {
  // A full log is not an error of the component.
  try {
    if (isRunning) log.write(level, values.map(format).join(" "), []);
  } catch {}
};

globalThis.console = {
  log: write("info"), info: write("info"), warn: write("warn"), error: write("error"), debug: write("debug"), trace: write("trace"),
};

/** Converts an error. One without a code is also logged, with its stack. */
function toWitError(error) {
  if (error instanceof HatcheryError) return { code: error.code, message: error.message };
  if (!(error instanceof BadArguments)) console.error(error);
  return { code: "COMPONENT_FAILED", message: describe(error) };
}

function toWitToolError(error) {
  return error instanceof FatalError ? { tag: "fatal", val: toWitError(error) } : { tag: "recoverable", val: toWitError(error).message };
}

function find(items, kind, name) {
  if (!Object.hasOwn(items, name)) throw { code: "NOT_FOUND", message: `this component has no ${kind} \`${name}\`` };
  return items[name];
}

/** Implements `guest-tools`, `guest-agents` and `guest-callbacks` for the items of a component. */
export function exportsOf({ tools, agents, callbacks }) {
  return { guestTools: exportTools(tools), guestAgents: exportAgents(agents), guestCallbacks: exportCallbacks(callbacks) };
}

function exportTools(items) {
  return {
    describe: () => Object.values(items).map(convert.toolToWit),
    async call(name, args) {
      isRunning = true;
      try {
        if (!Object.hasOwn(items, name)) throw new HatcheryError("NOT_FOUND", `this component has no tool \`${name}\``);
        return stringify(await items[name].call(parse(args), new Context(HOST)));
      } catch (error) {
        throw toWitToolError(error);
      }
    },
  };
}

function exportAgents(items) {
  return {
    describe: () => Object.values(items).map(convert.agentToWit),
    async computeInstruction(name, isGlobal) {
      isRunning = true;
      const found = find(items, "agent", name);
      try {
        const instruction = isGlobal ? found.globalInstruction : found.instruction;
        return await instruction(new Context(HOST));
      } catch (error) {
        throw toWitError(error);
      }
    },
    async run(name) {
      isRunning = true;
      return emitAll(find(items, "custom agent", name));
    },
  };
}

/** Streams the events of an agent. A failure is its last event. */
async function* emitAll(agent) {
  try {
    const result = agent.run(new Context(HOST));
    if (result?.[Symbol.asyncIterator] || (result?.[Symbol.iterator] && typeof result !== "string")) {
      for await (const output of result) yield convert.eventToWit(toEvent(output));
    } else {
      const output = await result;
      if (output !== undefined && output !== null) yield convert.eventToWit(toEvent(output));
    }
  } catch (error) {
    const { code, message } = toWitError(error);
    yield convert.eventToWit({ errorCode: code, errorMessage: message });
  }
}

function exportCallbacks(items) {
  const call = async (name, ...values) => {
    isRunning = true;
    const callback = find(items, "callback", name);
    try {
      return (await callback.run(...values, new Context(HOST))) ?? undefined;
    } catch (error) {
      throw toWitError(error);
    }
  };
  const toContent = (output) => {
    if (output === undefined) return null;
    return convert.contentToWit(typeof output === "string" ? content(output) : output);
  };
  const toJson = (response) => (response === undefined ? null : stringify(response));
  const toResponse = (response) => (response === undefined ? null : convert.responseToWit(response));
  const toError = ({ code, message }) => new HatcheryError(code, message);
  const isEqual = (one, other) => stringify(one) === stringify(other);
  return {
    describe: () => Object.values(items).map(convert.callbackToWit),
    beforeAgent: async (name) => toContent(await call(name)),
    afterAgent: async (name) => toContent(await call(name)),
    onAgentError: async (name, error) => toContent(await call(name, toError(error))),
    async beforeModel(name, request) {
      const revised = convert.requestFromWit(request);
      const response = await call(name, revised);
      if (response !== undefined) return { tag: "respond", val: convert.responseToWit(response) };
      const isUnchanged = isEqual(revised, convert.requestFromWit(request));
      return isUnchanged ? { tag: "proceed" } : { tag: "revise", val: convert.requestToWit(revised) };
    },
    async afterModel(name, response) {
      const revised = convert.responseFromWit(response);
      const replacement = await call(name, revised);
      const isUnchanged = replacement === undefined && isEqual(revised, convert.responseFromWit(response));
      return isUnchanged ? null : convert.responseToWit(replacement ?? revised);
    },
    onModelError: async (name, request, error) => toResponse(await call(name, convert.requestFromWit(request), toError(error))),
    async beforeTool(name, { tool, args }) {
      const revised = { tool, args: parse(args) };
      const response = await call(name, revised);
      if (response !== undefined) return { tag: "respond", val: stringify(response) };
      return isEqual(revised.args, parse(args)) ? { tag: "proceed" } : { tag: "revise", val: stringify(revised.args) };
    },
    async afterTool(name, { tool, args }, response) {
      const revised = parse(response);
      const replacement = await call(name, { tool, args: parse(args) }, revised);
      const isUnchanged = replacement === undefined && isEqual(revised, parse(response));
      return isUnchanged ? null : stringify(replacement ?? revised);
    },
    onToolError: async (name, { tool, args }, error) => toJson(await call(name, { tool, args: parse(args) }, toError(error))),
  };
}
