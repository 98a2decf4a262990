// Contexts: access to the session and the services of the host. A context holds no data: every method calls the host and waits
// for the result. `await` before a call is allowed.

import { content, textOf, toEvent, toPart, toRequest } from "./content.js";
import { HatcheryError } from "./errors.js";

/** The largest number of items that one call can return. */
const MAX_LIMIT = 2 ** 32 - 1;

/** Throws a `RangeError` for an offset or a limit that the contract cannot express. */
function checkRange(offset, limit) {
  if (!Number.isSafeInteger(offset) || offset < 0) throw new RangeError(`\`offset\` is an integer from 0 on, not ${offset}`);
  if (!Number.isInteger(limit) || limit < 0 || limit > MAX_LIMIT) {
    throw new RangeError(`\`limit\` is an integer from 0 to ${MAX_LIMIT}, not ${limit}`);
  }
}

class State {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Returns the value of a key, including the code's own changes; `undefined` if it is not set. */
  get(key) {
    return this.#host.getState(key);
  }

  /** Sets a key. `app:…` is shared by all users, `user:…` by the user's sessions. `temp:…` keys only exist during this run. */
  set(key, value) {
    this.#host.setState(key, value);
  }

  delete(key) {
    this.#host.setState(key, null);
  }

  /** Returns all state, including the code's own changes. */
  all() {
    return this.#host.allState();
  }
}

class Artifacts {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /**
   * Saves a new version and returns its number, starting at 0. `mimeType` is the type of bytes, `customMetadata` is an object for other
   * programs, up to 64 KiB of JSON.
   */
  save(name, data, mimeType = "application/octet-stream", customMetadata = undefined) {
    return this.#host.saveArtifact(name, toPart(data, mimeType), customMetadata);
  }

  /** Returns a version, by default the newest; `undefined` if there is none. */
  load(name, version) {
    return this.#host.loadArtifact(name, version);
  }

  /** Returns the names, sorted. */
  list() {
    return this.#host.listArtifacts();
  }

  /** Returns the version numbers of an artifact, ascending. */
  versions(name) {
    return this.#host.artifactVersions(name);
  }

  /** Returns what is known about a version, by default the newest, without its content; `undefined` if there is none. */
  version(name, version) {
    return this.#host.artifactVersion(name, version);
  }

  /** Deletes all versions of an artifact. */
  delete(name) {
    this.#host.deleteArtifact(name);
  }
}

class Memory {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Returns the entries that match the query, best first. */
  search(query) {
    return this.#host.searchMemory(query);
  }

  /** Adds a session of the user in the current app, by default the current one. Replaces its earlier entries. */
  addSession(id) {
    this.#host.addSessionToMemory(id);
  }

  /** Adds events to the current session's events that were added before. Events with the id of one of them are skipped. */
  addEvents(events) {
    this.#host.addEventsToMemory(Array.from(events, toEvent));
  }
}

/** A run in progress: iterating over it returns its events. A run that fails throws its error. */
class Run {
  #host;
  #events;

  constructor(host, { invocationId, session, events }) {
    this.#host = host;
    this.#events = events;
    this.invocationId = invocationId;
    this.session = session;
  }

  *[Symbol.iterator]() {
    for (const event of this.#events) {
      if (event.errorCode) throw new HatcheryError(event.errorMessage ?? "", event.errorCode);
      yield event;
    }
  }

  /** Waits for the end of the run, and returns the text of its last message. */
  text() {
    let text = "";
    for (const event of this) if (!event.partial && event.content) text = textOf(event);
    return text;
  }

  /** Cancels the run. Its events end with an error. */
  cancel() {
    this.#host.cancelRun(this.invocationId);
  }
}

class Runner {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Returns the names of the apps that the component may run, sorted. */
  listApps() {
    return this.#host.listApps();
  }

  /** Starts a run. Its model calls, tokens and events count towards the current run. */
  run({ app, message, session, stateDelta = {}, streaming = false }) {
    const sent = typeof message === "string" ? content(message, "user") : message;
    if (!Array.isArray(sent?.parts)) throw new TypeError("a run needs a `message`: a string or a content");
    return new Run(this.#host, this.#host.runApp({ app, message: sent, session, stateDelta, streaming }));
  }

  /** Opens a live run, whose requests are sent while it is in progress. */
  runLive({ app, session, config = {} }) {
    return this.#host.runAppLive({ app, session, config });
  }
}

class Sessions {
  #host;

  constructor(host, app) {
    this.#host = host;
    this.app = app;
  }

  /** Creates a session; with a new id if it is `undefined`. */
  create(id, state = {}) {
    return this.#host.createSession(this.app, id, state);
  }

  /** Returns a session; `undefined` if it does not exist. */
  get(id) {
    return this.#host.getSession(this.app, id);
  }

  /** Returns up to `limit` sessions from number `offset` on, most recently updated first. */
  list(offset = 0, limit = 100) {
    checkRange(offset, limit);
    return this.#host.listSessions(this.app, offset, limit);
  }

  /** Returns up to `limit` events from number `offset` on, oldest first: of all, of the `recent` ones, or of those since `afterMicros`. */
  events(id, { recent, afterMicros, offset = 0, limit = 100 } = {}) {
    checkRange(offset, limit);
    return this.#host.sessionEvents(this.app, id, { recent, afterMicros }, offset, limit);
  }

  /** Appends an event of the current agent, and returns it as it was stored. */
  append(id, event) {
    return this.#host.appendEvent(this.app, id, toEvent(event));
  }

