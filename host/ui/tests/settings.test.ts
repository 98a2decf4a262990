import { expect, test } from "vitest";
import type { Setting } from "../src/api/types";
import { groupSettings, originText, valueText } from "../src/model/settings";

const settings: Setting[] = [
  { key: "port", value: "8080", origin: { kind: "default" } },
  { key: "server.auth.keys", origin: { kind: "file", line: 7 } },
  { key: "server.max_connections", value: 7, origin: { kind: "file", line: 3 } },
  { key: "session_service", value: "memory:", origin: { kind: "flag", flag: "--session-service" } },
  { key: "models.ollama_base_url", value: "http://gpu", origin: { kind: "environment", variable: "OLLAMA_BASE_URL" } },
];

test("settings are in the section of their key, those without one first", () => {
  const names = (search: string, onlySet: boolean) => groupSettings(settings, search, onlySet).map(({ name, settings }) => [name, settings.length]);
  expect(names("", false)).toEqual([["", 2], ["server", 2], ["models", 1]]);
  expect(names("", true)).toEqual([["", 1], ["server", 2], ["models", 1]]);
  expect(names("OLLAMA_base", false)).toEqual([["models", 1]]);
});

test("an origin is the line of the file, the variable or the flag", () => {
  expect(settings.map((setting) => originText(setting, "/srv/agents/hatchery.yaml"))).toEqual([
    "default",
    "hatchery.yaml:7",
    "hatchery.yaml:3",
    "--session-service",
    "OLLAMA_BASE_URL",
  ]);
  expect(settings.map(valueText)).toEqual(["8080", undefined, "7", "memory:", "http://gpu"]);
});
