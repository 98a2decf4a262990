// A custom agent with a tool, in JavaScript.
//
// It asks its model for a haiku, counts the syllables, and asks once more if they are wrong.

import { agent, component, s, textOf, tool } from "hatchery-guest";

/** Returns the approximate number of syllables of a line: groups of vowels, without a silent e. */
export function syllables(line) {
  const words = line.toLowerCase().match(/[a-z]+/g) ?? [];
  const count = (word) => (word.replace(/([^l])e$/, "$1").match(/[aeiouy]+/g) ?? [""]).length;
  return words.map(count).reduce((sum, each) => sum + each, 0);
}

export const countSyllables = tool({
  name: "count_syllables",
  description: "Counts the syllables of each line of a poem.",
  parameters: s.object({ poem: s.string("The poem, with line breaks.") }),
  run: ({ poem }) => poem.trim().split("\n").map(syllables),
});

const isHaiku = (poem) => String(countSyllables.run({ poem })) === "5,7,5";

export const haiku = agent({
  name: "haiku",
  description: "Writes haikus.",
  model: "scripted:haiku/answers.yaml",
  async *run(ctx) {
    const topic = textOf(ctx.userContent);
    const instruction = "Write a haiku: three lines of 5, 7 and 5 syllables, and nothing else.";
    let poem = textOf(ctx.generate(topic, { instruction }));
    if (!isHaiku(poem)) {
      yield `Not quite: ${countSyllables.run({ poem }).join("-")} syllables. Once more.`;
      poem = textOf(ctx.generate(`Shorter, please: ${topic}`, { instruction }));
    }
    ctx.state.set("haikus", (ctx.state.get("haikus") ?? 0) + 1);
    yield poem.trim();
  },
});

export default component({ agents: [haiku], tools: [countSyllables] });
