// A conversation: turns and their items, derived from the events of a session.

import { asObject } from "../api/json";
import type { FunctionCall, Json, JsonObject, Part, SessionEvent } from "../api/types";
import { CREDENTIAL, type CredentialState, stateAfter } from "./credential";
import { progressOf, type ToolProgress } from "./tool-progress";
import { withSpeech } from "./transcription";

export const CONFIRMATION = "adk_request_confirmation";

/** The hint of a call whose author has written none. It is for programs. */
const DEFAULT_HINT = /^Please approve or reject the tool call .+\(\) by responding with a FunctionResponse with an expected ToolConfirmation payload\.$/;

/** Whether a call waits for a person, and the person's decision. */
export type Decision = "open" | "agreed" | "denied" | "superseded";

/** What a call waits for. */
export type Question = "consent" | "credential";

interface Base {
  /** Unique in the conversation. */
  key: string;
  event: SessionEvent;
  author: string;
}

export type Item = Base &
  (
    | { kind: "text"; text: string; isThought: boolean; isPartial: boolean }
    | {
        kind: "tool";
        call: FunctionCall;
        response?: Json;
        answeredAt?: number;
        isLongRunning: boolean;
        asksFor?: Question;
        progress?: ToolProgress;
      }
    | { kind: "confirmation"; call: FunctionCall; original: FunctionCall; hint: string; payload?: Json; decision: Decision }
    | { kind: "credential"; call: FunctionCall; requester: string; state: CredentialState }
    | { kind: "transfer"; to: string }
    | { kind: "artifact"; name: string; version: number }
    | { kind: "file"; part: Part }
    | { kind: "code"; code: string; language: string }
    | { kind: "output"; output: string; outcome: string }
    | { kind: "state"; delta: JsonObject }
    | { kind: "error"; code: string; message: string }
    | { kind: "cancelled" }
  );

export type ItemOf<K extends Item["kind"]> = Extract<Item, { kind: K }>;

/** One message of a person and everything that follows from it. */
export interface Turn {
  /** Stays the same when the host has stored the message under another id. */
  key: string;
  message?: SessionEvent;
  items: Item[];
  start: number;
  end: number;
  tokens: number;
}

/** The key under which clients of ADK store the title of a session. */
const METADATA = "__session_metadata__";
const MAX_TITLE = 47;

/** Returns the state without the keys of clients, such as the title. */
export function visibleState(state: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(state).filter(([key]) => key !== METADATA));
}

export function visibleDelta(event: SessionEvent): JsonObject {
  return visibleState(event.actions?.stateDelta ?? {});
}

/** Returns the state of a new session whose title is its first message. */
export function titledState(message: string): JsonObject {
  const title = message.trim().replace(/\s+/g, " ");
  if (title === "") return {};
  const displayName = title.length > MAX_TITLE ? `${title.slice(0, MAX_TITLE)}...` : title;
  return { [METADATA]: { displayName } };
}

function isAnswer(event: SessionEvent): boolean {
  const parts = event.content?.parts ?? [];
  return parts.length > 0 && parts.every((part) => part.functionResponse);
}

function asCall(value: Json | undefined): FunctionCall {
  const { id, name, args } = asObject(value);
  return { id: typeof id === "string" ? id : undefined, name: typeof name === "string" ? name : "?", args: asObject(args) };
}

type CallItem = ItemOf<"tool"> | ItemOf<"confirmation"> | ItemOf<"credential">;

/** Builds the items of turns. Responses are joined with their calls by id. */
class Builder {
  readonly turns: Turn[] = [];
  #calls = new Map<string, CallItem>();

