// The progress of an evaluation: its turns that have ended, as the host tells. It outlives the page.

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
      // The runs of an evaluation have users of their own.
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
