// Types of the JSON of the host. All values are untrusted: components and models can set them.

import type { AgentInfo, AppInfo, ComponentTool, Event, GrantReport, HostEvent as AnyHostEvent, RunView, UsageMetadata } from "./wire";

export type { Json, JsonObject } from "./json";
export type {
  AppFile,
  Comparison,
  ComponentDetail,
  ComponentEntry,
  Components as Catalog,
  Diagnostic,
  DrainingRevision as Draining,
  EvalCase,
  EvalCaseResult,
  EvalInvocation,
  EvalResultIds,
  EvalSet,
  EvalSetIds,
  EvalSetResult,
  EvalStatus,
  FileEntry,
  FunctionCall,
  FunctionResponse,
  InvocationResult,
  ItemChange,
  Memories,
  MemoryEntry,
  MetricResult,
  ModelPrice,
  Part,
  Prices,
  RevisionSummary,
  Session,
  Setting,
  Settings,
  LogView as TraceLog,
  SpanView as TraceSpan,
  ToolCall,
} from "./wire";

/** An agent with the names of its tools. */
export interface Agent extends Pick<AgentInfo, "name" | "description" | "kind" | "model"> {
  subAgents: string[];
  tools?: string[];
}

/** An app with its agents, in the order of their names. */
export interface App extends Pick<AppInfo, "name" | "rootAgentName" | "description" | "isComputerUse"> {
  agents: Agent[];
}

export type SessionEvent = Event;
export type Usage = UsageMetadata;
export type Tool = ComponentTool;
export type Grants = GrantReport;
export type GrantEntries = GrantReport["granted"];
export type HostEvent = AnyHostEvent;
export type StoredRun = RunView;
