// Messages, events and requests, in the shape of Gemini's `Content` and ADK's `Event`.

import { decode, encode } from "./utf8.js";

/** Creates a content with one text. */
export const content = (text, role = "model") => ({ role, parts: [{ text }] });

const partsOf = (message) => message?.parts ?? message?.content?.parts ?? [];

/** Returns the text of a content, an event or a response, without thoughts. */
export function textOf(message) {
  return partsOf(message).filter((part) => !part.thought).map((part) => part.text ?? "").join("");
}

/** Returns the function calls of a content, an event or a response, in order. */
export const functionCallsOf = (message) => partsOf(message).flatMap((part) => part.functionCall ?? []);

/** Returns the function responses of a content or an event, in order. */
export const functionResponsesOf = (message) => partsOf(message).flatMap((part) => part.functionResponse ?? []);

/** Returns true if the last part of an event is the result of code. */
export const hasTrailingCodeExecutionResult = (event) => partsOf(event).at(-1)?.codeExecutionResult !== undefined;

/** Returns true if the agent has nothing more to do after an event. */
export function isFinalResponse(event) {
  if (event.actions?.skipSummarization || event.longRunningToolIds?.length) return true;
  const calls = [...functionCallsOf(event), ...functionResponsesOf(event)];
  return !event.partial && !calls.length && !hasTrailingCodeExecutionResult(event);
}

/** Converts a string or a content to an event. */
export function toEvent(output) {
  if (typeof output === "string") return { content: content(output) };
  if (output && typeof output === "object") {
    if (!output.content && isPart(output)) throw new TypeError("an event has its parts in a content: `{ content: { parts: [part] } }`");
    return output.parts ? { content: output } : output;
  }
  throw new TypeError(`an event is made from a string, a content or an event, not from ${output === null ? "null" : `a ${typeof output}`}`);
}

/** Converts a string or a content to a request. */
export function toRequest(prompt, { instruction, model = "" } = {}) {
  if (prompt?.contents) return prompt;
  const message = typeof prompt === "string" ? content(prompt, "user") : prompt;
  if (!Array.isArray(message?.parts)) throw new TypeError("a prompt is a string, a content or a request");
  return { model, contents: [message], systemInstructions: instruction ? [instruction] : [] };
}

/** Converts a string, a part or a content to a response of a model. */
export function toResponse(output) {
  if (typeof output === "string") return { content: content(output) };
  if (!output || typeof output !== "object") {
    throw new TypeError(`a model yields strings, parts, contents or responses, not ${output === null ? "null" : `a ${typeof output}`}`);
  }
  if (Array.isArray(output.parts)) return { content: output };
  return isPart(output) ? { content: { role: "model", parts: [output] } } : output;
}

const PART_KEYS = ["text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"];

const isPart = (value) => PART_KEYS.some((key) => value[key] !== undefined);

/** Converts a string, bytes or a part to a part. */
export function toPart(data, mimeType) {
  if (typeof data === "string") return { text: data };
  if (data instanceof ArrayBuffer) return { inlineData: { mimeType, data: new Uint8Array(data) } };
  if (data instanceof Uint8Array) return { inlineData: { mimeType, data } };
  if (data && typeof data === "object" && isPart(data)) return data;
  throw new TypeError("an artifact is a string, bytes or a part; write other values as text, as with JSON.stringify(value)");
}

/** Joins the pieces of a model's answer to the complete one. */
export function joinResponses(pieces) {
  const complete = {};
  for (const { content: message, partial, ...fields } of pieces) {
    Object.assign(complete, fields);
    if (message) {
      complete.content ??= { role: message.role, parts: [] };
      for (const part of message.parts) addPart(complete.content.parts, part);
    }
  }
  return complete;
}

/** Adds a part. A text that continues the last text part is appended to it. */
function addPart(parts, part) {
  const last = parts.at(-1);
  const isPlain = (each) => each?.text !== undefined && Object.keys(each).every((key) => key === "text" || key === "thought");
  if (isPlain(last) && isPlain(part) && Boolean(last.thought) === Boolean(part.thought)) {
    parts[parts.length - 1] = { ...last, text: last.text + part.text };
  } else {
    parts.push(part);
  }
}

/** Iterates over the results of a function: the items of a generator, or its single result. */
export async function* outputsOf(result) {
  if (result?.[Symbol.asyncIterator] || (result?.[Symbol.iterator] && typeof result !== "string")) {
    yield* result;
  } else {
    const output = await result;
    if (output !== undefined && output !== null) yield output;
  }
}

/** Encodes a string as UTF-8. */
export const bytesOf = (text) => encode(text);

/** Decodes a string from UTF-8. Throws a `TypeError` if the bytes are invalid. */
export const textOfBytes = (bytes) => decode(bytes, true);
