// The routes of the host that the page uses.

import { getJson, HostError, path, request, sendJson } from "./http";
import { readData } from "./sse";
import type { App, Catalog, ComponentDetail, Json, JsonObject, Part, Session, SessionEvent } from "./types";

export interface SessionKey {
  app: string;
  user: string;
  session: string;
}

const sessionsPath = (app: string, user: string) => `apps/${path(app)}/users/${path(user)}/sessions`;
const sessionPath = (key: SessionKey) => `${sessionsPath(key.app, key.user)}/${path(key.session)}`;

export const readCatalog = (signal?: AbortSignal) => getJson<Catalog>("components", signal);
export const readComponent = (name: string) => getJson<ComponentDetail>(`components/${path(name)}`);
export const rollBack = (name: string, to: string) => sendJson("POST", `components/${path(name)}/rollback`, { to });
export const readVersion = () => getJson<{ version: string }>("version");

export async function listApps(): Promise<App[]> {
  return (await getJson<{ apps: App[] }>("list-apps?detailed=true")).apps;
}

/** Returns the sessions of a user, those that changed last first. */
export async function listSessions(app: string, user: string): Promise<Session[]> {
  const sessions = await getJson<Session[]>(sessionsPath(app, user));
  return sessions.sort((one, other) => other.lastUpdateTime - one.lastUpdateTime);
}

export async function createSession(app: string, user: string, state: JsonObject = {}): Promise<Session> {
  const session = await sendJson<Session>("POST", sessionsPath(app, user), { state });
  if (!session) throw new HostError(200, "ERROR", "The host has not returned the session.");
  return session;
}

/** Returns a session with its events, or with those since a time in seconds. */
export function readSession(key: SessionKey, since?: number): Promise<Session> {
  const query = since === undefined ? "" : `?afterTimestamp=${since}`;
  return getJson<Session>(sessionPath(key) + query);
}

export const deleteSession = (key: SessionKey) => sendJson("DELETE", sessionPath(key));
export const listArtifacts = (key: SessionKey) => getJson<string[]>(`${sessionPath(key)}/artifacts`);

function artifactPath(key: SessionKey, name: string): string {
  return `${sessionPath(key)}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export const listVersions = (key: SessionKey, name: string) => getJson<number[]>(`${artifactPath(key, name)}/versions`);

export function readArtifact(key: SessionKey, name: string, version?: number): Promise<Part> {
  return getJson<Part>(artifactPath(key, name) + (version === undefined ? "" : `/versions/${version}`));
}

export interface RunRequest {
  key: SessionKey;
  /** The id by which a repeated request attaches to its run. */
  runId: string;
  parts: Part[];
  streaming: boolean;
  signal: AbortSignal;
}

/** Runs a message and yields the events as they arrive. An error that ends the run is thrown. */
export async function* run({ key, runId, parts, streaming, signal }: RunRequest): AsyncGenerator<SessionEvent> {
  const body = {
    appName: key.app,
    userId: key.user,
    sessionId: key.session,
    runId,
    newMessage: { role: "user", parts },
    streaming,
    // Stopping the stream is how the page stops a run.
    cancelOnDisconnect: true,
  };
  const response = await request("POST", "run_sse", body, signal);
  if (!response.body) return;
  try {
    for await (const data of readData(response.body)) {
      const value = JSON.parse(data) as SessionEvent & { error?: Json; code?: string };
      if (typeof value.error === "string") throw new HostError(200, value.code ?? "ERROR", value.error);
      yield value;
    }
  } catch (error) {
    if (error instanceof HostError || signal.aborted) throw error;
    throw new HostError(0, "OFFLINE", "The connection to the host broke while the run was active.");
  }
}
