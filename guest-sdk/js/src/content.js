// What is said, in the shapes of Gemini's `Content` and ADK's `Event`.

/** A content of one text. */
export const content = (text, role = "model") => ({ role, parts: [{ text }] });

/** All text of a content, an event or a response, without thoughts. */
export function textOf(said) {
  const parts = (said?.parts ?? said?.content?.parts ?? []).filter((part) => !part.thought);
  return parts.map((part) => part.text ?? "").join("");
}

/** A text, a content or an event as an event. */
export function event(said) {
  if (typeof said === "string") return { content: content(said) };
  if (said && typeof said === "object") return said.parts ? { content: said } : said;
  throw new TypeError(`an agent yields texts, contents or events, not ${said === null ? "null" : `a ${typeof said}`}`);
}

/** A text, a content or a request as a request. */
export function request(prompt, { instruction, model = "" } = {}) {
  if (typeof prompt === "object" && prompt.contents) return prompt;
  const said = typeof prompt === "string" ? content(prompt, "user") : prompt;
  return { model, contents: [said], systemInstructions: instruction ? [instruction] : [] };
}
