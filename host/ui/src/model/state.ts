// The state of a session by scope.

import type { Json, JsonObject } from "../api/types";
import { visibleState } from "./conversation";

export interface Scope {
  scope: string;
  entries: [string, Json][];
}

const SCOPES: [string, string][] = [
  ["user:", "User: in all sessions of this user"],
  ["app:", "App: for all users"],
  ["temp:", "Run: until it ends"],
];
const SESSION = "Session";

/** Returns the scopes that have entries. Keys are sorted and keep their prefix. */
export function stateScopes(state: JsonObject): Scope[] {
  const names = [SESSION, ...SCOPES.map(([, name]) => name)];
  const scopeOf = (key: string) => SCOPES.find(([prefix]) => key.startsWith(prefix))?.[1] ?? SESSION;
  const entries = Object.entries(visibleState(state)).sort(([one], [other]) => one.localeCompare(other));
  const scopes = names.map((scope) => ({ scope, entries: entries.filter(([key]) => scopeOf(key) === scope) }));
  return scopes.filter(({ entries }) => entries.length > 0);
}
