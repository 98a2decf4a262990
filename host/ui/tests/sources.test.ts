import fs from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";

const root = path.resolve(import.meta.dirname, "../src");
const sources = fs
  .readdirSync(root, { recursive: true, encoding: "utf8" })
  .filter((name) => /\.(svelte|ts)$/.test(name) && !name.endsWith("wire.ts"))
  .map((name) => ({ name, text: fs.readFileSync(path.join(root, name), "utf8") }));

/** Returns the places that match, as `file:line`. */
function findPlaces(pattern: RegExp): string[] {
  return sources.flatMap(({ name, text }) =>
    text.split("\n").flatMap((line, index) => (pattern.test(line) ? [`${name}:${index + 1}: ${line.trim()}`] : [])),
  );
}

describe("the sources", () => {
  it("are files of at most 300 lines", () => {
    expect(sources.length).toBeGreaterThan(80);
    const lengths = sources.map(({ name, text }) => ({ name, lines: text.split("\n").length - 1 }));
    expect(lengths.filter(({ lines }) => lines > 300)).toEqual([]);
  });

  it("never insert HTML from values", () => {
    expect(findPlaces(/\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write/)).toEqual([]);
    expect(findPlaces(/\beval\(|new Function\(/)).toEqual([]);
  });

  it("open other pages without access to this one", () => {
    const opened = findPlaces(/target="_blank"/);
    expect(opened.length).toBeGreaterThan(0);
    expect(opened.filter((place) => !place.includes('rel="noopener noreferrer"'))).toEqual([]);
    expect(findPlaces(/window\.open\(/)).toEqual([]);
  });

  it("refer to no other host", () => {
    expect(findPlaces(/["'`(]https?:\/\/(?!\$)/)).toEqual([]);
  });
});
