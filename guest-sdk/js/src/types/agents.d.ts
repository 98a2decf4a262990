// Agents, and the component that exports them.

import type { Content, Event } from "./content.js";
import type { Context } from "./context.js";
import type {
  Callback, CodeExecutor, Example, ExampleProvider, LiveModel, Maybe, Model, Plugin, Summarizer, Tool, ToolRef, Toolset,
} from "./items.js";
import type { Json, Schema } from "./schema.js";

interface AgentOptions {
  name: string;
  /** What the agent does, for the agents that may transfer to it. */
  description?: string;
  /** Agents, or names of agents: `helper`, `component/agent`. */
  subAgents?: readonly (Agent | string)[];
  /** Callbacks, or names of callbacks; the other hooks have them, too. */
  beforeAgent?: readonly (Callback | string)[];
  afterAgent?: readonly (Callback | string)[];
  onAgentError?: readonly (Callback | string)[];
}

export interface Agent {
  readonly name: string;
  readonly kind: "llm" | "sequential" | "parallel" | "loop" | "custom";
}

/** Settings of the model's thinking: the maximum number of tokens (0 disables it, -1 lets the model decide), and fields of `thinkingConfig`. */
interface Thinking {
  budget?: number;
  includeThoughts?: boolean;
  [key: string]: Json | undefined;
}

/** Code execution by the host: an executor and its options. */
interface CodeRunner {
  executor: CodeExecutor | string;
  /** How often in one run the model may try again after failed code; 2 by default. */
  errorRetries?: number;
  /** Whether the code of a session sees what earlier code of the session left behind. */
  stateful?: boolean;
  /** Whether data files (CSV) in messages are passed to the code instead of the prompt. */
  optimizeDataFile?: boolean;
  /** Delimiters of code in a response, tried in order. */
  codeDelimiters?: [string, string][];
  /** Delimiters of results in the prompt. */
  resultDelimiters?: [string, string];
}

type Instruction = string | ((ctx: Context) => string | Promise<string>);

/** Creates an agent that calls a model and the tools that the model requests. */
export function llmAgent(
  definition: AgentOptions & {
    /** By default the model of the nearest LLM agent above this one. */
    model?: string;
    /** A text with placeholders `{key}` for the state, or a function that computes it for each model call. */
    instruction?: Instruction;
    /** As `instruction`, for all agents of the tree; of the root agent only. */
    globalInstruction?: Instruction;
    /** Tools, or names of tools: `roll`, `component/tool`, or a built-in tool. */
    tools?: readonly ToolRef[];
    /** Toolsets of this component or of the host, `component/toolset`, or all tools of a component by its name. */
    toolsets?: readonly (Toolset | string | { name: Toolset | string; only?: string[]; prefix?: string })[];
    /** Examples of good answers. */
    examples?: readonly Example[];
    /** Selects examples for each model call. */
    examplesFrom?: ExampleProvider | string;
    planner?: "planReAct" | Thinking;
    /** Runs the code that the model writes, between two model calls. */
    runCode?: CodeRunner | CodeExecutor | string;
    /** Lets the model itself run the code that it writes. */
    runCodeInModel?: boolean;
    /** The part of the history that the model sees: the history of the session, or the current turn only. */
    includeContents?: "default" | "none";
    /** The arguments of the agent if it is used as a tool. */
    inputSchema?: Schema;
    /** The JSON of the answer. */
    outputSchema?: Schema;
    /** The state key that gets the answer. */
    outputKey?: string;
    /** The maximum number of model calls in one run of the agent. */
    maxSteps?: number;
    disallowTransferToParent?: boolean;
    disallowTransferToPeers?: boolean;
    /** Settings of model calls, as in Gemini's `GenerateContentConfig`, such as `temperature`. */
    config?: Record<string, Json>;
    beforeModel?: readonly (Callback | string)[];
    afterModel?: readonly (Callback | string)[];
    beforeTool?: readonly (Callback | string)[];
    afterTool?: readonly (Callback | string)[];
    onModelError?: readonly (Callback | string)[];
    onToolError?: readonly (Callback | string)[];
  },
): Agent;
/** Creates an agent that runs its sub-agents in order. */
export function sequentialAgent(definition: AgentOptions): Agent;
/** Creates an agent that runs its sub-agents concurrently. */
export function parallelAgent(definition: AgentOptions): Agent;
/** Creates an agent that runs its sub-agents repeatedly, until one escalates. */
export function loopAgent(definition: AgentOptions & { maxIterations?: number }): Agent;

type Output = string | Content | Event;

/** Creates an agent in code: `run` is a generator, async or not, that yields the agent's events. */
export function agent<Run extends (ctx: Context) => Iterable<Output> | AsyncIterable<Output> | Maybe<Output>>(
  definition: AgentOptions & { model?: string; tools?: readonly ToolRef[]; run: Run },
): Agent & { readonly run: Run };

export interface Component {
  readonly isComponent: true;
}

/** Lists the exports of a component; the default export of its module. */
export function component(exports: {
  agents?: readonly Agent[];
  tools?: readonly Tool[];
  toolsets?: readonly Toolset[];
  callbacks?: readonly Callback[];
  plugins?: readonly Plugin[];
  codeExecutors?: readonly CodeExecutor[];
  summarizers?: readonly Summarizer[];
  examples?: readonly ExampleProvider[];
  models?: readonly Model[];
  liveModels?: readonly LiveModel[];
}): Component;
