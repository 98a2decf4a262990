// URL and URLSearchParams, for URLs of servers and other URLs of RFC 3986. Host names are ASCII.

import { decode, encode } from "../utf8.js";

const DEFAULT_PORTS = { "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21" };

const PARTS = /^([a-z][a-z0-9+.-]*:)?(?:\/\/([^/?#]*))?([^?#]*)(\?[^#]*)?(#.*)?$/i;

/** Escapes all characters that are not in a set. */
const escaper = (allowed) => (text) => text.replace(new RegExp(`[^%A-Za-z0-9${allowed}]`, "gu"), percent);

const percent = (text) => Array.from(encode(text), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");

const escapePath = escaper("\\-._~!$&'()*+,;=:@/[\\]|^");
const escapeQuery = escaper("\\-._~!$&()*+,;=:@/?[\\]{}|\\\\^`");
const escapeFragment = escaper("\\-._~!$&'()*+,;=:@/?[\\]{}|\\\\^#");
const escapeOpaque = escaper(" -$&-~");
const escapeUser = escaper("\\-._~!$&'()*+,");

/** Removes `.` and `..` from a path. */
function normalizePath(path) {
  const kept = [];
  const segments = path.split("/");
  segments.forEach((segment, index) => {
    const isLast = index === segments.length - 1;
    const plain = segment.replace(/%2e/gi, ".");
    if (plain === "..") {
      if (kept.length > 1) kept.pop();
      if (isLast) kept.push("");
    } else if (plain === ".") {
      if (isLast) kept.push("");
    } else {
      kept.push(segment);
    }
  });
  return kept.join("/");
}

/** Splits a URL; `undefined` if it is invalid. */
function split(text, base) {
  const input = text.trim().replace(/[\t\n\r]/g, "");
  const scheme = /^[a-z][a-z0-9+.-]*:/i.exec(input)?.[0].toLowerCase() ?? base?.protocol;
  const hasSlashes = scheme in DEFAULT_PORTS;
  const match = PARTS.exec(hasSlashes ? input.replace(/^[^?#]*/, (start) => start.replaceAll("\\", "/")) : input);
  if (!match) return undefined;
  const [, ownScheme, authority, path, query, fragment] = match;
  const parts = { protocol: ownScheme?.toLowerCase(), authority, path, query: query ?? "", fragment: fragment ?? "" };
  if (parts.protocol) return !parts.authority && hasSlashes ? withAuthority(parts) : parts;
  return base && resolve(parts, base);
}

/** `http:a.com` and `http:///a.com` are read as `http://a.com`. */
function withAuthority({ path, ...parts }) {
  const [authority, ...rest] = path.replace(/^\/+/, "").split("/");
  return authority ? { ...parts, authority, path: rest.length ? `/${rest.join("/")}` : "" } : undefined;
}

function resolve(parts, base) {
  const own = { ...parts, protocol: base.protocol };
  if (own.authority !== undefined) return own;
  own.authority = base.authority;
  if (own.path === "") {
    own.path = base.path;
    if (!own.query && !parts.path) own.query = parts.query || base.query;
  } else if (!own.path.startsWith("/")) {
    own.path = base.path.replace(/[^/]*$/, "") + own.path;
  }
  return own;
}

/** Splits `user:password@host:port`; `undefined` if there is no valid host. */
function splitAuthority(authority, protocol) {
  const at = authority.lastIndexOf("@");
  const [username = "", ...password] = at < 0 ? [] : authority.slice(0, at).split(":");
  const match = /^(\[[0-9a-f:.]+\]|[^:[\]]*)(?::(\d*))?$/i.exec(authority.slice(at + 1));
  if (!match || Number(match[2]) > 65535) return undefined;
  const isSpecial = protocol in DEFAULT_PORTS;
  let hostname = match[1];
  try {
    if (isSpecial) hostname = decodeURIComponent(hostname).toLowerCase();
  } catch {
    return undefined;
  }
  if ((isSpecial && !hostname) || /[\s#%/<>?@\\^|\u0000-\u001f\u007f-\u{10ffff}]/u.test(hostname)) return undefined;
  const port = match[2] ? String(Number(match[2])) : "";
  return {
    username: escapeUser(username), password: escapeUser(password.join(":")), hostname, port: port === DEFAULT_PORTS[protocol] ? "" : port,
  };
}

export class URL {
  #protocol;
  #username;
  #password;
  #hostname;
  #port;
  #path;
  #query;
  #fragment;
  /** False for a URL without `//`, such as `mailto:ada@example.com`. */
  #hasAuthority;
  #params;

  constructor(url, base) {
    const parts = split(String(url), base === undefined ? undefined : new URL(base).#parts());
    const invalid = () => new TypeError(`\`${url}\` is not a URL`);
    if (!parts?.protocol) throw invalid();
    const authority = parts.authority === undefined ? undefined : splitAuthority(parts.authority, parts.protocol);
    if (parts.authority !== undefined && !authority) throw invalid();
    this.#protocol = parts.protocol;
    this.#hasAuthority = authority !== undefined;
    ({ username: this.#username, password: this.#password, hostname: this.#hostname, port: this.#port } =
      authority ?? { username: "", password: "", hostname: "", port: "" });
    this.#path = this.#pathOf(parts.path);
    this.#query = escapeQuery(parts.query);
    this.#fragment = escapeFragment(parts.fragment);
    this.#params = new URLSearchParams(this.#query);
    this.#params.onChange = (text) => {
      this.#query = text && `?${text}`;
    };
  }

  static canParse(url, base) {
    return URL.parse(url, base) !== null;
  }

  static parse(url, base) {
    try {
      return new URL(url, base);
    } catch {
      return null;
    }
  }

  #parts() {
    const authority = this.#hasAuthority ? this.#authority() : undefined;
    return { protocol: this.#protocol, authority, path: this.#path, query: this.#query, fragment: this.#fragment };
  }

  #authority() {
    const password = this.#password && `:${this.#password}`;
    return (this.#username || password ? `${this.#username}${password}@` : "") + this.host;
  }

  #pathOf(path) {
    if (!this.#hasAuthority && !path.startsWith("/")) return escapeOpaque(path);
    const needsSlash = !path.startsWith("/") && (this.#protocol in DEFAULT_PORTS || path !== "");
    return normalizePath(escapePath(needsSlash ? `/${path}` : path));
  }

  get href() {
    return `${this.#protocol}${this.#hasAuthority ? `//${this.#authority()}` : ""}${this.#path}${this.#query}${this.#fragment}`;
  }

  set href(url) {
    const other = new URL(url);
    this.#protocol = other.#protocol;
    this.#username = other.#username;
    this.#password = other.#password;
    this.#hostname = other.#hostname;
    this.#port = other.#port;
    this.#path = other.#path;
    this.#fragment = other.#fragment;
    this.#hasAuthority = other.#hasAuthority;
    this.search = other.#query;
  }

  get origin() {
    return this.#protocol in DEFAULT_PORTS ? `${this.#protocol}//${this.host}` : "null";
  }

  get protocol() {
    return this.#protocol;
  }

  set protocol(protocol) {
    const name = `${String(protocol).replace(/:.*$/, "")}:`.toLowerCase();
    if (name in DEFAULT_PORTS === this.#protocol in DEFAULT_PORTS) this.#protocol = name;
    this.port = this.#port;
  }

  get username() {
    return this.#username;
  }

  set username(username) {
    this.#username = escapeUser(String(username));
  }

  get password() {
    return this.#password;
  }

  set password(password) {
    this.#password = escapeUser(String(password));
  }

  get host() {
    return this.#hostname + (this.#port && `:${this.#port}`);
  }

  set host(host) {
    const parts = splitAuthority(String(host), this.#protocol);
    if (!parts) return;
    this.#hostname = parts.hostname;
    // A colon within brackets separates the groups of an IPv6 address.
    if (/:\d+$/.test(host)) this.#port = parts.port;
  }

  get hostname() {
    return this.#hostname;
  }

  set hostname(hostname) {
    if (!/:\d*$/.test(hostname)) this.host = hostname;
  }

  get port() {
    return this.#port;
  }

  set port(port) {
    const digits = /^\d*/.exec(String(port))[0];
    if (Number(digits) <= 65535) this.#port = digits === DEFAULT_PORTS[this.#protocol] ? "" : digits && String(Number(digits));
  }

  get pathname() {
    return this.#path;
  }

  set pathname(path) {
    const text = this.#protocol in DEFAULT_PORTS ? String(path).replaceAll("\\", "/") : String(path);
    this.#path = this.#pathOf(text.replace(/[?#]/g, percent));
  }

  get search() {
    return this.#query === "?" ? "" : this.#query;
  }

  set search(search) {
    const text = String(search).replace(/^\?/, "");
    this.#query = text && `?${escapeQuery(text.replaceAll("#", "%23"))}`;
    this.#params.replaceAll(this.#query);
  }

  get searchParams() {
    return this.#params;
  }

  get hash() {
    return this.#fragment === "#" ? "" : this.#fragment;
  }

  set hash(hash) {
    const text = String(hash).replace(/^#/, "");
    this.#fragment = text && `#${escapeFragment(text)}`;
  }

  toString() {
    return this.href;
  }

  toJSON() {
    return this.href;
  }
}

const decodePlus = (text) => {
  const bytes = [];
  const plain = encode(text.replaceAll("+", " "));
  for (let index = 0; index < plain.length; index += 1) {
    const digits = plain[index] === 0x25 ? String.fromCharCode(...plain.slice(index + 1, index + 3)) : "";
    const isEscape = /^[0-9a-f]{2}$/i.test(digits);
    bytes.push(isEscape ? parseInt(digits, 16) : plain[index]);
    if (isEscape) index += 2;
  }
  return decode(Uint8Array.from(bytes));
};

const encodePlus = (text) => text.replace(/[^A-Za-z0-9*\-._]/gu, (character) => (character === " " ? "+" : percent(character)));

export class URLSearchParams {
  #list = [];

  constructor(init = "") {
    if (typeof init === "object" && init !== null) {
      const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
      for (const [name, value] of pairs) this.#list.push([String(name), String(value)]);
    } else {
      this.replaceAll(String(init));
    }
    Object.defineProperty(this, "onChange", { value: undefined, writable: true });
  }

  /** Replaces all parameters by the parameters of a query, without notifying the URL. */
  replaceAll(query) {
    const pairs = query.replace(/^\?/, "").split("&").filter(Boolean);
    this.#list = pairs.map((pair) => {
      const [name, ...value] = pair.split("=");
      return [decodePlus(name), decodePlus(value.join("="))];
    });
  }

  #changed() {
    this.onChange?.(this.toString());
  }

  get size() {
    return this.#list.length;
  }

  append(name, value) {
    this.#list.push([String(name), String(value)]);
    this.#changed();
  }

  delete(name, value) {
    this.#list = this.#list.filter(([key, item]) => key !== String(name) || (value !== undefined && item !== String(value)));
    this.#changed();
  }

  get(name) {
    return this.#list.find(([key]) => key === String(name))?.[1] ?? null;
  }

  getAll(name) {
    return this.#list.filter(([key]) => key === String(name)).map(([, value]) => value);
  }

  has(name, value) {
    return this.#list.some(([key, item]) => key === String(name) && (value === undefined || item === String(value)));
  }

  set(name, value) {
    const first = this.#list.findIndex(([key]) => key === String(name));
    if (first < 0) {
      this.append(name, value);
      return;
    }
    this.#list = this.#list.filter(([key], index) => key !== String(name) || index === first);
    this.#list[first][1] = String(value);
    this.#changed();
  }

  sort() {
    this.#list.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
    this.#changed();
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this.#list) callback.call(thisArg, value, name, this);
  }

  *keys() {
    for (const [name] of this.#list) yield name;
  }

  *values() {
    for (const [, value] of this.#list) yield value;
  }

  *entries() {
    for (const [name, value] of this.#list) yield [name, value];
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  toString() {
    return this.#list.map(([name, value]) => `${encodePlus(name)}=${encodePlus(value)}`).join("&");
  }
}
