// Tools, callbacks, plugins and the other items of a component, except agents.

import type { Agent } from "./agents.js";
import type { Content, Event, LlmResponse, Part, ReceivedLlmRequest, ToolCall } from "./content.js";
import type { Context, LiveConnection, LiveResponse } from "./context.js";
import type { HatcheryError } from "./errors.js";
import type { Json, Schema, TypeOf } from "./schema.js";

type Maybe<T> = T | undefined | null | void | Promise<T | undefined | null | void>;

export interface Tool<Args = any, Result = any> {
  readonly name: string;
  readonly kind: "tool";
  /** Calls it as a host does: checks the arguments and adds defaults. */
  call(args: Record<string, unknown>, ctx: Context): Result;
  run(args: Args, ctx?: Context): Result;
}

/** Creates a tool. The model gets the message of an error that `run` throws as the tool's result; a `FatalError` ends the run. */
export function tool<S extends Schema, Result = any>(definition: {
  name: string;
  description?: string;
  /** JSON Schema of the arguments, whose types follow from a schema that is made by `s`. */
  parameters?: S;
  /** JSON Schema of the result. */
  response?: Schema;
  /** Whether a person has to confirm each call. */
  confirm?: boolean;
  /** Whether the result arrives later. */
  longRunning?: boolean;
  run(args: TypeOf<S>, ctx: Context): Result;
}): Tool<TypeOf<S>, Result>;

/** A tool with options. */
export interface ToolUse {
  readonly name: string;
  readonly kind: "toolUse";
}

type ToolRef = Tool | ToolUse | string;

/**
 * Uses a tool with options: `args`, which a component's tool reads by `ctx.arguments`, and `confirm`, whether a person has to approve each
 * call. The name refers to a tool of this component, `component/tool`, or a built-in tool.
 */
export const toolUse: {
  (tool: Tool | string, options?: { args?: Record<string, Json>; confirm?: boolean }): ToolUse;
  /** Uses an agent as a tool. The agent is not a sub-agent: its answer is the result of the call. */
  agent(agent: Agent | string): ToolUse;
  /** Adds the examples of a provider to each request. */
  examplesFrom(provider: ExampleProvider | string): ToolUse;
};

export interface Toolset {
  readonly name: string;
  readonly kind: "toolset";
  tools(ctx: Context): Promise<Tool[]>;
  /** Calls one of its tools as a host does. */
  call(tool: string, args: Record<string, unknown>, ctx: Context): Promise<any>;
}

/**
 * Creates a toolset: `tools` computes the tools before each model call, where changes of the session throw an error with the code
 * `READ_ONLY`, and once more for each call of one of its tools.
 */
export function toolset(definition: { name: string; tools(ctx: Context): Tool[] | Promise<Tool[]> }): Toolset;

interface CallbackHooks {
  beforeAgent: (ctx: Context) => Maybe<string | Content>;
  afterAgent: (ctx: Context) => Maybe<string | Content>;
  onAgentError: (error: HatcheryError, ctx: Context) => Maybe<string | Content>;
  /** Changes of the request apply. */
  beforeModel: (request: ReceivedLlmRequest, ctx: Context) => Maybe<LlmResponse>;
  afterModel: (response: LlmResponse, ctx: Context) => Maybe<LlmResponse>;
  onModelError: (request: ReceivedLlmRequest, error: HatcheryError, ctx: Context) => Maybe<LlmResponse>;
  /** Changes of `call.args` apply. */
  beforeTool: (call: ToolCall, ctx: Context) => Maybe<Record<string, unknown>>;
  afterTool: (call: ToolCall, response: Record<string, any>, ctx: Context) => Maybe<Record<string, unknown>>;
  onToolError: (call: ToolCall, error: HatcheryError, ctx: Context) => Maybe<Record<string, unknown>>;
}

export interface Callback {
  readonly name: string;
  readonly kind: "callback";
}

/** Creates a callback for a hook. `undefined` changes nothing; an error ends the run. */
export function callback<Hook extends keyof CallbackHooks>(
  definition: { name: string; hook: Hook; run: CallbackHooks[Hook] },
): Callback & { readonly hook: Hook; readonly run: CallbackHooks[Hook] };

