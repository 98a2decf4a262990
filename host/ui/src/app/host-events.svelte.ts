// The events of the host, from one connection that is opened again when it breaks and closed while the page is hidden.

import { followHostEvents } from "../api/host";
import { HostError } from "../api/http";
import type { HostEvent } from "../api/types";

/** Events that the page keeps, as many as the host. */
const MAX_KEPT = 1000;
const RETRY_MS = 1500;
const TOO_MANY_REQUESTS = 429;
/** Smaller differences can be rounding: the host sends its time in whole seconds. */
const MIN_CLOCK_DIFFERENCE = 2;

type Listener = (event: HostEvent) => void;

class HostEventStore {
  /** The newest first. */
  recent = $state.raw<HostEvent[]>([]);
  isConnected = $state(false);
  /** The seconds by which the clock of the host is ahead of the clock of the browser. */
  clockDifference = $state(0);
  #listeners = new Set<Listener>();
  #connectionListeners = new Set<() => void>();
  #last = 0;

  /** Returns the time by the clock of the host, in seconds since 1970. */
  now(): number {
    return Date.now() / 1000 + this.clockDifference;
  }

  /** Calls `listener` with each event from now on. Returns a function that ends it. */
  listen(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls `listener` when the connection begins or ends, and when events were missed. */
  onConnection(listener: () => void): void {
    this.#connectionListeners.add(listener);
  }

  /** Connects now and whenever the page is visible. Returns a function that ends it. */
  start(): () => void {
    let abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const connect = async () => {
      clearTimeout(timer);
      const { signal } = abort;
      let pause: number | undefined = RETRY_MS;
      try {
        await this.#follow(signal);
      } catch (error) {
        pause = pauseAfter(error);
      }
      if (signal.aborted) return;
      this.#setConnected(false);
      if (pause !== undefined) timer = setTimeout(() => void connect(), pause);
    };
    const wake = () => {
      abort.abort();
      clearTimeout(timer);
      abort = new AbortController();
      if (document.visibilityState === "visible") void connect();
    };
    document.addEventListener("visibilitychange", wake);
    void connect();
    return () => {
      document.removeEventListener("visibilitychange", wake);
      abort.abort();
      clearTimeout(timer);
    };
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const onOpen = (time: number) => {
      const difference = time - Date.now() / 1000;
      if (!Number.isNaN(difference)) this.clockDifference = Math.abs(difference) < MIN_CLOCK_DIFFERENCE ? 0 : difference;
      this.#setConnected(true);
    };
    for await (const event of followHostEvents(this.#last, signal, onOpen)) {
      if (!event) {
        this.#setConnected(true);
        continue;
      }
      this.#last = event.id;
      this.recent = [event, ...this.recent].slice(0, MAX_KEPT);
      for (const listener of this.#listeners) listener(event);
    }
  }

  #setConnected(isConnected: boolean): void {
    this.isConnected = isConnected;
    for (const listener of this.#connectionListeners) listener();
  }
}

/** Returns the milliseconds until the next attempt, or `undefined` if another attempt would fail, too. */
function pauseAfter(error: unknown): number | undefined {
  if (!(error instanceof HostError) || error.status < 400 || error.status >= 500) return RETRY_MS;
  if (error.status === TOO_MANY_REQUESTS) return Math.max(RETRY_MS, (error.retryAfter ?? 0) * 1000);
  // The host requires a login, or is of another version without this route.
  return undefined;
}

export const hostEvents = new HostEventStore();
