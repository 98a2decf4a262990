// The web APIs that the engine of components lacks behave as in Node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HatcheryError, tool } from "hatchery-guest";
import { MockHost } from "hatchery-guest/testing";
import { structuredClone as clone } from "../src/web/clone.js";
import { EventLoop } from "../src/event-loop.js";
import * as encoding from "../src/web/encoding.js";
import { Headers as OwnHeaders, Request as OwnRequest, Response as OwnResponse } from "../src/web/fetch.js";
import { createAbort, createTimers } from "../src/web/timers.js";
import { URL as OwnURL, URLSearchParams as OwnParams } from "../src/web/url.js";

const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];

const partsOf = (url) => Object.fromEntries(PARTS.map((part) => [part, url[part]]));

const parsed = (Type, url, base) => {
  try {
    return partsOf(new Type(url, base));
  } catch (error) {
    assert.ok(error instanceof TypeError);
    return "invalid";
  }
};

test("URLs are parsed as by Node", () => {
  for (const url of [
    "https://example.com", "HTTPS://Ada:pa%20ss@EXAMPLE.com:443/a/./b/../c?q=1#top", "http://a.com:8080?x", "http://a.com/?", "http://a.com/#",
    "https://a.com/ä b/%41?naïve=ü 1#§", "https://a.com/'\"<>`{}|^[]?'\"<>`{}|^[]#'\"<>`{}|^[]", "http:a.com/b", "http:///a.com", "http:\\\\a.com\\b",
    "mailto:ada@example.com", "data:text/plain,hello world", "file:///etc/x/../y", "http://[::1]:3000/x", "http://a.com:0080/",
    "http://a.com:70000/", "http://", "a.com", "", "http://a b.com/", "http://a.com/%zz?%zz", " https://a.com/x \n", "https://a.com/../../x/..",
    "https://a.com/%2e%2E/b/%2e", "ws://a.com:80/", "foo://Host/a/../b", "http://user@/", "http://a.com/a//b/", "https://1.2.3.4/",
  ]) {
    assert.deepEqual(parsed(OwnURL, url), parsed(URL, url), url);
  }
});

test("relative URLs are resolved as by Node", () => {
  for (const base of ["https://a.com/x/y?q#f", "http://u:p@a.com:81", "https://a.com/x/"]) {
    for (const url of ["z", "./z", "../z", "../../../z", "/z", "//b.com/z", "?r=1", "#g", "", "http://c.com", "z?a#b", "..", ".", "/", "\\z"]) {
      assert.deepEqual(parsed(OwnURL, url, base), parsed(URL, url, base), `${url} at ${base}`);
    }
  }
  assert.equal(parsed(OwnURL, "x", "nothing"), "invalid");
  assert.equal(OwnURL.canParse("x"), false);
  assert.equal(OwnURL.parse("/x", "https://a.com").href, "https://a.com/x");
});

test("parts of a URL are changed as by Node", () => {
  const changed = (Type) => {
    const url = new Type("https://a.com/x?q=1");
    url.searchParams.append("r s", "ä&");
    url.searchParams.set("q", "2");
    url.hash = "top";
    url.pathname = "a b/c?d";
    url.port = "8443";
    url.host = "B.com:443";
    const first = url.href;
    url.search = "?new=1";
    url.protocol = "http";
    url.username = "ada";
    return [first, url.href, [...url.searchParams], JSON.stringify({ url }), String(url)];
  };
  assert.deepEqual(changed(OwnURL), changed(URL));
});

test("a path is set below the host as by Node", () => {
  for (const url of ["http://a.com:81/b?c=1#d", "https://a.com", "foo://h/a", "foo://h"]) {
    for (const path of ["x y?z#w", "", "a/../b", "../x", "..", "/a/./b", "%2e%2e/x", "a\\b"]) {
      if (url.startsWith("foo:") && (path === ".." || path.includes("\\"))) continue;
      const changed = (Type) => {
        const own = new Type(url);
        own.pathname = path;
        return own.href;
      };
      assert.equal(changed(OwnURL), changed(URL), `${path} of ${url}`);
    }
  }
  for (const relative of ["z", "../z", "?q"]) {
    assert.deepEqual(parsed(OwnURL, relative, "foo://h"), parsed(URL, relative, "foo://h"), relative);
  }
});

