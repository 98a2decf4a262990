// The implementation of the contract; only a component can import it. It implements the exports for the items of a module, and the host of
// contexts by the imports.

import clock from "wasi:clocks/monotonic-clock@0.2.0";
import random from "wasi:random/random@0.2.0";
import agents from "hatchery:agent/sync-agents@@VERSION@";
import artifacts from "hatchery:agent/sync-artifacts@@VERSION@";
import config from "hatchery:agent/config@@VERSION@";
import credentials from "hatchery:agent/sync-credentials@@VERSION@";
import http from "hatchery:agent/sync-http@@VERSION@";
import log from "hatchery:agent/log@@VERSION@";
import memory from "hatchery:agent/sync-memory@@VERSION@";
import models from "hatchery:agent/sync-models@@VERSION@";
import plugins from "hatchery:agent/plugins@@VERSION@";
import runner from "hatchery:agent/sync-runner@@VERSION@";
import session from "hatchery:agent/session@@VERSION@";
import sessions from "hatchery:agent/sync-sessions@@VERSION@";
import tools from "hatchery:agent/sync-tools@@VERSION@";

import * as convert from "./convert.js";
import { FatalError, HatcheryError } from "./errors.js";
import { EventLoop } from "./event-loop.js";
import { createExports } from "./exports.js";
import { inspect, parse, stringify } from "./json.js";
import * as live from "./live.js";
import { translateStack } from "./stack.js";
import * as web from "./web.js";

export { useLines } from "./stack.js";

const { parseOptional } = convert;

/** Converts an error of the host. */
function toError(error) {
  // The JavaScript engine wraps errors of the contract.
  const failure = error?.payload ?? error;
  if (failure?.tag === "recoverable") return new HatcheryError(failure.val, "TOOL_FAILED");
  if (failure?.tag === "fatal") return new FatalError(failure.val.message, failure.val.code);
  if (typeof failure?.code === "string" && !(failure instanceof Error)) return new HatcheryError(failure.message, failure.code);
  return error;
}

