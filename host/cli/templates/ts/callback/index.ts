// A callback. Build it with `hatchery build`; agents list it as `@NAME@/check` in `before_tool_callbacks`.

import { callback, component } from "hatchery-guest";

/** Refuses tool calls with an empty text. A result is returned instead of calling the tool. */
export const check = callback({
  name: "check",
  hook: "beforeTool",
  run: ({ args }) => (args.text === "" ? { error: "`text` must not be empty" } : undefined),
});

export default component({ callbacks: [check] });