test("the host of a URL is changed to an IPv6 address as by Node", () => {
  const changed = (Type) =>
    [["hostname", "[::1]"], ["hostname", "[::1]:90"], ["host", "[::1]"], ["host", "[::1]:90"], ["host", "[2001:db8::12]:443"]].map(([part, value]) => {
      const url = new Type("https://a.com:8080/x");
      url[part] = value;
      return url.href;
    });
  assert.deepEqual(changed(OwnURL), changed(URL));
});

test("parameters are read and written as by Node", () => {
  for (const init of ["a=1&b=%C3%A4+x&a=2&c", "?%zz=%&&=x", { q: "lamp & co", n: 1 }, [["x", "1"], ["x", "2"]], ""]) {
    const state = (Type) => {
      const params = new Type(init);
      const read = [[...params], params.getAll("a"), params.get("zz"), params.has("x", "2"), params.size];
      params.append("z", "~!'()*-._ ä");
      params.delete("x", "1");
      params.sort();
      return [read, params.toString()];
    };
    assert.deepEqual(state(OwnParams), state(URLSearchParams), JSON.stringify(init));
  }
});

test("texts are encoded and decoded as by Node", () => {
  const texts = ["", "plain", "naïve 日本 😀", "\ud800 alone \udc00", "\ufeffmark", "x".repeat(10_000)];
  for (const text of texts) {
    const bytes = new TextEncoder().encode(text);
    assert.deepEqual(new encoding.TextEncoder().encode(text), bytes);
    assert.equal(new encoding.TextDecoder().decode(bytes), new TextDecoder().decode(bytes));
  }
  // All sequences of two bytes, and some invalid ones of three and four.
  const invalid = [[0xe0, 0x80, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x80, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xf0, 0x9f, 0x98]];
  for (let one = 0; one < 256; one += 1) for (let two = 0; two < 256; two += 7) invalid.push([one, two, 0x41]);
  for (const bytes of invalid.map((list) => Uint8Array.from(list))) {
    assert.equal(new encoding.TextDecoder().decode(bytes), new TextDecoder().decode(bytes), String(bytes));
  }
  assert.throws(() => new encoding.TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.of(0xff)), TypeError);
  const decoder = new encoding.TextDecoder();
  const pieces = [...new TextEncoder().encode("ä😀")].map((byte) => decoder.decode(Uint8Array.of(byte), { stream: true }));
  assert.equal(pieces.join("") + decoder.decode(), "ä😀");
  assert.throws(() => new encoding.TextDecoder("shift_jis"), /`shift_jis` is not supported/);
});

test("base64 is encoded and decoded as by Node", () => {
  for (const text of ["", "a", "ab", "abc", "\u0000\u00ff", "any carnal pleas"]) {
    assert.equal(encoding.btoa(text), btoa(text));
    assert.equal(encoding.atob(btoa(text)), text);
    assert.equal(encoding.atob(btoa(text).replace(/=+$/, "")), text);
  }
  assert.throws(() => encoding.btoa("日"), TypeError);
  assert.throws(() => encoding.atob("a"), TypeError);
});

test("values are cloned as by Node", () => {
  const value = {
    list: [1, , null], date: new Date(5), map: new Map([["a", new Set([1])]]), bytes: Uint8Array.of(1, 2), big: 1n, pattern: /x/gi,
    error: new RangeError("far"), text: new String("boxed"),
  };
  value.self = value;
  const copy = clone(value);
  assert.deepEqual(copy, structuredClone(value));
  assert.ok(copy.self === copy && copy.map !== value.map && copy.bytes.buffer !== value.bytes.buffer);
  assert.throws(() => clone({ run() {} }), { name: "DataCloneError" });
});

