/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

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
  /** It need not be given. */
  optional(): SchemaBuilder;
  /** It need not be given; this is what it is then. */
  default: ((value: Json) => SchemaBuilder) & Json;
}

/** Builds schemas: `s.object({ sides: s.integer("How many sides").default(6) })`. */
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

/** One piece of a message; it has one of the keys that say what it holds. */
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

export interface Content {
  role?: "user" | "model" | string;
  parts: Part[];
}

/** One entry of a session's history, or one item of what an agent yields. What is left out the host fills in. */
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
  };
  partial?: boolean;
  branch?: string;
  longRunningToolIds?: string[];
  errorCode?: string;
  errorMessage?: string;
  timestampMicros?: number;
  [key: string]: unknown;
}

export interface LlmRequest {
  model?: string;
  contents: Content[];
  systemInstructions?: string[];
  tools?: { name: string; description?: string; parameters?: Schema; response?: Schema }[];
  modelTools?: Json[];
  config?: Record<string, Json>;
}

export interface LlmResponse {
  content?: Content;
  partial?: boolean;
  finishReason?: string;
  errorCode?: string;
  errorMessage?: string;
  [key: string]: unknown;
}

export interface ToolCall {
  tool: string;
  args: Record<string, any>;
}

/** The session and the services. Whatever the host refuses throws a `HatcheryError`. Calls wait; `await` does no harm. */
export class Context {
  readonly state: {
    get(key: string): any;
    set(key: string, value: unknown): void;
    delete(key: string): void;
    all(): Record<string, any>;
  };
  readonly artifacts: {
    save(name: string, data: string | Uint8Array | Part, mimeType?: string): number;
    load(name: string, version?: number): Part | undefined;
    list(): string[];
    versions(name: string): number[];
    delete(name: string): void;
  };
  readonly memory: { search(query: string): { content: Content; author?: string; timestampMicros: number }[] };
  readonly log: Record<"error" | "warn" | "info" | "debug", (message: string, fields?: Record<string, unknown>) => void>;
  readonly info: { app: string; user: string; session: string; invocationId: string; agent: string; branch?: string; functionCallId?: string };
  readonly userContent: Content;
  readonly eventCount: number;
  readonly confirmation: { hint: string; confirmed: boolean; payload?: any } | undefined;
  events(offset?: number, limit?: number): Event[];
  config(key: string, otherwise?: any): any;
  callTool(name: string, args?: Record<string, unknown>): any;
  generate(prompt: string | Content | LlmRequest, options?: { instruction?: string; model?: string }): LlmResponse;
  stream(prompt: string | Content | LlmRequest, options?: { instruction?: string; model?: string }): Iterable<LlmResponse>;
  /** Custom agents only. */
  runAgent(name: string): Iterable<Event>;
  transferTo(agent: string): void;
  escalate(): void;
  skipSummarization(): void;
  requestConfirmation(hint: string, payload?: unknown): void;
}

/** A failure with a stable code. */
export class HatcheryError extends Error {
  constructor(code: string, message: string);
  readonly code: string;
}

/** Thrown by a tool, it ends the run. */
export class FatalError extends HatcheryError {}

type Maybe<T> = T | undefined | null | void | Promise<T | undefined | null | void>;

export interface Tool {
  readonly name: string;
  readonly kind: "tool";
  /** Calls it as a host does: checks the arguments, and fills in defaults. */
  call(args: Record<string, unknown>, ctx: Context): any;
  run(args: any, ctx?: Context): any;
}

/** Makes a tool. What `run` throws is told to the model; a `FatalError` ends the run. */
export function tool(definition: {
  name: string;
  description?: string;
  parameters?: Schema;
  /** JSON Schema of the result. */
  response?: Schema;
  /** A person has to agree to each call. */
  confirm?: boolean;
  /** Its result comes later. */
  longRunning?: boolean;
  run(args: any, ctx: Context): unknown;
}): Tool;

interface CallbackPoints {
  beforeAgent: (ctx: Context) => Maybe<string | Content>;
  afterAgent: (ctx: Context) => Maybe<string | Content>;
  onAgentError: (error: HatcheryError, ctx: Context) => Maybe<string | Content>;
  /** Changes of the request are used. */
  beforeModel: (request: LlmRequest, ctx: Context) => Maybe<LlmResponse>;
  afterModel: (response: LlmResponse, ctx: Context) => Maybe<LlmResponse>;
  onModelError: (request: LlmRequest, error: HatcheryError, ctx: Context) => Maybe<LlmResponse>;
  /** Changes of `call.args` are used. */
  beforeTool: (call: ToolCall, ctx: Context) => Maybe<Record<string, unknown>>;
  afterTool: (call: ToolCall, response: Record<string, any>, ctx: Context) => Maybe<Record<string, unknown>>;
  onToolError: (call: ToolCall, error: HatcheryError, ctx: Context) => Maybe<Record<string, unknown>>;
}

export interface Callback {
  readonly name: string;
  readonly kind: "callback";
}

/** Makes a callback for one point of a run. */
export function callback<At extends keyof CallbackPoints>(definition: { name: string; at: At; run: CallbackPoints[At] }): Callback;

/** Where callbacks can be called. */
export const POINTS: readonly (keyof CallbackPoints)[];

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
export function sequentialAgent(definition: AgentOptions): Agent;
export function parallelAgent(definition: AgentOptions): Agent;
export function loopAgent(definition: AgentOptions & { maxIterations?: number }): Agent;

type Said = string | Content | Event;

/** Makes an agent that is code: a generator, async or not, that yields what the agent says. */
export function agent(
  definition: AgentOptions & {
    model?: string;
    tools?: readonly (Tool | string)[];
    run(ctx: Context): Iterable<Said> | AsyncIterable<Said> | Maybe<Said>;
  },
): Agent;

export interface Component {
  readonly isComponent: true;
}

/** What a component offers: the default export of its module. */
export function component(offer: {
  agents?: readonly Agent[];
  tools?: readonly Tool[];
  callbacks?: readonly Callback[];
}): Component;

/** A content of one text. */
export function content(text: string, role?: "user" | "model"): Content;

/** All text of a content, an event or a response, without thoughts. */
export function textOf(said: Content | Event | LlmResponse | undefined): string;
