// TextEncoder, TextDecoder, btoa and atob.

import { decode, encode, incompleteEnd } from "../utf8.js";

export class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    return encode(String(text));
  }

  encodeInto(text, target) {
    let read = 0;
    let written = 0;
    for (const character of String(text)) {
      const bytes = encode(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
}

const LABELS = {
  "utf-8": ["utf-8", "utf8", "unicode-1-1-utf-8"],
  "windows-1252": ["iso-8859-1", "latin1", "ascii", "us-ascii", "windows-1252", "iso8859-1"],
};

/** Decodes UTF-8, and Latin-1 by its usual names. */
export class TextDecoder {
  #rest = new Uint8Array();
  #isBegin = true;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const name = String(label).trim().toLowerCase();
    this.encoding = Object.keys(LABELS).find((encoding) => LABELS[encoding].includes(name));
    if (!this.encoding) throw new RangeError(`the encoding \`${label}\` is not supported; there are utf-8 and latin1`);
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }

  decode(input = new Uint8Array(), { stream = false } = {}) {
    const bytes = viewOf(input);
    if (this.encoding !== "utf-8") return Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    let all = bytes;
    if (this.#rest.length) {
      all = new Uint8Array(this.#rest.length + bytes.length);
      all.set(this.#rest);
      all.set(bytes, this.#rest.length);
    }
    const end = all.length - (stream ? incompleteEnd(all) : 0);
    this.#rest = all.slice(end);
    let text = decode(all.subarray(0, end), this.fatal);
    if (text && this.#isBegin) {
      this.#isBegin = false;
      if (!this.ignoreBOM) text = text.replace(/^\ufeff/, "");
    }
    if (!stream) this.#isBegin = true;
    return text;
  }
}

/** Returns the bytes of a buffer or of a view of one. */
export function viewOf(buffer) {
  return ArrayBuffer.isView(buffer) ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new Uint8Array(buffer);
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function btoa(text) {
  const codes = Array.from(String(text), (character) => character.codePointAt(0));
  if (codes.some((code) => code > 0xff)) throw new TypeError("btoa: the string has characters above U+00FF; encode it first");
  let encoded = "";
  for (let index = 0; index < codes.length; index += 3) {
    const [one, two = 0, three = 0] = codes.slice(index, index + 3);
    const bits = (one << 16) | (two << 8) | three;
    const count = Math.min(codes.length - index, 3) + 1;
    for (let digit = 0; digit < 4; digit += 1) encoded += digit < count ? DIGITS[(bits >> (18 - 6 * digit)) & 63] : "=";
  }
  return encoded;
}

export function atob(text) {
  const digits = String(text).replace(/[\t\n\f\r ]/g, "").replace(/={1,2}$/, "");
  if (digits.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(digits)) throw new TypeError("atob: the string is not base64");
  let decoded = "";
  for (let index = 0; index < digits.length; index += 4) {
    const group = digits.slice(index, index + 4);
    const bits = Array.from(group.padEnd(4, "A")).reduce((sum, digit) => sum * 64 + DIGITS.indexOf(digit), 0);
    for (let byte = 0; byte < group.length - 1; byte += 1) decoded += String.fromCharCode((bits >> (16 - 8 * byte)) & 0xff);
  }
  return decoded;
}
