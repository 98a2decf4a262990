// UTF-8 without the help of an engine: QuickJS has neither TextEncoder nor TextDecoder.

/** Code points that are joined at a time: engines limit the number of arguments. */
const CHUNK = 4096;

const REPLACEMENT = 0xfffd;

/** Encodes a string. Lone surrogates become U+FFFD. */
export function encode(text) {
  const bytes = new Uint8Array(text.length * 3);
  let size = 0;
  for (let index = 0; index < text.length; index += 1) {
    let code = text.codePointAt(index);
    if (code > 0xffff) index += 1;
    else if (code >= 0xd800 && code <= 0xdfff) code = REPLACEMENT;
    if (code < 0x80) {
      bytes[size++] = code;
      continue;
    }
    const rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    bytes[size++] = [0, 0xc0, 0xe0, 0xf0][rest] | (code >> (6 * rest));
    for (let shift = 6 * (rest - 1); shift >= 0; shift -= 6) bytes[size++] = 0x80 | ((code >> shift) & 0x3f);
  }
  return bytes.slice(0, size);
}

/** Decodes bytes. Invalid ones become U+FFFD, or throw a `TypeError` if `fatal` is true. */
export function decode(bytes, fatal = false) {
  let text = "";
  let codes = [];
  for (let index = 0; index < bytes.length; ) {
    const [code, size] = codeAt(bytes, index);
    if (code === undefined && fatal) throw new TypeError("the bytes are not UTF-8");
    codes.push(code ?? REPLACEMENT);
    index += size;
    if (codes.length === CHUNK) {
      text += String.fromCodePoint(...codes);
      codes = [];
    }
  }
  return text + String.fromCodePoint(...codes);
}

/** Returns the number of bytes at the end that begin a character without completing it. */
export function incompleteEnd(bytes) {
  for (let size = 1; size <= Math.min(3, bytes.length); size += 1) {
    const first = bytes[bytes.length - size];
    if (first >= 0xc0) return sizeOf(first) > size ? size : 0;
    if (first < 0x80) return 0;
  }
  return 0;
}

const sizeOf = (first) => (first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);

/** Returns the code point at an index and its size; `undefined` and the size of what is invalid if there is none. */
function codeAt(bytes, index) {
  const first = bytes[index];
  if (first < 0x80) return [first, 1];
  if (first < 0xc2 || first > 0xf4) return [undefined, 1];
  const size = sizeOf(first);
  let code = first & (0xff >> (size + 1));
  for (let offset = 1; offset < size; offset += 1) {
    const byte = bytes[index + offset];
    // The second byte excludes overlong forms, surrogates and what is beyond U+10FFFF.
    const low = offset === 1 && { 0xe0: 0xa0, 0xf0: 0x90 }[first] || 0x80;
    const high = offset === 1 && { 0xed: 0x9f, 0xf4: 0x8f }[first] || 0xbf;
    if (byte === undefined || byte < low || byte > high) return [undefined, offset];
    code = (code << 6) | (byte & 0x3f);
  }
  return [code, size];
}
