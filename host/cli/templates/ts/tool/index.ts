// A tool. Build it with `hatchery build`; agents in the same served folder use it as `@FUNCTION@`.

import { component, s, tool } from "hatchery-guest";

export const countWords = tool({
  name: "@FUNCTION@",
  description: "Counts the words of a text.",
  parameters: s.object({ text: s.string("The text whose words are counted.") }),
  run: ({ text }) => text.split(/\s+/).filter(Boolean).length,
});

export default component({ tools: [countWords] });
