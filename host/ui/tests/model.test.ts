import { describe, expect, it } from "vitest";
import { SseParser } from "../src/api/sse";
import type { App, Catalog, FileEntry, SessionEvent } from "../src/api/types";
import { layOut, nodeHeight } from "../src/model/agent-tree";
import { findChanges } from "../src/model/changes";
import { componentRows, grantRows, modelProblems, unrequestedRefusals } from "../src/model/components";
import { summarize } from "../src/model/event-summary";
import { encodeBase64, fileText, fileUrl } from "../src/model/files";
import { formatAge, formatBytes, formatDuration, preview } from "../src/model/format";
import { formatRoute, parseRoute, type Route } from "../src/model/route";
import { areParallel, buildRuns, buildSpans, filterRuns, type Run, timeByKind } from "../src/model/runs";
import { stateScopes } from "../src/model/state";
import { noActions } from "./events";

describe("server-sent events", () => {
  it("are the same for every division of the bytes into chunks", () => {
    const stream = 'data: {"a":1}\n\n: keep-alive\n\ndata:{"b":"é"}\r\n\r\nevent: x\ndata: {"c":3}\n\n';
    for (let size = 1; size <= stream.length; size += 1) {
      const parser = new SseParser();
      const data: string[] = [];
      for (let start = 0; start < stream.length; start += size) data.push(...parser.push(stream.slice(start, start + size)));
      expect(data).toEqual(['{"a":1}', '{"b":"é"}', '{"c":3}']);
    }
  });
});

describe("addresses", () => {
  const routes: Route[] = [
    { page: "chat", app: "a b/ü", user: "me", session: "first/?#" },
    { page: "chat", app: "dice" },
    { page: "chat", app: "dice", user: "me" },
    { page: "sessions", app: "dice", user: "a&b" },
    { page: "session", app: "dice", user: "me", session: "s", tab: "events" },
    { page: "session", app: "dice", user: "me", session: "s", tab: "artifacts" },
    { page: "runs", app: "dice", user: "me" },
    { page: "runs", app: "dice", user: "me", state: "failed", q: "six & 7" },
    { page: "run", app: "dice", user: "me", session: "s", run: "e-1" },
    { page: "compare", app: "dice", user: "a&b", session: "s/1", run: "e-1", otherSession: "t", otherRun: "e-2" },
    { page: "settings" },
    { page: "components" },
    { page: "component", name: "help desk" },
    { page: "agents", app: "dice" },
  ];

  it("are parsed to the routes that they were made from", () => {
    for (const route of routes) {
      const url = new URL(formatRoute(route), "http://host/dev-ui/");
      expect(parseRoute(url.pathname.slice("/dev-ui/".length), url.searchParams)).toEqual(route);
    }
  });

  it("of ADK's web client open the same session", () => {
    const route = parseRoute("", new URLSearchParams("app=dice&userId=me&session=first"));
    expect(route).toEqual({ page: "chat", app: "dice", user: "me", session: "first" });
  });

  it("without a place are told apart", () => {
    for (const path of ["nowhere", "apps", "apps/a/b/c", "sessions/x", "components/a/b", "%E0%A4%A"]) {
      expect(parseRoute(path, new URLSearchParams()).page).toBe("missing");
    }
  });
});

function file(path: string, state: FileEntry["state"], more: Partial<FileEntry> = {}): FileEntry {
  return { path, name: path.replace(/\.wasm$/, ""), state, since: 5, ...more };
}

function catalog(files: FileEntry[], components: { [name: string]: string } = {}): Catalog {
  const none = { calls: 0, waitingInstances: 0, agents: [], tools: [], callbacks: [], plugins: [] };
  const others = { codeExecutors: [], summarizers: [], examples: [], models: [] };
  const list = Object.entries(components).map(([name, sha256]) => ({ name, sha256, file: `${name}.wasm`, ...none, ...others }));
  return { generation: 1, components: list, files, draining: [], apps: [] };
}

