// Streams of events that are opened again when their connection breaks.

import { HostError } from "../../api/http";
import type { SessionEvent } from "../../api/types";

/** Attempts to open a stream, and the longest pause between two of them. */
const MAX_ATTEMPTS = 30;
const MAX_PAUSE_MS = 2000;

/** Yields the events of a stream. Opens it again when the connection breaks, as long as it is wanted. */
export async function* reconnect(
  open: () => AsyncGenerator<SessionEvent>,
  isWanted: () => boolean,
  onBreak: () => void,
): AsyncGenerator<SessionEvent> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      yield* open();
      return;
    } catch (error) {
      const isBroken = error instanceof HostError && error.isOffline;
      if (!isBroken || attempt === MAX_ATTEMPTS || !isWanted()) throw error;
      onBreak();
      await new Promise((resume) => setTimeout(resume, Math.min(MAX_PAUSE_MS, 200 * attempt)));
      if (!isWanted()) throw error;
    }
  }
}
