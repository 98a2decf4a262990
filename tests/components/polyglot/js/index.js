// The same items in each guest language: JavaScript. See `../rust`, `../python` and `../plain`.

import {
  FatalError, HatcheryError, agent, callback, codeExecutor, component, content, examples, liveModel, llmAgent, model, plugin, s, summarizer,
  textOf, tool, toolUse, toolset,
} from "hatchery-guest";
import { giveUp, hang, useGlobals, visit, visitAll, waitInTurn } from "./web.js";

const scale = tool({
  name: "scale",
  description: "Multiplies a number.",
  parameters: s.object({
    number: s.number("The number."),
    by: s.integer("How often it is taken.").default(2),
    style: s.oneOf(["plain", "text"]).optional(),
  }),
  run({ number, by, style }) {
    const result = number * by;
    return { result: style === "text" ? String(result) : result };
  },
});

const refuse = tool({
  name: "refuse",
  description: "Fails with an error for the model.",
  parameters: s.object({ reason: s.string() }),
  run({ reason }) {
    throw new Error(reason);
  },
});

const breakOff = tool({
  name: "break_off",
  description: "Fails with an error that ends the run.",
  parameters: s.object({ reason: s.string() }),
  async run({ reason }) {
    throw new FatalError(reason, "BROKEN");
  },
});

const remember = tool({
  name: "remember",
  description: "Sets a state key and returns the old and the new value.",
  parameters: s.object({ key: s.string(), value: s.any() }),
  run({ key, value }, ctx) {
    const before = ctx.state.get(key) ?? null;
    ctx.state.set(key, value);
    return { before, now: ctx.state.get(key) };
  },
});

const setting = tool({
  name: "setting",
  description: "Returns one of the component's own settings.",
  parameters: s.object({ key: s.string() }),
  run: ({ key }, ctx) => ctx.config(key),
});

const note = tool({
  name: "note",
  description: "Writes a line to the log.",
  parameters: s.object({ text: s.string() }),
  run({ text }, ctx) {
    ctx.log.info(text, { language: "js" });
    return true;
  },
});

const keep = tool({
  name: "keep",
  description: "Saves an artifact and loads it again.",
  parameters: s.object({ name: s.string(), text: s.string() }),
  run({ name, text }, { artifacts }) {
    const version = artifacts.save(name, text, undefined, { letters: text.length });
    const { version: number, size, createdMicros, customMetadata } = artifacts.version(name);
    const photo = artifacts.save("photo", new TextEncoder().encode("png"), "image/png");
    const { mimeType } = artifacts.version("photo", photo);
    const about = { version: number, size, hasTime: createdMicros !== undefined, custom: customMetadata, photo: mimeType };
    const missing = artifacts.version("missing") ?? null;
    return { version, text: artifacts.load(name)?.text, about, missing, names: artifacts.list() };
  },
});

const both = tool({
  name: "both",
  description: "Calls another tool twice.",
  async run(_, ctx) {
    const scaled = await Promise.all([ctx.callTool("scale", { number: 1 }), ctx.callTool("scale", { number: 2 })]);
    return scaled.map(({ result }) => result);
  },
});

const chance = tool({ name: "chance", description: "Returns a random number.", run: () => Math.floor(Math.random() * 2 ** 48) });

const storyteller = agent({
  name: "storyteller",
  description: "Emits two lines and the response of a model; fails if the message asks for it.",
  model: "any",
  async *run(ctx) {
    yield "one";
    ctx.state.set("told", 2);
    yield "two";
    if (textOf(ctx.userContent) === "fail") throw new HatcheryError("the story is lost", "STORY_LOST");
    yield textOf(await ctx.generate("Go on.", { instruction: "Be brief." }));
  },
});

const echo = agent({
  name: "echo",
  description: "Emits the events of the session once more.",
  *run(ctx) {
    yield* ctx.events();
  },
});

const veto = callback({
  name: "veto",
  hook: "beforeTool",
  run(call, ctx) {
    if (call.args.number === 13) {
      ctx.state.set("vetoed", call.tool);
      return { vetoed: true };
    }
    if (call.args.number === 99) call.args.number = 1;
    return undefined;
  },
});

