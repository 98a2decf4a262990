// Generated from the schemas of /openapi.json by `cargo xtask ui`.

import type { Json, JsonObject } from "./json";

export type AddBody = {
  sessionId: string;
};

/** A session to add to a set as a case. */
export type AddSessionBody = {
  evalId: string;
  sessionId: string;
  userId: string;
};

/** An agent. Its keys are in snake_case, as clients expect. */
export type AgentInfo = {
  description: string;
  /** The template of the instruction. Empty in lists, if it is computed, and if the client may not read it. */
  instruction: string;
  /** `llm`, `sequential`, `parallel`, `loop` or `custom`. */
  kind: string;
  model?: string;
  name: string;
  /** The texts of the static instruction. Absent if there is none, in lists, and if the client may not read it. */
  static_instruction?: string;
  sub_agents: string[];
  tools: ToolInfo[];
};

/** The names of the agents of an app. */
export type AppEntry = {
  agents: string[];
  name: string;
};

/** A YAML file of an app. */
export type AppFile = {
  path: string;
  sha256: string;
  text: string;
};

/** An app with its agents. */
export type AppInfo = {
  /** The agents by name. */
  agents: { [key: string]: AgentInfo };
  description: string;
  /** False: no toolset of the host operates a computer. */
  isComputerUse: boolean;
  /** `yaml`, `wasm` for an app of a component, or `native` for an app of the program that the host is part of. */
  language: string;
  name: string;
  rootAgentName: string;
};

/** The names of the apps, or with `detailed` the apps with their agents. */
export type AppList = string[] | {
  apps: AppInfo[];
};

/** A version without its content. */
export type ArtifactMetadata = {
  /** The URI of an external file, otherwise the path of the version. */
  canonicalUri: string;
  /** The time of creation, in seconds since 1970. */
  createTime?: number;
  /** The custom metadata of the version. */
  customMetadata: JsonObject;
  mimeType?: string;
  /** The size of the stored content in bytes. */
  size: number;
  version: number;
};

export type ArtifactView = Part | number[] | ArtifactMetadata | ArtifactMetadata[];

export type Blob = {
  /** Base64. */
  data: string;
  displayName?: string;
  mimeType?: string;
};

export type CallBody = {
  args?: JsonObject;
  /** The initial state of the session. */
  state?: JsonObject;
};

export type CheckView = {
  /** Empty if the app can be loaded. */
  diagnostics: Diagnostic[];
};

export type CodeExecutionResult = {
  outcome?: string;
  output?: string;
};

/** The differences between two revisions of a component. */
export type Comparison = {
  changes: ItemChange[];
  from: RevisionSummary;
  to: RevisionSummary;
};

export type ComponentAgent = {
  description: string;
  /** Whether the agent becomes an app. */
  isApp: boolean;
  kind: string;
  model?: string;
  name: string;
  subAgents: string[];
  tools: string[];
  toolsets: string[];
};

export type ComponentCallback = {
  name: string;
  /** Hook points at which it may be used. */
  points: string[];
};

/** A component with its grants, limits and stored revisions. */
export type ComponentDetail = {
  agents: ComponentAgent[];
  callbacks: ComponentCallback[];
  codeExecutors: string[];
  /** The version of `hatchery:agent` for which it was built. */
  contract?: string;
  examples: string[];
  /** Exported interfaces. */
  exports: string[];
  grants: GrantReport;
  /** Imported interfaces. */
  imports: string[];
  /** Whether its code was run to list its items. */
  isDescribed: boolean;
  limits: ComponentLimits;
  /** The lines of `hatchery.yaml` that add the missing grants. */
  missingLines?: string;
  models: string[];
  name: string;
  plugins: ComponentPlugin[];
  /** The reason why the host refuses to load it. */
  refused?: string;
  /** The revisions that can be restored, newest first. */
  revisions: StoredRevision[];
  sha256: string;
  /** Bytes. */
  size: number;
  summarizers: string[];
  tools: ComponentTool[];
  toolsets: string[];
  usage: ComponentUsage;
};

