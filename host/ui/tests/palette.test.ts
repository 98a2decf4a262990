import { describe, expect, it, vi } from "vitest";
import type { Session } from "../src/api/types";
import { changedTexts, indexOf, knownHashes, nameProblem, newApp, pathProblem, usableNames, yamlApps } from "../src/model/builder";
import { buildEntries, findEntries, PAGES, showEntry } from "../src/model/palette";
import { formFields, readForm } from "../src/model/schema-form";

const file = (path: string, name: string) => ({ path, name, state: "loaded" as const, since: 0 });
const none = { agents: [], tools: [], callbacks: [], plugins: [], codeExecutors: [], summarizers: [], examples: [], models: [] };
const catalog = {
  generation: 1,
  components: [{ ...none, name: "help-desk", file: "help-desk.wasm", sha256: "", calls: 0, waitingInstances: 0, tools: ["refund"], models: ["rules"] }],
  files: [file("trip/root_agent.yaml", "trip"), file("help-desk.wasm", "help-desk")],
  draining: [],
  apps: [],
};

describe("the palette", () => {
  const app = { name: "help-desk", rootAgentName: "x", description: "", isComputerUse: false, agents: [] };
  const session = { appName: "help-desk", userId: "me", id: "s-1", state: { __session_metadata__: { displayName: "Refund order 7" } } };
  const entries = buildEntries(catalog, [app], [session as unknown as Session]);

  it("finds places by their letters, the best first", () => {
    const titles = (query: string) => findEntries(entries, query).map(({ title, kind }) => `${kind} ${title}`);
    expect(titles("usage")[0]).toBe("page Usage");
    expect(titles("hd")).toContain("component help-desk");
    expect(titles("component help")).toEqual(["component help-desk"]);
    expect(titles("refund")[0]).toBe("session Refund order 7");
    expect(titles("zzz")).toEqual([]);
    expect(titles("").length).toBe(12);
  });

  it("scrolls no further than to the selected entry", () => {
    const children = entries.map(() => ({ scrollIntoView: vi.fn() }));
    showEntry({ children }, 1);
    expect(children.flatMap(({ scrollIntoView }) => scrollIntoView.mock.calls)).toEqual([[{ block: "nearest" }]]);
    expect(children[1]!.scrollIntoView).toHaveBeenCalledOnce();
    // Nothing is found, or the palette is not there yet.
    showEntry({ children: [] }, 0);
    showEntry(undefined, 0);
  });

  it("has a different key for each page", () => {
    expect(new Set(PAGES.map(([, key]) => key)).size).toBe(PAGES.length);
  });
});

describe("the form of a tool", () => {
  const schema = {
    type: "object",
    required: ["sides", "note"],
    properties: {
      sides: { type: "integer", default: 6, description: "Sides of the die." },
      note: { type: "STRING" },
      mode: { type: "string", enum: ["fair", "loaded"] },
      loud: { type: ["boolean", "null"] },
      numbers: { type: "array", default: [1, 2] },
    },
  };
  const fields = formFields(schema)!;

  it("has a field for each property", () => {
    expect(fields.map(({ name, kind, initial, isRequired }) => [name, kind, initial, isRequired])).toEqual([
      ["sides", "number", "6", true],
      ["note", "text", "", true],
      ["mode", "choice", "", false],
      ["loud", "boolean", "", false],
      ["numbers", "json", "[1,2]", false],
    ]);
    expect([formFields(undefined), formFields({ type: "object" }), formFields({ oneOf: [] }), formFields([])]).toEqual([[], [], undefined, undefined]);
  });

  it("gives typed arguments, without empty ones", () => {
    expect(readForm(fields, { sides: "20", note: "", mode: "fair", loud: "false", numbers: "[3]" })).toEqual({ sides: 20, note: "", mode: "fair", loud: false, numbers: [3] });
    expect(readForm(fields, { note: "x" })).toEqual({ note: "x" });
    expect(() => readForm(fields, { sides: "six" })).toThrow("sides is not a number.");
    expect(() => readForm(fields, { numbers: "[" })).toThrow("numbers is not JSON.");
  });
});

describe("the builder", () => {
  it("knows the apps of YAML files, and names that they can use", () => {
    expect(yamlApps(catalog)).toEqual(["trip"]);
    expect(usableNames(catalog)).toEqual([["tools", ["help-desk/refund"]], ["models", ["component:help-desk/rules"]]]);
  });

  it("sends only changed files, with the hashes of what they replace", () => {
    const files = [{ path: "a.yaml", text: "1", sha256: "aa" }, { path: "b.yaml", text: "2", sha256: "bb" }];
    const changed = changedTexts(files, { "a.yaml": "1", "b.yaml": "3", "c.yaml": "4" });
    expect([changed, knownHashes(files, changed)]).toEqual([{ "b.yaml": "3", "c.yaml": "4" }, { "b.yaml": "bb" }]);
  });

  it("refuses names and paths that the host would refuse", () => {
    expect([nameProblem("trip-2", ["trip"]), nameProblem("trip", ["trip"]), nameProblem("../x", [])]).toEqual([
      undefined,
      "There is an app trip already.",
      "A name begins with a letter and has letters, digits, _ and -.",
    ]);
    for (const path of ["../a.yaml", "a.wasm", ".a.yaml", "a b.yaml", ""]) expect(pathProblem(path, [])).toBeDefined();
    expect([pathProblem("sub/a.yml", []), pathProblem("a.yaml", ["a.yaml"])]).toEqual([undefined, "There is a file a.yaml already."]);
    expect(newApp("my-app")["root_agent.yaml"]).toContain("name: my_app\n");
  });

  it("finds the place of a line and a column", () => {
    const text = "ab\ncde\n";
    expect([indexOf(text, 1), indexOf(text, 2, 3), indexOf(text, 2, 99), indexOf(text, 9)]).toEqual([0, 5, 6, 7]);
  });
});
