// What code is given: the session and the services of the host. A context holds nothing of a session: every method asks the host, and
// waits for the answer. `await` in front of a call does no harm.

import { request } from "./content.js";
import { HatcheryError } from "./errors.js";

class State {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** The value of a key, own changes included; `undefined` when it is not set. */
  get(key) {
    return this.#host.getState(key);
  }

  /** Sets a key. `app:…` is shared by all users, `user:…` by the user's sessions, `temp:…` lasts only for this run. */
  set(key, value) {
    this.#host.setState(key, value);
  }

  delete(key) {
    this.#host.setState(key, null);
  }

  /** All of it. */
  all() {
    return this.#host.allState();
  }
}

class Artifacts {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Saves a new version, a text, bytes with their type, or a part; gives its number, from 0. */
  save(name, data, mimeType = "application/octet-stream") {
    const bytes = data instanceof Uint8Array && { inlineData: { mimeType, data } };
    return this.#host.saveArtifact(name, bytes || (typeof data === "string" ? { text: data } : data));
  }

  /** A version, or the newest, as a part; `undefined` when there is none. */
  load(name, version) {
    return this.#host.loadArtifact(name, version);
  }

  list() {
    return this.#host.listArtifacts();
  }

  versions(name) {
    return this.#host.artifactVersions(name);
  }

  delete(name) {
    this.#host.deleteArtifact(name);
  }
}

/** The session and the services, as all code of a component sees them. Whatever the host refuses throws a `HatcheryError`. */
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

  /** Where the code runs: app, user, session, invocationId, agent. */
  get info() {
    return this.#host.info();
  }

  /** What the user said to start this run. */
  get userContent() {
    return this.#host.userContent();
  }

  /** How many events the session has. */
  get eventCount() {
    return this.#host.eventCount();
  }

  /** Up to `limit` events from number `offset` on, oldest first. */
  events(offset = 0, limit = 100) {
    return this.#host.events(offset, limit);
  }

  /** The component's own setting, from the operator's `hatchery.yaml`. */
  config(key, otherwise) {
    return this.#host.config(key) ?? otherwise;
  }

  /** Calls a tool that the agent was given. */
  callTool(name, args = {}) {
    return this.#host.callTool(name, args);
  }

  /** Asks a model, by default the agent's own, and waits for the whole answer. */
  generate(prompt, options) {
    let whole;
    for (const response of this.#responses(request(prompt, options), false)) whole = response;
    if (!whole) throw new HatcheryError("MODEL_BAD_RESPONSE", "the model gave no answer");
    return whole;
  }

  /** Asks a model for its answer as it comes: pieces, each with what is new, and at last the whole. */
  stream(prompt, options) {
    return this.#responses(request(prompt, options), true);
  }

  *#responses(asked, streamed) {
    for (const response of this.#host.generate(asked, streamed)) {
      if (response.errorCode) throw new HatcheryError(response.errorCode, response.errorMessage ?? "");
      yield response;
    }
  }

  /** Runs an agent below this one (custom agents only), step by step. Yield an event to make it part of the session. */
  runAgent(name) {
    return this.#host.runAgent(name);
  }

  /** Hands the conversation over to another agent after this call (tools and callbacks). */
  transferTo(agent) {
    this.#host.transfer(agent);
  }

  /** Ends the nearest loop around the agent, and the parallel agents in between, after this call. */
  escalate() {
    this.#host.escalate();
  }

  /** Makes this tool's result the answer, without a summary by the model. */
  skipSummarization() {
    this.#host.skipSummarization();
  }

  /** What a person has decided about this tool call; `undefined` when they have not been asked. */
  get confirmation() {
    return this.#host.confirmation();
  }

  /** Asks a person about this tool call. Its result should say that it waits: it is called again once they have decided. */
  requestConfirmation(hint, payload) {
    this.#host.requestConfirmation(hint, payload);
  }
}