test("timers fire in the order of their times, and can be cleared", async () => {
  const waits = [];
  const errors = [];
  const timers = createTimers((time) => new Promise((resolve) => waits.push([time, resolve])), (error) => errors.push(error.message));
  const fired = [];
  timers.setTimeout((name) => fired.push(name), 20, "late");
  timers.setTimeout(() => fired.push("early"));
  const cleared = timers.setTimeout(() => fired.push("never"), 5);
  const interval = timers.setInterval(() => fired.push("again"), 10);
  timers.setTimeout(() => {
    throw new Error("failed");
  }, 15);
  timers.clearTimeout(cleared);
  for (let count = 0; count < 7; count += 1) {
    waits.sort(([one], [other]) => one - other);
    waits.shift()[1]();
    await new Promise(setImmediate);
    if (fired.filter((name) => name === "again").length === 2) timers.clearInterval(interval);
  }
  assert.deepEqual([fired, errors], [["early", "again", "again", "late"], ["failed"]]);
  assert.equal(waits.length, 0);
});

test("a delay that does not fit into 32 bits counts as none", () => {
  const times = [];
  const timers = createTimers((time) => new Promise(() => times.push(time)), () => {});
  for (const delay of [Infinity, 2 ** 31, -Infinity, -5, NaN, undefined, "20", 2 ** 31 - 1]) timers.setTimeout(() => {}, delay);
  timers.setInterval(() => {}, Infinity);
  assert.deepEqual(times, [0, 0, 0, 0, 0, 0, 20, 2 ** 31 - 1, 1]);
});

/** Returns an event loop, and what its host has seen. `arriving` has the exchanges that end, in order. */
function loopWith({ arriving = [] } = {}) {
  const seen = { waits: [], disposed: [], time: 0 };
  const loop = new EventLoop({
    now: () => seen.time,
    start: ({ url }) => ({ url, [Symbol.dispose]: () => seen.disposed.push(url) }),
    wait(exchanges, timeout) {
      seen.waits.push([exchanges.map(({ url }) => url), timeout]);
      const index = exchanges.findIndex(({ url }) => url === arriving[0]);
      if (index >= 0) arriving.shift();
      else seen.time += timeout;
      return index < 0 ? [] : [index];
    },
    responseOf({ url }) {
      if (url === "bad") throw new Error("refused");
      return `response of ${url}`;
    },
  });
  return { loop, seen };
}

test("requests that were started together are waited for together", async () => {
  const { loop, seen } = loopWith({ arriving: ["b", "bad", "a"] });
  const chain = async (url) => {
    for (let turn = 0; turn < 10; turn += 1) await undefined;
    return loop.send({ url });
  };
  const results = await Promise.allSettled([chain("a"), chain("b"), chain("bad")]);
  assert.deepEqual(results.map(({ value, reason }) => value ?? reason.message), ["response of a", "response of b", "refused"]);
  assert.deepEqual(seen, { waits: [[["a", "b", "bad"], null], [["a", "bad"], null], [["a"], null]], disposed: ["b", "bad", "a"], time: 0 });
});

test("a request that is given up ends, and timers fire in order", async () => {
  const { loop, seen } = loopWith();
  const order = [];
  const controller = new AbortController();
  loop.send({ url: "endless", signal: controller.signal });
  await Promise.all([
    loop.sleep(20).then(() => order.push("late")),
    loop.sleep(5).then(() => (order.push("early"), controller.abort())),
    loop.sleep(5).then(() => order.push("second")),
  ]);
  assert.deepEqual(order, ["early", "second", "late"]);
  assert.deepEqual(seen.waits, [[["endless"], 5e6], [[], 0], [[], 15e6]]);
  assert.deepEqual([seen.disposed, seen.time], [["endless"], 20e6]);
});

test("a signal with a long timeout is not aborted at once", () => {
  const delays = [];
  const { AbortSignal } = createAbort((_, delay) => delays.push(delay));
  for (const timeout of [5, 2 ** 32, Infinity]) AbortSignal.timeout(timeout);
  assert.deepEqual(delays, [5, 2 ** 31 - 1, 2 ** 31 - 1]);
});

/** Runs code that is busy for longer than the loop needs to notice that nothing is ready. */
const busy = async () => {
  for (let turn = 0; turn < 200; turn += 1) await undefined;
};

