// An agent with a tool. Build it with `hatchery build`.

import { component, llmAgent, s, tool } from "hatchery-guest";

export const countWords = tool({
  name: "count_words",
  description: "Counts the words of a text.",
  parameters: s.object({ text: s.string("The text whose words are counted.") }),
  run({ text }, ctx) {
    const words = text.split(/\s+/).filter(Boolean).length;
    ctx.state.set("last_count", words);
    return words;
  },
});

// The scripted model needs no network and no API key. To use a real model, set its name, such as
// "gemini-2.5-flash", build, allow it with `hatchery grant @NAME@`, and put its key into a file `.env` beside
// package.json: GOOGLE_API_KEY=… `hatchery models` lists the models and their variables.
const root = llmAgent({
  name: "@NAME@",
  description: "Counts words.",
  model: "scripted:@NAME@/answers.yaml",
  instruction: "Count words when asked to.",
  tools: [countWords],
});

export default component({ agents: [root], tools: [countWords] });
