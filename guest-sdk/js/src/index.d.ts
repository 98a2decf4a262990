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

/** A schema under construction, of values of the type `T`. */
export interface SchemaBuilder<T = any> extends Schema {
  /** Makes the property optional. */
  optional(): SchemaBuilder<T | undefined>;
  /** Makes the property optional, with a default value. */
  default: ((value: T) => SchemaBuilder<T>) & Json;
}

/** The type of the values of a schema; `any` for one that is not made by `s`. */
export type TypeOf<S> = S extends SchemaBuilder<infer T> ? T : any;

/** Builds schemas: `s.object({ sides: s.integer("Number of sides").default(6) })`. */
export const s: {
  string(description?: string): SchemaBuilder<string>;
  number(description?: string): SchemaBuilder<number>;
  integer(description?: string): SchemaBuilder<number>;
  boolean(description?: string): SchemaBuilder<boolean>;
  any(description?: string): SchemaBuilder<any>;
  oneOf<const T extends string | number>(values: readonly T[], description?: string): SchemaBuilder<T>;
  array<S extends Schema>(items: S, description?: string): SchemaBuilder<TypeOf<S>[]>;
  object<P extends Record<string, Schema>>(properties: P, description?: string): SchemaBuilder<{ [K in keyof P]: TypeOf<P[K]> }>;
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
    deletedArtifactIds?: string[];
    skipSummarization?: boolean;
    transferToAgent?: string;
    escalate?: boolean;
    endOfAgent?: boolean;
    endInvocation?: boolean;
    [key: string]: unknown;
  };
  partial?: boolean;
  turnComplete?: boolean;
  interrupted?: boolean;
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
  turnComplete?: boolean;
  interrupted?: boolean;
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

/** The call in which code runs. */
export interface RunInfo {
  app: string;
  user: string;
  session: string;
  invocationId: string;
  agent: string;
  branch?: string;
  functionCallId?: string;
  /** How the client receives the responses of models. */
  streamingMode: "none" | "sse" | "bidi";
  /** True if the run can pause and be continued later. */
  isResumable: boolean;
  /** The number of runs that this run is nested in: 0 for the run of a user's message. */
  depth: number;
  /** The remaining limits of the run; `undefined` means no limit. */
  remaining: { modelCalls?: number; tokens?: number; events?: number; bytes?: number };
}

/** A plugin of a run. `hooks` is empty, and `component` is `undefined`, for a plugin of the host. */
export interface PluginInfo {
  name: string;
  hooks: string[];
  component?: string;
}

/** A version of an artifact without its content. */
export interface ArtifactVersion {
  /** From 0. */
  version: number;
  /** IANA media type; missing for text. */
  mimeType?: string;
  /** The number of bytes that the host stores: 0 for a file elsewhere. */
  size: number;
  /** When it was saved, in microseconds since 1970; missing if the artifact service does not know it. */
  createdMicros?: number;
  /** The metadata that it was saved with. */
  customMetadata: Record<string, any>;
}

/** An entry of the memory. */
export interface MemoryEntry {
  content: Content;
  author?: string;
  timestampMicros: number;
}

/** A request for a run of an app. Without a `session`, a new one is created. */
export interface RunRequest {
  app: string;
  message: string | Content;
  session?: string;
  /** State keys that are set with the message; `null` deletes a key. */
  stateDelta?: Record<string, Json>;
  /** Whether the run yields partial events while a model responds. */
  streaming?: boolean;
}

/** A run in progress: iterating over it returns its events. A run that fails throws its error. It ends with the call that started it. */
export interface Run extends Iterable<Event> {
  readonly invocationId: string;
  readonly session: string;
  /** Waits for the end of the run, and returns the text of its last message. */
  text(): string;
  /** Cancels the run. Its events end with an error. */
  cancel(): void;
}

