// Messages, events and requests, in the shape of Gemini's `Content` and ADK's `Event`.

/** Creates a content with one text. */
export const content = (text, role = "model") => ({ role, parts: [{ text }] });

/** Returns the text of a content, an event or a response, without thoughts. */
export function textOf(message) {
  const parts = message?.parts ?? message?.content?.parts ?? [];
  return parts.filter((part) => !part.thought).map((part) => part.text ?? "").join("");
}

/** Converts a text or a content to an event. */
export function toEvent(output) {
  if (typeof output === "string") return { content: content(output) };
  if (output && typeof output === "object") return output.parts ? { content: output } : output;
  throw new TypeError(`an agent yields texts, contents or events, not ${output === null ? "null" : `a ${typeof output}`}`);
}

/** Converts a text or a content to a request. */
export function toRequest(prompt, { instruction, model = "" } = {}) {
  if (typeof prompt === "object" && prompt.contents) return prompt;
  const message = typeof prompt === "string" ? content(prompt, "user") : prompt;
  return { model, contents: [message], systemInstructions: instruction ? [instruction] : [] };
}
