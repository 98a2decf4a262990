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

/** Serializes a value; `undefined` becomes `null`. Throws a `TypeError` if JSON has no form for it, as for `NaN`. */
export function stringify(value = null) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is not JSON`);
  // `JSON.stringify` writes them as empty objects.
  if (value instanceof Map) throw new TypeError("a Map is not JSON; use Object.fromEntries(map)");
  if (value instanceof Set) throw new TypeError("a Set is not JSON; use [...set]");
  const text = stringifyPlain(value) ?? stringifyMarked(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  return text;
}

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
