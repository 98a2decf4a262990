// The same items in each guest language: JavaScript. See `../rust`, `../python` and `../plain`.

import { FatalError, HatcheryError, agent, callback, component, llmAgent, s, textOf, tool } from "hatchery-guest";

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
    throw new FatalError("BROKEN", reason);
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
    const version = artifacts.save(name, text);
    return { version, text: artifacts.load(name)?.text, names: artifacts.list() };
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
  description: "Says two lines, and what a model adds; fails when the user wants it to.",
  model: "any",
  async *run(ctx) {
    yield "one";
    ctx.state.set("told", 2);
    yield "two";
    if (textOf(ctx.userContent) === "fail") throw new HatcheryError("STORY_LOST", "the story is lost");
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

export default component({
  agents: [storyteller, echo, clerk],
  tools: [scale, refuse, breakOff, remember, setting, note, keep, both, chance],
  callbacks: [veto, stamp],
});
