// AI agents, tools and other items in JavaScript, as WebAssembly components for a Hatchery host. The documentation is in `types`.

import { BadArguments, HatcheryError } from "./errors.js";
import { check, checkSchema, withDefaults } from "./schema.js";
import { agentToWit, itemsOf, nameOf } from "./specs.js";
import { alternatives } from "./suggestion.js";

export {
  bytesOf, content, functionCallsOf, functionResponsesOf, hasTrailingCodeExecutionResult, isFinalResponse, textOf, textOfBytes,
} from "./content.js";
export { Context } from "./context.js";
export { FatalError, HatcheryError } from "./errors.js";
export { s } from "./schema.js";

/** The points of a run at which a callback can be called. */
export const HOOKS = [
  "beforeAgent", "afterAgent", "onAgentError", "beforeModel", "afterModel", "onModelError", "beforeTool", "afterTool", "onToolError",
];

/** The hooks of plugins: the hooks of callbacks, and the hooks of runs. */
export const PLUGIN_HOOKS = ["onUserMessage", "beforeRun", "onEvent", "afterRun", "onRunError", "close", ...HOOKS];

function checkName(kind, item) {
  if (typeof item?.name !== "string" || !item.name) throw new TypeError(`a ${kind} needs a name`);
  return item;
}

function checkRun(kind, item) {
  if (typeof checkName(kind, item).run !== "function") throw new TypeError(`${kind} \`${item.name}\` needs a function \`run\``);
  return item;
}

function checkKeys(kind, item, known) {
  const unknown = Object.keys(item).find((key) => !known.includes(key));
  if (unknown) throw new TypeError(`${kind} \`${item.name}\` has no option \`${unknown}\`; ${alternatives(unknown, known, "its options are")}`);
  return item;
}

/** Removes options that are `undefined`: they are absent. */
const given = (definition) => Object.fromEntries(Object.entries(definition).filter(([, value]) => value !== undefined));

