import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { HostEvent, SessionEvent } from "../src/api/types";
import { noActions } from "./events";

const call = { id: "c-1", name: "adk_request_confirmation", args: { originalFunctionCall: { name: "pay", args: {} }, toolConfirmation: { hint: "Pay?" } } };
const asking: SessionEvent = {
  id: "1",
  invocationId: "e-1",
  author: "shop",
  timestamp: 1,
  content: { role: "model", parts: [{ functionCall: call }] },
  actions: noActions,
  longRunningToolIds: ["c-1"],
};
const ended = { id: 1, time: 1, kind: "runEnded", app: "shop", user: "me", session: "s", run: "e-1", seconds: 1 } as HostEvent;
const APP = "apps/shop/users/me/sessions";

let isOffline = false;
let isDeleted = false;
let answers: unknown[] = [];

/** Returns the response of the mock host to a request. */
async function answer(url: URL, { body }: RequestInit): Promise<Response> {
  if (isOffline) throw new TypeError("connection refused");
  const path = url.pathname.slice(1);
  if (path === APP) return Response.json(isDeleted ? [] : [{ id: "s", lastUpdateTime: 1 }]);
  if (path === `${APP}/s/runs`) return Response.json({ runs: [{ state: "waiting" }] });
  if (path === `${APP}/s`) return Response.json({ events: [asking] });
  answers.push(JSON.parse(String(body)));
  return new Response("");
}

async function open() {
  vi.resetModules();
  const { tray } = await import("../src/app/tray.svelte");
  const { catalog } = await import("../src/app/catalog.svelte");
  const { hostEvents } = await import("../src/app/host-events.svelte");
  const listen = vi.spyOn(hostEvents, "listen");
  tray.start();
  const send = listen.mock.calls[0]![0];
  const load = () => {
    catalog.apps = [{ name: "shop", rootAgentName: "shop", agents: [] }] as never;
    catalog.catalog = { components: [], files: [], draining: [], generation: 1 } as never;
  };
  return { tray, send, load };
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { baseURI: "http://localhost/dev-ui/", querySelector: () => null, documentElement: {} });
  vi.stubGlobal("location", new URL("http://localhost/dev-ui/"));
  vi.stubGlobal("addEventListener", () => {});
  vi.stubGlobal("fetch", answer);
  [isOffline, isDeleted, answers] = [false, false, []];
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("calls that wait", () => {
  it("are found when the events of the host arrive before its catalog", async () => {
    const { tray, send, load } = await open();
    send(ended);
    await vi.advanceTimersByTimeAsync(1000);
    expect(tray.waiting).toEqual([]);
    load();
    await vi.advanceTimersByTimeAsync(1000);
    expect(tray.waiting.map(({ item }) => item.key)).toEqual(["1:0"]);
  });

  it("are found when the host is back", async () => {
    const { tray, send, load } = await open();
    load();
    isOffline = true;
    send(ended);
    await vi.advanceTimersByTimeAsync(5000);
    expect(tray.waiting).toEqual([]);
    const { catalog } = await import("../src/app/catalog.svelte");
    catalog.error = "The host cannot be reached.";
    // The state that the catalog already knows is not requested again.
    const request = vi.fn(answer);
    vi.stubGlobal("fetch", request);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(request).not.toHaveBeenCalled();
    [isOffline, catalog.error] = [false, undefined];
    await vi.advanceTimersByTimeAsync(5000);
    expect(tray.count).toBe(1);
  });

  it("are gone when their session is deleted", async () => {
    const { tray, send, load } = await open();
    load();
    send(ended);
    await vi.advanceTimersByTimeAsync(1000);
    expect(tray.count).toBe(1);
    isDeleted = true;
    tray.look({ app: "shop", user: "me", session: "s" });
    await vi.advanceTimersByTimeAsync(1000);
    expect(tray.count).toBe(0);
  });

  it("stay when the host has not taken the answer", async () => {
    const { tray, send, load } = await open();
    load();
    send(ended);
    await vi.advanceTimersByTimeAsync(1000);
    const { key, item } = tray.waiting[0]!;
    if (item.kind !== "confirmation") expect.unreachable();
    isOffline = true;
    await tray.answer(key, item as Extract<typeof item, { kind: "confirmation" }>, true);
    await vi.advanceTimersByTimeAsync(1000);
    expect(tray.error).toContain("cannot be reached");
    expect(tray.waiting).toHaveLength(1);
    isOffline = false;
    await tray.answer(key, item as Extract<typeof item, { kind: "confirmation" }>, true);
    expect([tray.error, tray.waiting.length, answers.length]).toEqual(["", 0, 1]);
  });
});