  #turn(event: SessionEvent, message?: SessionEvent): Turn {
    const last = this.turns.at(-1);
    if (last && !message) return last;
    const turn: Turn = {
      key: `turn-${this.turns.length}`,
      message,
      items: [],
      start: event.timestamp,
      end: event.timestamp,
      tokens: 0,
    };
    this.turns.push(turn);
    return turn;
  }

  add(event: SessionEvent): void {
    const isMessage = event.author === "user" && !isAnswer(event) && (event.content?.parts?.length ?? 0) > 0;
    const turn = this.#turn(event, isMessage ? event : undefined);
    turn.end = Math.max(turn.end, event.timestamp);
    if (!event.partial) turn.tokens += event.usageMetadata?.totalTokenCount ?? 0;
    if (isMessage) {
      for (const call of this.#calls.values()) {
        if (call.kind === "confirmation" && call.decision === "open") call.decision = "superseded";
        if (call.kind === "credential" && call.state === "open") call.state = "superseded";
      }
    } else {
      (event.content?.parts ?? []).forEach((part, index) => this.#part(turn, event, part, index));
    }
    this.#progress(event);
    this.#actions(turn, event);
    if (event.errorCode === "CANCELLED") {
      turn.items.push({ ...base(event, "cancelled"), kind: "cancelled" });
    } else if (event.errorCode || event.errorMessage) {
      const message = event.errorMessage ?? "The run failed.";
      turn.items.push({ ...base(event, "error"), kind: "error", code: event.errorCode ?? "ERROR", message });
    }
  }

  #part(turn: Turn, event: SessionEvent, part: Part, index: number): void {
    const common = base(event, String(index));
    if (part.text) {
      const isThought = Boolean(part.thought);
      turn.items.push({ ...common, kind: "text", text: part.text, isThought, isPartial: Boolean(event.partial) });
    } else if (part.functionCall) {
      this.#call(turn, event, part.functionCall, common);
    } else if (part.functionResponse) {
      this.#response(turn, event, part.functionResponse, common);
    } else if (part.inlineData || part.fileData) {
      turn.items.push({ ...common, kind: "file", part });
    } else if (part.executableCode) {
      const { code, language } = part.executableCode;
      turn.items.push({ ...common, kind: "code", code, language: language ?? "" });
    } else if (part.codeExecutionResult) {
      const { output, outcome } = part.codeExecutionResult;
      turn.items.push({ ...common, kind: "output", output: output ?? "", outcome: outcome ?? "" });
    }
  }

  #call(turn: Turn, event: SessionEvent, call: FunctionCall, common: Base): void {
    const isLongRunning = Boolean(call.id && event.longRunningToolIds?.includes(call.id));
    let item: CallItem;
    if (call.name === CONFIRMATION) {
      const { hint, payload } = asObject(call.args?.toolConfirmation);
      const original = asCall(call.args?.originalFunctionCall);
      this.#asks(original.id, "consent");
      item = {
        ...common,
        kind: "confirmation",
        call,
        original,
        hint: typeof hint === "string" && !DEFAULT_HINT.test(hint) ? hint : "",
        payload: payload ?? undefined,
        decision: "open",
      };
    } else if (call.name === CREDENTIAL && isLongRunning) {
      const { functionCallId } = call.args ?? {};
      const tool = this.#asks(typeof functionCallId === "string" ? functionCallId : undefined, "credential");
      item = { ...common, kind: "credential", call, requester: tool ?? event.author, state: "open" };
    } else {
      item = { ...common, kind: "tool", call, isLongRunning };
    }
    turn.items.push(item);
    if (call.id) this.#calls.set(call.id, item);
  }

  /** Marks the call of a tool as waiting for a person. Returns the name of the tool. */
  #asks(id: string | undefined, question: Question): string | undefined {
    const asking = id === undefined ? undefined : this.#calls.get(id);
    if (asking?.kind !== "tool") return undefined;
    asking.asksFor = question;
    return asking.call.name;
  }

  #response(turn: Turn, event: SessionEvent, { id, name, response }: NonNullable<Part["functionResponse"]>, common: Base): void {
    const item = id === undefined ? undefined : this.#calls.get(id);
    if (item?.kind === "confirmation") {
      item.decision = asObject(response).confirmed === true ? "agreed" : "denied";
    } else if (item?.kind === "credential") {
      item.state = stateAfter(asObject(response));
    } else if (item) {
      // The first response of a call that waits for a person reports that, the next one is its result.
      if (item.response !== undefined) item.asksFor = undefined;
      item.response = response ?? null;
      item.answeredAt = event.timestamp;
    } else {
      turn.items.push({ ...common, kind: "tool", call: { id, name }, response: response ?? null, isLongRunning: false });
    }
  }

  #progress(event: SessionEvent): void {
    const progress = progressOf(event);
    const item = progress && this.#calls.get(progress.call);
    if (item?.kind === "tool") item.progress = progress;
  }

  #actions(turn: Turn, event: SessionEvent): void {
    if (event.partial) return;
    const { transferToAgent, artifactDelta } = event.actions ?? {};
    if (transferToAgent) turn.items.push({ ...base(event, "transfer"), kind: "transfer", to: transferToAgent });
    for (const [name, version] of Object.entries(artifactDelta ?? {})) {
      turn.items.push({ ...base(event, `artifact-${name}`), kind: "artifact", name, version });
    }
    const delta = visibleDelta(event);
    if (Object.keys(delta).length > 0) turn.items.push({ ...base(event, "state"), kind: "state", delta });
  }
}

function base(event: SessionEvent, suffix: string): Base {
  return { key: `${event.id}:${suffix}`, event, author: event.author };
}

export function buildTurns(events: readonly SessionEvent[]): Turn[] {
  const builder = new Builder();
  for (const event of events) builder.add(withSpeech(event));
  return builder.turns;
}

/** Returns the confirmations that wait for a person. */
export function openConfirmations(turns: readonly Turn[]): ItemOf<"confirmation">[] {
  const items = turns.flatMap((turn) => turn.items);
  return items.filter((item): item is ItemOf<"confirmation"> => item.kind === "confirmation" && item.decision === "open");
}

/** Returns the requests for credentials that wait for a person. */
export function openCredentials(turns: readonly Turn[]): ItemOf<"credential">[] {
  const items = turns.flatMap((turn) => turn.items);
  return items.filter((item): item is ItemOf<"credential"> => item.kind === "credential" && item.state === "open");
}

/** Returns whether the last item of a turn is this failure of its run. */
export function isReported(turn: Turn | undefined, failure: { code: string; message: string }): boolean {
  const last = turn?.items.at(-1);
  return last?.kind === "error" && last.code === failure.code && last.message === failure.message;
}

/** Returns the message that answers a confirmation. */
export function confirmationAnswer(item: ItemOf<"confirmation">, confirmed: boolean, payload?: Json): Part[] {
  const response: JsonObject = { confirmed };
  if (payload !== undefined) response.payload = payload;
  return [{ functionResponse: { id: item.call.id, name: CONFIRMATION, response } }];
}

/** Returns whether the result of a tool is an error, as the host reports it. */
export function toolError(response: Json | undefined): string | undefined {
  const error = asObject(response).error;
  if (typeof error === "string") return error;
  return error === undefined || error === null ? undefined : JSON.stringify(error);
}

/** Returns the text of a message. */
export function messageText(event: SessionEvent): string {
  return (event.content?.parts ?? []).map((part) => part.text ?? "").join("");
}

/** Returns the title of a session that a client has set, or its id. */
export function sessionTitle(state: JsonObject, id: string): string {
  const { displayName } = asObject(state[METADATA]);
  return typeof displayName === "string" && displayName !== "" ? displayName : id;
}