/** A request of a live run or to a live model. A live run also accepts a string or a content as a message. */
export type LiveRequest =
  | { content: Content; partial?: boolean }
  | { blob: { mimeType: string; data: Uint8Array; displayName?: string } }
  | { activityStart: true }
  | { activityEnd: true }
  | { audioStreamEnd: true }
  | { toolResponses: NonNullable<Part["functionResponse"]>[] };

/** A chunk of a transcript: new text only. */
export interface Transcription {
  text: string;
  /** Whether the utterance is over. */
  finished?: boolean;
}

/** A response of a live model. Each tool call has an id, and its result arrives in `toolResponses`. */
export type LiveResponse =
  | string
  | Content
  | { content: Content }
  | { inputTranscription: Transcription }
  | { outputTranscription: Transcription }
  | { toolCalls: NonNullable<Part["functionCall"]>[] }
  | { toolCallsCancelled: string[] }
  | { usageMetadata: Record<string, any> }
  | { interrupted: true }
  | { turnComplete: true };

/** The connection of a live model: iterating over it returns the requests until it is closed. */
export interface LiveConnection extends AsyncIterable<LiveRequest> {
  /** The settings of the connection, as in Gemini's `LiveConnectConfig`. */
  readonly config: Record<string, any>;
}

/** A live run in progress: iterating over it returns its events. A run that fails throws its error. */
export interface LiveRun extends IterableIterator<Event> {
  readonly session: string;
  /** Sends a request; a string is a message. Throws an error with the code `LIVE_CLOSED` if the run takes no more. */
  send(request: LiveRequest | Content | string): void;
  /** Returns the events up to the end of a turn, or of the run. */
  turn(): Event[];
  /** Closes the queue of requests. A text model still answers earlier messages, a live model closes the conversation. */
  close(): void;
  /** Cancels the run, and reads no more events. */
  cancel(): void;
}

/** A session without its events. Times are in microseconds since 1970. */
export interface SessionInfo {
  app: string;
  id: string;
  /** The state that the component may read. */
  state: Record<string, any>;
  /** The number of events that were ever appended. */
  eventCount: number;
  createdMicros: number;
  updatedMicros: number;
}

