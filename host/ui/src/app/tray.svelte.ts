// Open requests for a person: confirmations and requests for credentials of all sessions that have run since the host started,
// and recent failures.

import { isSameSession, listRuns, listSessions, readSession, run, type SessionKey } from "../api/host";
import { describeError, HostError } from "../api/http";
import type { HostEvent } from "../api/types";
import { buildTurns, confirmationAnswer, type ItemOf, openConfirmations, openCredentials } from "../model/conversation";
import { newRunId } from "../model/run-id";
import { catalog } from "./catalog.svelte";
import { hostEvents } from "./host-events.svelte";

export interface Waiting {
  key: SessionKey;
  item: ItemOf<"confirmation"> | ItemOf<"credential">;
}

export type Failure = Extract<HostEvent, { kind: "runEnded" | "fileRejected" }>;

/** Number of sessions that are read when the page is opened: the most recently changed ones. */
const MAX_SESSIONS = 30;
const MAX_FAILURES = 20;
/** Sessions are read once for events that arrive together. */
const BATCH_MS = 50;
/** How often the page checks whether the catalog was read. */
const CATALOG_MS = 200;
/** The delay after which sessions that could not be read are read again. */
const RETRY_MS = 2000;

class Tray {
  waiting = $state.raw<Waiting[]>([]);
  error = $state("");
  #sessions = new Map<string, SessionKey>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Failures before this time were seen, in seconds by the clock of the browser. */
  #seen = $state(Date.now() / 1000);

  failures = $derived.by(() => {
    const seen = this.#seen + hostEvents.clockDifference;
    return hostEvents.recent.filter((event): event is Failure => isFailure(event) && event.time > seen).slice(0, MAX_FAILURES);
  });

  get count(): number {
    return this.waiting.length + this.failures.length;
  }

  start(): () => void {
    return hostEvents.listen((event) => {
      if (event.kind !== "runEnded" || event.user.includes("-eval-")) return;
      const { app, user, session } = event;
      this.look({ app, user, session });
    });
  }

  /** Reads a session that has changed: it has run, was cut or was deleted. */
  look(key: SessionKey): void {
    const id = idOf(key);
    this.#sessions.delete(id);
    this.#sessions.set(id, key);
    this.#lookIn(BATCH_MS);
  }

  #lookIn(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#look(), milliseconds);
  }

  /** Reads the sessions that have run since the last time. Retries sessions that cannot be read. */
  async #look(): Promise<void> {
    // Events can arrive before the catalog, without which no app is known; if it cannot be read, sessions cannot either.
    if (!catalog.catalog || catalog.error !== undefined) return this.#lookIn(CATALOG_MS);
    const sessions = [...this.#sessions].slice(-MAX_SESSIONS);
    this.#sessions.clear();
    const found = await Promise.all(
      sessions.map(async ([id, key]) => {
        const waiting = await openOf(key);
        if (waiting) return waiting;
        if (!this.#sessions.has(id)) this.#sessions.set(id, key);
        return this.waiting.filter((known) => isSameSession(known.key, key));
      }),
    );
    const isLooked = ({ key }: Waiting) => sessions.some(([, looked]) => isSameSession(looked, key));
    this.waiting = [...this.waiting.filter((waiting) => !isLooked(waiting)), ...found.flat()];
    if (found.length > 0 && this.#sessions.size > 0) this.#lookIn(RETRY_MS);
  }

  /** Answers a confirmation. Its run continues at the host. */
  async answer(key: SessionKey, item: ItemOf<"confirmation">, confirmed: boolean): Promise<void> {
    const isAnswered = (other: Waiting) => isSameSession(other.key, key) && other.item.key === item.key;
    this.waiting = this.waiting.filter((other) => !isAnswered(other));
    try {
      const parts = confirmationAnswer(item, confirmed, confirmed ? item.payload : undefined);
      const request = { key, runId: newRunId(), parts, streaming: false, signal: new AbortController().signal, onAccepted: () => {} };
      for await (const _event of run(request)) continue;
      this.error = "";
    } catch (error) {
      this.error = describeError(error);
      // The call still waits if the host has not accepted the answer.
      this.waiting = [...this.waiting.filter((other) => !isAnswered(other)), { key, item }];
      this.look(key);
    }
  }

  clearFailures(): void {
    // The difference of the clocks is not exact.
    const newest = (this.failures[0]?.time ?? 0) + 0.001;
    this.#seen = Math.max(Date.now() / 1000, newest - hostEvents.clockDifference);
  }
}

function isFailure(event: HostEvent): boolean {
  if (event.kind === "fileRejected") return true;
  return event.kind === "runEnded" && event.error !== undefined && event.error !== "CANCELLED";
}

function idOf({ app, user, session }: SessionKey): string {
  return JSON.stringify([app, user, session]);
}

/**
 * Returns the open requests of a session; `undefined` if the host cannot be reached. None if the session is gone, as that
 * of a single call of a tool is.
 */
async function openOf(key: SessionKey): Promise<Waiting[] | undefined> {
  try {
    if (!catalog.apps.some(({ name }) => name === key.app)) return [];
    if (!(await listSessions(key.app, key.user)).some(({ id }) => id === key.session)) return [];
    const { runs } = await listRuns(key, 20);
    if (!runs.some(({ state }) => state === "waiting")) return [];
    const { events } = await readSession(key);
    const turns = buildTurns(events);
    return [...openConfirmations(turns), ...openCredentials(turns)].map((item) => ({ key, item }));
  } catch (error) {
    return error instanceof HostError && error.isOffline ? undefined : [];
  }
}

export const tray = new Tray();
