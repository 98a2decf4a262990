// The settings of the host, by section.

import type { Setting } from "../api/types";

export interface Section {
  name: string;
  settings: Setting[];
}

/** Returns the source of a setting for display. */
export function originText({ origin }: Setting, file: string | undefined): string {
  switch (origin.kind) {
    case "default":
      return "default";
    case "file":
      return `${file?.split("/").at(-1) ?? "hatchery.yaml"}:${origin.line}`;
    case "environment":
      return origin.variable;
    case "flag":
      return origin.flag;
  }
}

export function valueText(setting: Setting): string | undefined {
  const { value } = setting;
  if (value === undefined) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns the settings by the first part of their key. Settings without a section come first. */
export function groupSettings(settings: readonly Setting[], search: string, onlySet: boolean): Section[] {
  const words = search.trim().toLowerCase();
  const sections = new Map<string, Setting[]>([["", []]]);
  for (const setting of settings) {
    if (onlySet && setting.origin.kind === "default") continue;
    const text = `${setting.key} ${valueText(setting) ?? ""} ${originText(setting, undefined)}`;
    if (!text.toLowerCase().includes(words)) continue;
    const dot = setting.key.indexOf(".");
    const name = dot === -1 ? "" : setting.key.slice(0, dot);
    sections.set(name, [...(sections.get(name) ?? []), setting]);
  }
  return [...sections].filter(([, settings]) => settings.length > 0).map(([name, settings]) => ({ name, settings }));
}
