// Descriptions of the exports in the values of the contract.

import { declarationToWit, exampleToWit } from "./convert.js";
import { stringify } from "./json.js";
import { checkSchema } from "./schema.js";

const orNull = (value) => (value === undefined ? null : value);

const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** Returns the name of an item or of a reference to one. */
export function nameOf(item) {
  // Functions have names as well.
  if (typeof item === "function") {
    throw new TypeError(`the function \`${item.name || "anonymous"}\` is no item; create one with tool({…}), callback({…}) or another function of hatchery-guest`);
  }
  const name = typeof item === "string" ? item : item?.name;
  if (typeof name === "string" && name) return name;
  throw new TypeError(`${stringify(item)} has no name; use an item of this component, or a name`);
}

export const toolToWit = (tool) => ({
  declaration: declarationToWit(tool), longRunning: tool.longRunning, requiresConfirmation: tool.confirm,
});

export const callbackToWit = (callback) => ({ name: callback.name, points: [kebab(callback.hook)] });

export const pluginToWit = ({ name, hooks }) => ({ name, hooks: Object.keys(hooks).map(kebab) });

/** Returns the items of an option; none if it is absent. */
function list(agent, key) {
  const items = agent[key] ?? [];
  if (!Array.isArray(items)) throw new TypeError(`\`${key}\` is a list, not ${typeof items === "string" ? "a string" : "a single item"}`);
  return items;
}

const names = (agent, key) => list(agent, key).map(nameOf);

/** Returns the items that an agent refers to, apart from names and sub-agents. */
export function itemsOf(agent) {
  const { runCode, examplesFrom } = agent;
  const lists = ["tools", "toolsets", ...Object.keys(agent).filter((key) => /^(before|after|on)[A-Z]/.test(key))];
  return [...lists.flatMap((key) => list(agent, key)), runCode?.executor ?? runCode, examplesFrom];
}

const tools = (agent) => list(agent, "tools").map((item) => ({
  name: nameOf(item),
  args: item.kind === "toolUse" && Object.keys(item.args).length ? stringify(item.args) : null,
  requiresConfirmation: item.kind === "toolUse" ? orNull(item.confirm) : null,
}));

export function agentToWit(agent) {
  return {
    name: agent.name,
    description: agent.description,
    kind: kindToWit(agent),
    subAgents: names(agent, "subAgents"),
    beforeAgent: names(agent, "beforeAgent"),
    afterAgent: names(agent, "afterAgent"),
    onAgentError: names(agent, "onAgentError"),
  };
}

function kindToWit(agent) {
  switch (agent.kind) {
    case "llm": return { tag: "llm", val: llmToWit(agent) };
    case "loop": return { tag: "loop", val: orNull(agent.maxIterations) };
    case "custom": return { tag: "custom", val: { model: orNull(agent.model), tools: tools(agent) } };
    default: return { tag: agent.kind };
  }
}

function instructionToWit(key, instruction) {
  if (instruction === undefined) return { tag: "none" };
  if (!["string", "function"].includes(typeof instruction)) throw new TypeError(`\`${key}\` is a string or a function`);
  return typeof instruction === "function" ? { tag: "computed" } : { tag: "text", val: instruction };
}

function examplesToWit({ name, examples, examplesFrom }) {
  if (examplesFrom !== undefined) return { tag: "chosen", val: nameOf(examplesFrom) };
  if (examples !== undefined && !Array.isArray(examples)) {
    throw new TypeError(`agent \`${name}\`: \`examples\` is a list; a provider belongs into \`examplesFrom\``);
  }
  return examples?.length ? { tag: "fixed", val: examples.map(exampleToWit) } : { tag: "none" };
}

function schemaToWit(agent, key) {
  if (agent[key] === undefined || agent[key] === null) return null;
  checkSchema(`\`${key}\``, agent[key]);
  return stringify(agent[key]);
}

function includeContentsToWit({ includeContents = "default" }) {
  if (["default", "none"].includes(includeContents)) return includeContents;
  throw new TypeError(`\`includeContents\` is "default" or "none", not ${stringify(includeContents)}`);
}

function plannerToWit({ name, planner }) {
  if (planner === undefined) return { tag: "none" };
  if (planner === "planReAct") return { tag: "plan-re-act" };
  if (typeof planner !== "object" || planner === null) {
    throw new TypeError(`agent \`${name}\`: ${stringify(planner)} is not a planner; use "planReAct", or settings of the model's thinking`);
  }
  const { budget, includeThoughts, ...others } = planner;
  return { tag: "thinking", val: stringify({ thinkingBudget: budget, includeThoughts, ...others }) };
}

function codeExecutionToWit({ runCode, runCodeInModel }) {
  if (runCode === undefined) return { tag: runCodeInModel ? "built-in" : "none" };
  const runner = runCode.executor === undefined ? { executor: runCode } : runCode;
  return {
    tag: "host",
    val: {
      executor: nameOf(runner.executor),
      errorRetries: orNull(runner.errorRetries),
      stateful: Boolean(runner.stateful),
      optimizeDataFile: Boolean(runner.optimizeDataFile),
      codeDelimiters: runner.codeDelimiters ?? [],
      resultDelimiters: orNull(runner.resultDelimiters),
    },
  };
}

function toolsetToWit(item) {
  const { name, only = [], prefix } = typeof item === "string" || item.kind === "toolset" ? { name: nameOf(item) } : item;
  return { name: nameOf(name), only, prefix: orNull(prefix) };
}

function llmToWit(agent) {
  return {
    model: orNull(agent.model),
    instruction: instructionToWit("instruction", agent.instruction),
    globalInstruction: instructionToWit("globalInstruction", agent.globalInstruction),
    tools: tools(agent),
    toolsets: list(agent, "toolsets").map(toolsetToWit),
    examples: examplesToWit(agent),
    planner: plannerToWit(agent),
    codeExecution: codeExecutionToWit(agent),
    includeContents: includeContentsToWit(agent),
    inputSchema: schemaToWit(agent, "inputSchema"),
    outputSchema: schemaToWit(agent, "outputSchema"),
    outputKey: orNull(agent.outputKey),
    maxSteps: orNull(agent.maxSteps),
    disallowTransferToParent: Boolean(agent.disallowTransferToParent),
    disallowTransferToPeers: Boolean(agent.disallowTransferToPeers),
    config: agent.config && Object.keys(agent.config).length ? stringify(agent.config) : null,
    beforeModel: names(agent, "beforeModel"),
    afterModel: names(agent, "afterModel"),
    beforeTool: names(agent, "beforeTool"),
    afterTool: names(agent, "afterTool"),
    onModelError: names(agent, "onModelError"),
    onToolError: names(agent, "onToolError"),
  };
}
