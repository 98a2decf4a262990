// Live conversations: conversion of their requests and responses, and live runs of other apps.

import { content as createContent } from "./content.js";
import { blobFromWit, blobToWit, contentFromWit, contentToWit, functionCallToWit, functionResponseFromWit, functionResponseToWit } from "./convert.js";
import { HatcheryError } from "./errors.js";
import { stringify } from "./json.js";

const orNull = (value) => value ?? null;

/** The signals of a user, by their key, with their case in the contract. */
const SIGNALS = { activityStart: "activity-start", activityEnd: "activity-end", audioStreamEnd: "audio-stream-end" };

/** Converts a request of a live run. A text is a message. */
export function requestToWit(request) {
  if (typeof request === "string") return requestToWit({ content: createContent(request, "user") });
  if (request?.parts) return requestToWit({ content: request });
  if (request?.content) {
    return { tag: "content", val: { content: contentToWit(request.content), partial: Boolean(request.partial) } };
  }
  if (request?.blob) return { tag: "blob", val: blobToWit(request.blob) };
  if (request?.toolResponses) return { tag: "tool-responses", val: request.toolResponses.map(functionResponseToWit) };
  const signal = Object.keys(SIGNALS).find((key) => request?.[key]);
  if (signal) return { tag: SIGNALS[signal] };
  throw new TypeError("a live request is a string, a content, or an object with `content`, `blob`, `activityStart`, `activityEnd` or `audioStreamEnd`");
}

/** Converts a request to a live model. */
export function requestFromWit({ tag, val }) {
  switch (tag) {
    case "content":
      return { content: contentFromWit(val.content), partial: val.partial };
    case "blob":
      return { blob: blobFromWit(val) };
    case "tool-responses":
      return { toolResponses: val.map(functionResponseFromWit) };
    default:
      return { [Object.keys(SIGNALS).find((key) => SIGNALS[key] === tag)]: true };
  }
}

const transcription = ({ text, finished = false }) => ({ text, finished });

/** The responses of a live model, by their key: the case in the contract, and the conversion to it. */
const RESPONSES = {
  content: ["content", contentToWit],
  inputTranscription: ["input-transcription", transcription],
  outputTranscription: ["output-transcription", transcription],
  toolCalls: ["tool-calls", (calls) => calls.map(functionCallToWit)],
  toolCallsCancelled: ["tool-calls-cancelled", (ids) => ids],
  usageMetadata: ["usage", stringify],
  interrupted: ["interrupted"],
  turnComplete: ["turn-complete"],
};

/** Converts a value that a live model yields. */
export function responseToWit(response) {
  if (typeof response === "string") return responseToWit({ content: createContent(response) });
  if (response?.parts) return responseToWit({ content: response });
  const key = Object.keys(RESPONSES).find((name) => response?.[name] !== undefined);
  if (!key) throw new TypeError(`a live model yields strings, contents, and objects with one of ${Object.keys(RESPONSES).join(", ")}`);
  const [tag, convert] = RESPONSES[key];
  return convert ? { tag, val: convert(response[key]) } : { tag };
}

export const runRequestToWit = ({ app, session, config }) => ({
  app, session: orNull(session), config: config && Object.keys(config).length ? stringify(config) : null,
});

/** A live run in progress: iterating over it returns its events. A run that fails throws its error. */
export class LiveRun {
  #run;
  #events;

  /** `run` has the functions `send` and `close`. */
  constructor(session, run, events) {
    this.session = session;
    this.#run = run;
    this.#events = events[Symbol.iterator]();
  }

  /** Sends a request; a string is a message. Waits while the run has too many unread ones. */
  send(request) {
    this.#run.send(request);
  }

  next() {
    const { value: event, done } = this.#events.next();
    if (!done && event.errorCode) throw new HatcheryError(event.errorMessage ?? "", event.errorCode);
    return { value: event, done };
  }

  [Symbol.iterator]() {
    return this;
  }

  /** Returns the events up to the end of a turn, or of the run. */
  turn() {
    const events = [];
    for (let next = this.next(); !next.done; next = this.next()) {
      events.push(next.value);
      if (next.value.turnComplete) break;
    }
    return events;
  }

  /** Closes the queue of requests. A text model still answers earlier messages, a live model closes the conversation. */
  close() {
    this.#run.close();
  }

  /** Cancels the run, and reads no more events. */
  cancel() {
    this.#events.return?.();
  }
}
