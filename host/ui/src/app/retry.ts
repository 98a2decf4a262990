// Requests that failed because the host was away, such as during its restart.

import { HostError } from "../api/http";
import { catalog } from "./catalog.svelte";

const RETRY_MS = 2000;

/** Calls `request` when the host is back, if `error` says that it was away. Not if the request is outdated by then. */
export function retryWhenBack(error: unknown, isCurrent: () => boolean, request: () => void, isBusy = () => false): void {
  if (!(error instanceof HostError && error.isOffline)) return;
  setTimeout(() => {
    if (!isCurrent()) return;
    // The catalog finds out when the host is back.
    if (catalog.error !== undefined || isBusy()) retryWhenBack(error, isCurrent, request, isBusy);
    else request();
  }, RETRY_MS);
}
