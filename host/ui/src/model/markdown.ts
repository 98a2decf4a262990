// The tokens of Markdown texts.

import { lexer, type Token, type Tokens } from "marked";

/** Longer texts are shown without formatting, as parsing them would block the page. */
export const MAX_LENGTH = 50_000;
/** Deeper nesting is shown without formatting, as it would overflow the stack of the page. */
export const MAX_DEPTH = 40;

/** Returns the tokens of a text, or `undefined` if it is to be shown without formatting. */
export function parseMarkdown(text: string): Token[] | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  try {
    const tokens = lexer(text);
    return isDeeper(tokens, MAX_DEPTH) ? undefined : tokens;
  } catch {
    // The parser recurses, too.
    return undefined;
  }
}

export function childTokens(token: Token): Token[] {
  return "tokens" in token && token.tokens ? token.tokens : [];
}

function isDeeper(tokens: readonly Token[], depth: number): boolean {
  return tokens.some((token) => {
    const children = token.type === "list" ? (token as Tokens.List).items.flatMap(({ tokens }) => tokens) : childTokens(token);
    return children.length > 0 && (depth === 0 || isDeeper(children, depth - 1));
  });
}
