// Contexts: access to the session and the services of the host. A context has no data of its own: every method calls the host and waits
// for the result. `await` before a call is allowed.

import { toRequest } from "./content.js";
import { HatcheryError } from "./errors.js";

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

  /** Saves a new version and returns its number, starting at 0. `mimeType` is that of bytes. */
  save(name, data, mimeType = "application/octet-stream") {
    const blob = data instanceof Uint8Array && { inlineData: { mimeType, data } };
    return this.#host.saveArtifact(name, blob || (typeof data === "string" ? { text: data } : data));
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

  /** Deletes all versions of an artifact. */
  delete(name) {
    this.#host.deleteArtifact(name);
  }
}

/** Access to the session and the services. Methods throw a `HatcheryError` if the host refuses an operation. */
export class Context {
  #host;

  constructor(host) {
    this.#host = host;
    this.state = new State(host);
    this.artifacts = new Artifacts(host);
    this.memory = { search: (query) => host.searchMemory(query) };
    const log = (level) => (message, fields = {}) => host.log(level, String(message), fields);
    this.log = { error: log("error"), warn: log("warn"), info: log("info"), debug: log("debug") };
  }

  /** The call in which the code runs: app, user, session, invocationId, agent. */
  get info() {
    return this.#host.info();
  }

  /** The user message that started this run. */
  get userContent() {
    return this.#host.userContent();
  }

  /** The number of events in the session. */
  get eventCount() {
    return this.#host.eventCount();
  }

  /** Returns up to `limit` events starting at index `offset`, oldest first; fewer if they are large. */
  events(offset = 0, limit = 100) {
    return this.#host.events(offset, limit);
  }

  /** Returns a setting of the component from `hatchery.yaml`. */
  config(key, defaultValue) {
    return this.#host.config(key) ?? defaultValue;
  }

  /** Calls a tool of the agent. */
  callTool(name, args = {}) {
    return this.#host.callTool(name, args);
  }

  /** Calls a model, by default the agent's own, and waits for the complete response. */
  generate(prompt, options) {
    let last;
    for (const response of this.#responses(toRequest(prompt, options), false)) last = response;
    if (!last) throw new HatcheryError("MODEL_BAD_RESPONSE", "the model gave no answer");
    return last;
  }

  /** Calls a model and streams its response: partial responses with new text, then the complete one. */
  stream(prompt, options) {
    return this.#responses(toRequest(prompt, options), true);
  }

  *#responses(request, streaming) {
    for (const response of this.#host.generate(request, streaming)) {
      if (response.errorCode) throw new HatcheryError(response.errorCode, response.errorMessage ?? "");
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

  /** Ends the nearest loop around the agent, and the parallel agents in between, after this call. */
  escalate() {
    this.#host.escalate();
  }

  /** Makes the tool's result the final answer, without a summary by the model. */
  skipSummarization() {
    this.#host.skipSummarization();
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
}
