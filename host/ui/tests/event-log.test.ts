import { describe, expect, it } from "vitest";
import type { SessionEvent } from "../src/api/types";
import { EventLog, localMessage } from "../src/model/event-log";
import { noActions } from "./events";

function event(id: string, text: string, more: Partial<SessionEvent> = {}): SessionEvent {
  return { id, invocationId: "e-1", author: "dice", timestamp: 1, content: { role: "model", parts: [{ text }] }, actions: noActions, ...more };
}

const texts = (log: EventLog) => log.events.map(({ content }) => content?.parts?.map(({ text }) => text).join("|"));

describe("the event log", () => {
  it("appends the text of partial events and replaces it by the final event", () => {
    let log = EventLog.of([]).add(event("a", "Hel", { partial: true })).add(event("a", "lo", { partial: true }));
    expect(texts(log)).toEqual(["Hello"]);
    log = log.add(event("a", "Hello!"));
    expect(texts(log)).toEqual(["Hello!"]);
    expect(log.events[0]?.partial).toBeUndefined();
  });

  it("keeps thoughts and answers of partial events apart", () => {
    const thought = (text: string) => event("a", "", { partial: true, content: { parts: [{ text, thought: true }] } });
    const log = EventLog.of([]).add(thought("I ")).add(thought("think")).add(event("a", "so", { partial: true }));
    expect(texts(log)).toEqual(["I think|so"]);
  });

  it("ignores an event that it has, so that a repeated stream adds no duplicates", () => {
    const log = EventLog.of([event("a", "one"), event("b", "two")]);
    expect(log.add(event("a", "one"))).toBe(log);
    expect(texts(log.add(event("a", "on", { partial: true })))).toEqual(["one", "two"]);
  });

  it("keeps only the newest progress of a call, until the run is over", () => {
    const report = (id: string, call: string, progress: number) =>
      event(id, "", { partial: true, content: undefined, customMetadata: { tool_progress: { name: "bake", id: call, progress } } });
    const log = EventLog.of([event("a", "one")]).add(report("p1", "c1", 1)).add(report("p2", "c2", 1)).add(report("p3", "c1", 2));
    const kept = log.events.map(({ customMetadata }) => customMetadata?.tool_progress);
    expect(kept).toEqual([undefined, { name: "bake", id: "c1", progress: 2 }, { name: "bake", id: "c2", progress: 1 }]);
    expect(texts(log.withoutPartial())).toEqual(["one"]);
  });

  it("appends the transcripts of chunks of speech, and leaves out the sound", () => {
    const speech = (text: string, more: Partial<SessionEvent> = {}) => event("a", "", { content: undefined, outputTranscription: { text, finished: false }, ...more });
    const sound = event("b", "", { partial: true, content: { parts: [{ inlineData: { mimeType: "audio/pcm", data: "AA==" } }] } });
    const log = EventLog.of([]).add(speech("Hel", { partial: true })).add(sound).add(speech("lo", { partial: true }));
    expect(texts(log)).toEqual(["Hello"]);
    expect(texts(log.withoutPartial())).toEqual([]);
    expect(texts(log.add(speech("Hello!")).withoutPartial())).toEqual(["Hello!"]);
  });

  it("does not show calls of partial events, which are incomplete", () => {
    const call = event("a", "", { partial: true, content: { parts: [{ functionCall: { name: "roll_die" } }] } });
    expect(EventLog.of([]).add(call).events[0]?.content?.parts).toEqual([]);
  });

  it("replaces events that were never stored by the stored events", () => {
    const message = localMessage([{ text: "Hi" }], 5);
    const log = EventLog.of([event("old", "old")]).add(message).add(event("cut", "cu", { partial: true, timestamp: 6 }));
    const stored = [event("user", "Hi", { timestamp: 5.1, author: "user" }), event("cut", "cut off", { timestamp: 6 })];
    expect(texts(log.merge(stored))).toEqual(["old", "Hi", "cut off"]);
  });

  it("keeps events that arrive while the stored events are requested", () => {
    const asked = EventLog.of([event("old", "old")]).add(localMessage([{ text: "Hi" }], 5));
    const next = event("next", "The ans", { partial: true, timestamp: 7 });
    const log = asked.add(localMessage([{ text: "And now?" }], 6)).add(next);
    const stored = [event("user", "Hi", { timestamp: 5.1, author: "user" })];
    expect(texts(log.merge(stored, asked))).toEqual(["old", "Hi", "And now?", "The ans"]);
    expect(texts(log.merge(stored, asked).add({ ...next, content: { parts: [{ text: "wer" }] } })).at(-1)).toBe("The answer");
    const both = [...stored, event("other", "And now?", { timestamp: 6.1, author: "user" })];
    expect(texts(log.merge(both, asked))).toEqual(["old", "Hi", "And now?", "The ans"]);
  });

  it("requests only events since the last stored one", () => {
    expect(EventLog.of([]).add(localMessage([], 9)).lastStored).toBeUndefined();
    expect(EventLog.of([event("a", "x", { timestamp: 3 })]).add(localMessage([], 9)).lastStored).toBe(3);
  });
});
