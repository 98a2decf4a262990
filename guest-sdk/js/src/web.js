// Web APIs that the JavaScript engine of components lacks: fetch, URL, TextEncoder, timers, structuredClone and others.
// An engine's own are used where it has them.

import { structuredClone } from "./web/clone.js";
import { TextDecoder, TextEncoder, atob, btoa } from "./web/encoding.js";
import { Headers, Request, Response, createFetch } from "./web/fetch.js";
import { createAbort, createTimers } from "./web/timers.js";
import { URL, URLSearchParams } from "./web/url.js";

/**
 * Defines the missing globals.
 *
 * @param host `send(request)` sends a request, `sleep(milliseconds, isNeeded)` waits, `now()` returns milliseconds, `randomBytes(count)`
 * returns random numbers, `report(error)` logs an error.
 */
export function install({ send, sleep, now, randomBytes, report }) {
  const { setOptionalTimeout, ...timers } = createTimers(sleep, report);
  const globals = {
    fetch: createFetch(send), Headers, Request, Response, URL, URLSearchParams, TextEncoder, TextDecoder, atob, btoa, structuredClone, ...timers,
    ...createAbort(setOptionalTimeout, now, report), crypto: createCrypto(randomBytes),
    queueMicrotask: (callback) => void Promise.resolve().then(callback), performance: { now, timeOrigin: 0 },
  };
  for (const [name, value] of Object.entries(globals)) {
    if (!(name in globalThis)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
}

/** Creates the random numbers of `crypto`. It has no `subtle`. */
function createCrypto(randomBytes) {
  return {
    getRandomValues(array) {
      new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(randomBytes(array.byteLength));
      return array;
    },
    randomUUID() {
      const bytes = Uint8Array.from(randomBytes(16));
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
      return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
    },
  };
}
