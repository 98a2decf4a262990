// The rows of the list of components: each file with its items, and the grants of one component.

import type { Catalog, ComponentEntry, Draining, FileEntry, Grants } from "../api/types";

export interface ComponentRow {
  name: string;
  file?: FileEntry;
  component?: ComponentEntry;
  draining: Draining[];
}

/** Returns components and files by name. Rejected files come first. */
export function componentRows(catalog: Catalog): ComponentRow[] {
  const rows: ComponentRow[] = [];
  const unclaimed = new Map(catalog.files.map((file) => [file.path, file]));
  const draining = (name: string) => catalog.draining.filter((revision) => revision.name === name);
  for (const component of catalog.components) {
    const file = unclaimed.get(component.file);
    unclaimed.delete(component.file);
    rows.push({ name: component.name, component, file, draining: draining(component.name) });
  }
  for (const file of unclaimed.values()) rows.push({ name: file.name, file, draining: [] });
  const rank = ({ file }: ComponentRow) => (file?.reason ? 0 : 1);
  return rows.sort((one, other) => rank(one) - rank(other) || one.name.localeCompare(other.name));
}

/** The end of a warning about a model: the apps that use it. */
const USERS = / \(used by ([^()]*)\)$/;

/** Returns the problems of the models that an app uses. */
export function modelProblems({ warnings = [] }: Catalog, app: string): string[] {
  const concerned = warnings.filter((warning) => USERS.exec(warning)?.[1]?.split(", ").includes(`\`${app}\``));
  return concerned.map((warning) => warning.replace(USERS, ""));
}

/** The items of a component, as pairs of a kind and names. */
export function offers(component: ComponentEntry): [string, string[]][] {
  const kinds: [string, string[]][] = [
    ["agents", component.agents],
    ["tools", component.tools],
    ["callbacks", component.callbacks],
    ["plugins", component.plugins],
    ["models", component.models],
    ["code executors", component.codeExecutors],
    ["summarizers", component.summarizers],
    ["examples", component.examples],
  ];
  return kinds.filter(([, names]) => names.length > 0);
}

export type GrantState = "granted" | "missing" | "unused";

export interface GrantRow {
  key: string;
  entry: string;
  state: GrantState;
  why?: string;
  /** How often it has allowed something. `undefined` if it is not granted, or the host does not count it. */
  used?: number;
  /** How often something was refused because an entry of a missing key is not granted. */
  refused?: number;
}

/** Access whose use the host cannot count: it is given when an instance starts, or added to requests. */
const UNCOUNTED = new Set(["environment", "files", "private_network", "secrets", "idempotency_keys"]);

/** Returns the keys whose refusals no row shows, as the component has not requested the access, with their numbers. */
export function unrequestedRefusals(grants: Grants): [key: string, count: number][] {
  const shown = new Set(grantRows(grants).flatMap(({ key, refused }) => (refused === undefined ? [] : keysAllowedBy(key))));
  return Object.entries(grants.refused ?? {}).filter(([key, count]) => count > 0 && !shown.has(key));
}

/** Returns the keys of the access that an entry of `key` grants: what may be written may be read, too. */
function keysAllowedBy(key: string): string[] {
  return key.endsWith(".write") ? [key, key.replace(/write$/, "read")] : [key];
}

/** Returns one row for each entry: missing ones first, then granted ones, then those that were not requested. */
export function grantRows({ requested, granted, missing, unused, why, used, refused }: Grants): GrantRow[] {
  const rows: GrantRow[] = [];
  const push = (entries: { [key: string]: string[] }, state: GrantState) => {
    for (const [key, values] of Object.entries(entries)) {
      for (const entry of values) {
        const isKnown = rows.some((row) => row.key === key && row.entry === entry);
        // A reason is stated for `state`, not for `state.write`.
        if (isKnown) continue;
        const row: GrantRow = { key, entry, state, why: why[key] ?? why[key.split(".")[0] ?? key] };
        if (state === "missing") {
          const count = keysAllowedBy(key).reduce((sum, key) => sum + (refused?.[key] ?? 0), 0);
          if (count > 0) row.refused = count;
        }
        if (granted[key]?.includes(entry) && !UNCOUNTED.has(key)) row.used = used?.[key]?.[entry] ?? 0;
        rows.push(row);
      }
    }
  };
  push(missing, "missing");
  push(unused, "unused");
  push(granted, "granted");
  push(requested ?? {}, "granted");
  const order: GrantState[] = ["missing", "granted", "unused"];
  return rows.sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
}
