// A callback. `hatchery build` makes a component of it; agents name it `@NAME@/check` at `before_tool_callbacks`.

import { callback, component } from "hatchery-guest";

/** Answers in place of a tool that is given an empty text. */
export const check = callback({
  name: "check",
  at: "beforeTool",
  run: ({ args }) => (args.text === "" ? { error: "there is no text" } : undefined),
});

export default component({ callbacks: [check] });
