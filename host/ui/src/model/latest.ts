// Responses that arrive in another order than their requests were sent.

/** Tracks the latest request, so that responses to earlier requests can be dropped. */
export class Latest {
  #last = 0;

  /** Begins a request. Returns a function that returns whether it is still the latest one. */
  begin(): () => boolean {
    this.#last += 1;
    const own = this.#last;
    return () => own === this.#last;
  }

  /** Drops the answers to all requests so far. */
  end(): void {
    this.#last += 1;
  }
}