/** An active component. */
export type ComponentEntry = {
  agents: string[];
  callbacks: string[];
  /** Number of active calls. */
  calls: number;
  codeExecutors: string[];
  /** Items that are not available because another component already has their name, one sentence each. */
  conflicts?: string[];
  examples: string[];
  /** Path relative to the served folder. */
  file: string;
  models: string[];
  name: string;
  plugins: string[];
  /** SHA-256 of the file, in hexadecimal. */
  sha256: string;
  summarizers: string[];
  tools: string[];
  /** Number of idle pooled instances. */
  waitingInstances: number;
};

/** The main limits of a component's calls. */
export type ComponentLimits = {
  agentWallSeconds: number;
  cpuSeconds: number;
  /** Bytes. */
  log: number;
  /** Bytes. */
  memory: number;
  /** Bytes. */
  result: number;
  wallSeconds: number;
};

export type ComponentPlugin = {
  hooks: string[];
  name: string;
};

export type ComponentStats = {
  /** Calls in progress. */
  calls: number;
  name: string;
  /** Idle pooled instances. */
  waitingInstances: number;
};

export type ComponentTool = {
  description: string;
  isLongRunning: boolean;
  name: string;
  /** JSON Schema of the arguments. */
  parameters?: Json;
  requiresConfirmation: boolean;
  /** JSON Schema of the result. */
  response?: Json;
};

/** The resource usage of a component's calls since its current revision was loaded. */
export type ComponentUsage = {
  agentWallSeconds?: Quantiles;
  /** Number of calls that have ended. */
  calls: number;
  cpuSeconds?: Quantiles;
  /**
   * Number of calls that exceeded a limit, by the key of the limit in `hatchery.yaml`; `fixed` for limits without a
   * key.
   */
  limitHits: { [key: string]: number };
  memory?: Quantiles;
  wallSeconds?: Quantiles;
};

/** The loaded components and apps, and the state of every file. */
export type Components = {
  a2aAgents?: JsonObject[];
  apps: AppEntry[];
  components: ComponentEntry[];
  /** Replaced or removed revisions that are still in use by runs. */
  draining: DrainingRevision[];
  files: FileEntry[];
  /** Increased by every change. */
  generation: number;
  mcpServers?: JsonObject[];
  openapi?: JsonObject[];
  /** Problems of loaded apps, one sentence each. */
  warnings?: string[];
};

/** A message. */
export type Content = {
  parts?: Part[];
  /** `user` or `model`. */
  role?: string;
};

export type CreateBody = {
  /** Events to import. */
  events?: Event[];
  /** Whether imported events may set `app:` and `user:` keys, which are shared with other sessions. */
  overwriteSharedState?: boolean;
  /** The id of the session. Default: a new UUID. */
  sessionId?: string;
  /** The initial state. */
  state?: JsonObject;
};

/** A problem in a file. */
export type Diagnostic = {
  column?: number;
  file: string;
  line?: number;
  message: string;
};

/** A replaced revision of a component that is still in use by runs. */
export type DrainingRevision = {
  /** Number of its active calls. */
  calls: number;
  /** Whether the drain timeout has passed. */
  isCutOff: boolean;
  name: string;
  sha256: string;
  /** The time of its replacement, in seconds since 1970. */
  since: number;
};

/** A conversation with the expected behaviour of the app. */
export type EvalCase = {
  conversation: EvalInvocation[];
  creationTimestamp?: number;
  evalId?: string;
  sessionInput?: EvalSessionInput;
};

/** The result of one run of a case. */
export type EvalCaseResult = {
  /** The error that ended the run; left out if it ended normally. */
  errorMessage?: string;
  evalId: string;
  evalMetricResultPerInvocation: InvocationResult[];
  evalSetId?: string;
  finalEvalStatus: EvalStatus;
  /** The means over all turns. */
  overallEvalMetricResults: MetricResult[];
  sessionId: string;
  userId: string;
};

/** A turn of a conversation, expected or observed. */
export type EvalInvocation = {
  creationTimestamp?: number;
  finalResponse?: Content;
  intermediateData?: IntermediateData;
  invocationId?: string;
  userContent?: Content;
};

