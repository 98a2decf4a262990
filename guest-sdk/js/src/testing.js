// A mock host for unit tests in Node.

import { content, joinResponses, outputsOf, textOf, toEvent, toResponse } from "./content.js";
import { Context } from "./context.js";
import { FatalError, HatcheryError, describe } from "./errors.js";
import { isEqual, parse, stringify } from "./json.js";
import { LiveRun, requestFromWit, requestToWit } from "./live.js";
import { decode } from "./utf8.js";
import { createFetch } from "./web/fetch.js";

/** A host that keeps everything in memory. Its fields can be checked after a test. The newest context has the `fetch` of its host. */
export class MockHost {
  state;
  /** The versions of each artifact. */
  artifacts = {};
  /** The custom metadata of the versions of each artifact. */
  artifactMetadata = {};
  /** The requests to models. */
  requests = [];
  /** Level, message and fields of log lines. */
  logLines = [];
  /** The progress that tools have reported. A real host sends at most ten reports of a call per second. */
  progress = [];
  requestedConfirmation;
  requestedCredential;
  credentialOfUser;
  transferredTo;
  hasEscalated = false;
  hasEndedInvocation = false;
  hasSkippedSummarization = false;
  /** The runs of apps that the code has started. */
  runRequests = [];
  /** The ids of the runs that the code has cancelled. */
  cancelledRuns = [];
  /** The requests to web servers. Each redirect is a separate request. */
  httpRequests = [];
  /** The entries of the memory. */
  memory;
  /** The user's other sessions, by app and id: their state and their events. */
  sessions = {};
  #setup;