test("code that goes on does not wait for a timer that is cleared, or for the timeout of a request that has ended", async () => {
  const { loop, seen } = loopWith({ arriving: ["a"] });
  const { setOptionalTimeout, setTimeout, clearTimeout } = createTimers((time, isNeeded) => loop.sleep(time, isNeeded), assert.fail);
  const { AbortSignal } = createAbort(setOptionalTimeout, () => seen.time / 1e6);
  const cleared = setTimeout(assert.fail, 20_000);
  const signal = AbortSignal.timeout(30_000);
  assert.equal(await loop.send({ url: "a", signal }), "response of a");
  clearTimeout(cleared);
  await busy();
  assert.deepEqual([seen.time, seen.waits.length], [0, 1]);
  await loop.sleep(40_000);
  assert.deepEqual([seen.time, signal.aborted], [40_000e6, true]);
  const polled = AbortSignal.timeout(5);
  seen.time += 5e6;
  assert.ok(polled.aborted && polled.reason.name === "TimeoutError");
  const late = AbortSignal.timeout(10);
  await new Promise((resolve) => late.addEventListener("abort", resolve));
  assert.equal(seen.time, 40_015e6);
});

test("a signal is aborted by its controller or its timeout", () => {
  let expire;
  const { AbortController, AbortSignal } = createAbort((callback) => {
    expire = callback;
  });
  const controller = new AbortController();
  const reasons = [];
  const either = AbortSignal.any([controller.signal, AbortSignal.timeout(10)]);
  either.addEventListener("abort", () => reasons.push(either.reason.name));
  controller.abort();
  expire();
  assert.deepEqual(reasons, ["AbortError"]);
  assert.throws(() => controller.signal.throwIfAborted(), { name: "AbortError" });
});

test("a timeout that is combined with another signal is not waited for after the request, and is noticed when it is over", async () => {
  const { loop, seen } = loopWith({ arriving: ["a"] });
  const { setOptionalTimeout } = createTimers((time, isNeeded) => loop.sleep(time, isNeeded), assert.fail);
  const { AbortController, AbortSignal } = createAbort(setOptionalTimeout, () => seen.time / 1e6);
  const either = AbortSignal.any([new AbortController().signal, AbortSignal.timeout(30_000)]);
  assert.equal(await loop.send({ url: "a", signal: either }), "response of a");
  await busy();
  assert.deepEqual([seen.time, seen.waits.length, either.aborted], [0, 1, false]);
  seen.time += 30_000e6;
  assert.deepEqual([either.aborted, either.reason.name], [true, "TimeoutError"]);
  const late = AbortSignal.any([AbortSignal.any([AbortSignal.timeout(10)])]);
  await new Promise((resolve) => late.addEventListener("abort", resolve));
  assert.equal(seen.time, 30_010e6);
  assert.equal(AbortSignal.any([either]).reason.name, "TimeoutError");
});

test("a listener of a signal that throws does not keep the others from being called", () => {
  const reported = [];
  const { AbortController, AbortSignal } = createAbort(assert.fail, undefined, (error) => reported.push(error.message));
  const controller = new AbortController();
  const { signal } = controller;
  const called = [];
  const listener = { handleEvent: () => called.push("listener") };
  signal.onabort = () => {
    throw new Error("first");
  };
  signal.addEventListener("abort", () => {
    throw new Error("second");
  });
  signal.addEventListener("abort", listener);
  AbortSignal.any([signal]).addEventListener("abort", ({ target }) => called.push(target.reason));
  controller.abort("enough");
  assert.deepEqual([reported, called], [["first", "second"], ["listener", "enough"]]);
});

const weather = tool({
  name: "weather",
  async run({ path = "/today", ...init }) {
    const response = await fetch(`https://api.example.com${path}`, init);
    return { status: response.status, url: response.url, text: await response.text(), redirected: response.redirected };
  },
});