/** The results of evaluations of an app. */
export type EvalResultIds = {
  /** The oldest first. */
  evalResultIds: string[];
};

/** The request for an evaluation. */
export type EvalRunBody = {
  /** The cases to run. Default: `evalIds`. */
  evalCaseIds?: string[];
  /** The cases to run, as older clients name them. Default: all. */
  evalIds?: string[];
  evalMetrics?: JsonObject[];
  numRuns?: number;
  parallelism?: number;
};

/** The initial session of a conversation. */
export type EvalSessionInput = {
  appName?: string;
  state?: JsonObject;
  userId?: string;
};

/** A set of cases for the evaluation of an app. Keys are in snake_case. */
export type EvalSet = {
  creation_timestamp: number;
  description?: string;
  eval_cases: EvalSetCase[];
  eval_set_id: string;
  name?: string;
};

/** A case of an eval set. Keys are in snake_case. */
export type EvalSetCase = {
  conversation: EvalSetTurn[];
  creation_timestamp: number;
  eval_id: string;
  session_input?: JsonObject;
};

/** The eval sets of an app. */
export type EvalSetIds = {
  evalSetIds: string[];
};

/** The results of an evaluation of a set. */
export type EvalSetResult = {
  creationTimestamp: number;
  /** One result for each run of each case. */
  evalCaseResults: EvalCaseResult[];
  evalSetId: string;
  evalSetResultId: string;
  evalSetResultName?: string;
};

/** A turn of a case of an eval set. Keys are in snake_case. */
export type EvalSetTurn = {
  creation_timestamp: number;
  final_response?: Content;
  intermediate_data?: JsonObject;
  invocation_id: string;
  user_content: Content;
};

/** 1: passed, 2: failed, 3: not evaluated. */
export type EvalStatus = 1 | 2 | 3;

/** One step of a run. Keys without a value are left out. */
export type Event = {
  actions: EventActions;
  /** The name of an agent, or `user`. */
  author: string;
  avgLogprobs?: number;
  /** The parallel branch, as a path with dots. */
  branch?: string;
  content?: Content;
  customMetadata?: JsonObject;
  errorCode?: string;
  errorMessage?: string;
  /** The reason why the model stopped, such as `STOP` or `MAX_TOKENS`. */
  finishReason?: string;
  groundingMetadata?: JsonObject;
  /** A partial event has the id of the complete event that follows. */
  id: string;
  inputTranscription?: Transcription;
  interrupted?: boolean;
  /** The id of the run. */
  invocationId: string;
  /** The ids of calls whose results arrive later. */
  longRunningToolIds?: string[];
  modelVersion?: string;
  outputTranscription?: Transcription;
  /** Whether this is a chunk of a streamed response. Partial events are not stored. */
  partial?: boolean;
  /** Seconds since 1970. */
  timestamp: number;
  turnComplete?: boolean;
  usageMetadata?: UsageMetadata;
};

/** The changes that an event makes. */
export type EventActions = {
  /** Names of artifacts and their new versions. */
  artifactDelta: { [key: string]: number };
  compaction?: JsonObject;
  deletedArtifactIds?: string[];
  endInvocation?: boolean;
  endOfAgent?: boolean;
  escalate?: boolean;
  requestedAuthConfigs?: JsonObject;
  requestedToolConfirmations?: JsonObject;
  skipSummarization?: boolean;
  /** `null` deletes a key. */
  stateDelta: JsonObject;
  transferToAgent?: string;
};

export type ExecutableCode = {
  code: string;
  language?: string;
};

export type FailedFile = {
  path: string;
  reason: string;
};

/** An error: a stable code and a message. */
export type Failure = {
  code: string;
  message: string;
};

export type FileData = {
  displayName?: string;
  fileUri: string;
  mimeType?: string;
};