describe("changes of the catalog", () => {
  it("name the swap, what was added and what was removed", () => {
    const before = catalog([file("a.wasm", "loaded"), file("b.wasm", "loaded")], { a: "1", b: "1" });
    const after = catalog([file("a.wasm", "loaded"), file("c.wasm", "loaded")], { a: "2", c: "1" });
    expect(findChanges(before, after, 9)).toEqual([
      { kind: "replaced", name: "a", time: 5, from: "1", to: "2" },
      { kind: "added", name: "c", time: 5, to: "1" },
      { kind: "removed", name: "b", time: 9, from: "1" },
    ]);
  });

  it("name a rejection once, and the recovery", () => {
    const good = catalog([file("a.wasm", "loaded", { sha256: "1" })], { a: "1" });
    const bad = catalog([file("a.wasm", "rejected", { reason: "not a component", previousServes: true })], { a: "1" });
    expect(findChanges(good, bad, 9)).toMatchObject([{ kind: "rejected", name: "a", reason: "not a component" }]);
    expect(findChanges(bad, bad, 9)).toEqual([]);
    expect(findChanges(bad, good, 9)).toMatchObject([{ kind: "recovered", name: "a", to: "1" }]);
    const replaced = catalog([file("a.wasm", "loaded")], { a: "2" });
    expect(findChanges(bad, replaced, 9)).toMatchObject([{ kind: "replaced", from: "1", to: "2" }]);
  });
});

describe("components", () => {
  it("are listed with their files, rejected ones first", () => {
    const files = [file("a.wasm", "loaded"), file("hello/root_agent.yaml", "loaded"), file("z.wasm", "rejected", { reason: "no" })];
    const rows = componentRows(catalog(files, { a: "1" }));
    expect(rows.map(({ name, component }) => [name, component !== undefined])).toEqual([
      ["z", false],
      ["a", true],
      ["hello/root_agent.yaml", false],
    ]);
  });

  it("have the problems of the models that an app uses", () => {
    const [key, name] = ["model `a`: no key: set A (or B)", "model `b`: no provider"];
    const warnings = [`${key} (used by \`dice\`, \`clerk\`)`, `${name} (used by \`dice\`)`, "apps.dice: overlap without interval"];
    const found = { ...catalog([]), warnings };
    expect(["dice", "clerk", "b", "dic"].map((app) => modelProblems(found, app))).toEqual([[key, name], [key], [], []]);
    expect(modelProblems(catalog([]), "dice")).toEqual([]);
  });

  it("have one row for each grant, missing ones first", () => {
    const rows = grantRows({
      requested: { models: ["gpt-*"], memory: ["read"], "state.write": ["user:name"] },
      granted: { memory: ["read"], network: ["api.x"] },
      missing: { models: ["gpt-*"], "state.write": ["user:name"] },
      unused: { network: ["api.x"] },
      why: { models: "to sum up", state: "to greet" },
      used: { memory: { read: 12 } },
      refused: { models: 4, "state.read": 2 },
    });
    expect(rows).toEqual([
      { key: "models", entry: "gpt-*", state: "missing", why: "to sum up", refused: 4 },
      { key: "state.write", entry: "user:name", state: "missing", why: "to greet", refused: 2 },
      { key: "memory", entry: "read", state: "granted", why: undefined, used: 12 },
      { key: "network", entry: "api.x", state: "unused", why: undefined, used: 0 },
    ]);
  });

  it("include refusals of access that the component has not requested", () => {
    const grants = {
      requested: { "state.write": ["user:name"] },
      granted: { network: ["api.x"] },
      missing: { "state.write": ["user:name"] },
      unused: { network: ["api.x"] },
      why: {},
      refused: { "state.read": 2, network: 3, memory: 1 },
    };
    expect(unrequestedRefusals(grants)).toEqual([
      ["network", 3],
      ["memory", 1],
    ]);
    expect(unrequestedRefusals({ granted: {}, missing: {}, unused: {}, why: {} })).toEqual([]);
  });
});

function event(id: string, author: string, timestamp: number, more: Partial<SessionEvent> = {}): SessionEvent {
  return { id, invocationId: "e-1", author, timestamp, content: { parts: [{ text: id }] }, actions: noActions, ...more };
}

