import type { Context, Content, Event, Json, LlmRequest, LlmResponse, Part } from "./index.js";

/** A host that keeps everything in memory, for unit tests. Its fields can be checked after a test. */
export class MockHost {
  constructor(setup?: {
    state?: Record<string, Json>;
    config?: Record<string, Json>;
    /** The user message that started the run. */
    userMessage?: string;
    /** The events of the session. */
    events?: Event[];
    /** The responses of models, in order. */
    responses?: (string | LlmResponse | Error)[];
    /** Tools that the code can call. */
    tools?: Record<string, (args: any) => unknown>;
    /** The events of sub-agents. */
    subAgents?: Record<string, Event[]>;
    /** The result of every memory search. */
    memory?: { content: Content; author?: string; timestampMicros: number }[];
    /** A person's decision about the tool call. */
    confirmation?: { hint: string; confirmed: boolean; payload?: Json };
  });
  /** The session's state. */
  state: Record<string, any>;
  /** The versions of each artifact. */
  artifacts: Record<string, Part[]>;
  /** The requests to models. */
  requests: LlmRequest[];
  /** Level, message and fields of log lines. */
  logLines: [string, string, Record<string, unknown>][];
  /** The confirmation that was requested for the tool call. */
  requestedConfirmation: { hint: string; payload?: Json } | undefined;
  /** The agent that the conversation was transferred to. */
  transferredTo: string | undefined;
  escalated: boolean;
  skippedSummarization: boolean;
  context(): Context;
}

/** Returns everything that an agent yields. */
export function collect<T>(outputs: Iterable<T> | AsyncIterable<T>): Promise<T[]>;
