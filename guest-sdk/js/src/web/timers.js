// Timers, and AbortController, whose signals can have a timeout.

/** The longest delay of a timer, in milliseconds. A longer one counts as none. */
const MAX_DELAY = 2 ** 31 - 1;

/**
 * Creates the functions of timers. `sleep` returns a promise that is fulfilled after some milliseconds; it also gets a function that returns
 * whether the timer is still needed. `report` gets errors of callbacks.
 */
export function createTimers(sleep, report) {
  const pending = new Set();
  let last = 0;

  function begin(callback, delay, args, repeats, isNeeded = () => true) {
    if (typeof callback !== "function") throw new TypeError("a timer calls a function");
    last += 1;
    const id = last;
    const asked = Number(delay);
    const time = Math.max(asked <= MAX_DELAY ? asked : 0, repeats ? 1 : 0);
    const wait = () =>
      sleep(time, () => pending.has(id) && isNeeded()).then(() => {
        if (!pending.has(id)) return undefined;
        if (!repeats) pending.delete(id);
        try {
          callback(...args);
        } catch (error) {
          report(error);
        }
        return pending.has(id) ? wait() : undefined;
      });
    pending.add(id);
    wait().catch(report);
    return id;
  }

  const clear = (id) => pending.delete(id);

  return {
    setTimeout: (callback, delay, ...args) => begin(callback, delay, args, false),
    setInterval: (callback, delay, ...args) => begin(callback, delay, args, true),
    setImmediate: (callback, ...args) => begin(callback, 0, args, false),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
    /** As `setTimeout`. The timer need not fire as long as `isNeeded` returns false. */
    setOptionalTimeout: (callback, delay, isNeeded) => begin(callback, delay, [], false, isNeeded),
  };
}

function namedError(name, message) {
  const error = new Error(message);
  error.name = name;
  return error;
}

/**
 * Creates AbortController and AbortSignal. `setTimeout` also gets a function that returns whether the timer is still needed, `now` returns
 * milliseconds, `report` gets errors of listeners.
 */
export function createAbort(setTimeout, now = () => 0, report = console.error) {
  class AbortSignal {
    #listeners = new Set();
    /** The signals that are aborted together with this one. */
    #dependents = new Set();
    #aborted = false;
    /** Aborts the signal if its time, or that of a signal it depends on, is over. The timer need not have fired. */
    #expireIfDue = () => {};
    reason = undefined;
    onabort = null;

    static abort(reason) {
      const { signal, abort } = create();
      abort(reason);
      return signal;
    }

    static timeout(milliseconds) {
      const { signal, abort } = create();
      const expire = () => abort(namedError("TimeoutError", `it took longer than ${milliseconds} ms`));
      const delay = Math.min(milliseconds, MAX_DELAY);
      const end = now() + delay;
      signal.#expireIfDue = () => {
        if (now() >= end) expire();
      };
      setTimeout(expire, delay, () => signal.#isObserved());
      return signal;
    }

    static any(signals) {
      const { signal, abort } = create();
      const sources = [...signals];
      const aborted = sources.find((source) => source.aborted);
      if (aborted) {
        abort(aborted.reason);
      } else {
        for (const source of sources) source.#dependents.add(signal);
        signal.#expireIfDue = () => sources.forEach((source) => source.#expireIfDue());
      }
      return signal;
    }

    /** Returns true if its abortion would be noticed at once. */
    #isObserved() {
      return this.#listeners.size > 0 || Boolean(this.onabort) || [...this.#dependents].some((signal) => signal.#isObserved());
    }

    get aborted() {
      this.#expireIfDue();
      return this.#aborted;
    }

    throwIfAborted() {
      if (this.aborted) throw this.reason;
    }

    addEventListener(type, listener) {
      if (type === "abort") this.#listeners.add(listener);
    }

    removeEventListener(type, listener) {
      if (type === "abort") this.#listeners.delete(listener);
    }

    static fire(signal, reason) {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.reason = reason ?? namedError("AbortError", "it was aborted");
      const event = { type: "abort", target: signal };
      for (const listener of [signal.onabort, ...signal.#listeners]) {
        try {
          if (typeof listener === "function") listener.call(signal, event);
          else listener?.handleEvent(event);
        } catch (error) {
          report(error);
        }
      }
      for (const dependent of signal.#dependents) fire(dependent, signal.reason);
      signal.#dependents.clear();
    }
  }

  const { fire } = AbortSignal;
  delete AbortSignal.fire;

  function create() {
    const signal = new AbortSignal();
    return { signal, abort: (reason) => fire(signal, reason) };
  }

  class AbortController {
    signal = new AbortSignal();

    abort(reason) {
      fire(this.signal, reason);
    }
  }

  return { AbortController, AbortSignal };
}
