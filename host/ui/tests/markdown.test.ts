import { describe, expect, it } from "vitest";
import { MAX_DEPTH, MAX_LENGTH, parseMarkdown } from "../src/model/markdown";

describe("Markdown", () => {
  it("is parsed", () => {
    expect(parseMarkdown("# Title\n\n- one\n- **two**\n\n> quote")?.map(({ type }) => type)).toContain("list");
  });

  it("that is nested too deeply or too long for the page is shown as plain text", () => {
    expect(parseMarkdown(`${">".repeat(3000)} end`)).toBeUndefined();
    expect(parseMarkdown(`${"- ".repeat(3000)} end`)).toBeUndefined();
    expect(parseMarkdown(`${">".repeat(MAX_DEPTH + 1)} end`)).toBeUndefined();
    expect(parseMarkdown(`${">".repeat(MAX_DEPTH / 2)} end`)).toBeDefined();
    expect(parseMarkdown(`| a |\n|---|\n| ${"*a ".repeat(100)}x${"*".repeat(100)} |\n`)).toBeUndefined();
    expect(parseMarkdown("a".repeat(MAX_LENGTH + 1))).toBeUndefined();
  });
});
