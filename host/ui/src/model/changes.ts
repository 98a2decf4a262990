// The changes of components between two reports of the catalog.

import type { Catalog } from "../api/types";

export type ChangeKind = "added" | "replaced" | "removed" | "rejected" | "recovered";

export interface Change {
  kind: ChangeKind;
  /** The component, or the file of a YAML agent. */
  name: string;
  /** Seconds since 1970, by the clock of the host if the change has a time. */
  time: number;
  from?: string;
  to?: string;
  reason?: string;
}

/** Returns the changes from one report to the next, in the order of names. */
export function findChanges(before: Catalog, after: Catalog, now: number): Change[] {
  const changes: Change[] = [];
  const old = new Map(before.components.map((component) => [component.name, component]));
  const files = new Map(after.files.map((file) => [file.path, file]));
  for (const { name, sha256, file } of after.components) {
    const known = old.get(name);
    const time = files.get(file)?.since ?? now;
    if (!known) changes.push({ kind: "added", name, time, to: sha256 });
    else if (known.sha256 !== sha256) changes.push({ kind: "replaced", name, time, from: known.sha256, to: sha256 });
    old.delete(name);
  }
  for (const { name, sha256 } of old.values()) changes.push({ kind: "removed", name, time: now, from: sha256 });
  const states = new Map(before.files.map((file) => [file.path, file]));
  for (const file of after.files) {
    const known = states.get(file.path);
    if (isRejected(file.state)) {
      const isNew = known?.state !== file.state || known.reason !== file.reason;
      if (isNew) changes.push({ kind: "rejected", name: file.name, time: file.since, reason: file.reason });
    } else if (file.state === "loaded" && known && isRejected(known.state)) {
      const isReplaced = changes.some((change) => change.name === file.name && change.kind !== "removed");
      if (!isReplaced) changes.push({ kind: "recovered", name: file.name, time: file.since, to: file.sha256 });
    }
  }
  return changes;
}

export function isRejected(state: string): boolean {
  return state === "rejected" || state === "conflict";
}