test("fetch sends requests through the host", async () => {
  const host = new MockHost({ http: ({ headers }) => Response.json({ degrees: 21 }, { headers: { "x-seen": headers["x-one"] } }) });
  const ctx = host.context();
  const init = { method: "post", headers: { "X-One": "1" }, body: JSON.stringify({ city: "Köln" }) };
  assert.deepEqual(await weather.call(init, ctx), {
    status: 200, url: "https://api.example.com/today", text: '{"degrees":21}', redirected: false,
  });
  assert.deepEqual(host.httpRequests, [{
    method: "POST", url: "https://api.example.com/today", headers: { "x-one": "1", "content-type": "text/plain;charset=UTF-8" },
    body: '{"city":"Köln"}',
  }]);
  const response = await fetch("https://a.com/#top", { headers: { "X-One": "2" } });
  assert.deepEqual([await response.json(), response.ok, response.headers.get("X-Seen"), host.httpRequests[1].url], [
    { degrees: 21 }, true, "2", "https://a.com/",
  ]);
});

test("a request without an answer of the test fails", async () => {
  const ctx = new MockHost().context();
  await assert.rejects(async () => weather.call({}, ctx), (error) => {
    assert.ok(error instanceof HatcheryError && error.code === "HTTP_FAILED");
    assert.match(error.message, /^no response to `GET https:\/\/api\.example\.com\/today`; give MockHost a function in `http`$/);
    return true;
  });
});

test("redirects are followed without the credentials of another host", async () => {
  const targets = { "/a": ["https://api.example.com/b", 302], "/b": ["https://other.example.com/c", 307], "/loop": ["/loop", 301] };
  const host = new MockHost({
    http({ url }) {
      const target = targets[new URL(url).pathname];
      return target ? new Response(null, { status: target[1], headers: { location: target[0] } }) : new Response("there");
    },
  });
  const ctx = host.context();
  const init = { path: "/a", method: "POST", body: "x", headers: { authorization: "mine", accept: "*/*" } };
  const end = await weather.call(init, ctx);
  assert.deepEqual(end, { status: 200, url: "https://other.example.com/c", text: "there", redirected: true });
  assert.deepEqual(host.httpRequests.map(({ method, headers, body }) => [method, Object.keys(headers).sort(), body]), [
    ["POST", ["accept", "authorization", "content-type"], "x"], ["GET", ["accept", "authorization"], ""], ["GET", ["accept"], ""],
  ]);
  await assert.rejects(async () => weather.call({ path: "/loop" }, ctx), /was redirected more than 5 times/);
  assert.equal((await weather.call({ path: "/a", redirect: "manual" }, ctx)).status, 302);
  await assert.rejects(async () => weather.call({ path: "/a", redirect: "error" }, ctx), /was redirected$/);
});

test("an aborted request is rejected with the reason", async () => {
  const ctx = new MockHost({ http: () => new Promise(() => {}) }).context();
  const controller = new AbortController();
  const pending = weather.call({ signal: controller.signal }, ctx);
  controller.abort(new Error("too late"));
  await assert.rejects(pending, /too late/);
});

test("headers, requests and responses have the usual methods", async () => {
  const headers = new OwnHeaders({ B: "2", a: " 1 " });
  headers.append("b", "3");
  headers.append("Set-Cookie", "x=1");
  headers.append("Set-Cookie", "y=2");
  assert.deepEqual([...headers], [["a", "1"], ["b", "2, 3"], ["set-cookie", "x=1"], ["set-cookie", "y=2"]]);
  const request = new OwnRequest("https://a.com/x", { method: "PUT", body: new OwnParams({ q: "ä" }) });
  assert.deepEqual([request.headers.get("content-type"), await request.clone().text()], [
    "application/x-www-form-urlencoded;charset=UTF-8", "q=%C3%A4",
  ]);
  const response = OwnResponse.json([1]);
  assert.deepEqual([await response.clone().json(), await response.json(), [...(await response.bytes())]], [[1], [1], [91, 49, 93]]);
  assert.throws(() => new OwnRequest("https://a.com", { body: "x" }), /a GET request has no body/);
  await assert.rejects(() => new OwnResponse("<p>").json(), { name: "SyntaxError" });
  assert.throws(() => new OwnResponse({ a: 1 }), /use JSON\.stringify/);
});