  constructor(setup = {}) {
    this.state = { ...setup.state };
    this.credentialOfUser = setup.credential;
    this.#setup = {
      config: {}, runMetadata: {}, userMessage: "", events: [], tools: {}, subAgents: {}, plugins: [], models: [], apps: {},
      idempotencyKey: "key-of-call", ...setup,
      responses: [...(setup.responses ?? [])],
    };
    this.memory = [...(setup.memory ?? [])];
    for (const [app, sessions] of Object.entries(setup.sessions ?? {})) {
      for (const [id, events] of Object.entries(sessions)) this.#sessionsOf(app)[id] = { state: {}, events: events.map(toEvent) };
    }
  }

  /** Returns a context for all items. */
  context() {
    this.#installFetch();
    return new Context(this);
  }

  /** Returns a context for the function of an instruction or of a toolset, where changes fail with the code `READ_ONLY`. */
  readOnlyContext() {
    const host = new Proxy(this, { get: (_, name) => (CHANGES.includes(name) ? refuse : bind(this, name)) });
    this.#installFetch();
    return new Context(host);
  }

  /** Answers the requests of the code. */
  #installFetch() {
    globalThis.fetch = createFetch(async ({ method, url, headers, body }) => {
      const request = { method, url, headers: Object.fromEntries(headers), body: decode(body) };
      this.httpRequests.push(request);
      const { http } = this.#setup;
      if (!http) throw new HatcheryError(`no response to \`${method} ${url}\`; give MockHost a function in \`http\``, "HTTP_FAILED");
      const response = await http(request);
      return { status: response.status, headers: [...response.headers], body: new Uint8Array(await response.arrayBuffer()) };
    });
  }

  info() {
    return {
      app: "app", user: "user", session: "session", invocationId: "e-test", agent: "agent", streamingMode: "none", isResumable: false,
      depth: 0, remaining: {}, ...this.#setup.info,
    };
  }

  arguments() {
    return structuredClone(this.#setup.arguments);
  }

  plugins() {
    return this.#setup.plugins;
  }

  plugin(name) {
    return this.#setup.plugins.find((plugin) => plugin.name === name);
  }

  models() {
    return this.#setup.models;
  }

  embed(model, texts) {
    const { embed } = this.#setup;
    if (!embed) throw new HatcheryError(`model \`${model}\` not found; give MockHost a function in \`embed\``, "MODEL_UNKNOWN");
    return texts.map((text) => embed(text));
  }

  userContent() {
    return content(this.#setup.userMessage, "user");
  }

  runMetadata() {
    return structuredClone(this.#setup.runMetadata);
  }

  getState(key) {
    return structuredClone(own(this.state, key));
  }

  allState() {
    return structuredClone(this.state);
  }

  setState(key, value) {
    if (value === null || value === undefined) delete this.state[key];
    else this.state[key] = parse(stringify(value));
  }

  eventCount() {
    return this.#setup.events.length;
  }

  events(offset, limit) {
    return this.#setup.events.slice(offset, offset + limit);
  }

  idempotencyKey() {
    return this.#setup.idempotencyKey;
  }

  confirmation() {
    return this.#setup.confirmation;
  }

  requestConfirmation(hint, payload) {
    this.requestedConfirmation = { hint, payload };
  }

  reportProgress({ progress, total, message }) {
    if (!Number.isFinite(progress) || (total !== undefined && !Number.isFinite(total))) {
      throw new HatcheryError("progress and its total must be finite numbers; leave an unknown total out", "BAD_INPUT");
    }
    this.progress.push({ progress, ...(total !== undefined && { total }), ...(message !== undefined && { message }) });
  }

  credential(config) {
    if (!this.credentialOfUser) this.requestedCredential = parse(stringify(config));
    return structuredClone(this.credentialOfUser);
  }

  refuseCredential(config, credential) {
    if (stringify(credential) === stringify(this.credentialOfUser)) this.credentialOfUser = undefined;
  }

  config(key) {
    return own(this.#setup.config, key);
  }

  log(level, message, fields) {
    this.logLines.push([level, message, fields]);
  }

  transfer(agent) {
    this.transferredTo = agent;
  }

  escalate() {
    this.hasEscalated = true;
  }

  endInvocation() {
    this.hasEndedInvocation = true;
  }

  skipSummarization() {
    this.hasSkippedSummarization = true;
  }

  saveArtifact(name, part, customMetadata = {}) {
    this.artifacts[name] ??= [];
    this.artifactMetadata[name] ??= [];
    const version = this.artifacts[name].push(part) - 1;
    this.artifactMetadata[name][version] = structuredClone(customMetadata);
    return version;
  }

  loadArtifact(name, version) {
    return own(this.artifacts, name)?.at(version ?? -1);
  }

  listArtifacts() {
    return Object.keys(this.artifacts).sort();
  }

  artifactVersions(name) {
    return (this.artifacts[name] ?? []).map((_, version) => version);
  }

  artifactVersion(name, version = (this.artifacts[name]?.length ?? 0) - 1) {
    const part = this.artifacts[name]?.[version];
    if (!part) return undefined;
    const mimeType = part.inlineData?.mimeType ?? part.fileData?.mimeType;
    const size = part.inlineData?.data.length ?? new TextEncoder().encode(part.text ?? "").length;
    const customMetadata = structuredClone(this.artifactMetadata[name]?.[version] ?? {});
    return { version, ...(mimeType && { mimeType }), size, createdMicros: version * 1e6, customMetadata };
  }

  deleteArtifact(name) {
    delete this.artifacts[name];
    delete this.artifactMetadata[name];
  }

  searchMemory(query) {
    const asked = wordsOf(query);
    const counted = this.memory.map((entry) => [wordsOf(textOf(entry.content)).filter((word) => asked.includes(word)).length, entry]);
    return counted.filter(([count]) => count).sort(([one], [other]) => other - one).map(([, entry]) => entry);
  }

  addSessionToMemory(id) {
    const own = () => [{ content: this.userContent(), author: "user" }, ...this.#setup.events];
    this.addEventsToMemory(id === undefined ? own() : this.#session(this.info().app, id).events);
  }

  addEventsToMemory(events) {
    for (const { content: message, author, timestampMicros = 0 } of events) {
      const entry = { content: message, author, timestampMicros };
      const isKnown = this.memory.some((known) => isEqual(known, entry));
      if (textOf(message) && !isKnown) this.memory.push(entry);
    }
  }

  listApps() {
    return Object.keys(this.#setup.apps).sort();
  }

  runApp(request) {
    this.runRequests.push(request);
    const app = own(this.#setup.apps, request.app);
    if (!app) throw new HatcheryError(`app \`${request.app}\` not found; give it to MockHost in \`apps\``, "NOT_FOUND");
    const number = this.runRequests.length;
    return { invocationId: `e-run-${number}`, session: request.session ?? `session-${number}`, events: Array.from(app(request), toEvent) };
  }

  runAppLive({ app, session = "live-session" }) {
    if (!own(this.#setup.apps, app)) throw new HatcheryError(`app \`${app}\` not found; give it to MockHost in \`apps\``, "NOT_FOUND");
    const waiting = [];
    let isClosed = false;
    const requests = {
      send(request) {
        if (isClosed) throw new HatcheryError("the live run takes no more requests", "LIVE_CLOSED");
        waiting.push(requestFromWit(requestToWit(request)));
      },
      close() {
        isClosed = true;
      },
    };
    return new LiveRun(session, requests, this.#liveEvents(app, session, waiting));
  }

  /** Answers each message as a run of the mock app, whose last event ends the turn. */
  *#liveEvents(app, session, waiting) {
    for (let request = waiting.shift(); request; request = waiting.shift()) {
      if (!request.content || request.partial) {
        yield { errorCode: "BAD_INPUT", errorMessage: "MockHost answers complete messages only" };
        return;
      }
      yield* this.runApp({ app, session, message: request.content, stateDelta: {}, streaming: true }).events;
      yield { partial: true, turnComplete: true };
    }
  }

  cancelRun(invocationId) {
    this.cancelledRuns.push(invocationId);
  }

  createSession(app, id, state) {
    const sessions = this.#sessionsOf(app);
    const key = id ?? `session-${Object.keys(sessions).length + 1}`;
    if (sessions[key]) throw new HatcheryError(`session \`${key}\` exists already`, "SESSION_EXISTS");
    sessions[key] = { state: { ...state }, events: [] };
    return this.getSession(app, key);
  }

  getSession(app, id) {
    const session = own(this.#sessionsOf(app), id);
    return session && { app, id, state: session.state, eventCount: session.events.length, createdMicros: 0, updatedMicros: 0 };
  }

  listSessions(app, offset, limit) {
    const ids = Object.keys(this.#sessionsOf(app)).reverse();
    return ids.slice(offset, offset + limit).map((id) => this.getSession(app, id));
  }

  sessionEvents(app, id, { recent, afterMicros }, offset, limit) {
    const since = this.#session(app, id).events.filter((event) => (event.timestampMicros ?? 0) >= (afterMicros ?? 0));
    return since.slice(recent === undefined ? 0 : Math.max(since.length - recent, 0)).slice(offset, offset + limit);
  }

  appendEvent(app, id, event) {
    this.#checkNotRunning(app, id);
    const session = this.#session(app, id);
    const number = session.events.length + 1;
    const stored = { ...event, id: `event-${number}`, author: event.author || this.info().agent, timestampMicros: number };
    for (const [key, value] of Object.entries(event.actions?.stateDelta ?? {})) {
      if (value === null) delete session.state[key];
      else session.state[key] = value;
    }
    session.events.push(stored);
    return stored;
  }

  deleteSession(app, id) {
    this.#checkNotRunning(app, id);
    delete this.#sessionsOf(app)[id];
  }

  #sessionsOf(app) {
    this.sessions[app] ??= {};
    return this.sessions[app];
  }

  #session(app, id) {
    const session = own(this.#sessionsOf(app), id);
    if (session) return session;
    throw new HatcheryError(`session \`${id}\` of app \`${app}\` not found; give it to MockHost in \`sessions\``, "SESSION_NOT_FOUND");
  }

  #checkNotRunning(app, id) {
    const info = this.info();
    if (app !== info.app || id !== info.session) return;
    throw new HatcheryError("this is the session of the current run: its agents emit events instead", "SESSION_IN_USE");
  }

  callTool(name, args) {
    const { tools } = this.#setup;
    const tool = Array.isArray(tools) ? tools.find((each) => each.name === name) : own(tools, name);
    if (!tool) throw new HatcheryError(`tool \`${name}\` not found; give it to MockHost in \`tools\``, "TOOL_FAILED");
    const sent = parse(stringify(args));
    try {
      const result = typeof tool === "function" ? tool(sent) : tool.call(sent, this.context());
      return result instanceof Promise ? result.then(toResult).catch(raise) : toResult(result);
    } catch (error) {
      return raise(error);
    }
  }

  *generate(request, streaming) {
    this.requests.push(request);
    const { responses } = this.#setup;
    if (!responses.length) throw new HatcheryError("no response is left; give MockHost more `responses`", "MODEL_SCRIPT_ENDED");
    const response = responses.shift();
    if (response instanceof Error) throw response;
    const complete = toResponse(response);
    const words = streaming ? textOf(complete).split(/\s+/).filter(Boolean) : [];
    for (const word of words) yield { content: content(`${word} `), partial: true };
    yield complete;
  }

  *runSubAgent(name) {
    const events = own(this.#setup.subAgents, name);
    if (!events) throw new HatcheryError(`agent \`${name}\` not found; give it to MockHost in \`subAgents\``, "NOT_FOUND");
    yield* events;
  }
}

/** Returns a property that an object itself has: all inherit some, such as `constructor`. */
const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);

/** Returns the result of a tool as its caller gets it. */
const toResult = (result) => parse(stringify(result));

/** Throws the error of a tool as its caller gets it. */
function raise(error) {
  throw error instanceof FatalError ? error : new HatcheryError(describe(error), "TOOL_FAILED");
}

/** Returns everything that an agent yields. */
export async function collect(outputs) {
  const all = [];
  for await (const output of outputs) all.push(output);
  return all;
}

/** Returns the complete answer of a model. */
export async function answer(model, request, ctx) {
  const received = { model: "", systemInstructions: [], tools: [], modelTools: [], config: {}, ...request };
  return joinResponses((await collect(outputsOf(model.run(received, ctx)))).map(toResponse));
}

/** The functions of the host that change something. */
const CHANGES = [
  "setState", "requestConfirmation", "reportProgress", "credential", "refuseCredential", "transfer", "escalate", "endInvocation",
  "skipSummarization", "saveArtifact", "deleteArtifact",
  "addSessionToMemory", "addEventsToMemory", "runApp", "runAppLive", "cancelRun", "createSession", "appendEvent", "deleteSession",
];

function refuse() {
  throw new HatcheryError("the code of an instruction or a toolset only reads", "READ_ONLY");
}

const bind = (host, name) => (typeof host[name] === "function" ? host[name].bind(host) : host[name]);

const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
