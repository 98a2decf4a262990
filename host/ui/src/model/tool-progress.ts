// The progress of tool calls, which partial events report in their custom metadata.

import { asObject } from "../api/json";
import type { SessionEvent } from "../api/types";

export interface ToolProgress {
  /** The id of the call. */
  call: string;
  /** The amount done, in a unit of the tool. */
  amount: number;
  total?: number;
  message: string;
}

/** Returns the progress that an event reports. */
export function progressOf(event: SessionEvent): ToolProgress | undefined {
  if (!event.partial) return undefined;
  const { id, progress, total, message } = asObject(event.customMetadata?.tool_progress);
  if (typeof id !== "string" || typeof progress !== "number") return undefined;
  return {
    call: id,
    amount: progress,
    total: typeof total === "number" && total > 0 ? total : undefined,
    message: typeof message === "string" ? message : "",
  };
}

/** Returns the done share from 0 to 1; `undefined` if the total is not known. */
export function shareOf({ amount, total }: ToolProgress): number | undefined {
  return total === undefined ? undefined : Math.min(1, Math.max(0, amount / total));
}

/** Returns the text beside the bar: the message of the tool, or else the amount. */
export function progressText(progress: ToolProgress): string {
  if (progress.message !== "") return progress.message;
  const share = shareOf(progress);
  return share === undefined ? String(progress.amount) : `${Math.floor(100 * share)} %`;
}
