// Messages, events, requests to models, and functions that read them.

import type { Json, Schema } from "./schema.js";

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

/** A request as callbacks and models get it: with all fields. */
export type ReceivedLlmRequest = Required<LlmRequest>;

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
