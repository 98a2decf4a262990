// Errors with a code.

/** An error with a stable code, such as `DENIED`, `LIMIT_REACHED` or `NOT_FOUND`. */
export class HatcheryError extends Error {
  /** The code is `COMPONENT_FAILED` by default. */
  constructor(message: string, code?: string);
  readonly code: string;
}

/** Thrown by a tool to end the run, because the model can do nothing about it. */
export class FatalError extends HatcheryError {
  /** The code is `TOOL_FAILED` by default. */
  constructor(message: string, code?: string);
}
