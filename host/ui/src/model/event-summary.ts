// One line for an event in a list.

import { asObject } from "../api/json";
import type { SessionEvent } from "../api/types";
import { CREDENTIAL } from "./credential";
import { CONFIRMATION, messageText, toolError, visibleDelta } from "./conversation";
import { preview } from "./format";

export interface Summary {
  kind: string;
  text: string;
  /** The class of its badge. */
  tone: "" | "ok" | "warn" | "bad" | "accent";
}

const LENGTH = 160;

export function summarize(event: SessionEvent): Summary {
  const parts = event.content?.parts ?? [];
  if (event.errorCode || event.errorMessage) {
    return { kind: "error", text: preview(`${event.errorCode ?? ""} ${event.errorMessage ?? ""}`.trim(), LENGTH), tone: "bad" };
  }
  const calls = parts.flatMap((part) => part.functionCall ?? []);
  if (calls.some((call) => call.name === CONFIRMATION)) {
    return { kind: "consent", text: preview(calls[0]?.args?.originalFunctionCall ?? "", LENGTH), tone: "warn" };
  }
  const request = calls.find((call) => call.name === CREDENTIAL);
  if (request) return { kind: "credential", text: preview(asObject(request.args?.authConfig).authScheme ?? "", LENGTH), tone: "warn" };
  if (calls.length > 0) {
    const text = calls.map((call) => `${call.name}(${JSON.stringify(call.args ?? {})})`).join(", ");
    return { kind: "call", text: preview(text, LENGTH), tone: "accent" };
  }
  const responses = parts.flatMap((part) => part.functionResponse ?? []);
  if (responses.length > 0) {
    const failed = responses.some(({ response }) => toolError(response) !== undefined);
    const text = responses.map(({ name, response }) => `${name} → ${JSON.stringify(response ?? null)}`).join(", ");
    return { kind: failed ? "failed" : "result", text: preview(text, LENGTH), tone: failed ? "bad" : "ok" };
  }
  const text = messageText(event);
  if (text !== "") return { kind: event.author === "user" ? "message" : "answer", text: preview(text, LENGTH), tone: "" };
  if (event.actions?.transferToAgent) return { kind: "transfer", text: event.actions.transferToAgent, tone: "" };
  const delta = visibleDelta(event);
  if (Object.keys(delta).length > 0) return { kind: "state", text: preview(delta, LENGTH), tone: "" };
  const artifacts = Object.keys(event.actions?.artifactDelta ?? {});
  if (artifacts.length > 0) return { kind: "artifact", text: artifacts.join(", "), tone: "" };
  return { kind: "event", text: parts.length > 0 ? preview(parts, LENGTH) : "", tone: "" };
}
