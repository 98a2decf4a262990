// The progress of an evaluation: the number of turns that have ended, from events of the host. It outlives the page.

import { hostEvents } from "../../app/host-events.svelte";

class Progress {
  isRunning = $state(false);
  done = $state(0);
  total = $state(0);

  /** Counts the turns of evaluations of an app until `work` has ended. */
  async watch(app: string, total: number, work: () => Promise<unknown>): Promise<void> {
    if (this.isRunning) return;
    [this.isRunning, this.done, this.total] = [true, 0, total];
    const stop = hostEvents.listen((event) => {
      // Each run of an evaluation has its own user.
      const isTurn = event.kind === "runEnded" && event.app === app && event.user.includes("-eval-");
      if (isTurn) this.done = Math.min(this.total, this.done + 1);
    });
    try {
      await work();
    } finally {
      stop();
      this.isRunning = false;
    }
  }
}

export const progress = new Progress();
