// Errors that mean something to the host. Every other error is a failure of the code, told by its message.

/** A failure with a stable code. The context throws it for what the host refuses. */
export class HatcheryError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "HatcheryError";
    this.code = code;
  }
}

/** Thrown by a tool, it ends the run: nothing that the model could do would help. */
export class FatalError extends HatcheryError {
  constructor(code, message) {
    super(code, message);
    this.name = "FatalError";
  }
}

/** Arguments that do not fit their schema: nothing is wrong with the code. */
export class BadArguments extends TypeError {}

/** What an error says. */
export function describe(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}