/** A file of the served folder. */
export type FileEntry = {
  /** The name of the component, or of the app of a `root_agent.yaml`. */
  name: string;
  /** Relative to the served folder. */
  path: string;
  /** Whether the previous version of the file is still active. */
  previousServes?: boolean;
  /** The reason why the file is not active. */
  reason?: string;
  /** SHA-256 of the active revision, in hexadecimal. */
  sha256?: string;
  /** The time of the last change of the state, in seconds since 1970. */
  since: number;
  state: FileState;
};

export type FileState = "pending" | "compiling" | "loaded" | "rejected" | "conflict";

export type FilesBody = {
  /** Texts by path. */
  files: JsonObject;
  /** The SHA-256 of each file before the edit, to detect concurrent changes. */
  known?: { [key: string]: string };
};

export type FilesView = {
  files: AppFile[];
};

/** The last event of a fork, and the id of the new session. */
export type ForkBody = {
  eventId?: string;
  revision?: number;
  sessionId?: string;
};

export type FunctionCall = {
  args?: JsonObject;
  id?: string;
  name: string;
};

export type FunctionResponse = {
  id?: string;
  name: string;
  response?: JsonObject;
};

/** The grants that a component requests, compared with those that it has. Entries by their key in `hatchery.yaml`. */
export type GrantReport = {
  granted: { [key: string]: string[] };
  missing: { [key: string]: string[] };
  /** Number of operations that were refused because an entry is missing, by key. */
  refused?: { [key: string]: number };
  requested?: { [key: string]: string[] };
  unused: { [key: string]: string[] };
  /** Number of permitted operations since the grants were read, by key and entry. */
  used?: { [key: string]: { [key: string]: number } };
  /** Reasons that the component states. */
  why: { [key: string]: string };
};

/** A graph in the DOT language. */
export type Graph = {
  /** Left out if there is no such event, or its author is not an agent. */
  dotSrc?: string;
};

/** An event of the host, as in the stream of `GET /events`. */
export type HostEvent = HostEventKind & {
  /** Increases with each event. */
  id: number;
  /** Seconds since 1970. */
  time: number;
};

export type HostEventKind = {
  kind: "fileLoading";
  name: string;
  path: string;
} | {
  kind: "fileLoaded";
  name: string;
  path: string;
} | {
  kind: "fileRejected";
  name: string;
  path: string;
  previousServes: boolean;
  reason: string;
} | {
  kind: "fileRemoved";
  name: string;
  path: string;
} | {
  kind: "componentAdded";
  name: string;
  sha256: string;
} | {
  from: string;
  kind: "componentReplaced";
  name: string;
  to: string;
} | {
  kind: "componentRemoved";
  name: string;
  sha256: string;
} | {
  kind: "revisionDrained";
  name: string;
  sha256: string;
} | {
  app: string;
  /** The stable code of the failure. */
  error?: string;
  kind: "runEnded";
  message?: string;
  run: string;
  seconds: number;
  session: string;
  user: string;
} | {
  app: string;
  component: string;
  error: string;
  kind: "callFailed";
  message: string;
  run: string;
  session: string;
  user: string;
};

/** An exported session, as `GET` returns it. The ids in it belong to the exported session. */
export type ImportBody = {
  events?: Event[];
  /** Whether imported events may set `app:` and `user:` keys, which are shared with other sessions. */
  overwriteSharedState?: boolean;
  state?: JsonObject;
};

/** The tool calls and their responses between a message and the final response. */
export type IntermediateData = {
  toolResponses?: FunctionResponse[];
  toolUses?: FunctionCall[];
};

/** The scores of one turn. */
export type InvocationResult = {
  actualInvocation?: EvalInvocation;
  evalMetricResults: MetricResult[];
  expectedInvocation?: EvalInvocation;
};

/** A difference between two revisions. */
export type ItemChange = {
  /** Left out if the item was added. */
  from?: Json;
  /** The keys whose values differ. */
  keys?: string[];
  /** Such as `tool`, `agent`, `grant` or `import`. */
  kind: string;
  name: string;
  /** Left out if the item was removed. */
  to?: Json;
};

export type ListView = {
  /** `pageToken` of the next page. */
  nextPageToken?: number;
  runs: RunView[];
};

