// AI agents, tools and callbacks in JavaScript, as WebAssembly components for a Hatchery host. The documentation is in `index.d.ts`.

import { BadArguments } from "./errors.js";
import { check, withDefaults } from "./schema.js";

export { content, textOf } from "./content.js";
export { Context } from "./context.js";
export { FatalError, HatcheryError } from "./errors.js";
export { s } from "./schema.js";

/** The points of a run at which a callback can be called. */
export const HOOKS = [
  "beforeAgent", "afterAgent", "onAgentError", "beforeModel", "afterModel", "onModelError", "beforeTool", "afterTool", "onToolError",
];

const AGENT_KINDS = ["llm", "sequential", "parallel", "loop", "custom"];

function checkName(kind, item) {
  if (typeof item?.name !== "string" || !item.name) throw new TypeError(`a ${kind} needs a name`);
  return item;
}

function checkRun(kind, item) {
  if (typeof checkName(kind, item).run !== "function") throw new TypeError(`${kind} \`${item.name}\` needs a function \`run\``);
  return item;
}

/** Creates a tool. */
export function tool(definition) {
  const defaults = { description: "", parameters: { type: "object" }, confirm: false, longRunning: false };
  const made = checkRun("tool", { ...defaults, ...definition });
  return Object.freeze({
    ...made,
    kind: "tool",
    /** Calls it as a host does: checks the arguments and adds defaults. */
    call(args, ctx) {
      const error = check(made.parameters, args, "the arguments") ?? findUnknown(made, args);
      if (error) throw new BadArguments(error);
      return made.run(withDefaults(made.parameters, args), ctx);
    },
  });
}

function findUnknown({ name, parameters }, args) {
  const known = Object.keys(parameters.properties ?? {});
  const unknown = parameters.properties && Object.keys(args).find((key) => !known.includes(key));
  return unknown && `\`${name}\` has no argument \`${unknown}\`; it has ${known.join(", ") || "none"}`;
}

/** Creates a callback for a hook. */
export function callback(definition) {
  const made = checkRun("callback", definition);
  if (!HOOKS.includes(made.hook)) {
    throw new TypeError(`callback \`${made.name}\`: unknown hook \`${made.hook}\`; use one of ${HOOKS.join(", ")}`);
  }
  return Object.freeze({ ...made, kind: "callback" });
}

const agentBuilder = (kind) => (definition) => Object.freeze({ description: "", ...checkName("agent", definition), kind });

/** Creates an agent that calls a model and the tools that the model requests. */
export const llmAgent = agentBuilder("llm");
/** Creates an agent that runs its sub-agents in order. */
export const sequentialAgent = agentBuilder("sequential");
/** Creates an agent that runs its sub-agents concurrently. */
export const parallelAgent = agentBuilder("parallel");
/** Creates an agent that runs its sub-agents repeatedly, until one escalates. */
export const loopAgent = agentBuilder("loop");
/** Creates an agent in code: `run` is a generator, async or not, that yields the agent's events. */
export const agent = (definition) => agentBuilder("custom")(checkRun("agent", definition));

/** Lists the exports of a component; the default export of its module. */
export function component({ agents = [], tools = [], callbacks = [], ...other }) {
  const [unknown] = Object.keys(other);
  if (unknown) throw new TypeError(`a component exports agents, tools and callbacks, not \`${unknown}\``);
  const exports = { agents: {}, tools: {}, callbacks: {} };
  for (const item of agents) add(exports.agents, "agents", item, AGENT_KINDS);
  for (const item of tools) add(exports.tools, "tools", item, ["tool"]);
  for (const item of callbacks) add(exports.callbacks, "callbacks", item, ["callback"]);
  return Object.freeze({ ...exports, isComponent: true });
}

function add(items, kind, item, kinds) {
  if (!kinds.includes(item?.kind)) throw new TypeError(`\`${kind}\` has an item of another kind; create its items with ${BUILDERS[kind]}`);
  if (items[item.name] === item) return;
  if (items[item.name]) throw new TypeError(`two ${kind} are named \`${item.name}\`; rename one of them`);
  items[item.name] = item;
  for (const child of item.subAgents ?? []) if (typeof child !== "string") add(items, kind, child, kinds);
}

const BUILDERS = { agents: "llmAgent({…}) or agent({…})", tools: "tool({…})", callbacks: "callback({…})" };
