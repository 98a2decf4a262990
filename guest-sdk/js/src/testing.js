// A mock host for unit tests in Node.

import { content } from "./content.js";
import { Context } from "./context.js";
import { HatcheryError } from "./errors.js";
import { parse, stringify } from "./json.js";

/** A host that keeps everything in memory. Its fields can be checked after a test. */
export class MockHost {
  state;
  /** The versions of each artifact. */
  artifacts = {};
  /** The requests to models. */
  requests = [];
  /** Level, message and fields of log lines. */
  logLines = [];
  requestedConfirmation;
  transferredTo;
  escalated = false;
  skippedSummarization = false;
  #setup;

  constructor(setup = {}) {
    this.state = { ...setup.state };
    this.#setup = {
      config: {}, userMessage: "", events: [], tools: {}, subAgents: {}, memory: [], ...setup, responses: [...(setup.responses ?? [])],
    };
  }

  /** Returns a context for tools, callbacks and agents. */
  context() {
    return new Context(this);
  }

  info() {
    return { app: "app", user: "user", session: "session", invocationId: "e-test", agent: "agent" };
  }

  userContent() {
    return content(this.#setup.userMessage, "user");
  }

  getState(key) {
    return structuredClone(this.state[key]);
  }

  allState() {
    return structuredClone(this.state);
  }

  setState(key, value) {
    if (value === null) delete this.state[key];
    else this.state[key] = parse(stringify(value));
  }

  eventCount() {
    return this.#setup.events.length;
  }

  events(offset, limit) {
    return this.#setup.events.slice(offset, offset + limit);
  }

  confirmation() {
    return this.#setup.confirmation;
  }

  requestConfirmation(hint, payload) {
    this.requestedConfirmation = { hint, payload };
  }

  config(key) {
    return this.#setup.config[key];
  }

  log(level, message, fields) {
    this.logLines.push([level, message, fields]);
  }

  transfer(agent) {
    this.transferredTo = agent;
  }

  escalate() {
    this.escalated = true;
  }

  skipSummarization() {
    this.skippedSummarization = true;
  }

  saveArtifact(name, part) {
    this.artifacts[name] ??= [];
    return this.artifacts[name].push(part) - 1;
  }

  loadArtifact(name, version) {
    return this.artifacts[name]?.at(version ?? -1);
  }

  listArtifacts() {
    return Object.keys(this.artifacts).sort();
  }

  artifactVersions(name) {
    return (this.artifacts[name] ?? []).map((_, version) => version);
  }

  deleteArtifact(name) {
    delete this.artifacts[name];
  }

  searchMemory() {
    return this.#setup.memory;
  }

  callTool(name, args) {
    const tool = this.#setup.tools[name];
    if (!tool) throw new HatcheryError("TOOL_FAILED", `tool \`${name}\` not found; give it to MockHost in \`tools\``);
    return tool(args);
  }

  *generate(request, streaming) {
    this.requests.push(request);
    const { responses } = this.#setup;
    if (!responses.length) throw new HatcheryError("MODEL_SCRIPT_ENDED", "no response is left; give MockHost more `responses`");
    const response = responses.shift();
    if (response instanceof Error) throw response;
    if (streaming && typeof response === "string") {
      for (const word of response.split(" ")) yield { content: content(`${word} `), partial: true };
    }
    yield typeof response === "string" ? { content: content(response) } : response;
  }

  *runSubAgent(name) {
    const events = this.#setup.subAgents[name];
    if (!events) throw new HatcheryError("NOT_FOUND", `agent \`${name}\` not found; give it to MockHost in \`subAgents\``);
    yield* events;
  }
}

/** Returns everything that an agent yields. */
export async function collect(outputs) {
  const all = [];
  for await (const output of outputs) all.push(output);
  return all;
}
