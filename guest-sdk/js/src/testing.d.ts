import type { Context, Content, Event, Json, LlmRequest, LlmResponse, Part } from "./index.js";

/** A host that keeps everything in memory, for unit tests. Its fields can be looked at after a test. */
export class FakeHost {
  constructor(options?: {
    state?: Record<string, Json>;
    config?: Record<string, Json>;
    /** What the user said to start the run. */
    user?: string;
    /** What models answer, one after the other. */
    answers?: (string | LlmResponse | Error)[];
    tools?: Record<string, (args: any) => unknown>;
    agents?: Record<string, Event[]>;
    memories?: { content: Content; author?: string; timestampMicros: number }[];
    confirmation?: { hint: string; confirmed: boolean; payload?: Json };
  });
  /** The session's state. */
  stored: Record<string, any>;
  files: Record<string, Part[]>;
  /** What models were asked. */
  requests: LlmRequest[];
  /** What was logged: level, message, fields. */
  lines: [string, string, Record<string, unknown>][];
  /** How the run was steered, such as `["transfer", "helper"]`. */
  steps: unknown[][];
  context(): Context;
}

/** All that an agent yields. */
export function collect<T>(said: Iterable<T> | AsyncIterable<T>): Promise<T[]>;