describe("runs", () => {
  it("are filtered by state, and by message, error and ids", () => {
    const run = (id: string, state: Run["state"], more: Partial<Run> = {}) => ({ ...buildRuns([event("hi", "user", 1)])[0]!, id, state, session: "s", ...more });
    const runs = [run("e-1", "ended", { message: "Roll a die" }), run("e-2", "failed", { message: "", error: "MODEL_AUTH: no key" }), run("e-3", "failed")];
    const ids = (filters: Parameters<typeof filterRuns>[1]) => filterRuns(runs, filters).map(({ id }) => id);
    expect(ids({})).toEqual(["e-1", "e-2", "e-3"]);
    expect(ids({ state: "failed" })).toEqual(["e-2", "e-3"]);
    expect(ids({ text: " ROLL " })).toEqual(["e-1"]);
    expect(ids({ state: "failed", text: "model_auth" })).toEqual(["e-2"]);
    expect(ids({ text: "e-3" })).toEqual(["e-3"]);
  });

  const usageMetadata = { totalTokenCount: 10 };
  const call = { parts: [{ functionCall: { id: "c", name: "roll" } }] };
  const answer = { parts: [{ functionResponse: { id: "c", name: "roll", response: {} } }] };

  it("are derived from events, without changes of the state by clients", () => {
    const events = [
      event("hi", "user", 10),
      event("a", "dice", 11, { content: call, usageMetadata }),
      event("b", "dice", 11.5, { content: answer }),
      event("c", "dice", 13, { usageMetadata }),
      event("p", "user", 14, { invocationId: "p-1" }),
    ];
    const [run, ...others] = buildRuns(events);
    expect(others).toEqual([]);
    expect(run).toMatchObject({ id: "e-1", message: "hi", start: 10, end: 13, tokens: 20, modelCalls: 2, toolCalls: 1, state: "ended" });
    const times = timeByKind(buildSpans(run!));
    expect([times.get("model"), times.get("tool")]).toEqual([2.5, 0.5]);
  });

  it("count the time of parallel steps once", () => {
    const events = [
      event("hi", "user", 0),
      event("a", "one", 2, { branch: "all.one", usageMetadata }),
      event("b", "two", 3, { branch: "all.two", usageMetadata }),
    ];
    const spans = buildSpans(buildRuns(events)[0]!);
    expect(spans.map(({ start, end }) => [start, end])).toEqual([
      [0, 2],
      [0, 3],
    ]);
    expect(timeByKind(spans).get("model")).toBe(3);
  });

  it("wait for parallel steps that come before them, and not for those beside them", () => {
    expect(areParallel("all.one", "all.two")).toBe(true);
    expect(areParallel("all.one.inner.a", "all.two")).toBe(true);
    expect(areParallel("first.one", "second.one")).toBe(false);
    expect([areParallel("all.one", ""), areParallel("", "all.one"), areParallel("all.one", "all.one")]).toEqual([false, false, false]);
    expect([areParallel("all.one", "all.one.inner.a"), areParallel("all.one.inner.a", "all.one")]).toEqual([false, false]);
  });

  it("wait for a person while a call is open, and fail with the error of their event", () => {
    const waiting = event("a", "dice", 1, { content: call, longRunningToolIds: ["c"] });
    expect(buildRuns([waiting])[0]?.state).toBe("waiting");
    expect(buildRuns([waiting, event("b", "user", 2, { content: answer })])[0]?.state).toBe("ended");
    expect(buildRuns([event("a", "dice", 1, { errorCode: "DENIED" })])[0]).toMatchObject({ state: "failed", error: "DENIED" });
  });

  it("are running or interrupted if the host says so", () => {
    const id = event("a", "dice", 1).invocationId;
    const states = (["accepted", "running", "interrupted", "done"] as const).map((state) => buildRuns([event("a", "dice", 1)], [{ id, state }])[0]?.state);
    expect(states).toEqual(["running", "running", "interrupted", "ended"]);
  });
});

describe("lines of events", () => {
  it("say what happened", () => {
    const line = (more: Partial<SessionEvent>) => summarize(event("x", "dice", 1, { content: { parts: [] }, ...more })).kind;
    expect(line({ errorCode: "X" })).toBe("error");
    expect(line({ content: { parts: [{ functionCall: { name: "f" } }] } })).toBe("call");
    expect(line({ content: { parts: [{ functionResponse: { name: "f", response: { error: "no" } } }] } })).toBe("failed");
    expect(line({ actions: { ...noActions, stateDelta: { a: 1 } } })).toBe("state");
    expect(line({ content: { parts: [{ text: "hi" }] } })).toBe("answer");
    expect(line({})).toBe("event");
  });
});

