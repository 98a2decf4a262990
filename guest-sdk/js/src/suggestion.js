// Suggestions for misspelt names.

/** Returns the number of characters to insert, delete or replace to turn one name into another. */
function distance(from, to) {
  let previous = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [row, char] of [...from].entries()) {
    const current = [row + 1];
    for (let column = 0; column < to.length; column++) {
      const replaced = previous[column] + (char === to[column] ? 0 : 1);
      current.push(Math.min(replaced, previous[column + 1] + 1, current[column] + 1));
    }
    previous = current;
  }
  return previous[to.length];
}

/** Returns the end of a message for an unknown name: the similar name, or else all known names after `label`. */
export function alternatives(name, known, label) {
  const limit = 1 + Math.floor(name.length / 6);
  const [similar] = known
    .map((candidate) => ({ candidate, away: distance(name, candidate) }))
    .filter(({ away }) => away <= limit)
    .sort((a, b) => a.away - b.away);
  return similar ? `did you mean \`${similar.candidate}\`?` : `${label} ${known.join(", ")}`;
}