/** The points of a run at which a callback can be called. */
export const HOOKS: readonly (keyof CallbackHooks)[];

interface PluginHooks extends CallbackHooks {
  /** Changes of the message apply. */
  onUserMessage: (message: Content, ctx: Context) => Maybe<string | Content>;
  /** A content is the answer of the run: no agent runs. */
  beforeRun: (ctx: Context) => Maybe<string | Content>;
  /** Changes of the event apply. */
  onEvent: (event: Event, ctx: Context) => Maybe<Event>;
  /** Runs after a run that did not fail. */
  afterRun: (ctx: Context) => Maybe<never>;
  /** Runs after a run that failed. */
  onRunError: (error: HatcheryError, ctx: Context) => Maybe<never>;
  /** Releases resources when the host stops or the plugin is replaced. There is no session. */
  close: (ctx: Context) => Maybe<never>;
}

export interface Plugin {
  readonly name: string;
  readonly kind: "plugin";
  readonly hooks: Partial<PluginHooks>;
}

/** Creates a plugin, which has hooks into every run of every app. The host only calls those that it has. */
export function plugin(definition: { name: string } & Partial<PluginHooks>): Plugin;

/** The hooks of plugins. */
export const PLUGIN_HOOKS: readonly (keyof PluginHooks)[];

/** An input or output file of code. A text as content is encoded as UTF-8. */
export interface CodeFile {
  /** The name, without a folder. */
  name: string;
  /** The media type; `text/plain` by default. */
  mimeType?: string;
  content: Uint8Array | string;
}

export interface CodeInput {
  code: string;
  inputFiles: (CodeFile & { mimeType: string; content: Uint8Array })[];
  /** The id of the environment that the code shares with earlier code of the session; `undefined` for a new environment. */
  executionId?: string;
}

/** The result of code. A failure of the code is reported in `stderr`, which is empty if the code succeeded. */
export interface CodeOutput {
  stdout?: string;
  stderr?: string;
  outputFiles?: CodeFile[];
}

export interface CodeExecutor {
  readonly name: string;
  readonly kind: "codeExecutor";
  run(input: CodeInput, ctx: Context): CodeOutput | string | Promise<CodeOutput | string>;
}

/** Creates a code executor, which runs the code that models write. A text is the standard output. */
export function codeExecutor(definition: { name: string; run: CodeExecutor["run"] }): CodeExecutor;

export interface Summarizer {
  readonly name: string;
  readonly kind: "summarizer";
  run(events: Event[], ctx: Context): Maybe<string | Content>;
}

/** Creates a summarizer, which writes the summaries that replace older events in prompts. */
export function summarizer(definition: { name: string; run: Summarizer["run"] }): Summarizer;

/** A user's message and the reply to it: texts, function calls and their responses. */
export interface Example {
  input: string | Content;
  output: string | Content | (string | Content)[];
}

export interface ExampleProvider {
  readonly name: string;
  readonly kind: "examples";
  run(query: string, ctx: Context): Example[] | Promise<Example[]>;
}

/** Creates an example provider: `run` selects the examples that fit the user's message. */
export function examples(definition: { name: string; run: ExampleProvider["run"] }): ExampleProvider;

type Piece = string | Part | Content | LlmResponse;

export interface Model {
  readonly name: string;
  readonly kind: "model";
  run(request: ReceivedLlmRequest, ctx: Context): Iterable<Piece> | AsyncIterable<Piece> | Maybe<Piece>;
}

/**
 * Creates a model, which agents refer to as `component:NAME/model`: `run` is a generator, async or not, that yields the answer piece by
 * piece. For a request without streaming, the pieces are joined.
 */
export function model(definition: { name: string; run: Model["run"] }): Model;

/** A live model. */
export interface LiveModel {
  readonly name: string;
  readonly kind: "liveModel";
  run(request: ReceivedLlmRequest, connection: LiveConnection, ctx: Context): AsyncIterable<LiveResponse>;
}

/** Creates a live model, which agents refer to as `component:NAME/model`: `run` is an async generator that yields the responses of the model. */
export function liveModel(definition: { name: string; run: LiveModel["run"] }): LiveModel;
