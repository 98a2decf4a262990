// The types of the package, with its documentation.

export * from "./types/agents.js";
export * from "./types/content.js";
export * from "./types/context.js";
export * from "./types/errors.js";
export * from "./types/items.js";
export * from "./types/schema.js";
