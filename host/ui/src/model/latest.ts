// Requests that overtake each other.

/** Tells which of several requests was begun last, so that late answers to the others are dropped. */
export class Latest {
  #last = 0;

  /** Begins a request. Returns a function that tells whether it is still the last one. */
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
