// Lines of statements, for the stack traces of QuickJS.

import { numbersOf } from "./source-map.js";

/** The beginning of a declaration, or of a branch or loop outside of functions. Such a line is never the body of another statement. */
const STATEMENT = /^(?:\s*(?:const|let) [\w$[{]|(?:var|if|for|switch) )/;

/**
 * Returns the code of a bundle with an empty statement before each declaration. QuickJS records the lines of calls and of expression
 * statements only: an error in a declaration would have the line of the call before it. All code stays in its line.
 */
export function markStatements(code, { mappings }) {
  const groups = mappings.split(";");
  const mark = (line, index) => (STATEMENT.test(line) && isStart(groups[index]) ? `0;${line}` : line);
  return code.split("\n").map(mark).join("\n");
}

/**
 * Returns true if a line of the bundle begins with its own place in a source file. The further lines of a template literal begin with the last place of the
 * line before, if they have any.
 */
function isStart(group = "") {
  const [column, ...place] = numbersOf(group.split(",")[0]);
  return column === 0 && place.slice(0, 3).some((delta) => delta !== 0);
}