/** The sessions of the user in one app. The session of the current run can be read, but not changed: its agents emit events instead. */
export interface Sessions {
  readonly app: string;
  /** Creates a session; with a new id if it is `undefined`. */
  create(id?: string, state?: Record<string, Json>): SessionInfo;
  get(id: string): SessionInfo | undefined;
  /** Returns up to `limit` sessions from number `offset` on, most recently updated first. */
  list(offset?: number, limit?: number): SessionInfo[];
  /** Returns up to `limit` events from number `offset` on, oldest first: of all, of the `recent` ones, or of those since `afterMicros`. */
  events(id: string, options?: { recent?: number; afterMicros?: number; offset?: number; limit?: number }): Event[];
  /** Appends an event of the current agent, and returns it as it was stored. */
  append(id: string, event: string | Content | Event): Event;
  /** Deletes a session and its events. Does nothing if it does not exist. */
  delete(id: string): void;
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
    /** `mimeType` is the type of bytes, `customMetadata` is for other programs, up to 64 KiB of JSON. */
    save(name: string, data: string | Uint8Array | Part, mimeType?: string, customMetadata?: Record<string, unknown>): number;
    load(name: string, version?: number): Part | undefined;
    list(): string[];
    versions(name: string): number[];
    /** Returns what is known about a version, by default the newest, without its content. */
    version(name: string, version?: number): ArtifactVersion | undefined;
    delete(name: string): void;
  };
  /** The user's memory of earlier sessions. */
  readonly memory: {
    /** Returns the entries that match the query, best first. */
    search(query: string): MemoryEntry[];
    /** Adds a session of the user in the current app, by default the current one. Replaces its earlier entries. */
    addSession(id?: string): void;
    /** Adds events to the current session's events that were added before. Events with the id of one of them are skipped. */
    addEvents(events: Iterable<string | Content | Event>): void;
  };
  /** Other apps, which the component may run for the user. */
  readonly runner: {
    /** Returns the names of the apps that the component may run, sorted. */
    listApps(): string[];
    /**
     * Starts a run. Its model calls, tokens and events count towards the current run. Throws an error with the code `CYCLE` if the
     * session belongs to the current run or to a run around it.
     */
    run(request: RunRequest): Run;
    /** Opens a live run, whose requests are sent while it is in progress. An app with a text model answers message by message. */
    runLive(request: { app: string; session?: string; config?: Record<string, any> }): LiveRun;
  };
  /** The host's log. */
  readonly log: Record<"error" | "warn" | "info" | "debug", (message: string, fields?: Record<string, unknown>) => void>;
  /** The call in which the code runs. */
  readonly info: RunInfo;
  /** The user message that started this run. */
  readonly userContent: Content;
  /** The custom metadata that the request for the run has, such as ids of traces or of tenants; empty if it has none. */
  readonly runMetadata: Record<string, any>;
  readonly eventCount: number;
  /**
   * The idempotency key of this tool call: the same when the call is made again because its host died, and different for any other call. For
   * services that ignore repeated requests. `undefined` outside of a tool call.
   */
  readonly idempotencyKey: string | undefined;
  /** A person's decision about this tool call; `undefined` if no one was asked. */
  readonly confirmation: { hint: string; confirmed: boolean; payload?: any } | undefined;
  /** Returns up to `limit` events starting at index `offset`, oldest first; fewer if they are large. */
  events(offset?: number, limit?: number): Event[];
  /** Returns a setting of the component from `hatchery.yaml`. */
  config(key: string, defaultValue?: any): any;
  /**
   * The arguments with which the configuration uses the tool or plugin that is called: `args` of a tool in an agent definition, or of a
   * plugin in `hatchery.yaml`. `undefined` if there are none.
   */
  readonly arguments: any;
  /** Returns access to the sessions of the user in an app. */
  sessions(app: string): Sessions;
  /** Returns the plugins of the run, in the order in which they run. */
  plugins(): PluginInfo[];
  /** Returns a plugin of the run; `undefined` if no plugin has this name. */
  plugin(name: string): PluginInfo | undefined;
  /** Returns the names and patterns of the models that the component is granted. Its own models need no grant. */
  models(): string[];
  /** Returns one vector per text, all of the same length. `local:hashed-ngrams` compares texts by their spelling, without a model. */
  embed(model: string, texts: Iterable<string>): number[][];
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
  /**
   * Ends the nearest loop around the agent, and the parallel agents in between, after this call; in a custom agent, with the next event that
   * it yields, or at its end.
   */
  escalate(): void;
  /**
   * Ends the run after this call, and no further agent runs; in a custom agent, with the next event that it yields, or at its end. In an
   * agent that is called as a tool, ends the run of that agent.
   */
  endInvocation(): void;
  /** Makes the tool's result the final answer, without a summary by the model. */
  skipSummarization(): void;
  /**
   * Requests confirmation of this tool call by a person. The tool's result should say that it is waiting. Once the person has decided, the
   * tool is called again with the same arguments, and `confirmation` has the decision.
   */
  requestConfirmation(hint: string, payload?: unknown): void;
  /**
   * Reports the progress of this tool call to the clients of a run with streaming, in a unit of the tool's choice; an unknown `total` is left
   * out. Reports that follow each other quickly replace each other, and the last one always arrives.
   */
  reportProgress(report: ToolProgress): void;
  /**
   * The user's credential for a service. If it is `undefined`, the user is being asked: the tool's result should say that it is waiting, and
   * the tool is called again with the same arguments after the answer. The host keeps the credential encrypted for this component, and
   * refreshes tokens. Needs the grant `network`.
   */
  credential(config: AuthConfig): AuthCredential | undefined;
  /** Reports that the service has refused a credential. The next `credential` refreshes a token, and asks the user again for anything else. */
  refuseCredential(config: AuthConfig, credential: AuthCredential): void;
}

/** The progress of a tool call. */
export interface ToolProgress {
  /** The amount done. */
  progress: number;
  /** The total amount; missing if the tool does not know it. */
  total?: number;
  /** A text for people, up to 500 bytes. */
  message?: string;
}

