// The progress of an evaluation: its turns that have ended, as the host tells. It outlives the page.

import { happenings } from "../../app/happenings.svelte";

class Progress {
  isRunning = $state(false);
  done = $state(0);
  total = $state(0);

  /** Counts the turns of evaluations of an app until `work` has ended. */
  async watch(app: string, total: number, work: () => Promise<unknown>): Promise<void> {
    if (this.isRunning) return;
    [this.isRunning, this.done, this.total] = [true, 0, total];
    const stop = happenings.listen((happening) => {
      // The runs of an evaluation have users of their own.
      const isTurn = happening.kind === "runEnded" && happening.app === app && happening.user.includes("-eval-");
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
