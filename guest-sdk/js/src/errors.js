// Errors with a code. The host reports any other error by its message, with the code `COMPONENT_FAILED`.

/** The code of errors without a specific code. */
export const COMPONENT_FAILED = "COMPONENT_FAILED";

/** An error with a stable code. Methods of a context throw it if the host refuses an operation. */
export class HatcheryError extends Error {
  constructor(message, code = COMPONENT_FAILED) {
    super(message);
    this.name = "HatcheryError";
    this.code = code;
  }
}

/** Thrown by a tool to end the run, because the model can do nothing about it. */
export class FatalError extends HatcheryError {
  constructor(message, code = "TOOL_FAILED") {
    super(message, code);
    this.name = "FatalError";
  }
}

/** Arguments that do not match their schema. Not an error of the component's code. */
export class BadArguments extends TypeError {}

/** Returns the message of an error. */
export function describe(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}
