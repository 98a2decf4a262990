// Source maps, reduced to what stack traces need: the file and the line of each line.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Decodes the numbers of a segment: base64 VLQ. */
export function numbersOf(segment) {
  const numbers = [];
  let value = 0;
  let shift = 0;
  for (const character of segment) {
    const digit = DIGITS.indexOf(character);
    value |= (digit & 31) << shift;
    shift += 5;
    if (digit & 32) continue;
    numbers.push(value & 1 ? -(value >> 1) : value >> 1);
    value = 0;
    shift = 0;
  }
  return numbers;
}

/**
 * Returns the source positions of the lines of a bundle: the names of the source files, and runs of lines. Each run has its first line in the bundle,
 * the index of its file, and the line there; lines count from 1.
 */
export function linesOf({ sources, mappings }) {
  const runs = [];
  let source = 0;
  let line = 0;
  for (const [index, group] of mappings.split(";").entries()) {
    let place;
    for (const segment of group.split(",").filter(Boolean)) {
      const [, sourceDelta, lineDelta] = numbersOf(segment);
      if (sourceDelta === undefined) continue;
      source += sourceDelta;
      line += lineDelta;
      place ??= [index + 1, source, line + 1];
    }
    const last = runs.at(-1);
    const continues = place && last && last[1] === place[1] && place[0] - last[0] === place[2] - last[2];
    if (place && !continues) runs.push(place);
  }
  return { files: sources, runs };
}
