/** A JSON value. Integers that a `number` cannot represent exactly are `bigint`s. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json | undefined };

/** A JSON Schema. */
export interface Schema {
  type?: string | string[];
  description?: string;
  enum?: readonly Json[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: readonly string[];
  default?: Json;
  [key: string]: unknown;
}

/** A schema under construction. */
export interface SchemaBuilder extends Schema {
  /** Makes the property optional. */
  optional(): SchemaBuilder;
  /** Makes the property optional, with a default value. */
  default: ((value: Json) => SchemaBuilder) & Json;
}

/** Builds schemas: `s.object({ sides: s.integer("Number of sides").default(6) })`. */
export const s: {
  string(description?: string): SchemaBuilder;
  number(description?: string): SchemaBuilder;
  integer(description?: string): SchemaBuilder;
  boolean(description?: string): SchemaBuilder;
  any(description?: string): SchemaBuilder;
  oneOf(values: readonly (string | number)[], description?: string): SchemaBuilder;
  array(items: Schema, description?: string): SchemaBuilder;
  object(properties: Record<string, Schema>, description?: string): SchemaBuilder;
};

/** One part of a message. It has one of the keys `text` to `codeExecutionResult`. */
export interface Part {
  text?: string;
  inlineData?: { mimeType: string; data: Uint8Array; displayName?: string };
  fileData?: { fileUri: string; mimeType?: string; displayName?: string };
  functionCall?: { id?: string; name: string; args: Record<string, Json> };
  functionResponse?: { id?: string; name: string; response: Record<string, Json> };
  executableCode?: { language?: string; code: string };
  codeExecutionResult?: { outcome?: string; output?: string };
  thought?: boolean;
  thoughtSignature?: Uint8Array;
  [key: string]: unknown;
}

/** One message. */
export interface Content {
  role?: "user" | "model" | string;
  parts: Part[];
}

/** One entry of a session's history. In a new event, omit `id`, `invocationId`, `author`, `branch` and `timestampMicros`: the host adds them. */
export interface Event {
  id?: string;
  invocationId?: string;
  author?: string;
  content?: Content;
  actions?: {
    stateDelta?: Record<string, Json>;
    artifactDelta?: Record<string, number>;
    skipSummarization?: boolean;
    transferToAgent?: string;
    escalate?: boolean;
    endOfAgent?: boolean;
    [key: string]: unknown;
  };
  partial?: boolean;
  branch?: string;
  longRunningToolIds?: string[];
  errorCode?: string;
  errorMessage?: string;
  timestampMicros?: number;
  [key: string]: unknown;
}

/** A request to a model. Without a `model` it goes to the agent's own. */
export interface LlmRequest {
  model?: string;
  contents: Content[];
  systemInstructions?: string[];
  tools?: { name: string; description?: string; parameters?: Schema; response?: Schema }[];
  modelTools?: Json[];
  config?: Record<string, Json>;
}

/** A response of a model, or a chunk of it. */
export interface LlmResponse {
  content?: Content;
  partial?: boolean;
  finishReason?: string;
  errorCode?: string;
  errorMessage?: string;
  [key: string]: unknown;
}

/** A tool call, as callbacks see it. */
export interface ToolCall {
  tool: string;
  args: Record<string, any>;
}

/** Access to the session and the services. Methods wait for the host, and throw a `HatcheryError` if it refuses an operation. */
export class Context {
  /** The session's state, including the code's own changes. */
  readonly state: {
    get(key: string): any;
    set(key: string, value: unknown): void;
    delete(key: string): void;
    all(): Record<string, any>;
  };
  /** Named, versioned files of the session, or of the user if the name starts with `user:`. */
  readonly artifacts: {
    save(name: string, data: string | Uint8Array | Part, mimeType?: string): number;
    load(name: string, version?: number): Part | undefined;
    list(): string[];
    versions(name: string): number[];
    delete(name: string): void;
  };
  /** The user's memory of earlier sessions. */
  readonly memory: { search(query: string): { content: Content; author?: string; timestampMicros: number }[] };
  /** The host's log. */
  readonly log: Record<"error" | "warn" | "info" | "debug", (message: string, fields?: Record<string, unknown>) => void>;
  /** The call in which the code runs. */
  readonly info: {
    app: string; user: string; session: string; invocationId: string; agent: string; branch?: string; functionCallId?: string;
  };
  /** The user message that started this run. */
  readonly userContent: Content;
  readonly eventCount: number;
  /** A person's decision about this tool call; `undefined` if no one was asked. */
  readonly confirmation: { hint: string; confirmed: boolean; payload?: any } | undefined;
  /** Returns up to `limit` events starting at index `offset`, oldest first; fewer if they are large. */
  events(offset?: number, limit?: number): Event[];
  /** Returns a setting of the component from `hatchery.yaml`. */
  config(key: string, defaultValue?: any): any;
  /** Calls a tool of the agent. */
  callTool(name: string, args?: Record<string, unknown>): any;
  /** Calls a model, by default the agent's own, and waits for the complete response. */
  generate(prompt: string | Content | LlmRequest, options?: { instruction?: string; model?: string }): LlmResponse;
  /** Calls a model and streams its response: partial responses with new text, then the complete one. */
  stream(prompt: string | Content | LlmRequest, options?: { instruction?: string; model?: string }): Iterable<LlmResponse>;
  /**
   * Starts a sub-agent of a custom agent and returns its events. It advances as its events are read. An event becomes part of the session
   * when the agent yields it, and is dropped if the next one is read first.
   */
  subAgent(name: string): Iterable<Event>;
  /** Transfers the conversation to another agent after this call (tools and callbacks). */
  transferTo(agent: string): void;
  /** Ends the loops and parallel agents around the agent after this call. */
  escalate(): void;
  /** Makes the tool's result the final answer, without a summary by the model. */
  skipSummarization(): void;
  /**
   * Requests confirmation of this tool call by a person. The tool's result should say that it is waiting. Once the person has decided, the
   * tool is called again with the same arguments, and `confirmation` has the decision.
   */
  requestConfirmation(hint: string, payload?: unknown): void;
}

/** An error with a stable code, such as `DENIED`, `LIMIT_REACHED` or `NOT_FOUND`. */
export class HatcheryError extends Error {
  constructor(code: string, message: string);
  readonly code: string;
}

/** Thrown by a tool to end the run, because the model can do nothing about it. */
export class FatalError extends HatcheryError {}

type Maybe<T> = T | undefined | null | void | Promise<T | undefined | null | void>;

export interface Tool {
  readonly name: string;
  readonly kind: "tool";
  /** Calls it as a host does: checks the arguments and adds defaults. */
  call(args: Record<string, unknown>, ctx: Context): any;
  run(args: any, ctx?: Context): any;
}

/** Creates a tool. The model gets the message of an error that `run` throws as the tool's result; a `FatalError` ends the run. */
export function tool(definition: {
  name: string;
  description?: string;
  parameters?: Schema;
  /** JSON Schema of the result. */
  response?: Schema;
  /** Whether a person has to confirm each call. */
  confirm?: boolean;
  /** Whether the result arrives later. */
  longRunning?: boolean;
  run(args: any, ctx: Context): unknown;
}): Tool;

interface CallbackHooks {
  beforeAgent: (ctx: Context) => Maybe<string | Content>;
  afterAgent: (ctx: Context) => Maybe<string | Content>;
  onAgentError: (error: HatcheryError, ctx: Context) => Maybe<string | Content>;
  /** Changes of the request apply. */
  beforeModel: (request: LlmRequest, ctx: Context) => Maybe<LlmResponse>;
  afterModel: (response: LlmResponse, ctx: Context) => Maybe<LlmResponse>;
  onModelError: (request: LlmRequest, error: HatcheryError, ctx: Context) => Maybe<LlmResponse>;
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
export function callback<Hook extends keyof CallbackHooks>(definition: { name: string; hook: Hook; run: CallbackHooks[Hook] }): Callback;

/** The points of a run at which a callback can be called. */
export const HOOKS: readonly (keyof CallbackHooks)[];

interface AgentOptions {
  name: string;
  description?: string;
  subAgents?: readonly (Agent | string)[];
  beforeAgent?: readonly (Callback | string)[];
  afterAgent?: readonly (Callback | string)[];
  onAgentError?: readonly (Callback | string)[];
}

export interface Agent {
  readonly name: string;
  readonly kind: "llm" | "sequential" | "parallel" | "loop" | "custom";
}

type Instruction = string | ((ctx: Context) => string | Promise<string>);

/** Creates an agent that calls a model and the tools that the model requests. */
export function llmAgent(
  definition: AgentOptions & {
    model?: string;
    instruction?: Instruction;
    globalInstruction?: Instruction;
    tools?: readonly (Tool | string)[];
    toolsets?: readonly (string | { name: string; only?: string[]; prefix?: string })[];
    withoutHistory?: boolean;
    inputSchema?: Schema;
    outputSchema?: Schema;
    outputKey?: string;
    maxSteps?: number;
    disallowTransferToParent?: boolean;
    disallowTransferToPeers?: boolean;
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
export function agent(
  definition: AgentOptions & {
    model?: string;
    tools?: readonly (Tool | string)[];
    run(ctx: Context): Iterable<Output> | AsyncIterable<Output> | Maybe<Output>;
  },
): Agent;

export interface Component {
  readonly isComponent: true;
}

/** Lists the exports of a component; the default export of its module. */
export function component(exports: {
  agents?: readonly Agent[];
  tools?: readonly Tool[];
  callbacks?: readonly Callback[];
}): Component;

/** Creates a content with one text. */
export function content(text: string, role?: "user" | "model"): Content;

/** Returns the text of a content, an event or a response, without thoughts. */
export function textOf(message: Content | Event | LlmResponse | undefined): string;