/** A service for which users have credentials, in the JSON of ADK. */
export interface AuthConfig {
  authScheme:
    | { type: "apiKey"; in: "header" | "query" | "cookie"; name: string }
    | { type: "http"; scheme: "basic" | "bearer" }
    | { type: "oauth2"; flows: { authorizationCode: { authorizationUrl: string; tokenUrl: string; scopes: Record<string, string> } } }
    | { type: "openIdConnect"; openIdConnectUrl: string; scopes: string[] };
  /** The client of an OAuth server. */
  rawAuthCredential?: {
    authType: "oauth2" | "openIdConnect";
    oauth2: { clientId: string; clientSecret?: string; redirectUri?: string };
  };
  /** The name under which the host keeps the credential for this component; by default one per scheme and client. */
  credentialKey?: string;
}

/** A credential of a user. */
export interface AuthCredential {
  authType: "apiKey" | "http" | "oauth2" | "openIdConnect";
  apiKey?: string;
  http?: { scheme: string; credentials: { username?: string; password?: string; token?: string } };
  /** `expiresAt` is in seconds since 1970. */
  oauth2?: { accessToken?: string; expiresAt?: number };
}

/** An error with a stable code, such as `DENIED`, `LIMIT_REACHED` or `NOT_FOUND`. */
export class HatcheryError extends Error {
  /** The code is `COMPONENT_FAILED` by default. */
  constructor(message: string, code?: string);
  readonly code: string;
}

/** Thrown by a tool to end the run, because the model can do nothing about it. */
export class FatalError extends HatcheryError {
  /** The code is `TOOL_FAILED` by default. */
  constructor(message: string, code?: string);
}

type Maybe<T> = T | undefined | null | void | Promise<T | undefined | null | void>;

export interface Tool {
  readonly name: string;
  readonly kind: "tool";
  /** Calls it as a host does: checks the arguments and adds defaults. */
  call(args: Record<string, unknown>, ctx: Context): any;
  run(args: any, ctx?: Context): any;
}

/** Creates a tool. The model gets the message of an error that `run` throws as the tool's result; a `FatalError` ends the run. */
export function tool<S extends Schema>(definition: {
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
  run(args: TypeOf<S>, ctx: Context): unknown;
}): Tool;

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
  run(request: LlmRequest, ctx: Context): Iterable<Piece> | AsyncIterable<Piece> | Maybe<Piece>;
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
  run(request: LlmRequest, connection: LiveConnection, ctx: Context): AsyncIterable<LiveResponse>;
}

/** Creates a live model, which agents refer to as `component:NAME/model`: `run` is an async generator that yields the responses of the model. */
export function liveModel(definition: { name: string; run: LiveModel["run"] }): LiveModel;

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
    model?: string;
    instruction?: Instruction;
    globalInstruction?: Instruction;
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

/** Creates a content with one text. */
export function content(text: string, role?: "user" | "model"): Content;

/** Returns the text of a content, an event or a response, without thoughts. */
export function textOf(message: Content | Event | LlmResponse | undefined): string;

/** Returns the function calls of a content, an event or a response, in order. */
export function functionCallsOf(message: Content | Event | LlmResponse | undefined): NonNullable<Part["functionCall"]>[];

/** Returns the function responses of a content or an event, in order. */
export function functionResponsesOf(message: Content | Event | undefined): NonNullable<Part["functionResponse"]>[];

/** Returns true if the last part of an event is the result of code. */
export function hasTrailingCodeExecutionResult(event: Event): boolean;

/**
 * Returns true if the agent has nothing more to do after an event: a response without open calls, a result that needs no summary, or a call
 * whose result arrives later.
 */
export function isFinalResponse(event: Event): boolean;

/** Encodes a string as UTF-8. */
export function bytesOf(text: string): Uint8Array;

/** Decodes a string from UTF-8. */
export function textOfBytes(bytes: Uint8Array): string;
