// fetch, Headers, Request and Response. A body is a string, bytes or URLSearchParams; responses are complete when they arrive.

import { HatcheryError } from "../errors.js";
import { decode, encode } from "../utf8.js";
import { viewOf } from "./encoding.js";
import { URL, URLSearchParams } from "./url.js";

/** Code of errors that are neither denials nor limits. */
const HTTP_FAILED = "HTTP_FAILED";

const MAX_REDIRECTS = 5;

const failed = (message) => new HatcheryError(message, HTTP_FAILED);

export class Headers {
  #list = [];

  constructor(init = []) {
    const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
    for (const [name, value] of pairs) this.append(name, value);
  }

  append(name, value) {
    this.#list.push([String(name).toLowerCase(), String(value).trim()]);
  }

  delete(name) {
    this.#list = this.#list.filter(([key]) => key !== String(name).toLowerCase());
  }

  get(name) {
    const values = this.#list.filter(([key]) => key === String(name).toLowerCase()).map(([, value]) => value);
    return values.length ? values.join(", ") : null;
  }

  getSetCookie() {
    return this.#list.filter(([key]) => key === "set-cookie").map(([, value]) => value);
  }

  has(name) {
    return this.get(name) !== null;
  }

  set(name, value) {
    this.delete(name);
    this.append(name, value);
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this) callback.call(thisArg, value, name, this);
  }

  *entries() {
    const names = [...new Set(this.#list.map(([name]) => name))].sort();
    for (const name of names) {
      if (name === "set-cookie") for (const value of this.getSetCookie()) yield [name, value];
      else yield [name, this.get(name)];
    }
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }
}

/** Returns the bytes of a body and its content type. */
function bodyOf(body) {
  if (body === null || body === undefined) return [new Uint8Array(), null];
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return [viewOf(body).slice(), null];
  // Node's class is another one, in unit tests.
  const isForm = body instanceof URLSearchParams || body.constructor?.name === "URLSearchParams";
  if (typeof body !== "string" && !isForm) throw new TypeError("a body is a string, bytes or URLSearchParams; use JSON.stringify for JSON");
  return [encode(String(body)), isForm ? "application/x-www-form-urlencoded;charset=UTF-8" : "text/plain;charset=UTF-8"];
}

/** The common base of requests and responses. A body can be read more than once. */
class Message {
  #bytes;

  constructor(body, headers) {
    const [bytes, type] = bodyOf(body);
    this.#bytes = bytes;
    this.headers = new Headers(headers);
    if (type && !this.headers.has("content-type")) this.headers.set("content-type", type);
  }

  async bytes() {
    return this.#bytes.slice();
  }

  async arrayBuffer() {
    return this.#bytes.slice().buffer;
  }

  async text() {
    return decode(this.#bytes).replace(/^\ufeff/, "");
  }

  async json() {
    const text = await this.text();
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new SyntaxError(`${this.url || "the body"} is not JSON: ${error.message}`);
    }
  }
}

export class Request extends Message {
  constructor(input, init = {}) {
    const isRequest = input instanceof Request;
    const body = init.body ?? (isRequest ? input.sentBody : undefined);
    super(body, init.headers ?? (isRequest ? input.headers : []));
    this.method = String(init.method ?? (isRequest ? input.method : "GET")).toUpperCase();
    this.url = new URL(isRequest ? input.url : String(input)).href;
    this.redirect = init.redirect ?? (isRequest ? input.redirect : "follow");
    this.signal = init.signal ?? (isRequest ? input.signal : null);
    Object.defineProperty(this, "sentBody", { value: body });
    if (body !== undefined && body !== null && ["GET", "HEAD"].includes(this.method)) {
      throw new TypeError(`a ${this.method} request has no body`);
    }
  }

  clone() {
    return new Request(this);
  }
}

export class Response extends Message {
  constructor(body, { status = 200, statusText = "", headers = [] } = {}) {
    super(body, headers);
    this.status = status;
    this.statusText = statusText;
    this.ok = status >= 200 && status < 300;
    this.url = "";
    this.redirected = false;
    this.type = "default";
    Object.defineProperty(this, "sentBody", { value: body });
  }

  static json(value, init = {}) {
    const headers = new Headers(init.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(value), { ...init, headers });
  }

  static redirect(url, status = 302) {
    return new Response(null, { status, headers: { location: String(url) } });
  }

  clone() {
    const { status, statusText, headers, url, redirected } = this;
    return Object.assign(new Response(this.sentBody, { status, statusText, headers }), { url, redirected });
  }
}

/**
 * Creates `fetch`. `send` sends one request, without redirects: it takes `{ method, url, headers, body, signal }` and returns `{ status,
 * headers, body }`, with lists of headers and bytes as bodies.
 */
export function createFetch(send) {
  async function follow(request) {
    let { method, url } = request;
    let body = await request.bytes();
    const headers = new Headers(request.headers);
    for (let count = 0; count <= MAX_REDIRECTS; count += 1) {
      request.signal?.throwIfAborted();
      const sent = new URL(url);
      sent.hash = "";
      const answer = await send({ method, url: sent.href, headers: [...headers], body, signal: request.signal });
      const response = Object.assign(new Response(answer.body, answer), { url: sent.href, redirected: count > 0 });
      const location = response.headers.get("location");
      if (![301, 302, 303, 307, 308].includes(response.status) || location === null || request.redirect === "manual") return response;
      if (request.redirect === "error") throw failed(`${url} was redirected`);
      const target = new URL(location, url);
      const { status } = response;
      if ((status === 303 && method !== "HEAD") || ((status === 301 || status === 302) && method === "POST")) {
        method = "GET";
        body = new Uint8Array();
        for (const name of [...headers.keys()]) if (name.startsWith("content-")) headers.delete(name);
      }
      // Credentials for one host must not be sent to another.
      if (target.origin !== sent.origin) for (const name of ["authorization", "cookie"]) headers.delete(name);
      url = target.href;
    }
    throw failed(`${request.url} was redirected more than ${MAX_REDIRECTS} times`);
  }

  return async function fetch(input, init = {}) {
    const request = new Request(input, init);
    const { signal } = request;
    if (!signal) return follow(request);
    signal.throwIfAborted();
    let stop;
    const aborted = new Promise((_, reject) => {
      stop = () => reject(signal.reason);
      signal.addEventListener("abort", stop);
    });
    try {
      return await Promise.race([follow(request), aborted]);
    } finally {
      signal.removeEventListener("abort", stop);
    }
  };
}
