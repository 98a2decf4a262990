// The transcripts of a live run as messages.

import type { SessionEvent } from "../api/types";

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
