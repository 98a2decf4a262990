// The routes of the host that the page uses.

import { getJson, HostError, path, sendJson, sendRequest } from "./http";
import { readData } from "./sse";
import type { Agent, App, Catalog, ComponentDetail, HostEvent, Json, JsonObject, Memories, Part, Session, SessionEvent, StoredRun, TraceSpan } from "./types";
import type { AgentInfo, AppInfo } from "./wire";

export interface SessionKey {
  app: string;
  user: string;
  session: string;
}

export function isSameSession(one: SessionKey | undefined, other: SessionKey): boolean {
  return one?.app === other.app && one.user === other.user && one.session === other.session;
}

const sessionsPath = (app: string, user: string) => `apps/${path(app)}/users/${path(user)}/sessions`;
const sessionPath = (key: SessionKey) => `${sessionsPath(key.app, key.user)}/${path(key.session)}`;

export const readCatalog = (signal?: AbortSignal) => getJson<Catalog>("components", signal);
export const readComponent = (name: string) => getJson<ComponentDetail>(`components/${path(name)}`);
export const rollBack = (name: string, to: string) => sendJson("POST", `components/${path(name)}/rollback`, { to });
export const readVersion = () => getJson<{ version: string }>("version");

/**
 * Yields what happens in the host after an event, until the connection ends. A gap is `undefined`. `onOpen` is called with
 * the time of the answer by the clock of the host, in whole seconds since 1970; `NaN` if it is unknown.
 */
export async function* followHostEvents(after: number, signal: AbortSignal, onOpen: (time: number) => void): AsyncGenerator<HostEvent | undefined> {
  const { body, headers } = await sendRequest("GET", `events?after=${after}`, undefined, signal);
  if (!body) return;
  onOpen(Date.parse(headers.get("Date") ?? "") / 1000);
  for await (const data of readData(body)) {
    const value = JSON.parse(data) as Partial<HostEvent>;
    yield value.kind === undefined ? undefined : (value as HostEvent);
  }
}

/** Returns the metrics of the host in the text format of OpenMetrics. */
export const readMetrics = async () => (await sendRequest("GET", "metrics")).text();

export async function listApps(): Promise<App[]> {
  const { apps } = await getJson<{ apps: AppInfo[] }>("list-apps?detailed=true");
  return apps.map((app) => ({ ...app, agents: Object.values(app.agents).map(toAgent) }));
}

function toAgent({ name, description, kind, model, sub_agents, tools }: AgentInfo): Agent {
  const toolNames = tools.flatMap(({ functionDeclarations }) => functionDeclarations.map((declaration) => declaration.name));
  return { name, description, kind, model, subAgents: sub_agents, tools: toolNames };
}

/** Returns the sessions of a user, the most recently changed first. */
export async function listSessions(app: string, user: string): Promise<Session[]> {
  const sessions = await getJson<Session[]>(sessionsPath(app, user));
  return sessions.sort((one, other) => other.lastUpdateTime - one.lastUpdateTime);
}

export async function createSession(app: string, user: string, state: JsonObject = {}): Promise<Session> {
  const session = await sendJson<Session>("POST", sessionsPath(app, user), { state });
  if (!session) throw new HostError(200, "ERROR", "The host has not returned the session.");
  return session;
}

/** Returns a session with its events, or only with the events since a time in seconds. */
export function readSession(key: SessionKey, since?: number): Promise<Session> {
  const query = since === undefined ? "" : `?afterTimestamp=${since}`;
  return getJson<Session>(sessionPath(key) + query);
}

/** Copies a session, with its first `revision` events or all of them. */
export async function forkSession(key: SessionKey, revision?: number): Promise<SessionKey> {
  const fork = await sendJson<Session>("POST", `${sessionPath(key)}/fork`, revision === undefined ? {} : { revision });
  if (!fork) throw new HostError(200, "ERROR", "The host has not returned the copy of the session.");
  return { ...key, session: fork.id };
}

/** Removes the events after the first `revision` events and undoes their changes. */
export const rewindSession = (key: SessionKey, revision: number) => sendJson<Session>("POST", `${sessionPath(key)}/rewind`, { revision });

export const deleteSession = (key: SessionKey) => sendJson("DELETE", sessionPath(key));

/** Closes a session. Its data stays; the app may add it to the memory of the user. */
export const closeSession = (key: SessionKey) => sendJson("POST", `${sessionPath(key)}/close`);

const memoryPath = ({ app, user }: Omit<SessionKey, "session">) => `apps/${path(app)}/users/${path(user)}/memory`;

/** Adds a session to the memory of its user. Replaces its earlier entries. */
export const remember = (key: SessionKey) => sendJson("PATCH", memoryPath(key), { sessionId: key.session });

/** Returns the messages in the memory of a user that match a query, the best match first. */
export async function searchMemory(app: string, user: string, query: string): Promise<Memories["memories"]> {
  return (await getJson<Memories>(`${memoryPath({ app, user })}?${new URLSearchParams({ query })}`)).memories;
}

export const listArtifacts = (key: SessionKey) => getJson<string[]>(`${sessionPath(key)}/artifacts`);

/** Returns the spans of a session that the host still has. Empty if it keeps none. */
export const readSpans = (key: SessionKey) =>
  getJson<TraceSpan[]>(`dev/apps/${path(key.app)}/debug/trace/session/${path(key.session)}`);

