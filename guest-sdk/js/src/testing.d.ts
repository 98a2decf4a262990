import type {
  AuthConfig, AuthCredential, Context, Content, Event, Json, LlmRequest, LlmResponse, MemoryEntry, Model, Part, PluginInfo, RunInfo, RunRequest,
  Tool, ToolProgress,
} from "./index.js";

/** A request to a web server. Header names are in lower case. */
export interface HttpRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

/** A host that keeps everything in memory, for unit tests. Its fields can be checked after a test. The newest context has the `fetch` of its host. */
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
    /** Tools that the code can call: items, or functions by name. */
    tools?: readonly Tool[] | Record<string, Tool | ((args: any) => unknown)>;
    /** The events of sub-agents. */
    subAgents?: Record<string, Event[]>;
    /** Entries of earlier sessions. A search finds those that contain words of the query. */
    memory?: MemoryEntry[];
    /** The call in which the code runs. */
    info?: Partial<RunInfo>;
    /** The custom metadata that the request for the run has. */
    runMetadata?: Record<string, Json>;
    /** The arguments with which the configuration uses the tool or plugin that is called. */
    arguments?: Json;
    /** The plugins of the run. */
    plugins?: PluginInfo[];
    /** The names and patterns of the models that the component is granted. */
    models?: string[];
    /** Embeds a text. */
    embed?: (text: string) => number[];
    /** Apps that the code can run: functions from the request to the events. An event with an `errorCode` is a failure. */
    apps?: Record<string, (request: RunRequest & { message: Content }) => (string | Content | Event)[]>;
    /** The events of other sessions of the user, by app and id. */
    sessions?: Record<string, Record<string, (string | Content | Event)[]>>;
    /** The idempotency key of the tool call, `key-of-call` by default. */
    idempotencyKey?: string;
    /** Answers requests to web servers: `(request) => Response.json({ degrees: 21 })`. */
    http?: (request: HttpRequest) => Response | Promise<Response>;
    /** The credential that the user has granted. */
    credential?: AuthCredential;
    /** A person's decision about the tool call. */
    confirmation?: { hint: string; confirmed: boolean; payload?: Json };
  });
  /** The session's state. */
  state: Record<string, any>;
  /** The versions of each artifact. */
  artifacts: Record<string, Part[]>;
  /** The custom metadata of the versions of each artifact. */
  artifactMetadata: Record<string, Record<string, any>[]>;
  /** The requests to models. */
  requests: LlmRequest[];
  /** Level, message and fields of log lines. */
  logLines: [string, string, Record<string, unknown>][];
  /** The progress that tools have reported. A real host sends at most ten reports of a call per second. */
  progress: ToolProgress[];
  /** The confirmation that was requested for the tool call. */
  requestedConfirmation: { hint: string; payload?: Json } | undefined;
  /** The configuration of the credential that was requested for the tool call. */
  requestedCredential: AuthConfig | undefined;
  /** The credential of the user; `undefined` after it was refused. */
  credentialOfUser: AuthCredential | undefined;
  /** The agent that the conversation was transferred to. */
  transferredTo: string | undefined;
  hasEscalated: boolean;
  hasEndedInvocation: boolean;
  hasSkippedSummarization: boolean;
  /** The runs of apps that the code has started. */
  runRequests: RunRequest[];
  /** The ids of the runs that the code has cancelled. */
  cancelledRuns: string[];
  /** The requests to web servers. Each redirect is a separate request. */
  httpRequests: HttpRequest[];
  /** The entries of the memory. */
  memory: MemoryEntry[];
  /** The user's other sessions, by app and id. */
  sessions: Record<string, Record<string, { state: Record<string, any>; events: Event[] }>>;
  /** Returns a context for all items. */
  context(): Context;
  /** Returns a context for the function of an instruction or of a toolset, where changes fail with the code `READ_ONLY`. */
  readOnlyContext(): Context;
}

/** Returns everything that an agent yields. */
export function collect<T>(outputs: Iterable<T> | AsyncIterable<T>): Promise<T[]>;

/** Returns the complete answer of a model. */
export function answer(model: Model, request: LlmRequest, ctx: Context): Promise<LlmResponse>;
