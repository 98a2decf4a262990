// JSON without loss: integers that a `Number` cannot represent exactly are read as `BigInt` and written as digits.
//
// `JSON.parse` and `JSON.stringify` do the work. Values with such integers pass as marked strings: "n123" is the integer 123, and all other
// strings are marked by an "s".

const STRING = '"[^"\\\\]*(?:\\\\.[^"\\\\]*)*"';
const STRING_OR_NUMBER = new RegExp(`(${STRING})(\\s*:)?|-?\\d+(?:\\.\\d+)?(?:[eE][-+]?\\d+)?`, "g");
const STRING_OR_KEY = new RegExp(`(${STRING})(\\s*:)?`, "g");
const INTEGER = /^-?\d+$/;

/** The shortest text in which an integer can be unsafe. */
const LONG_NUMBER = /\d{16}/;

const isUnsafe = (number) => INTEGER.test(number) && !Number.isSafeInteger(Number(number));

/** Parses JSON text. */
export function parse(text) {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text);
  const marked = text.replace(STRING_OR_NUMBER, (token, string, colon) => {
    if (colon) return token;
    if (string) return `"s${string.slice(1)}`;
    return isUnsafe(token) ? `"n${token}"` : token;
  });
  return JSON.parse(marked, (_, value) => {
    if (typeof value !== "string") return value;
    return value[0] === "n" ? BigInt(value.slice(1)) : value.slice(1);
  });
}

/** What `JSON.stringify` writes for values that JSON has no form for, and for some others. */
const POSSIBLE_LOSS = /null|\{\}|\{"0":/;

/** Serializes a value; `undefined` becomes `null`. Throws a `TypeError` if JSON has no form for it or for a value in it, as for `NaN`. */
export function stringify(value = null) {
  const text = stringifyPlain(value) ?? stringifyMarked(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  // Most texts need no second pass.
  if (POSSIBLE_LOSS.test(text)) JSON.stringify(value, refuseLoss);
  return text;
}

/** A replacer that throws for values that `JSON.stringify` would replace by others without an error. */
function refuseLoss(_, item) {
  if (typeof item === "bigint") return String(item);
  if (typeof item === "number" && !Number.isFinite(item)) throw new TypeError(`${item} is not JSON`);
  if (item instanceof Promise) throw new TypeError("a Promise is not JSON; write `await` before the call that returned it");
  if (item instanceof Map) throw new TypeError("a Map is not JSON; use Object.fromEntries(map)");
  if (item instanceof Set) throw new TypeError("a Set is not JSON; use [...set]");
  if (item instanceof ArrayBuffer || ArrayBuffer.isView(item)) {
    throw new TypeError(`the bytes of a ${item.constructor.name} are not JSON; use an artifact, or Array.from(bytes)`);
  }
  return item;
}

/** Serializes a value for people. Never throws. */
export function inspect(value) {
  try {
    return JSON.stringify(value, makeReadable) ?? String(value);
  } catch {
    return String(value);
  }
}

function makeReadable(_, item) {
  if (typeof item === "bigint" || (typeof item === "number" && !Number.isFinite(item))) return String(item);
  if (item instanceof Map) return Object.fromEntries(item);
  if (item instanceof Set || ArrayBuffer.isView(item)) return [...item];
  return item instanceof Error || item instanceof Promise ? String(item) : item;
}

/** Returns true if two values are equal in JSON, with the same bytes. False is possible for equal values of different classes. */
export function isEqual(one, other) {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const prototype = Object.getPrototypeOf(one);
  if (prototype !== Object.getPrototypeOf(other)) return false;
  if (one instanceof Uint8Array) return one.length === other.length && one.every((byte, index) => byte === other[index]);
  if (prototype !== Object.prototype && !Array.isArray(one)) return false;
  const keys = keysOf(one);
  return keys.length === keysOf(other).length && keys.every((key) => Object.hasOwn(other, key) && isEqual(one[key], other[key]));
}

const keysOf = (value) => (Array.isArray(value) ? [...value.keys()] : Object.keys(value).filter((key) => value[key] !== undefined));

/** `undefined` if `JSON.stringify` refuses the value, as it does with a `BigInt`. */
function stringifyPlain(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

function stringifyMarked(value) {
  const marked = JSON.stringify(value, (_, item) => {
    if (typeof item === "bigint") return `n${item}`;
    return typeof item === "string" ? `s${item}` : item;
  });
  return marked?.replace(STRING_OR_KEY, (token, string, colon) => {
    if (colon) return token;
    return string[1] === "n" ? string.slice(2, -1) : `"${string.slice(2)}`;
  });
}