const stamp = callback({
  name: "stamp",
  hook: "afterTool",
  run(call, response) {
    if (call.tool === "note") response.stamped = true;
  },
});

const clerk = llmAgent({
  name: "clerk",
  description: "Calculates.",
  model: "any",
  instruction: (ctx) => `Speak to ${ctx.info.user}.`,
  tools: [scale, note],
  beforeTool: [veto],
  afterTool: [stamp],
});

const delegate = tool({
  name: "delegate",
  description: "Runs an app in a session `errand`, and returns its last words; after `live: ` in a live run, in a session `talk`.",
  parameters: s.object({ app: s.string(), text: s.string() }),
  run({ app, text }, { runner }) {
    const apps = runner.listApps();
    if (text.startsWith("live: ")) {
      const live = runner.runLive({ app, session: "talk" });
      live.send(text.slice(6));
      const texts = live.turn().filter((event) => !event.partial && event.content).map(textOf);
      live.close();
      return { apps, session: live.session, text: texts.at(-1), rest: [...live].length };
    }
    const run = runner.run({ app, message: text, session: "errand", stateDelta: { lamp: 1 } });
    return { apps, session: run.session, text: run.text() };
  },
});

const keepDiary = tool({
  name: "keep_diary",
  description: "Creates, extends, reads and deletes a session.",
  run(_, ctx) {
    const diary = ctx.sessions("storyteller");
    const created = diary.create("today", { mood: "good" });
    const [, { author }] = ["Dear diary.", "Goodbye."].map((text) => diary.append("today", text));
    const newest = diary.events("today", { recent: 1 }).map(textOf);
    const ids = diary.list().map(({ id }) => id);
    const { eventCount } = diary.get("today");
    diary.delete("today");
    return { state: created.state, author, newest, ids, count: eventCount, is_gone: diary.get("today") === undefined };
  },
});

const learn = tool({
  name: "learn",
  description: "Adds a text and the session to the memory, and returns what is found there.",
  parameters: s.object({ text: s.string() }),
  run({ text }, { memory }) {
    const note = { id: "note-1", author: "clerk", content: content(text) };
    memory.addSession();
    memory.addEvents([note, note]);
    return memory.search(text).map((entry) => textOf(entry.content));
  },
});

const compare = tool({
  name: "compare",
  description: "Compares two texts by their embeddings: 1 for the same spelling.",
  parameters: s.object({ one: s.string(), other: s.string() }),
  run({ one, other }, ctx) {
    const [first, second] = ctx.embed("local:hashed-ngrams", [one, other]);
    return { models: ctx.models(), same: first.reduce((sum, value, index) => sum + value * second[index], 0) > 0.99 };
  },
});

const look = tool({
  name: "look",
  description: "Describes the run.",
  run(_, ctx) {
    const { streamingMode, isResumable, depth, remaining } = ctx.info;
    return {
      streams: streamingMode === "sse",
      resumable: isResumable,
      depth,
      calls: remaining.modelCalls ?? null,
      bytes: remaining.bytes ?? null,
      plugins: ctx.plugins().map(({ name }) => name),
      component: ctx.plugin("answerer")?.component ?? null,
      nobody: ctx.plugin("nobody") === undefined,
      arguments: ctx.arguments ?? null,
      key: ctx.idempotencyKey?.length,
    };
  },
});

const bake = tool({
  name: "bake",
  description: "Reports progress for each loaf, and returns the metadata of the run.",
  parameters: s.object({ loaves: s.integer() }),
  run({ loaves }, ctx) {
    for (let loaf = 1; loaf <= loaves; loaf += 1) ctx.reportProgress({ progress: loaf, total: loaves, message: `loaf ${loaf}` });
    return ctx.runMetadata;
  },
});

const stop = tool({
  name: "stop",
  description: "Ends the run.",
  run(_, ctx) {
    ctx.endInvocation();
    return "stopped";
  },
});

