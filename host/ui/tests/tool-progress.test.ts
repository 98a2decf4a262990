import { describe, expect, it } from "vitest";
import type { JsonObject, SessionEvent } from "../src/api/types";
import { progressOf, progressText, shareOf, type ToolProgress } from "../src/model/tool-progress";
import { noActions } from "./events";

const event = (report: JsonObject, more: Partial<SessionEvent> = {}): SessionEvent => ({
  id: "1",
  invocationId: "e-1",
  author: "baker",
  timestamp: 1,
  actions: noActions,
  partial: true,
  customMetadata: { tool_progress: report, other: 1 },
  ...more,
});

const progress = (amount: number, total?: number, message = ""): ToolProgress => ({ call: "c", amount, total, message });

describe("the progress of a tool", () => {
  it("is in the custom metadata of partial events", () => {
    const report = { id: "c", name: "bake", progress: 3, total: 4, message: "loaf 3" };
    expect(progressOf(event(report))).toEqual(progress(3, 4, "loaf 3"));
    expect(progressOf(event(report, { partial: undefined }))).toBeUndefined();
    expect(progressOf(event(report, { customMetadata: undefined }))).toBeUndefined();
  });

  it("needs an amount and the id of its call, and has a total of more than nothing", () => {
    expect(progressOf(event({ name: "bake", progress: 3 }))).toBeUndefined();
    expect(progressOf(event({ id: "c", progress: "3" }))).toBeUndefined();
    expect(progressOf(event({ id: "c", progress: 3, total: 0, message: 7 }))).toEqual(progress(3));
  });

  it("is a share of its total, from nothing to all", () => {
    expect([progress(1, 4), progress(9, 4), progress(-1, 4), progress(1)].map(shareOf)).toEqual([0.25, 1, 0, undefined]);
  });

  it("is shown as its message, or else as its amount", () => {
    expect([progress(1, 3, "one"), progress(1, 3), progress(2.5)].map(progressText)).toEqual(["one", "33 %", "2.5"]);
  });
});
