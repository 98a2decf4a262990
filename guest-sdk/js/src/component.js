// The side of the package that meets the host: only a component can import it. It makes the contract's exports of what a module offers,
// and a host for its contexts of the plain imports.

import random from "wasi:random/random@0.2.0";
import agents from "hatchery:agent/sync-agents@@VERSION@";
import artifacts from "hatchery:agent/sync-artifacts@@VERSION@";
import config from "hatchery:agent/config@@VERSION@";
import log from "hatchery:agent/log@@VERSION@";
import memory from "hatchery:agent/sync-memory@@VERSION@";
import model from "hatchery:agent/sync-model@@VERSION@";
import session from "hatchery:agent/session@@VERSION@";
import tools from "hatchery:agent/sync-tools@@VERSION@";

import { content, event } from "./content.js";
import { Context } from "./context.js";
import * as convert from "./convert.js";
import { BadArguments, FatalError, HatcheryError, describe } from "./errors.js";

const parsed = (json) => (json === null || json === undefined ? undefined : JSON.parse(json));

/** Asks the host; what it refuses is an error of ours. */
function ask(call) {
  try {
    return call();
  } catch (error) {
    // The engine wraps what the contract says in an error of its own.
    const refused = error?.payload ?? error;
    if (refused?.tag === "model") throw new HatcheryError("TOOL_FAILED", refused.val);
    if (refused?.tag === "fatal") throw new FatalError(refused.val.code, refused.val.message);
    if (typeof refused?.code === "string" && !(refused instanceof Error)) throw new HatcheryError(refused.code, refused.message);
    throw error;
  }
}

/** What a resource of the host has, piece by piece; it is given back in the end. */
function* pieces(source, read) {
  try {
    for (let next = ask(() => source.next()); next; next = ask(() => source.next())) yield read(next);
  } finally {
    source[Symbol.dispose]?.();
  }
}

const HOST = {
  info: () => ask(() => session.current()),
  userContent: () => convert.contentFromWit(ask(() => session.userContent())),
  getState: (key) => parsed(ask(() => session.getState(key))),
  allState: () => Object.fromEntries(ask(() => session.allState()).map(([key, value]) => [key, JSON.parse(value)])),
  setState: (key, value) => ask(() => session.setState(key, convert.json(value))),
  eventCount: () => Number(ask(() => session.eventCount())),
  events: (offset, limit) => ask(() => session.events(offset, limit)).map(convert.eventFromWit),
  confirmation: () => {
    const decided = ask(() => session.confirmation());
    return decided ? { ...decided, payload: parsed(decided.payload) } : undefined;
  },
  requestConfirmation: (hint, payload) =>
    ask(() => session.requestConfirmation(hint, payload === undefined ? null : convert.json(payload))),
  config: (key) => parsed(ask(() => config.get(key))),
  log: (level, message, fields) =>
    ask(() => log.write(level, message, Object.entries(fields).map(([name, value]) => [name, String(value)]))),
  transfer: (agent) => ask(() => agents.transfer(agent)),
  escalate: () => ask(() => agents.escalate()),
  skipSummarization: () => ask(() => agents.skipSummarization()),
  saveArtifact: (name, part) => Number(ask(() => artifacts.save(name, convert.partToWit(part)))),
  loadArtifact: (name, version) => {
    const part = ask(() => artifacts.load(name, version ?? null));
    return part ? convert.partFromWit(part) : undefined;
  },
  listArtifacts: () => ask(() => artifacts.list()),
  artifactVersions: (name) => Array.from(ask(() => artifacts.versions(name)), Number),
  deleteArtifact: (name) => ask(() => artifacts.delete(name)),
  searchMemory: (query) =>
    ask(() => memory.search(query)).map((entry) => ({
      content: convert.contentFromWit(entry.content), author: entry.author ?? undefined, timestampMicros: Number(entry.timestamp),
    })),
  callTool: (name, args) => JSON.parse(ask(() => tools.call(name, convert.json(args)))),
  *generate(asked, streamed) {
    yield* pieces(ask(() => model.generate(convert.requestToWit(asked), streamed)), convert.responseFromWit);
  },
  *runAgent(name) {
    yield* pieces(ask(() => agents.run(name)), convert.eventFromWit);
  },
};

/** False while the program starts, of which the component is a snapshot: there is no host then, and no chance. */
let isAwake = false;

const chance = Math.random;

Math.random = () => {
  if (!isAwake) return chance();
  const bytes = random.getRandomBytes(7);
  let value = bytes[0] & 31;
  for (let at = 1; at < 7; at += 1) value = value * 256 + bytes[at];
  return value / 2 ** 53;
};

const shown = (each) => {
  if (each instanceof Error) return `${each}\n${each.stack ?? ""}`.trim();
  return typeof each === "object" && each !== null ? JSON.stringify(each) : String(each);
};

const write = (level) => (...said) => {
  // A log that is full is no reason to fail.
  try {
    if (isAwake) log.write(level, said.map(shown).join(" "), []);
  } catch {}
};