/** A line of a log. */
export type LogView = {
  /** `error`, `warn`, `info`, `debug` or `trace`. */
  level: string;
  text: string;
  /** Nanoseconds since 1970. */
  time: number;
};

export type Memories = {
  memories: MemoryEntry[];
};

/** A remembered message. */
export type MemoryEntry = {
  author?: string;
  content: Content;
  /** Seconds since 1970. */
  timestamp: number;
};

export type MemoryStats = {
  /** Memory of request bodies in bytes. */
  bodyBytes: number;
  maxBodyBytes: number;
  /** Resident memory of the process in bytes; left out if the system does not report it. */
  residentBytes?: number;
};

/** The score of a turn, or the mean score of several turns. */
export type MetricResult = {
  criterion?: JsonObject;
  details?: JsonObject;
  evalStatus: EvalStatus;
  metricName: string;
  /** From 0 to 1. */
  score?: number;
  /** The lowest score that passes. */
  threshold: number;
};

/** The prices of a model per million tokens. */
export type ModelPrice = {
  /** The price of cached prompt tokens. Default: the price of `input`. */
  cachedInput?: number;
  input: number;
  output: number;
};

/** The origin of a setting. */
export type Origin = {
  kind: "default";
} | {
  kind: "file";
  line: number;
} | {
  kind: "environment";
  variable: string;
} | {
  flag: string;
  kind: "flag";
};

/** A part of a message, with one kind of data. */
export type Part = {
  codeExecutionResult?: CodeExecutionResult;
  executableCode?: ExecutableCode;
  fileData?: FileData;
  functionCall?: FunctionCall;
  functionResponse?: FunctionResponse;
  inlineData?: Blob;
  text?: string;
  /** Whether the text is a thought of the model. */
  thought?: boolean;
  /** Base64. */
  thoughtSignature?: string;
};

/** The prices of tokens. */
export type Prices = {
  /** ISO 4217 currency code. */
  currency: string;
  /** Prices by the name of the model. */
  models: { [key: string]: ModelPrice };
};

/** An error. */
export type Problem = {
  /** A stable code for programs. */
  code: string;
  /** The problem and the next step. */
  detail: string;
  /** A copy of `detail`, for older clients. */
  error: string;
  /** The events of a failed run. */
  events?: Event[];
  status: number;
  /** The reason phrase of the status. */
  title: string;
};

/** A message of Pub/Sub. */
export type PubSubMessage = {
  attributes?: { [key: string]: string };
  /** Base64 of a text. */
  data?: string;
  messageId?: string;
  publishTime?: string;
};

/** The body of a Pub/Sub push subscription. */
export type PubSubTriggerRequest = {
  message: PubSubMessage;
  subscription?: string;
};

/** The median, the 99th percentile and the maximum. The first two may be up to one eighth too high. */
export type Quantiles = {
  max: number;
  p50: number;
  p99: number;
};

export type RevisionSummary = {
  contract?: string;
  sha256: string;
  /** Bytes. */
  size: number;
};

/** The event to which to rewind a session. */
export type RewindBody = {
  eventId?: string;
  revision?: number;
};

export type RollbackBody = {
  /** SHA-256 of a stored revision, in hexadecimal. */
  to: string;
};

export type RunBody = {
  appName?: string;
  /** True if the response does not wait for the run (`/run` and `/ws` only). */
  background?: boolean;
  cancelOnDisconnect?: boolean;
  /** Metadata for every event of the run, at most 16 KiB of JSON. */
  customMetadata?: JsonObject;
  invocationId?: string;
  newMessage?: Content;
  /** The id of the run, which makes the request idempotent. Can also be set by the header `Idempotency-Key`. */
  runId?: string;
  sessionId?: string;
  stateDelta?: JsonObject;
  streaming?: boolean;
  userId?: string;
};

export type RunEntry = {
  appName: string;
  id: string;
  seconds: number;
  sessionId: string;
  userId: string;
};

/** The results of an evaluation, for each run of each case. */
export type RunEvalResponse = {
  runEvalResults: EvalCaseResult[];
};