  /** Deletes a session and its events. Does nothing if it does not exist. */
  delete(id) {
    this.#host.deleteSession(this.app, id);
  }
}

/** Access to the session and the services. Methods throw a `HatcheryError` if the host refuses an operation. */
export class Context {
  #host;

  constructor(host) {
    this.#host = host;
    this.state = new State(host);
    this.artifacts = new Artifacts(host);
    this.memory = new Memory(host);
    this.runner = new Runner(host);
    const log = (level) => (message, fields = {}) => host.log(level, String(message), fields);
    this.log = { error: log("error"), warn: log("warn"), info: log("info"), debug: log("debug") };
  }

  /** The call in which the code runs. */
  get info() {
    return this.#host.info();
  }

  /** The user message that started this run. */
  get userContent() {
    return this.#host.userContent();
  }

  /** The custom metadata that the request for the run has, such as ids of traces or of tenants; empty if it has none. */
  get runMetadata() {
    return this.#host.runMetadata();
  }

  /** The number of events in the session. */
  get eventCount() {
    return this.#host.eventCount();
  }

  /** Returns up to `limit` events starting at index `offset`, oldest first; fewer if they are large. */
  events(offset = 0, limit = 100) {
    checkRange(offset, limit);
    return this.#host.events(offset, limit);
  }

  /** Returns a setting of the component from `hatchery.yaml`. */
  config(key, defaultValue) {
    return this.#host.config(key) ?? defaultValue;
  }

  /** The arguments with which the configuration uses the tool or plugin that is called; `undefined` if there are none. */
  get arguments() {
    return this.#host.arguments();
  }

  /** Returns access to the sessions of the user in an app. */
  sessions(app) {
    return new Sessions(this.#host, app);
  }

  /** Returns the plugins of the run, in the order in which they run. */
  plugins() {
    return this.#host.plugins();
  }

  /** Returns a plugin of the run; `undefined` if no plugin has this name. */
  plugin(name) {
    return this.#host.plugin(name);
  }

  /** Returns the names and patterns of the models that the component is granted. */
  models() {
    return this.#host.models();
  }

  /** Returns one vector per text, all of the same length. */
  embed(model, texts) {
    return this.#host.embed(model, [...texts]);
  }

  /** Calls a tool of the agent. */
  callTool(name, args = {}) {
    return this.#host.callTool(name, args);
  }

  /** Calls a model, by default the agent's own, and waits for the complete response. */
  generate(prompt, options) {
    let last;
    for (const response of this.#responses(toRequest(prompt, options), false)) last = response;
    if (!last) throw new HatcheryError("the model gave no answer", "MODEL_BAD_RESPONSE");
    return last;
  }

  /** Calls a model and streams its response: partial responses with new text, then the complete one. */
  stream(prompt, options) {
    return this.#responses(toRequest(prompt, options), true);
  }

  *#responses(request, streaming) {
    for (const response of this.#host.generate(request, streaming)) {
      if (response.errorCode) throw new HatcheryError(response.errorMessage ?? "", response.errorCode);
      yield response;
    }
  }

  /**
   * Starts a sub-agent of a custom agent and returns its events. It advances as its events are read. An event becomes part of the session
   * when the agent yields it, and is dropped if the next one is read first.
   */
  subAgent(name) {
    return this.#host.runSubAgent(name);
  }

  /** Transfers the conversation to another agent after this call (tools and callbacks). */
  transferTo(agent) {
    this.#host.transfer(agent);
  }

  /**
   * Ends the nearest loop around the agent, and the parallel agents in between, after this call; in a custom agent, with the next event that
   * it yields, or at its end.
   */
  escalate() {
    this.#host.escalate();
  }

  /**
   * Ends the run after this call, and no further agent runs; in a custom agent, with the next event that it yields, or at its end. In an
   * agent that is called as a tool, ends the run of that agent.
   */
  endInvocation() {
    this.#host.endInvocation();
  }

  /** Makes the tool's result the final answer, without a summary by the model. */
  skipSummarization() {
    this.#host.skipSummarization();
  }

  /**
   * The idempotency key of this tool call, for services that ignore repeated requests. A call that is repeated after a crash of the host has
   * the same key; no other call has it. `undefined` outside of a tool call.
   */
  get idempotencyKey() {
    return this.#host.idempotencyKey();
  }

  /** A person's decision about this tool call; `undefined` if no one was asked. */
  get confirmation() {
    return this.#host.confirmation();
  }

  /**
   * Requests confirmation of this tool call by a person. The tool's result should say that it is waiting. Once the person has decided, the
   * tool is called again with the same arguments, and `confirmation` has the decision.
   */
  requestConfirmation(hint, payload) {
    this.#host.requestConfirmation(hint, payload);
  }

  /**
   * Reports the progress of this tool call to the clients of a run with streaming, in a unit of the tool's choice; an unknown `total` is left
   * out. Reports that follow each other quickly replace each other, and the last one always arrives.
   */
  reportProgress({ progress, total, message }) {
    this.#host.reportProgress({ progress, total, message });
  }

  /**
   * The user's credential for a service, an `AuthCredential` of ADK. If it is `undefined`, the user is being asked: the tool's result should
   * say that it is waiting. The tool is called again with the same arguments after the answer. The host keeps the credential encrypted
   * for this component, and refreshes tokens. Needs the grant `network`.
   */
  credential(config) {
    return this.#host.credential(config);
  }

  /** Reports that the service has refused a credential. The next `credential` refreshes a token, and asks the user again for anything else. */
  refuseCredential(config, credential) {
    this.#host.refuseCredential(config, credential);
  }
}
