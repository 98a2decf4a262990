// Interrupted runs: how the page notices that the host of a run has died, and how it continues the run.

import { followRun, isInterrupted, readRun, resumeRun, type SessionKey, type StreamRequest } from "../../api/host";
import type { SessionEvent } from "../../api/types";

/** How often the state of a run is read: a host that dies may leave the connection to another one open. */
const INTERVAL_MS = 5000;

/**
 * Calls `onInterrupted` once the run whose id `runId` returns is interrupted. Returns a function that ends that. An id of
 * `undefined` is no run at the moment.
 */
export function watchInterruption(key: SessionKey, runId: () => string | undefined, onInterrupted: (runId: string) => void): () => void {
  const check = async () => {
    const id = runId();
    if (id === undefined) return;
    const run = await readRun(key, id).catch(() => undefined);
    if (run && isInterrupted(run) && runId() === id) onInterrupted(id);
  };
  const timer = setInterval(() => void check(), INTERVAL_MS);
  return () => clearInterval(timer);
}

/** Returns a function that reads the events of an interrupted run after a revision. The first request continues the run. */
export function continuation(runId: string, after: number): (request: StreamRequest) => AsyncGenerator<SessionEvent> {
  let isContinued = false;
  return (request) => {
    if (isContinued) return followRun({ ...request, runId }, after);
    return resumeRun({ ...request, runId, onAccepted: (id) => ((isContinued = true), request.onAccepted(id)) });
  };
}
