// The event loop of a component: waits for responses and timers when no code can run.

/** Turns of the queue of promises after which no code is expected to be ready. */
const IDLE_TURNS = 64;

const NANOSECONDS = 1e6;

/**
 * Runs requests and timers. While one of them is waited for, nothing else of the component runs, but all requests that were started proceed
 * together.
 */
export class EventLoop {
  #host;
  /** Callbacks by exchange. */
  #exchanges = new Map();
  /** In the order of their times; equal times in the order in which they were set. */
  #timers = [];
  #isScheduled = false;

  /**
   * @param host `now()` returns nanoseconds, `start(request)` an exchange, `wait(exchanges, timeout)` the indices of those that have ended, and
   * `responseOf(exchange)` a response.
   */
  constructor(host) {
    this.#host = host;
  }

  /** Sends a request. Returns a promise of its response, which stays pending if the signal is aborted before. */
  send({ method, url, headers, body, signal }) {
    return new Promise((resolve, reject) => {
      const exchange = this.#host.start({ method, url, headers, body, timeout: null });
      const abort = () => {
        if (this.#exchanges.delete(exchange)) exchange[Symbol.dispose]?.();
      };
      this.#exchanges.set(exchange, { resolve, reject, release: () => signal?.removeEventListener("abort", abort) });
      signal?.addEventListener("abort", abort);
      this.#schedule();
    });
  }

  /** Returns a promise that is fulfilled after some milliseconds. The loop does not wait for a timer that is not needed any more. */
  sleep(milliseconds, isNeeded = () => true) {
    return new Promise((resolve) => {
      const timer = { at: this.#host.now() + milliseconds * NANOSECONDS, resolve, isNeeded };
      const place = this.#timers.findIndex(({ at }) => at > timer.at);
      this.#timers.splice(place < 0 ? this.#timers.length : place, 0, timer);
      this.#schedule();
    });
  }

  async #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    for (let turn = 0; turn < IDLE_TURNS; turn += 1) await undefined;
    this.#isScheduled = false;
    this.#wait();
    if (this.#exchanges.size || this.#neededTimer()) this.#schedule();
  }

  /** Returns the first timer that something waits for. */
  #neededTimer() {
    return this.#timers.find(({ isNeeded }) => isNeeded());
  }

  /** Waits for the first response or timer. */
  #wait() {
    const exchanges = [...this.#exchanges.keys()];
    const timer = this.#neededTimer();
    if (!timer && !exchanges.length) return;
    const timeout = timer ? Math.max(Math.ceil(timer.at - this.#host.now()), 0) : null;
    // Responses count before timers, as what has arrived is not too late.
    const ended = Array.from(this.#host.wait(exchanges, timeout), (index) => exchanges[index]);
    for (const exchange of ended) this.#end(exchange);
    if (timer && !ended.length) {
      // The ones before it are due, too.
      for (const { resolve } of this.#timers.splice(0, this.#timers.indexOf(timer) + 1)) resolve();
    }
  }

  #end(exchange) {
    const { resolve, reject, release } = this.#exchanges.get(exchange);
    this.#exchanges.delete(exchange);
    release();
    try {
      resolve(this.#host.responseOf(exchange));
    } catch (error) {
      reject(error);
    } finally {
      exchange[Symbol.dispose]?.();
    }
  }
}
