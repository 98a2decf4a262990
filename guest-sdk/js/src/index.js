// AI agents, tools and callbacks in JavaScript, as WebAssembly components for a Hatchery host. `index.d.ts` says what there is.

import { BadArguments } from "./errors.js";
import { check, withDefaults } from "./schema.js";

export { content, textOf } from "./content.js";
export { Context } from "./context.js";
export { FatalError, HatcheryError } from "./errors.js";
export { s } from "./schema.js";

/** Where callbacks can be called. */
export const POINTS = [
  "beforeAgent", "afterAgent", "onAgentError", "beforeModel", "afterModel", "onModelError", "beforeTool", "afterTool", "onToolError",
];

const AGENTS = ["llm", "sequential", "parallel", "loop", "custom"];

function named(kind, item) {
  if (typeof item?.name !== "string" || !item.name) throw new TypeError(`a ${kind} needs a name`);
  return item;
}

function withCode(kind, item) {
  if (typeof named(kind, item).run !== "function") throw new TypeError(`${kind} \`${item.name}\` needs a function \`run\``);
  return item;
}

/** A tool. */
export function tool(definition) {
  const made = withCode("tool", { description: "", parameters: { type: "object" }, confirm: false, longRunning: false, ...definition });
  return Object.freeze({
    ...made,
    kind: "tool",
    /** Calls it as a host does: checks the arguments, and fills in defaults. */
    call(args, ctx) {
      const wrong = check(made.parameters, args, "the arguments") ?? unknown(made, args);
      if (wrong) throw new BadArguments(wrong);
      return made.run(withDefaults(made.parameters, args), ctx);
    },
  });
}

function unknown({ name, parameters }, args) {
  const known = Object.keys(parameters.properties ?? {});
  const other = parameters.properties && Object.keys(args).find((key) => !known.includes(key));
  return other && `\`${name}\` has no argument \`${other}\`; it has ${known.join(", ") || "none"}`;
}

/** A callback at one point of a run. */
export function callback(definition) {
  const made = withCode("callback", definition);
  if (!POINTS.includes(made.at)) {
    throw new TypeError(`callback \`${made.name}\` cannot be at \`${made.at}\`; it can be at ${POINTS.join(", ")}`);
  }
  return Object.freeze({ ...made, kind: "callback" });
}

const agentOf = (kind) => (definition) => Object.freeze({ description: "", ...named("agent", definition), kind });

/** An agent that is a model, an instruction and tools. */
export const llmAgent = agentOf("llm");
/** Runs the agents below it in order. */
export const sequentialAgent = agentOf("sequential");
/** Runs the agents below it at the same time. */
export const parallelAgent = agentOf("parallel");
/** Runs the agents below it again and again, until one escalates. */
export const loopAgent = agentOf("loop");
/** An agent that is code: `run` is a generator, async or not, that yields what the agent says. */
export const agent = (definition) => agentOf("custom")(withCode("agent", definition));

/** What a component offers: the default export of its module. */
export function component({ agents = [], tools = [], callbacks = [], ...other }) {
  const [wrong] = Object.keys(other);
  if (wrong) throw new TypeError(`a component offers agents, tools and callbacks, not \`${wrong}\``);
  const offer = { agents: {}, tools: {}, callbacks: {} };
  for (const each of agents) add(offer.agents, "agents", each, AGENTS);
  for (const each of tools) add(offer.tools, "tools", each, ["tool"]);
  for (const each of callbacks) add(offer.callbacks, "callbacks", each, ["callback"]);
  return Object.freeze({ ...offer, isComponent: true });
}

function add(items, kind, item, kinds) {
  if (!kinds.includes(item?.kind)) throw new TypeError(`\`${kind}\` lists something that is none; make it with ${MAKERS[kind]}`);
  if (items[item.name] === item) return;
  if (items[item.name]) throw new TypeError(`two ${kind} are named \`${item.name}\`; a component's ${kind} have different names`);
  items[item.name] = item;
  for (const below of item.subAgents ?? []) if (typeof below !== "string") add(items, kind, below, kinds);
}

const MAKERS = { agents: "llmAgent({…}) or agent({…})", tools: "tool({…})", callbacks: "callback({…})" };
