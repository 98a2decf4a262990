import { describe, expect, it } from "vitest";
import { isEscape } from "../src/model/keys";

/** Returns the event of a key that is pressed in an element inside of elements with these tags. */
function press(more: Partial<KeyboardEvent>, ...tags: string[]): KeyboardEvent {
  const target = { closest: (tag: string) => (tags.includes(tag) ? {} : null) } as unknown as EventTarget;
  return { key: "Escape", defaultPrevented: false, isComposing: false, target, ...more } as KeyboardEvent;
}

describe("Escape", () => {
  it("is for the page, and stops its run, if nothing above it is open", () => {
    expect(isEscape(press({}))).toBe(true);
    expect(isEscape(press({ target: {} as EventTarget }))).toBe(true);
    expect(isEscape(press({ key: "e" }))).toBe(false);
  });

  it("closes a dialog, ends an input method or closes a panel without stopping the run", () => {
    expect(isEscape(press({}, "dialog"))).toBe(false);
    expect(isEscape(press({ isComposing: true }))).toBe(false);
    expect(isEscape(press({ defaultPrevented: true }))).toBe(false);
  });
});
