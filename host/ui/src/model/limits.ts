// The resource usage of a component's calls compared with their limits.

import type { ComponentDetail } from "../api/types";
import { formatBytes, formatDuration } from "./format";

export interface LimitRow {
  name: string;
  /** The key in `hatchery.yaml`. */
  key: string;
  limit: string;
  /** The 99th percentile and the maximum. `undefined` without a call, or if the host does not measure it. */
  p99?: string;
  max?: string;
  /** The maximum divided by the limit, at most 1. */
  share?: number;
  /** Whether a call has come close to the limit. */
  isTight: boolean;
  /** Number of calls that ended at the limit. */
  hits: number;
}

/** The fraction of a limit from which on a maximum is close to it. */
const TIGHT = 0.8;

/** Returns the limits of a component with the usage of its calls, and other limits at which calls have ended. */
export function limitRows({ limits, usage }: Pick<ComponentDetail, "limits" | "usage">): LimitRow[] {
  const rows: LimitRow[] = [];
  const add = (name: string, key: string, limit: number, format: (value: number) => string, used?: { p99: number; max: number }) => {
    const share = used && Math.min(1, used.max / limit);
    rows.push({
      name,
      key,
      limit: format(limit),
      p99: used && format(used.p99),
      max: used && format(used.max),
      share,
      isTight: share !== undefined && share >= TIGHT,
      hits: usage.limitHits[key] ?? 0,
    });
  };
  add("memory", "limits.memory", limits.memory, formatBytes, usage.memory);
  add("CPU time of a call", "limits.cpu", limits.cpuSeconds, formatDuration, usage.cpuSeconds);
  add("time of a call", "limits.wall", limits.wallSeconds, formatDuration, usage.wallSeconds);
  add("time of an agent", "limits.agent_wall", limits.agentWallSeconds, formatDuration, usage.agentWallSeconds);
  add("result", "limits.result", limits.result, formatBytes);
  add("log", "limits.log", limits.log, formatBytes);
  const known = new Set(rows.map(({ key }) => key));
  for (const [key, hits] of Object.entries(usage.limitHits)) {
    if (!known.has(key)) rows.push({ name: key === "fixed" ? "fixed limits" : key, key, limit: "", isTight: false, hits });
  }
  return rows;
}