/** Calls the host, and converts its errors. */
function callHost(call) {
  try {
    return call();
  } catch (error) {
    throw toError(error);
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

const optional = (value, convertValue) => (value === null || value === undefined ? undefined : convertValue(value));

const HOST = {
  info: () => convert.infoFromWit(callHost(() => session.current())),
  userContent: () => convert.contentFromWit(callHost(() => session.userContent())),
  runMetadata: () => parse(callHost(() => session.runMetadata())),
  getState: (key) => parseOptional(callHost(() => session.getState(key))),
  allState: () => convert.stateFromWit(callHost(() => session.getAllState())),
  setState: (key, value) => callHost(() => session.setState(key, stringify(value))),
  eventCount: () => Number(callHost(() => session.eventCount())),
  events: (offset, limit) => callHost(() => session.events(offset, limit)).map(convert.eventFromWit),
  idempotencyKey: () => callHost(() => session.idempotencyKey()) ?? undefined,
  confirmation: () => {
    const confirmation = callHost(() => session.confirmation());
    return confirmation ? { ...confirmation, payload: parseOptional(confirmation.payload) } : undefined;
  },
  requestConfirmation: (hint, payload) =>
    callHost(() => session.requestConfirmation(hint, payload === undefined ? null : stringify(payload))),
  reportProgress: ({ progress, total, message }) => callHost(() => session.reportProgress(progress, total ?? null, message ?? null)),
  credential: (config) => parseOptional(callHost(() => credentials.get(stringify(config)))),
  refuseCredential: (config, credential) => callHost(() => credentials.refuse(stringify(config), stringify(credential))),
  config: (key) => parseOptional(callHost(() => config.get(key))),
  arguments: () => parseOptional(callHost(() => config.arguments())),
  plugins: () => callHost(() => plugins.list()).map(convert.pluginFromWit),
  plugin: (name) => optional(callHost(() => plugins.get(name)), convert.pluginFromWit),
  log: (level, message, fields) =>
    callHost(() => log.write(level, message, Object.entries(fields).map(([name, value]) => [name, String(value)]))),
  transfer: (agent) => callHost(() => agents.transfer(agent)),
  escalate: () => callHost(() => agents.escalate()),
  endInvocation: () => callHost(() => agents.endInvocation()),
  skipSummarization: () => callHost(() => agents.skipSummarization()),
  saveArtifact: (name, part, metadata) => {
    const save = () => (metadata ? artifacts.saveWith(name, convert.partToWit(part), stringify(metadata)) : artifacts.save(name, convert.partToWit(part)));
    return Number(callHost(save));
  },
  loadArtifact: (name, version) => optional(callHost(() => artifacts.load(name, version ?? null)), convert.partFromWit),
  listArtifacts: () => callHost(() => artifacts.list()),
  artifactVersions: (name) => Array.from(callHost(() => artifacts.versions(name)), Number),
  artifactVersion: (name, version) => optional(callHost(() => artifacts.getVersion(name, version ?? null)), convert.artifactVersionFromWit),
  deleteArtifact: (name) => callHost(() => artifacts.delete(name)),
  searchMemory: (query) =>
    callHost(() => memory.search(query)).map((entry) => ({
      content: convert.contentFromWit(entry.content), author: entry.author ?? undefined, timestampMicros: Number(entry.timestamp),
    })),
  addSessionToMemory: (id) => callHost(() => memory.addSession(id ?? null)),
  addEventsToMemory: (events) => callHost(() => memory.addEvents(events.map(convert.eventToWit))),
  callTool: (name, args) => parse(callHost(() => tools.call(name, stringify(args)))),
  models: () => callHost(() => models.list()),
  embed: (model, texts) => callHost(() => models.embed(model, texts)).map((vector) => Array.from(vector)),
  *generate(request, streaming) {
    yield* iterate(callHost(() => models.generate(convert.requestToWit(request), streaming)), convert.responseFromWit);
  },
  *runSubAgent(name) {
    yield* iterate(callHost(() => agents.run(name)), convert.eventFromWit);
  },
  listApps: () => callHost(() => runner.listApps()),
  runApp(request) {
    const run = callHost(() => runner.run(convert.runRequestToWit(request)));
    return { ...callHost(() => run.info()), events: iterate(run, convert.eventFromWit) };
  },
  runAppLive(request) {
    const run = callHost(() => runner.runLive(live.runRequestToWit(request)));
    const requests = {
      send: (request) => callHost(() => run.send(live.requestToWit(request))),
      close: () => callHost(() => run.close()),
    };
    return new live.LiveRun(callHost(() => run.session()), requests, iterate(run, convert.eventFromWit));
  },
  cancelRun: (invocationId) => callHost(() => runner.cancel(invocationId)),
  createSession: (app, id, state) =>
    convert.sessionFromWit(callHost(() => sessions.create(app, id ?? null, convert.stateToWit(state)))),
  getSession: (app, id) => optional(callHost(() => sessions.get(app, id)), convert.sessionFromWit),
  listSessions: (app, offset, limit) => callHost(() => sessions.list(app, offset, limit)).map(convert.sessionFromWit),
  sessionEvents: (app, id, window, offset, limit) =>
    callHost(() => sessions.events(app, id, convert.windowToWit(window), offset, limit)).map(convert.eventFromWit),
  appendEvent: (app, id, event) => convert.eventFromWit(callHost(() => sessions.append(app, id, convert.eventToWit(event)))),
  deleteSession: (app, id) => callHost(() => sessions.delete(app, id)),
};

/** False until the first call of the host. The snapshot of the program is taken before it, without imports. */
let isRunning = false;

const builtInRandom = Math.random;

const randomBytes = (count) => {
  if (isRunning) return random.getRandomBytes(count);
  throw new Error("there are no secure random numbers while a module is loaded; use them in the code of tools, agents and callbacks");
};

Math.random = () => {
  if (!isRunning) return builtInRandom();
  const bytes = randomBytes(7);
  let value = bytes[0] & 31;
  for (let index = 1; index < 7; index += 1) value = value * 256 + bytes[index];
  return value / 2 ** 53;
};

const format = (value) => {
  if (value instanceof Error) return `${value}\n${translateStack(value.stack ?? "")}`.trim();
  return typeof value === "object" && value !== null ? inspect(value) : String(value);
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

const loop = new EventLoop({
  now: () => Number(clock.now()),
  start(request) {
    if (!isRunning) throw new Error("no request can be sent while a module is loaded; send it in the code of tools, agents and callbacks");
    return callHost(() => http.start(request));
  },
  wait: (exchanges, timeout) => http.wait(exchanges, timeout),
  responseOf: (exchange) => callHost(() => exchange.response()),
});

web.install({
  send: (request) => loop.send(request),
  sleep(milliseconds, isNeeded) {
    if (!isRunning) throw new Error("timers cannot be used while a module is loaded; use them in the code of tools, agents and callbacks");
    return loop.sleep(milliseconds, isNeeded);
  },
  now: () => (isRunning ? Number(clock.now()) / 1e6 : 0),
  randomBytes,
  report: (error) => console.error(error),
});

/** Implements the interfaces of the contract for the items of a component. */
export const exportsOf = (component) =>
  createExports(component, HOST, () => {
    isRunning = true;
  });