globalThis.console = {
  log: write("info"), info: write("info"), warn: write("warn"), error: write("error"), debug: write("debug"), trace: write("trace"),
};

/** An error for the host; what the code did not mean to throw also goes to the log, with its stack. */
function failure(error) {
  if (error instanceof HatcheryError) return { code: error.code, message: error.message };
  if (!(error instanceof BadArguments)) console.error(error);
  return { code: "COMPONENT_FAILED", message: describe(error) };
}

function toolError(error) {
  return error instanceof FatalError ? { tag: "fatal", val: failure(error) } : { tag: "model", val: failure(error).message };
}

function find(items, kind, name) {
  if (!Object.hasOwn(items, name)) throw { code: "NOT_FOUND", message: `this component has no ${kind} \`${name}\`` };
  return items[name];
}

/** The exports `guest-tools`, `guest-agents` and `guest-callbacks` for what a module offers. */
export function exportsOf(offer) {
  return { guestTools: toolsOf(offer.tools), guestAgents: agentsOf(offer.agents), guestCallbacks: callbacksOf(offer.callbacks) };
}

function toolsOf(offered) {
  return {
    describe: () => Object.values(offered).map(convert.toolToWit),
    async call(name, args) {
      isAwake = true;
      try {
        const found = offered[name];
        if (!found) throw new HatcheryError("NOT_FOUND", `this component has no tool \`${name}\``);
        return convert.json(await found.call(JSON.parse(args), new Context(HOST)));
      } catch (error) {
        throw toolError(error);
      }
    },
  };
}

function agentsOf(offered) {
  return {
    describe: () => Object.values(offered).map(convert.agentToWit),
    async instruct(name, isGlobal) {
      isAwake = true;
      const found = find(offered, "agent", name);
      try {
        const instruction = isGlobal ? found.globalInstruction : found.instruction;
        return await instruction(new Context(HOST));
      } catch (error) {
        throw failure(error);
      }
    },
    async run(name) {
      isAwake = true;
      return say(find(offered, "custom agent", name));
    },
  };
}

/** What an agent says, as a stream; a failure is its last event. */
async function* say(agent) {
  try {
    const said = agent.run(new Context(HOST));
    if (said?.[Symbol.asyncIterator] || (said?.[Symbol.iterator] && typeof said !== "string")) {
      for await (const each of said) yield convert.eventToWit(event(each));
    } else {
      const only = await said;
      if (only !== undefined && only !== null) yield convert.eventToWit(event(only));
    }
  } catch (error) {
    const { code, message } = failure(error);
    yield convert.eventToWit({ errorCode: code, errorMessage: message });
  }
}

function callbacksOf(offered) {
  const call = async (name, ...given) => {
    isAwake = true;
    const found = find(offered, "callback", name);
    try {
      return (await found.run(...given, new Context(HOST))) ?? undefined;
    } catch (error) {
      throw failure(error);
    }
  };
  const asContent = (given) => given === undefined ? null : convert.contentToWit(typeof given === "string" ? content(given) : given);
  const error = ({ code, message }) => new HatcheryError(code, message);
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const asJson = (given) => (given === undefined ? null : convert.json(given));
  const asResponse = (given) => (given === undefined ? null : convert.responseToWit(given));
  return {
    describe: () => Object.values(offered).map(convert.callbackToWit),
    beforeAgent: async (name) => asContent(await call(name)),
    afterAgent: async (name) => asContent(await call(name)),
    onAgentError: async (name, failed) => asContent(await call(name, error(failed))),
    async beforeModel(name, sent) {
      const asked = convert.requestFromWit(sent);
      const given = await call(name, asked);
      if (given !== undefined) return { tag: "respond", val: convert.responseToWit(given) };
      const unchanged = same(asked, convert.requestFromWit(sent));
      return unchanged ? { tag: "proceed" } : { tag: "revise", val: convert.requestToWit(asked) };
    },
    async afterModel(name, received) {
      const answered = convert.responseFromWit(received);
      const given = await call(name, answered);
      return given === undefined && same(answered, convert.responseFromWit(received)) ? null : convert.responseToWit(given ?? answered);
    },
    onModelError: async (name, sent, failed) => asResponse(await call(name, convert.requestFromWit(sent), error(failed))),
    async beforeTool(name, { tool, args }) {
      const called = { tool, args: JSON.parse(args) };
      const given = await call(name, called);
      if (given !== undefined) return { tag: "respond", val: convert.json(given) };
      return same(called.args, JSON.parse(args)) ? { tag: "proceed" } : { tag: "revise", val: convert.json(called.args) };
    },
    async afterTool(name, { tool, args }, response) {
      const answered = JSON.parse(response);
      const given = await call(name, { tool, args: JSON.parse(args) }, answered);
      return given === undefined && same(answered, JSON.parse(response)) ? null : convert.json(given ?? answered);
    },
    onToolError: async (name, { tool, args }, failed) => asJson(await call(name, { tool, args: JSON.parse(args) }, error(failed))),
  };
}
