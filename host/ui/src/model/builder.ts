// The editor of YAML apps: changed files, places in texts, and the names that an agent can use.

import type { Texts } from "../api/builder";
import type { AppFile } from "../api/types";
import type { Catalog } from "../api/types";

export const ROOT_FILE = "root_agent.yaml";

/** Returns the apps that are made of YAML files. */
export function yamlApps(catalog: Catalog | undefined): string[] {
  const roots = (catalog?.files ?? []).filter(({ path }) => path === ROOT_FILE || path.endsWith(`/${ROOT_FILE}`));
  return [...new Set(roots.map(({ name }) => name))].sort();
}

/** Returns the files of a new app whose model needs no API key. */
export function newApp(name: string): Texts {
  return {
    [ROOT_FILE]: `name: ${name.replace(/-/g, "_")}\ndescription: Answers questions.\nmodel: scripted:${name}/answers.yaml\ninstruction: |\n  Answer in one sentence.\n`,
    "answers.yaml": "turns:\n  - reply: Hello. Change answers.yaml, or the model in root_agent.yaml.\n",
  };
}

/** Returns the problem with the name of a new app, or `undefined` if it is valid. */
export function nameProblem(name: string, existing: readonly string[]): string | undefined {
  if (!/^[A-Za-z][A-Za-z0-9_-]{0,99}$/.test(name)) return "A name begins with a letter and has letters, digits, _ and -.";
  return existing.includes(name) ? `There is an app ${name} already.` : undefined;
}

/** Returns the problem with the path of a new file, or `undefined` if it is valid. */
export function pathProblem(path: string, existing: readonly string[]): string | undefined {
  const isPlain = path.split("/").every((part) => /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/.test(part));
  if (!isPlain || !/\.ya?ml$/.test(path)) return "A file is a relative path that ends in .yaml.";
  return existing.includes(path) ? `There is a file ${path} already.` : undefined;
}

/** Returns the texts that differ from the files. */
export function changedTexts(files: readonly AppFile[], texts: Texts): Texts {
  const stored = new Map(files.map(({ path, text }) => [path, text]));
  return Object.fromEntries(Object.entries(texts).filter(([path, text]) => stored.get(path) !== text));
}

/** Returns the hashes of the files that would be replaced. */
export function knownHashes(files: readonly AppFile[], changed: Texts): Texts {
  return Object.fromEntries(files.filter(({ path }) => path in changed).map(({ path, sha256 }) => [path, sha256]));
}

/** Returns the index in a text of a line and a column, which count from 1. */
export function indexOf(text: string, line: number, column = 1): number {
  let index = 0;
  for (let current = 1; current < line; current += 1) {
    const end = text.indexOf("\n", index);
    if (end === -1) return text.length;
    index = end + 1;
  }
  const end = text.indexOf("\n", index);
  return Math.min(index + column - 1, end === -1 ? text.length : end);
}

/** Returns the names that YAML agents can refer to, by kind. */
export function usableNames(catalog: Catalog | undefined): [kind: string, names: string[]][] {
  const components = catalog?.components ?? [];
  const qualified = (read: (component: Catalog["components"][number]) => string[]) =>
    components.flatMap((component) => read(component).map((name) => `${component.name}/${name}`));
  const kinds: [string, string[]][] = [
    ["tools", qualified(({ tools }) => tools)],
    ["agents", qualified(({ agents }) => agents)],
    ["callbacks", qualified(({ callbacks }) => callbacks)],
    ["models", components.flatMap(({ name, models }) => models.map((model) => `component:${name}/${model}`))],
  ];
  return kinds.filter(([, names]) => names.length > 0);
}