const helper = agent({ name: "helper", description: "Says one line.", run: () => "I help" });

const foreman = agent({
  name: "foreman",
  description: "Relays the events of its sub-agent, and has the last word.",
  subAgents: [helper],
  *run(ctx) {
    yield* ctx.subAgent("helper");
    yield "that was all";
  },
});

/** One tool, which is named after the user. */
const keys = toolset({
  name: "keys",
  tools({ info: { user } }) {
    const run = (args, ctx) => {
      ctx.state.set("greeted", user);
      return { greeted: user, args };
    };
    return [tool({ name: `greet_${user}`, description: "Greets the user.", run })];
  },
});

/** Changes messages, requests and events, and writes what happens to the log. */
const answerer = plugin({
  name: "answerer",
  onUserMessage: (message) => textOf(message).toUpperCase(),
  beforeModel(request, ctx) {
    request.systemInstructions.push(ctx.arguments?.text ?? "no advice");
  },
  onEvent(event) {
    event.customMetadata = { seen: true };
  },
  afterRun: (ctx) => ctx.log.info("a run has ended"),
  onRunError: ({ code }, ctx) => ctx.log.info(`a run has failed: ${code}`),
  async close(ctx) {
    ctx.log.info("the plugin is closed");
  },
});

/** Writes the code backwards. */
const reverse = codeExecutor({
  name: "reverse",
  run({ code, inputFiles }) {
    if (!code) throw new Error("there is no code");
    return { stdout: [...code].reverse().join(""), outputFiles: inputFiles };
  },
});

/** Counts the events. */
const count = summarizer({ name: "count", run: (events) => (events.length ? `${events.length} events` : undefined) });

/** Says yes to the user's message. */
const echoExamples = examples({ name: "echo", run: (query) => [{ input: query, output: "Yes." }] });

/** Repeats the last message. */
const starling = liveModel({
  name: "starling",
  async *run(request, connection) {
    for await (const { content: message, blob } of connection) {
      if (blob) yield { outputTranscription: { text: `${blob.data.length} bytes`, finished: true } };
      if (message && textOf(message) === "stop") throw new FatalError("it stopped", "MODEL_RATE_LIMITED");
      if (message) yield textOf(message);
      yield { turnComplete: true };
    }
  },
});

const parrot = model({
  name: "parrot",
  *run({ contents }) {
    const message = textOf(contents.at(-1));
    if (message === "nothing") throw new HatcheryError("there is nothing to say", "MODEL_BAD_REQUEST");
    for (const word of message.match(/\S+ ?/g)) {
      if (word === "stop") throw new HatcheryError("it stopped", "MODEL_UNAVAILABLE");
      yield word;
    }
  },
});

/** Tries to change the session, and returns the code of the error. */
function meddle(ctx) {
  try {
    ctx.state.set("meddled", true);
    return "changed";
  } catch (error) {
    return error.code;
  }
}

const chief = llmAgent({
  name: "chief",
  description: "Has every kind of tool.",
  model: "any",
  instruction: meddle,
  tools: [
    toolUse("scale", { confirm: true }), toolUse("look", { args: { limit: 3 } }), toolUse.agent(clerk), delegate, keepDiary, learn, compare, bake,
    stop,
  ],
  toolsets: [keys],
  examplesFrom: echoExamples,
  planner: "planReAct",
  runCode: { executor: reverse, codeDelimiters: [["<<", ">>"]], resultDelimiters: ["[[", "]]"] },
  includeContents: "none",
});

export default component({
  agents: [storyteller, foreman, echo, clerk, chief],
  tools: [
    scale, refuse, breakOff, remember, setting, note, keep, both, chance, delegate, keepDiary, learn, compare, look, bake, stop, visit, visitAll,
    waitInTurn, giveUp, useGlobals, hang,
  ],
  toolsets: [keys],
  callbacks: [veto, stamp],
  plugins: [answerer],
  codeExecutors: [reverse],
  summarizers: [count],
  examples: [echoExamples],
  models: [parrot],
  liveModels: [starling],
});