export const listRuns = (key: SessionKey, limit: number) => getJson<{ runs: StoredRun[] }>(`${sessionPath(key)}/runs?limit=${limit}`);
/** Runs among which the unfinished ones of a session are looked for. */
const MAX_UNFINISHED_RUNS = 20;
export const readRun = (key: SessionKey, run: string) => getJson<StoredRun>(`${sessionPath(key)}/runs/${path(run)}`);

function artifactPath(key: SessionKey, name: string): string {
  return `${sessionPath(key)}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export const listVersions = (key: SessionKey, name: string) => getJson<number[]>(`${artifactPath(key, name)}/versions`);

export function readArtifact(key: SessionKey, name: string, version?: number): Promise<Part> {
  return getJson<Part>(artifactPath(key, name) + (version === undefined ? "" : `/versions/${version}`));
}

export interface StreamRequest {
  key: SessionKey;
  signal: AbortSignal;
  /** Called with the id of the run once the host has accepted the request. */
  onAccepted: (runId: string) => void;
}

export interface FollowRequest extends StreamRequest {
  runId: string;
}

/** A request with a message. A repeated one attaches to its run by the id. */
export interface RunRequest extends FollowRequest {
  parts: Part[];
  streaming: boolean;
}

/** Returns whether a run has lost its host, and waits for a request that continues it. Hosts continue background runs themselves. */
export const isInterrupted = ({ state, background }: StoredRun) => state === "interrupted" && !background;

/** Returns whether a run emits further events without a request. */
export const isActive = (run: StoredRun) => ["accepted", "running", "interrupted"].includes(run.state) && !isInterrupted(run);

/**
 * Returns the active run of a session that began first. If there is none, returns the newest run if it is interrupted, and
 * `undefined` otherwise.
 */
export async function findUnfinishedRun(key: SessionKey): Promise<StoredRun | undefined> {
  const { runs } = await listRuns(key, MAX_UNFINISHED_RUNS);
  return runs.findLast(isActive) ?? runs.slice(0, 1).find(isInterrupted);
}

/** Cancels a run on any host. Returns true if it has ended. */
export async function cancelRun(key: SessionKey, runId: string): Promise<boolean> {
  const run = await sendJson<StoredRun>("POST", `${sessionPath(key)}/runs/${path(runId)}/cancel`);
  return run === undefined || !isActive(run);
}

/** Starts a run with a message and yields its events as they arrive. The run outlives the request. Throws the error that ends the run. */
export async function* run(request: RunRequest): AsyncGenerator<SessionEvent> {
  const { key, runId, parts, streaming, signal } = request;
  const body = {
    appName: key.app,
    userId: key.user,
    sessionId: key.session,
    runId,
    newMessage: { role: "user", parts },
    streaming,
    cancelOnDisconnect: false,
  };
  const response = await sendRequest("POST", "run_sse", body, signal);
  // An answer to a call of a waiting run continues that run, whatever id the request has.
  request.onAccepted(response.headers.get("X-Hatchery-Run") ?? runId);
  for await (const update of readUpdates(response, signal)) if (!isRun(update)) yield update;
}

/** Continues an interrupted run and yields its further events. Throws the error that ends the run. */
export async function* resumeRun({ key, runId, signal, onAccepted }: FollowRequest): AsyncGenerator<SessionEvent> {
  const { app: appName, user: userId, session: sessionId } = key;
  const body = { appName, userId, sessionId, invocationId: runId, streaming: true, cancelOnDisconnect: false };
  const response = await sendRequest("POST", "run_sse", body, signal);
  onAccepted(runId);
  for await (const update of readUpdates(response, signal)) if (!isRun(update)) yield update;
}

/** Yields the events of a run after a revision of its session, until it ends or waits. Throws the error that ends the run. */
export async function* followRun({ key, runId, signal, onAccepted }: FollowRequest, after: number): AsyncGenerator<SessionEvent> {
  const response = await sendRequest("GET", `${sessionPath(key)}/runs/${path(runId)}/events?after=${after}`, undefined, signal);
  onAccepted(runId);
  for await (const update of readUpdates(response, signal)) {
    if (!isRun(update)) {
      yield update;
      continue;
    }
    if (update.state === "failed" && update.error) throw new HostError(200, update.error.code, update.error.message);
    return;
  }
  throw brokenConnection();
}

const brokenConnection = () => new HostError(0, "OFFLINE", "The connection to the host broke while the run was active.");

/** Returns whether an update is the run itself, the last one of a followed run. */
const isRun = (update: SessionEvent | StoredRun): update is StoredRun => "attempts" in update;

async function* readUpdates({ body }: Response, signal: AbortSignal): AsyncGenerator<SessionEvent | StoredRun> {
  if (!body) return;
  try {
    for await (const data of readData(body)) {
      const value = JSON.parse(data) as (SessionEvent | StoredRun) & { error?: Json; code?: string };
      if (typeof value.error === "string") throw new HostError(200, value.code ?? "ERROR", value.error);
      yield value;
    }
  } catch (error) {
    if (error instanceof HostError || signal.aborted) throw error;
    throw brokenConnection();
  }
}
