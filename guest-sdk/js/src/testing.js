// A stand-in for the host, for unit tests in Node.

import { content } from "./content.js";
import { Context } from "./context.js";
import { HatcheryError } from "./errors.js";

/** A host that keeps everything in memory. Its fields can be looked at after a test. */
export class FakeHost {
  constructor({ state = {}, config = {}, user = "", answers = [], tools = {}, agents = {}, memories = [], confirmation } = {}) {
    Object.assign(this, { stored: { ...state }, settings: config, said: content(user, "user"), answers: [...answers], tools, agents });
    Object.assign(this, { memories, decided: confirmation, history: [], files: {}, requests: [], lines: [], steps: [] });
  }

  /** A context for tools, callbacks and agents. */
  context() {
    return new Context(this);
  }

  info() {
    return { app: "app", user: "user", session: "session", invocationId: "e-test", agent: "agent" };
  }

  userContent() {
    return this.said;
  }

  getState(key) {
    return structuredClone(this.stored[key]);
  }

  allState() {
    return structuredClone(this.stored);
  }

  setState(key, value) {
    if (value === null) delete this.stored[key];
    else this.stored[key] = JSON.parse(JSON.stringify(value));
  }

  eventCount() {
    return this.history.length;
  }

  events(offset, limit) {
    return this.history.slice(offset, offset + limit);
  }

  confirmation() {
    return this.decided;
  }

  requestConfirmation(hint, payload) {
    this.steps.push(["requestConfirmation", hint, payload]);
  }

  config(key) {
    return this.settings[key];
  }

  log(level, message, fields) {
    this.lines.push([level, message, fields]);
  }

  transfer(agent) {
    this.steps.push(["transfer", agent]);
  }

  escalate() {
    this.steps.push(["escalate"]);
  }

  skipSummarization() {
    this.steps.push(["skipSummarization"]);
  }

  saveArtifact(name, part) {
    this.files[name] ??= [];
    return this.files[name].push(part) - 1;
  }

  loadArtifact(name, version) {
    return this.files[name]?.at(version ?? -1);
  }

  listArtifacts() {
    return Object.keys(this.files).sort();
  }

  artifactVersions(name) {
    return (this.files[name] ?? []).map((_, version) => version);
  }

  deleteArtifact(name) {
    delete this.files[name];
  }

  searchMemory() {
    return this.memories;
  }

  callTool(name, args) {
    if (!this.tools[name]) throw new HatcheryError("TOOL_FAILED", `tool \`${name}\` not found`);
    return this.tools[name](args);
  }

  *generate(asked, streamed) {
    this.requests.push(asked);
    if (!this.answers.length) throw new HatcheryError("MODEL_SCRIPT_ENDED", "the test has no answer left; give FakeHost more `answers`");
    const answer = this.answers.shift();
    if (answer instanceof Error) throw answer;
    const whole = typeof answer === "string" ? { content: content(answer) } : answer;
    if (streamed && typeof answer === "string") {
      for (const word of answer.split(" ")) yield { content: content(`${word} `), partial: true };
    }
    yield whole;
  }

  *runAgent(name) {
    if (!this.agents[name]) throw new HatcheryError("NOT_FOUND", `agent \`${name}\` not found`);
    yield* this.agents[name];
  }
}

/** All that an agent yields. */
export async function collect(said) {
  const all = [];
  for await (const each of said) all.push(each);
  return all;
}
