// What code can do during a call: the context, and the services behind it.

import type { Content, Event, LlmRequest, LlmResponse, Part } from "./content.js";
import type { Json } from "./schema.js";

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
    save(name: string, data: string | Uint8Array | ArrayBuffer | Part, mimeType?: string, customMetadata?: Record<string, unknown>): number;
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
