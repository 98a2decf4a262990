import { describe, expect, it } from "vitest";
import type { HostEvent } from "../src/api/types";
import { beginOf, buildLanes } from "../src/model/lanes";

describe("lanes of components", () => {
  const hostEvents: HostEvent[] = [
    { id: 5, time: 40, kind: "componentRemoved", name: "gone", sha256: "aa" },
    { id: 4, time: 30, kind: "fileRejected", path: "dice.wasm", name: "dice", reason: "no", previousServes: true },
    { id: 3, time: 20, kind: "componentReplaced", name: "dice", from: "aa", to: "bb" },
    { id: 2, time: 10, kind: "componentAdded", name: "gone", sha256: "aa" },
    { id: 1, time: 10, kind: "componentAdded", name: "dice", sha256: "aa" },
    { id: 0, time: 10, kind: "componentAdded", name: "still", sha256: "cc" },
  ];
  const lanes = buildLanes(hostEvents);

  it("have the revisions one after the other, and rejections", () => {
    expect(lanes).toEqual([
      { name: "dice", blocks: [{ sha256: "aa", start: 10, end: 20 }, { sha256: "bb", start: 20 }], marks: [{ time: 30, reason: "no" }] },
      { name: "gone", blocks: [{ sha256: "aa", start: 10, end: 40 }], marks: [] },
    ]);
  });

  it("begin a little before the first change", () => {
    expect(beginOf(lanes, 120)).toBe(5);
    expect(beginOf([], 120)).toBe(115);
  });
});
