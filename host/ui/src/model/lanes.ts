// The revisions of components over time, derived from the events of the host.

import type { HostEvent } from "../api/types";

export interface Block {
  sha256: string;
  /** Seconds since 1970. */
  start: number;
  /** `undefined` while it serves. */
  end?: number;
}

export interface Mark {
  time: number;
  /** Why a file was rejected. */
  reason: string;
}

export interface Lane {
  name: string;
  blocks: Block[];
  marks: Mark[];
}

/** Returns a lane for each component whose code has changed or whose file was rejected, by name. */
export function buildLanes(hostEvents: readonly HostEvent[]): Lane[] {
  const lanes = new Map<string, Lane>();
  const lane = (name: string) => {
    const known = lanes.get(name) ?? { name, blocks: [], marks: [] };
    lanes.set(name, known);
    return known;
  };
  const end = ({ blocks }: Lane, time: number) => {
    const last = blocks.at(-1);
    if (last && last.end === undefined) last.end = time;
  };
  for (const event of [...hostEvents].sort((one, other) => one.id - other.id)) {
    const { time } = event;
    switch (event.kind) {
      case "componentAdded":
        lane(event.name).blocks.push({ sha256: event.sha256, start: time });
        break;
      case "componentReplaced": {
        const replaced = lane(event.name);
        end(replaced, time);
        replaced.blocks.push({ sha256: event.to, start: time });
        break;
      }
      case "componentRemoved":
        end(lane(event.name), time);
        break;
      case "fileRejected":
        lane(event.name).marks.push({ time, reason: event.reason });
        break;
      case "fileLoading":
      case "fileLoaded":
      case "fileRemoved":
      case "revisionDrained":
      case "runEnded":
      case "callFailed":
    }
  }
  const hasChanged = ({ blocks, marks }: Lane) => blocks.length > 1 || marks.length > 0 || blocks.some(({ end }) => end !== undefined);
  return [...lanes.values()].filter(hasChanged).sort((one, other) => one.name.localeCompare(other.name));
}

/** Returns the start of the time axis: a little before the first change. */
export function beginOf(lanes: readonly Lane[], now: number): number {
  const times = lanes.flatMap(({ blocks, marks }) => [...blocks.slice(1).map(({ start }) => start), ...blocks.flatMap(({ end }) => end ?? []), ...marks.map(({ time }) => time)]);
  const first = Math.min(now, ...times);
  return first - Math.max(5, (now - first) * 0.15);
}
