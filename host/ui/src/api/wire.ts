// Generated from the schemas of /openapi.json by `cargo xtask ui`.

import type { Json, JsonObject } from "./json";

export type AddBody = {
  sessionId: string;
};

/** AddSessionToEvalSetRequest. */
export type AddSessionBody = {
  evalId: string;
  sessionId: string;
  userId: string;
};

/** Names, or with `detailed` the apps with their agents. */
export type AppList = string[] | {
  apps: JsonObject[];
};

export type ArtifactOrVersions = Part | number[];

export type Blob = {
  /** Base64. */
  data: string;
  displayName?: string;
  mimeType: string;
};

export type CallBody = {
  args?: JsonObject;
  /** The state in which the session begins. */
  state?: JsonObject;
};

export type CheckView = {
  /** Empty if the app would serve. */
  diagnostics: JsonObject[];
};

export type CodeExecutionResult = {
  outcome?: string;
  output?: string;
};

/** What is loaded, and the state of every file. */
export type Components = {
  a2aAgents?: JsonObject[];
  apps: JsonObject[];
  components: JsonObject[];
  files: JsonObject[];
  /** Increased by every change. */
  generation: number;
  mcpServers?: JsonObject[];
  openapi?: JsonObject[];
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
  /** Whether imported events and their state may set `app:` and `user:` keys, which other sessions share. */
  overwriteSharedState?: boolean;
  /** The id of the session. Default: a new UUID. */
  sessionId?: string;
  /** The initial state. */
  state?: JsonObject;
};

/** A conversation with what is expected of the app. */
export type EvalCase = {
  conversation: JsonObject[];
  creationTimestamp?: number;
  evalId?: string;
  sessionInput?: JsonObject;
};

/** Conversations on which an app is evaluated. Answers have keys in snake_case. */
export type EvalSet = {
  creation_timestamp: number;
  description?: string;
  eval_cases: JsonObject[];
  eval_set_id: string;
  name?: string;
};

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
  /** Why the model stopped, such as `STOP` or `MAX_TOKENS`. */
  finishReason?: string;
  groundingMetadata?: JsonObject;
  /** Partial events have the id of the event that they lead to. */
  id: string;
  inputTranscription?: JsonObject;
  interrupted?: boolean;
  /** The id of the run. */
  invocationId: string;
  /** The ids of calls whose results arrive later. */
  longRunningToolIds?: string[];
  modelVersion?: string;
  outputTranscription?: JsonObject;
  /** Whether this is a part of a streamed answer. Partial events are not stored. */
  partial?: boolean;
  /** Seconds since 1970. */
  timestamp: number;
  turnComplete?: boolean;
  usageMetadata?: UsageMetadata;
};

/** What an event changes. */
export type EventActions = {
  /** Names of artifacts and their new versions. */
  artifactDelta: JsonObject;
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

export type FileData = {
  displayName?: string;
  fileUri: string;
  mimeType?: string;
};

export type FilesBody = {
  /** Texts by path. */
  files: JsonObject;
  /** The hashes of the files as their author has read them. */
  known?: { [key: string]: string };
};

export type FilesView = {
  files: JsonObject[];
};

/** Where a session is to be forked, and the id of the new one. */
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

/** GraphResponse. */
export type Graph = {
  /** `None` if there is no such event, or it is not one of an agent. */
  dotSrc?: string;
};

/** A session as `GET` returns it. Names in it are those of the session that it was. */
export type ImportBody = {
  events?: Event[];
  /** As for a session that is created with events. */
  overwriteSharedState?: boolean;
  state?: JsonObject;
};

export type ListView = {
  /** `pageToken` of the next page. */
  nextPageToken?: number;
  runs: RunView[];
};

export type Memories = {
  memories: JsonObject[];
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
  /** Whether the part is a thought of the model. */
  thought?: boolean;
  /** Base64. */
  thoughtSignature?: string;
};

/** An error. */
export type Problem = {
  /** A stable code for programs. */
  code: string;
  /** The problem and the next step. */
  detail: string;
  /** The same as `detail`, for older clients. */
  error: string;
  /** The events of a failed run. */
  events?: Event[];
  status: number;
  /** The status in words. */
  title: string;
};

/** The event to which a session is to be rewound. */
export type RewindBody = {
  eventId?: string;
  revision?: number;
};

export type RollbackBody = {
  /** SHA-256 of a stored revision, in hexadecimal. */
  to: string;
};

/** RunEvalRequest. */
export type RunBody = {
  evalIds?: string[];
  evalMetrics?: JsonObject[];
  numRuns?: number;
  parallelism?: number;
};

/** A run as clients see it. */
export type RunView = {
  /** Seconds since 1970. */
  accepted: number;
  appName: string;
  attempts: number;
  background: boolean;
  cancelRequested: boolean;
  error?: JsonObject;
  id: string;
  sessionId: string;
  state: string;
  /** Seconds since 1970. */
  updated: number;
  userId: string;
};

export type SaveBody = {
  artifact: Part;
  filename: string;
};

export type SavedArtifact = {
  filename: string;
  mimeType?: string;
  version: number;
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

/** A span as clients read it. They refuse the whole answer if a value is `null`. */
export type SpanView = {
  attributes: JsonObject;
  end_time: number;
  name: string;
  parent_span_id?: string;
  span_id: string;
  /** Nanoseconds since 1970. */
  start_time: number;
  trace_id: string;
};

export type UpdateBody = {
  stateDelta: JsonObject;
};

/** The tokens of a call of a model. */
export type UsageMetadata = {
  cachedContentTokenCount?: number;
  candidatesTokenCount?: number;
  promptTokenCount?: number;
  thoughtsTokenCount?: number;
  totalTokenCount?: number;
};
