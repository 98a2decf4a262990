// Types of the JSON of the host. All values are untrusted: components and models can set them.

import type { ComponentTool, Event, GrantReport, HostEvent as AnyHostEvent, RunView, UsageMetadata } from "./wire";

export type { Json, JsonObject } from "./json";
export type {
  Agent,
  App,
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

export type SessionEvent = Event;
export type Usage = UsageMetadata;
export type Tool = ComponentTool;
export type Grants = GrantReport;
export type GrantEntries = GrantReport["granted"];
export type HostEvent = AnyHostEvent;
export type StoredRun = RunView;
