// The transcripts of a live run as messages.

import type { SessionEvent } from "../api/types";

/** Returns the event as a conversation shows it; `undefined` for a chunk without text, such as one of speech. */
export function shownEvent(event: SessionEvent): SessionEvent | undefined {
  const spoken = withSpeech(event);
  const isEmpty = (spoken.content?.parts ?? []).every((part) => part.inlineData !== undefined);
  return spoken.partial && isEmpty ? undefined : spoken;
}

/** Returns the event with its transcription as its content, unless it has one of its own. */
export function withSpeech(event: SessionEvent): SessionEvent {
  const { content, inputTranscription, outputTranscription } = event;
  const hasText = (content?.parts ?? []).some((part) => part.inlineData === undefined);
  if (hasText) return event;
  if (inputTranscription?.text) {
    return { ...event, author: "user", content: { role: "user", parts: [{ text: inputTranscription.text }] } };
  }
  if (outputTranscription?.text) return { ...event, content: { role: "model", parts: [{ text: outputTranscription.text }] } };
  return event;
}
