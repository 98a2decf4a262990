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
    const children = nestedTokens(token);
    return children.length > 0 && (depth === 0 || isDeeper(children, depth - 1));
  });
}

/** Returns the child tokens, including those of list items and table cells. */
function nestedTokens(token: Token): Token[] {
  if (token.type === "list") return (token as Tokens.List).items.flatMap(({ tokens }) => tokens);
  if (token.type === "table") {
    const { header, rows } = token as Tokens.Table;
    return [...header, ...rows.flat()].flatMap(({ tokens }) => tokens);
  }
  return childTokens(token);
}
