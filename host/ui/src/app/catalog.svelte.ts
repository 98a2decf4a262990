// The catalog of the host, read again after each event about a change, and its changes since the page was opened.

import { listApps, readCatalog } from "../api/host";
import { describeError } from "../api/http";
import type { App, Catalog } from "../api/types";
import { hostEvents } from "./host-events.svelte";
import { login } from "./login.svelte";
import { router } from "./router.svelte";
import { type Change, findChanges, isRejected } from "../model/changes";

const INTERVAL = 1500;
/** The period while events of the host arrive: only ages and numbers of calls, shown on component pages, need updates. */
const CONNECTED_INTERVAL = 15_000;
const BATCH_MS = 30;
/** The period while a file is being compiled. */
const FAST_INTERVAL = 400;
const MAX_CHANGES = 200;

class CatalogStore {
  catalog = $state.raw<Catalog>();
  apps = $state.raw<App[]>([]);
  error = $state<string>();
  /** The newest first. */
  changes = $state.raw<Change[]>([]);
  /** Seconds since 1970 by the clock of the host, for ages. */
  now = $state(hostEvents.now());
  #reading: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  get rejected(): number {
    return this.catalog?.files.filter((file) => isRejected(file.state)).length ?? 0;
  }

  get isLoading(): boolean {
    return this.catalog?.files.some((file) => file.state === "pending" || file.state === "compiling") ?? true;
  }

  /** Reads the catalog now and from then on. Returns a function that stops it. */
  start(): () => void {
    const wake = () => {
      if (document.visibilityState === "visible") void this.refresh();
    };
    document.addEventListener("visibilitychange", wake);
    hostEvents.onConnection(wake);
    const stop = hostEvents.listen(({ kind }) => {
      if (kind !== "runEnded" && kind !== "callFailed") this.#refreshSoon();
    });
    const stopHostEvents = hostEvents.start();
    void this.refresh();
    return () => {
      stop();
      stopHostEvents();
      document.removeEventListener("visibilitychange", wake);
      clearTimeout(this.#timer);
    };
  }

  /** Whether the host sends events about changes. */
  get #isConnected(): boolean {
    return hostEvents.isConnected && this.error === undefined;
  }

  /** Updates ages, and reads the catalog if the page shows values for which the host sends no events. */
  #tick(): void {
    this.now = hostEvents.now();
    const showsCalls = router.route.page === "components" || router.route.page === "component";
    if (showsCalls || !this.#isConnected) void this.refresh();
    else this.#timer = setTimeout(() => this.#tick(), CONNECTED_INTERVAL);
  }

  /** Reads the catalog once for events that arrive together. */
  #refreshSoon(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), BATCH_MS);
  }

  /** Reads the catalog, one request at a time: responses in the wrong order would look like changes. */
  refresh(): Promise<void> {
    clearTimeout(this.#timer);
    this.#reading = (this.#reading ?? Promise.resolve()).then(() => this.#read());
    return this.#reading;
  }

  async #read(): Promise<void> {
    try {
      const catalog = await readCatalog();
      this.now = hostEvents.now();
      const before = this.catalog;
      if (before && JSON.stringify(before) === JSON.stringify(catalog)) {
        this.error = undefined;
        return;
      }
      // If this fails, the same changes are found again.
      if (before?.generation !== catalog.generation) this.apps = await listApps();
      if (before) {
        const changes = findChanges(before, catalog, this.now).reverse();
        this.changes = [...changes, ...this.changes].slice(0, MAX_CHANGES);
      }
      this.catalog = catalog;
      this.error = undefined;
    } catch (error) {
      this.error = describeError(error);
    } finally {
      clearTimeout(this.#timer);
      const isVisible = document.visibilityState === "visible";
      // Refused requests count towards the limits of the host.
      if (isVisible && login.message === undefined) {
        if (!this.isLoading && this.#isConnected) this.#timer = setTimeout(() => this.#tick(), CONNECTED_INTERVAL);
        else this.#timer = setTimeout(() => void this.refresh(), this.isLoading ? FAST_INTERVAL : INTERVAL);
      }
    }
  }
}

export const catalog = new CatalogStore();
