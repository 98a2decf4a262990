// The fuzzy search of the command palette over pages, apps, components and sessions.

import type { App, Catalog, Session } from "../api/types";
import { sessionTitle } from "./conversation";
import type { Route } from "./route";

export interface Entry {
  key: string;
  title: string;
  kind: string;
  route: Route;
}

export const PAGES: readonly [name: string, key: string, route: Route][] = [
  ["Chat", "c", { page: "chat" }],
  ["Runs", "r", { page: "runs" }],
  ["Sessions", "s", { page: "sessions" }],
  ["Agents", "a", { page: "agents" }],
  ["Evals", "e", { page: "evals" }],
  ["Usage", "u", { page: "usage" }],
  ["Build", "b", { page: "build" }],
  ["Components", "k", { page: "components" }],
  ["Settings", "o", { page: "settings" }],
];

export function buildEntries(catalog: Catalog | undefined, apps: readonly App[], sessions: readonly Session[]): Entry[] {
  const entry = (kind: string, title: string, route: Route): Entry => ({ key: JSON.stringify(route), title, kind, route });
  return [
    ...PAGES.map(([name, , route]) => entry("page", name, route)),
    ...apps.map(({ name }) => entry("chat", name, { page: "chat", app: name })),
    ...apps.map(({ name }) => entry("agents", name, { page: "agents", app: name })),
    ...apps.map(({ name }) => entry("evals", name, { page: "evals", app: name })),
    ...(catalog?.components ?? []).map(({ name }) => entry("component", name, { page: "component", name })),
    ...sessions.map(({ appName, userId, id, state }) =>
      entry("session", sessionTitle(state, id), { page: "chat", app: appName, user: userId, session: id }),
    ),
  ];
}

/** Returns the score of a title for a query, higher is better; `undefined` if a letter is missing. */
function score(title: string, letters: string): number | undefined {
  const text = title.toLowerCase();
  const at = text.indexOf(letters);
  if (at !== -1) return 1000 - at - text.length / 100 + (at === 0 ? 500 : 0);
  let [sum, from] = [0, 0];
  for (const letter of letters) {
    const index = text.indexOf(letter, from);
    if (index === -1) return undefined;
    // Letters at the beginning of words and consecutive letters score higher.
    sum += index === from ? 4 : /[^a-z0-9]/.test(text[index - 1] ?? " ") ? 3 : 1;
    from = index + 1;
  }
  return sum - text.length / 100;
}

/** Returns the entries that match, the best first. All words must match the title or the kind. */
export function findEntries(entries: readonly Entry[], query: string, limit = 12): Entry[] {
  const words = query.trim().toLowerCase().split(/\s+/).filter((word) => word !== "");
  const found = entries.flatMap((entry) => {
    let sum = 0;
    for (const word of words) {
      const fit = score(entry.title, word) ?? (entry.kind.startsWith(word) ? 10 : undefined);
      if (fit === undefined) return [];
      sum += fit;
    }
    return [{ entry, sum }];
  });
  return found
    .sort((one, other) => other.sum - one.sum)
    .slice(0, limit)
    .map(({ entry }) => entry);
}

/** Scrolls a list no further than necessary to show one of its entries. */
export function showEntry(list: { children: ArrayLike<Pick<Element, "scrollIntoView">> } | undefined, index: number): void {
  list?.children[index]?.scrollIntoView({ block: "nearest" });
}