/** Creates a tool. */
export function tool(definition) {
  checkKeys("tool", checkRun("tool", definition), ["name", "description", "parameters", "response", "confirm", "longRunning", "run"]);
  const made = { description: "", parameters: { type: "object" }, confirm: false, longRunning: false, ...given(definition) };
  checkSchema(`tool \`${made.name}\`: \`parameters\``, made.parameters);
  if (made.parameters.type !== undefined && made.parameters.type !== "object") {
    throw new TypeError(`tool \`${made.name}\`: \`parameters\` is the schema of an object: s.object({…})`);
  }
  if (made.response !== undefined) checkSchema(`tool \`${made.name}\`: \`response\``, made.response);
  return Object.freeze({
    ...made,
    kind: "tool",
    /** Calls it as a host does: checks the arguments and adds defaults. */
    call(args, ctx) {
      const error = check(made.parameters, args, "args") ?? findUnknown(made, args);
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

/** Uses a tool with options: `args`, which a component's tool reads by `ctx.arguments`, and `confirm`. */
export function toolUse(tool, { args = {}, confirm } = {}) {
  return Object.freeze({ name: nameOf(tool), args, confirm, kind: "toolUse" });
}

/** Uses an agent as a tool. The agent is not a sub-agent: its answer is the result of the call. */
toolUse.agent = (agent) => toolUse("AgentTool", { args: { agent: nameOf(agent) } });

/** Adds the examples of a provider to each request. */
toolUse.examplesFrom = (provider) => toolUse("ExampleTool", { args: { examples: nameOf(provider) } });

/** Creates a toolset: `tools` computes the tools before each model call. */
export function toolset(definition) {
  const { name, tools } = checkKeys("toolset", checkName("toolset", definition), ["name", "tools"]);
  if (typeof tools !== "function") throw new TypeError(`toolset \`${name}\` needs a function \`tools\``);
  const find = async (ctx) => {
    const found = await tools(ctx);
    if (Array.isArray(found) && found.every((each) => each?.kind === "tool")) return found;
    throw new TypeError(`toolset \`${name}\` returns a list of tools, which tool({…}) creates`);
  };
  return Object.freeze({
    name,
    kind: "toolset",
    tools: find,
    /** Calls one of its tools as a host does. */
    async call(toolName, args, ctx) {
      const found = (await find(ctx)).find((each) => each.name === toolName);
      if (!found) throw new HatcheryError(`toolset \`${name}\` has no tool \`${toolName}\` now`, "TOOL_FAILED");
      return found.call(args, ctx);
    },
  });
}

/** Creates a callback for a hook. */
export function callback(definition) {
  const made = checkKeys("callback", checkRun("callback", definition), ["name", "hook", "run"]);
  if (!HOOKS.includes(made.hook)) {
    throw new TypeError(`callback \`${made.name}\`: unknown hook \`${made.hook}\`; use one of ${HOOKS.join(", ")}`);
  }
  return Object.freeze({ ...made, kind: "callback" });
}

/** Creates a plugin: an object with its name and its hooks. */
export function plugin(definition) {
  const { name, ...hooks } = given(checkName("plugin", definition));
  const unknown = Object.keys(hooks).find((hook) => !PLUGIN_HOOKS.includes(hook) || typeof hooks[hook] !== "function");
  if (unknown) throw new TypeError(`plugin \`${name}\`: \`${unknown}\` is not a hook; ${alternatives(unknown, PLUGIN_HOOKS, "its functions are")}`);
  if (!Object.keys(hooks).length) throw new TypeError(`plugin \`${name}\` has no hooks; add functions such as \`beforeRun\``);
  return Object.freeze({ name, hooks, kind: "plugin" });
}

const providerBuilder = (kind, label) => (definition) =>
  Object.freeze({ ...checkKeys(label, checkRun(label, definition), ["name", "run"]), kind });

/** Creates a code executor, which runs the code that models write. */
export const codeExecutor = providerBuilder("codeExecutor", "code executor");
/** Creates a summarizer, which writes the summaries that replace older events in prompts. */
export const summarizer = providerBuilder("summarizer", "summarizer");
/** Creates an example provider. */
export const examples = providerBuilder("examples", "example provider");
/** Creates a model: `run` is a generator, async or not, that yields the answer piece by piece. */
export const model = providerBuilder("model", "model");
/** Creates a live model: `run` is an async generator that yields the responses of the model. */
export const liveModel = providerBuilder("liveModel", "live model");

const COMMON_KEYS = ["name", "description", "subAgents", "beforeAgent", "afterAgent", "onAgentError"];

const LLM_KEYS = [
  "model", "instruction", "globalInstruction", "tools", "toolsets", "examples", "examplesFrom", "planner", "runCode", "runCodeInModel",
  "includeContents", "inputSchema", "outputSchema", "outputKey", "maxSteps", "disallowTransferToParent", "disallowTransferToPeers", "config",
  "beforeModel", "afterModel", "beforeTool", "afterTool", "onModelError", "onToolError",
];

const agentBuilder = (kind, keys = []) => (definition) => {
  checkKeys("agent", checkName("agent", definition), [...COMMON_KEYS, ...keys]);
  return Object.freeze({ description: "", ...given(definition), kind });
};

/** Creates an agent that calls a model and the tools that the model requests. */
export const llmAgent = agentBuilder("llm", LLM_KEYS);
/** Creates an agent that runs its sub-agents in order. */
export const sequentialAgent = agentBuilder("sequential");
/** Creates an agent that runs its sub-agents concurrently. */
export const parallelAgent = agentBuilder("parallel");
/** Creates an agent that runs its sub-agents repeatedly, until one escalates. */
export const loopAgent = agentBuilder("loop", ["maxIterations"]);
/** Creates an agent in code: `run` is a generator, async or not, that yields the agent's events. */
export const agent = (definition) => agentBuilder("custom", ["model", "tools", "run"])(checkRun("agent", definition));

/** The exports of a component: the kinds of their items, and how items are created. */
const EXPORTS = {
  agents: [["llm", "sequential", "parallel", "loop", "custom"], "llmAgent({…}) or agent({…})"],
  tools: [["tool"], "tool({…})"],
  toolsets: [["toolset"], "toolset({…})"],
  callbacks: [["callback"], "callback({…})"],
  plugins: [["plugin"], "plugin({…})"],
  codeExecutors: [["codeExecutor"], "codeExecutor({…})"],
  summarizers: [["summarizer"], "summarizer({…})"],
  examples: [["examples"], "examples({…})"],
  models: [["model"], "model({…})"],
  liveModels: [["liveModel"], "liveModel({…})"],
};

/** Lists the exports of a component; the default export of its module. */
export function component(definition) {
  const unknown = Object.keys(definition).find((key) => !Object.hasOwn(EXPORTS, key));
  if (unknown) throw new TypeError(`a component exports ${Object.keys(EXPORTS).join(", ")}, not \`${unknown}\``);
  const exports = {};
  for (const key of Object.keys(EXPORTS)) {
    const items = definition[key] ?? [];
    if (!Array.isArray(items)) throw new TypeError(`\`${key}\` is a list`);
    // Without the inherited properties, whose names items may have, such as `constructor`.
    exports[key] = Object.create(null);
    for (const item of items) add(exports[key], key, item);
  }
  for (const agent of Object.values(exports.agents)) checkExported(agent, exports);
  return Object.freeze({ ...exports, isComponent: true });
}

/** Throws if an agent refers to something that has no name. */
function checkReferences(agent) {
  try {
    agentToWit(agent);
  } catch (error) {
    const start = `agent \`${agent.name}\`: `;
    throw error.message.startsWith(start) ? error : new TypeError(`${start}${error.message}`);
  }
}

/** Throws if an agent refers to an item that is not exported, which no host would find. */
function checkExported(agent, exports) {
  for (const item of itemsOf(agent)) {
    const key = Object.keys(EXPORTS).find((key) => EXPORTS[key][0].includes(item?.kind));
    if (key && exports[key][item.name] !== item) {
      throw new TypeError(`agent \`${agent.name}\` uses \`${item.name}\`, which is not exported; add it to \`${key}\` of component({…})`);
    }
  }
}

function add(items, key, item) {
  const [kinds, builder] = EXPORTS[key];
  if (!kinds.includes(item?.kind)) throw new TypeError(`\`${key}\` has an item of another kind; create its items with ${builder}`);
  if (items[item.name] === item) return;
  if (items[item.name]) throw new TypeError(`two ${key} are named \`${item.name}\`; rename one of them`);
  items[item.name] = item;
  if (key === "agents") checkReferences(item);
  for (const child of item.subAgents ?? []) if (typeof child !== "string") add(items, key, child);
}
