// The events of a session: the stored ones in order, the partial ones merged until their final event arrives.

import type { Part, SessionEvent } from "../api/types";
import { progressOf } from "./tool-progress";
import { shownEvent } from "./transcription";

/** Appends the text of a partial event to the earlier parts. Calls are only complete in the final event. */
function mergePartial(known: SessionEvent | undefined, event: SessionEvent): SessionEvent {
  const parts: Part[] = [...(known?.content?.parts ?? [])];
  for (const part of event.content?.parts ?? []) {
    const last = parts.at(-1);
    if (part.text === undefined) continue;
    if (last?.text !== undefined && Boolean(last.thought) === Boolean(part.thought)) {
      parts[parts.length - 1] = { ...last, text: last.text + part.text };
    } else {
      parts.push({ text: part.text, thought: part.thought });
    }
  }
  return { ...event, content: { role: event.content?.role, parts } };
}

/** Ids of messages that the page shows before the host has stored them. */
const LOCAL = "local-";

export function localMessage(parts: Part[], now: number): SessionEvent {
  const actions = { stateDelta: {}, artifactDelta: {} };
  return { id: `${LOCAL}${now}`, invocationId: "", author: "user", timestamp: now, content: { role: "user", parts }, actions };
}

/** Returns whether the host has not stored an event. */
export const isLocal = (event: SessionEvent) => event.id.startsWith(LOCAL);

/** Returns the event as the log keeps it. All reports about the progress of a call have one id, so that the newest replaces the others. */
function keptEvent(event: SessionEvent): SessionEvent | undefined {
  const progress = progressOf(event);
  return progress ? { ...event, id: `progress-${progress.call}` } : shownEvent(event);
}

const textOf = ({ content }: SessionEvent) => (content?.parts ?? []).map((part) => part.text ?? "").join("");

/** An immutable list of events. Adding an event returns a new list. */
export class EventLog {
  private constructor(
    readonly events: readonly SessionEvent[],
    private readonly index: ReadonlyMap<string, number>,
  ) {}

  static of(events: readonly SessionEvent[]): EventLog {
    return new EventLog(events, new Map(events.map((event, index) => [event.id, index])));
  }

  /** Adds an event of a stream. A final event replaces its partial events; an event that the log has is ignored. */
  add(received: SessionEvent): EventLog {
    const event = keptEvent(received);
    if (!event) return this;
    const index = this.index.get(event.id);
    const known = index === undefined ? undefined : this.events[index];
    if (known && !known.partial) return this;
    const next = event.partial ? mergePartial(known, event) : event;
    if (index === undefined) return EventLog.of([...this.events, next]);
    const events = [...this.events];
    events[index] = next;
    return new EventLog(events, this.index);
  }

  /** Returns the log without partial events. */
  withoutPartial(): EventLog {
    return EventLog.of(this.events.filter((event) => !event.partial));
  }

  /**
   * Merges stored events: they replace events with the same id and all events that were never stored. Events that have
   * arrived since `asked`, the log at the time of the request, stay.
   */
  merge(stored: readonly SessionEvent[], asked: EventLog = this): EventLog {
    const known = new Set(stored.map((event) => event.id));
    const old = new Set(asked.events);
    const messages = new Set(stored.filter(({ author, id }) => author === "user" && !asked.index.has(id)).map(textOf));
    const isUnstored = (event: SessionEvent) => Boolean(event.partial) || isLocal(event);
    const others = this.events.filter((event) => !known.has(event.id));
    const sorted = [...others.filter((event) => !isUnstored(event)), ...stored].sort((one, other) => one.timestamp - other.timestamp);
    const arrived = others.filter((event) => isUnstored(event) && !old.has(event) && !(isLocal(event) && messages.has(textOf(event))));
    return EventLog.of([...sorted, ...arrived]);
  }

  /** Returns the time of the last stored event in seconds. Only later events can be missing. */
  get lastStored(): number | undefined {
    return this.events.findLast((event) => !event.partial && !isLocal(event))?.timestamp;
  }
}
