// Timers, and AbortController, whose signals can have a timeout.

/** The longest delay of a timer, in milliseconds. A longer one counts as none. */
const MAX_DELAY = 2 ** 31 - 1;

/** Creates the functions of timers. `sleep` returns a promise that is fulfilled after some milliseconds. `report` gets errors of callbacks. */
export function createTimers(sleep, report) {
  const pending = new Set();
  let last = 0;

  function begin(callback, delay, args, repeats) {
    if (typeof callback !== "function") throw new TypeError("a timer calls a function");
    last += 1;
    const id = last;
    const asked = Number(delay);
    const time = Math.max(asked <= MAX_DELAY ? asked : 0, repeats ? 1 : 0);
    const wait = () =>
      sleep(time).then(() => {
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
  };
}

function namedError(name, message) {
  const error = new Error(message);
  error.name = name;
  return error;
}

/** Creates AbortController and AbortSignal. */
export function createAbort(setTimeout) {
  class AbortSignal {
    #listeners = new Set();
    aborted = false;
    reason = undefined;
    onabort = null;

    static abort(reason) {
      const { signal, abort } = create();
      abort(reason);
      return signal;
    }

    static timeout(milliseconds) {
      const { signal, abort } = create();
      setTimeout(() => abort(namedError("TimeoutError", `it took longer than ${milliseconds} ms`)), Math.min(milliseconds, MAX_DELAY));
      return signal;
    }

    static any(signals) {
      const { signal, abort } = create();
      for (const other of signals) {
        if (other.aborted) abort(other.reason);
        other.addEventListener("abort", () => abort(other.reason));
      }
      return signal;
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
      if (signal.aborted) return;
      signal.aborted = true;
      signal.reason = reason ?? namedError("AbortError", "it was aborted");
      const event = { type: "abort", target: signal };
      signal.onabort?.(event);
      for (const listener of [...signal.#listeners]) (listener.handleEvent ?? listener).call(signal, event);
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
