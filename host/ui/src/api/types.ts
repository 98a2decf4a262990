// The JSON of the host, as far as the page reads it. Everything in it may come from strangers' components and models.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface FunctionCall {
  id?: string;
  name: string;
  args?: JsonObject;
}

export interface FunctionResponse {
  id?: string;
  name: string;
  response?: Json;
}

export interface Part {
  text?: string;
  thought?: boolean;
  functionCall?: FunctionCall;
  functionResponse?: FunctionResponse;
  inlineData?: { mimeType?: string; data: string; displayName?: string };
  fileData?: { mimeType?: string; fileUri: string };
  executableCode?: { language?: string; code: string };
  codeExecutionResult?: { outcome?: string; output?: string };
}

export interface Usage {
  promptTokenCount?: number;
  candidatesTokenCount?: number;
  cachedContentTokenCount?: number;
  thoughtsTokenCount?: number;
  totalTokenCount?: number;
}

export interface SessionEvent {
  id: string;
  invocationId: string;
  author: string;
  timestamp: number;
  content?: { role?: string; parts?: Part[] };
  partial?: boolean;
  branch?: string;
  actions?: {
    stateDelta?: JsonObject;
    artifactDelta?: { [name: string]: number };
    transferToAgent?: string;
    escalate?: boolean;
    compaction?: Json;
    [key: string]: unknown;
  };
  longRunningToolIds?: string[];
  errorCode?: string;
  errorMessage?: string;
  usageMetadata?: Usage;
  modelVersion?: string;
  finishReason?: string;
  turnComplete?: boolean;
  interrupted?: boolean;
  inputTranscription?: { text?: string; finished?: boolean };
  outputTranscription?: { text?: string; finished?: boolean };
}

export interface Session {
  id: string;
  appName: string;
  userId: string;
  state: JsonObject;
  events: SessionEvent[];
  lastUpdateTime: number;
}

export interface Agent {
  name: string;
  description: string;
  kind: string;
  subAgents: string[];
  model?: string;
  tools?: string[];
}

export interface App {
  name: string;
  rootAgentName: string;
  description: string;
  agents: Agent[];
}

export interface ComponentEntry {
  name: string;
  file: string;
  sha256: string;
  calls: number;
  waitingInstances: number;
  agents: string[];
  tools: string[];
  callbacks: string[];
  plugins: string[];
  codeExecutors: string[];
  summarizers: string[];
  examples: string[];
  models: string[];
  conflicts?: string[];
}

export interface FileEntry {
  path: string;
  name: string;
  state: "pending" | "compiling" | "loaded" | "rejected" | "conflict";
  reason?: string;
  previousServes?: boolean;
  sha256?: string;
  since: number;
}

export interface Draining {
  name: string;
  sha256: string;
  calls: number;
  since: number;
  isCutOff: boolean;
}

export interface Catalog {
  generation: number;
  components: ComponentEntry[];
  files: FileEntry[];
  draining: Draining[];
}

export type GrantEntries = { [key: string]: string[] };

export interface Grants {
  requested?: GrantEntries;
  why: { [key: string]: string };
  granted: GrantEntries;
  missing: GrantEntries;
  unused: GrantEntries;
}

export interface Tool {
  name: string;
  description: string;
  parameters?: Json;
  isLongRunning: boolean;
  requiresConfirmation: boolean;
}

export interface ComponentDetail {
  name: string;
  size: number;
  sha256: string;
  contract?: string;
  imports: string[];
  exports: string[];
  agents: { name: string; description: string; kind: string; model?: string; isApp: boolean }[];
  tools: Tool[];
  callbacks: { name: string; points: string[] }[];
  plugins: { name: string; hooks: string[] }[];
  toolsets?: string[];
  models: string[];
  grants: Grants;
  missingLines?: string;
  limits: {
    memory: number;
    cpuSeconds: number;
    wallSeconds: number;
    agentWallSeconds: number;
    result: number;
    log: number;
  };
  revisions: { sha256: string; size: number; servedSince: number }[];
}

interface RunPlace {
  app: string;
  user: string;
  session: string;
  run: string;
}

/** Something that has happened in the host. */
export type HostEvent = { id: number; time: number } & (
  | { kind: "fileLoading" | "fileLoaded" | "fileRemoved"; path: string; name: string }
  | { kind: "fileRejected"; path: string; name: string; reason: string; previousServes: boolean }
  | { kind: "componentAdded" | "componentRemoved" | "revisionDrained"; name: string; sha256: string }
  | { kind: "componentReplaced"; name: string; from: string; to: string }
  | ({ kind: "runEnded"; seconds: number; error?: string; message?: string } & RunPlace)
  | ({ kind: "callFailed"; component: string; error: string; message: string } & RunPlace)
);

/** A span of a run. Its times are nanoseconds since 1970. */
export interface TraceSpan {
  name: string;
  trace_id: string;
  span_id: string;
  parent_span_id?: string;
  start_time: number;
  end_time: number;
  attributes: JsonObject;
}
