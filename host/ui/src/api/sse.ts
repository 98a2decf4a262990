// Server-sent events of a run: each `data:` line is one JSON object.

/** Splits a stream of text into the values of its `data:` lines. */
export class SseParser {
  #rest = "";

  /** Returns the data of the lines that are complete now. */
  push(text: string): string[] {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    return lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
  }
}

/** Reads the data of a response until it ends. */
export async function* readData(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.releaseLock();
  }
}