/** The state of a run. */
export type RunState = "accepted" | "running" | "interrupted" | "waiting" | "done" | "failed" | "cancelled";

export type RunStats = {
  /** The runs that are in progress or queued, with open live runs. */
  active: number;
  /** At most 100 runs with a known id, longest running first. */
  inProgress: RunEntry[];
  max: number;
};

/** The status of a run. */
export type RunView = {
  /** Seconds since 1970. */
  accepted: number;
  appName: string;
  attempts: number;
  background: boolean;
  cancelRequested: boolean;
  error?: Failure;
  id: string;
  sessionId: string;
  state: RunState;
  /** Seconds since 1970. */
  updated: number;
  userId: string;
};

export type SaveBody = {
  artifact: Part;
  /** Custom metadata of the version; at most 64 KiB. */
  customMetadata?: JsonObject;
  filename: string;
};

export type SavedArtifact = ArtifactMetadata & {
  filename: string;
};

/** A conversation of a user with an app. */
export type Session = {
  appName: string;
  /** Empty in lists of sessions. */
  events: Event[];
  id: string;
  /** Seconds since 1970. */
  lastUpdateTime: number;
  /** The state of the session, of its user (`user:`) and of its app (`app:`). */
  state: JsonObject;
  userId: string;
};

/** A setting in force. */
export type Setting = {
  /** The key in `hatchery.yaml`, such as `server.max_connections`, or the name of a flag. */
  key: string;
  origin: Origin;
  /** Left out if the value may be secret. */
  value?: Json;
};

/** The settings in force. */
export type Settings = {
  /** The path of the configuration file. The file may not exist. */
  file?: string;
  /** The keys that were changed in the file and take effect after a restart. Left out if there are none. */
  pending?: string[];
  prices: Prices;
  /** Sorted by key. */
  settings: Setting[];
};

/** A span. Absent values are left out, because clients reject responses with `null`. */
export type SpanView = {
  attributes: JsonObject;
  end_time: number;
  /** The log lines of the component during the call. */
  logs?: LogView[];
  name: string;
  parent_span_id?: string;
  span_id: string;
  /** Nanoseconds since 1970. */
  start_time: number;
  trace_id: string;
};

export type Stats = {
  apps: number;
  components: ComponentStats[];
  /** The files that could not be loaded, with the reasons. */
  failed: FailedFile[];
  memory: MemoryStats;
  runs: RunStats;
  uptimeSeconds: number;
  version: string;
};

export type StoredRevision = {
  /** Seconds since 1970. */
  servedSince: number;
  sha256: string;
  /** Bytes. */
  size: number;
};

export type TestBody = {
  /** A session with `events`. */
  session_data: JsonObject;
};

/** The result of a change. */
export type TestChange = {
  /** The name of the test. */
  file?: string;
  /** `success`. */
  status: string;
};

/** The result of a tool call. */
export type ToolCall = {
  artifacts: string[];
  error?: Failure;
  result?: Json;
  spans: SpanView[];
  /** The changes of the session's state. */
  stateDelta: JsonObject;
};

/** The declaration of a function. Tools of toolsets have only a name here, and those in lists have no schemas. */
export type ToolDeclaration = {
  description: string;
  name: string;
  parametersJsonSchema?: JsonObject;
  responseJsonSchema?: JsonObject;
};

/** A tool as Gemini's API declares it. */
export type ToolInfo = {
  functionDeclarations: ToolDeclaration[];
};

/** A transcript of speech in a live run. */
export type Transcription = {
  finished?: boolean;
  text?: string;
};

/** The answer to an event whose run has ended. */
export type TriggerResponse = {
  /** `success`. */
  status: string;
};

export type UpdateBody = {
  stateDelta: JsonObject;
};

/** The token usage of a model call. */
export type UsageMetadata = {
  cachedContentTokenCount?: number;
  candidatesTokenCount?: number;
  promptTokenCount?: number;
  thoughtsTokenCount?: number;
  totalTokenCount?: number;
};