describe("agents", () => {
  it("are laid out as a tree, each once, also when they name each other", () => {
    const agent = (name: string, subAgents: string[]) => ({ name, subAgents, description: "", kind: "llm" });
    const app: App = { name: "x", description: "", rootAgentName: "a", isComputerUse: false, agents: [agent("a", ["b", "c"]), agent("b", ["a"]), agent("c", [])] };
    const { nodes } = layOut(app);
    expect(nodes.map(({ agent, depth }) => [agent.name, depth])).toEqual([["a", 0], ["b", 1], ["c", 1]]);
    const [a, b, c] = nodes;
    expect(b!.y).toBeLessThan(c!.y);
    expect(a!.y).toBeGreaterThan(b!.y);
  });

  it("do not cover each other, whatever their heights are", () => {
    const agent = (name: string, tools: number, ...subAgents: string[]) => {
      return { name, kind: "llm", description: "", subAgents, tools: Array.from({ length: tools }, (_, index) => `tool-${index}`) };
    };
    const agents = [agent("root", 0, "short", "long", "last"), agent("short", 0), agent("long", 12, "below"), agent("below", 0), agent("last", 1, "end"), agent("end", 20)];
    const { nodes, height } = layOut({ name: "root", rootAgentName: "root", description: "", agents } as never);
    expect(nodes).toHaveLength(agents.length);
    for (const one of nodes) {
      expect(one.y).toBeGreaterThanOrEqual(0);
      expect(one.y + nodeHeight(one.agent)).toBeLessThanOrEqual(height);
      const covered = nodes.filter((other) => other !== one && other.x === one.x && other.y < one.y + nodeHeight(one.agent) && one.y < other.y + nodeHeight(other.agent));
      expect(covered.map((other) => `${one.agent.name} and ${other.agent.name}`)).toEqual([]);
    }
  });
});

describe("files", () => {
  it("other than pictures are only saved, never opened", () => {
    expect(fileUrl({ inlineData: { mimeType: "text/html", data: "YQ==" } })).toBe("data:application/octet-stream;base64,YQ==");
    expect(fileUrl({ inlineData: { mimeType: "image/svg+xml", data: "YQ==" } })).toMatch(/octet-stream/);
    expect(fileUrl({ inlineData: { mimeType: "image/png", data: "YQ_-" } })).toBe("data:image/png;base64,YQ/+");
  });

  it("of text types are shown as text", () => {
    const data = encodeBase64(new TextEncoder().encode("<b>é"));
    expect(fileText({ inlineData: { mimeType: "text/html", data } })).toBe("<b>é");
    expect(fileText({ inlineData: { mimeType: "application/json", data: "not base64!" } })).toBeUndefined();
    expect(fileText({ inlineData: { mimeType: "image/png", data } })).toBeUndefined();
  });
});

describe("texts", () => {
  it("of durations carry into the next unit when they are rounded up", () => {
    expect([0.0009996, 0.00996, 0.9996, 9.996, 59.96, 119.6, 3599.6, 7199].map(formatDuration)).toEqual([
      "1.0 ms",
      "10 ms",
      "1.00 s",
      "10.0 s",
      "1 min 0 s",
      "2 min 0 s",
      "1 h 0 min",
      "2 h 0 min",
    ]);
    expect([0.0009994, 0.9994, 59.94, 119.4, 3599.4, 7169].map(formatDuration)).toEqual(["999 µs", "999 ms", "59.9 s", "1 min 59 s", "59 min 59 s", "1 h 59 min"]);
  });

  it("of durations, sizes and ages have fitting units", () => {
    expect([0.0000004, 0.0004, 0.004, 0.25, 2.345, 61, 3700].map(formatDuration)).toEqual([
      "0 µs",
      "400 µs",
      "4.0 ms",
      "250 ms",
      "2.35 s",
      "1 min 1 s",
      "1 h 2 min",
    ]);
    expect([0, 1023, 1536, 64 << 20].map(formatBytes)).toEqual(["0 B", "1023 B", "1.5 KiB", "64 MiB"]);
    expect([0, 30, 90, 7200, 90000].map((age) => formatAge(0, age))).toEqual(["just now", "30 s ago", "1 min ago", "2 h ago", "1 day ago"]);
  });

  it("are cut to one line", () => {
    expect(preview("a\n  b")).toBe("a b");
    expect(preview("x".repeat(200), 10)).toBe(`${"x".repeat(10)}…`);
    expect(preview(undefined)).toBe("");
  });

  it("of the state are grouped by scope", () => {
    const scopes = stateScopes({ "user:name": "Ada", visits: 1, "app:x": 2, a: 0 });
    expect(scopes.map(({ entries }) => entries.map(([key]) => key))).toEqual([["a", "visits"], ["user:name"], ["app:x"]]);
  });
});
