// structuredClone.

const PLAIN = [Boolean, Number, String, BigInt];

const ERRORS = [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];

/** Copies a value with everything that it refers to. Functions, symbols and objects of other classes cannot be copied. */
export function structuredClone(value) {
  const copies = new Map();

  function copy(original) {
    if (typeof original === "function" || typeof original === "symbol") throw uncloneable(original);
    if (typeof original !== "object" || original === null) return original;
    const known = copies.get(original);
    if (known) return known;
    const made = create(original);
    copies.set(original, made);
    if (original instanceof Map) for (const [key, item] of original) made.set(copy(key), copy(item));
    else if (original instanceof Set) for (const item of original) made.add(copy(item));
    else if (original instanceof Error) copyError(original, made);
    else if (isOwnObject(original)) for (const key of Object.keys(original)) made[key] = copy(original[key]);
    return made;
  }

  function create(original) {
    if (Array.isArray(original)) return new Array(original.length);
    if (original instanceof Date) return new Date(original.getTime());
    if (original instanceof RegExp) return new RegExp(original.source, original.flags);
    if (original instanceof Map) return new Map();
    if (original instanceof Set) return new Set();
    if (original instanceof ArrayBuffer) return original.slice(0);
    if (ArrayBuffer.isView(original)) {
      const size = original instanceof DataView ? original.byteLength : original.length;
      return new original.constructor(copy(original.buffer), original.byteOffset, size);
    }
    if (original instanceof Error) return new (ERRORS.find(({ name }) => name === original.name) ?? Error)();
    if (PLAIN.some((type) => original instanceof type)) return Object(original.valueOf());
    if (original instanceof Promise || original instanceof WeakMap || original instanceof WeakSet) throw uncloneable(original);
    return {};
  }

  function copyError(original, made) {
    for (const key of ["name", "message", "stack", "cause"]) {
      if (Object.hasOwn(original, key)) {
        Object.defineProperty(made, key, { value: copy(original[key]), configurable: true, writable: true });
      }
    }
  }

  return copy(value);
}

const isOwnObject = (original) =>
  Array.isArray(original) ||
  ![Date, RegExp, ArrayBuffer, ...PLAIN].some((type) => original instanceof type) && !ArrayBuffer.isView(original);

function uncloneable(value) {
  const error = new TypeError(`a ${typeof value === "object" ? value.constructor.name : typeof value} cannot be cloned`);
  error.name = "DataCloneError";
  return error;
}
