import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { noActions } from "./events";
import { stubPage } from "./page";

const key = { app: "dice", user: "me", session: "s" };
const event = { id: "1", invocationId: "e-1", author: "user", timestamp: 1, content: { role: "user", parts: [{ text: "Hi" }] }, actions: noActions };

let isOffline = false;
let requests = 0;
let stored = [event];

async function open() {
  vi.resetModules();
  const { hostEvents } = await import("../src/app/host-events.svelte");
  const listen = vi.spyOn(hostEvents, "listen");
  const { chat } = await import("../src/pages/chat/chat.svelte");
  const { catalog } = await import("../src/app/catalog.svelte");
  return { chat, catalog, listen };
}

beforeEach(() => {
  vi.useFakeTimers();
  stubPage();
  [isOffline, requests, stored] = [true, 0, [event]];
  vi.stubGlobal("fetch", async (url: URL) => {
    requests += 1;
    if (isOffline) throw new TypeError("connection refused");
    if (url.pathname.endsWith("/gone")) return Response.json({ code: "SESSION_NOT_FOUND", detail: "There is no session gone." }, { status: 404 });
    return Response.json({ id: "s", events: stored, state: { score: 1 } });
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a session that cannot be loaded", () => {
  it("is loaded when the host is back", async () => {
    const { chat, catalog } = await open();
    await chat.open(key);
    catalog.error = "The host cannot be reached.";
    expect(chat.loadError).toContain("cannot be reached");
    // The state that the catalog already knows is not requested again.
    await vi.advanceTimersByTimeAsync(60_000);
    expect(requests).toBe(1);
    [isOffline, catalog.error] = [false, undefined];
    await vi.advanceTimersByTimeAsync(3000);
    expect([chat.loadError, chat.isLoading, chat.turns.length, chat.state]).toEqual([undefined, false, 1, { score: 1 }]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(requests).toBe(2);
  });

  it("is not requested again after another one was opened, or if it does not exist", async () => {
    const { chat } = await open();
    await chat.open(key);
    isOffline = false;
    await chat.open({ ...key, session: "gone" });
    expect(chat.loadError).toBe("There is no session gone.");
    await vi.advanceTimersByTimeAsync(60_000);
    expect([requests, chat.loadError]).toEqual([2, "There is no session gone."]);
  });
});

describe("the open session", () => {
  it("shows the runs of others when they have ended", async () => {
    isOffline = false;
    const { chat, listen } = await open();
    await chat.open(key);
    const send = listen.mock.calls[0]![0];
    const ended = { id: 1, time: 2, kind: "runEnded", ...key, run: "e-2", seconds: 1 } as const;
    stored = [event, { ...event, id: "2", invocationId: "e-2", timestamp: 2 }];
    send({ ...ended, session: "other" });
    await vi.advanceTimersByTimeAsync(1000);
    expect([requests, chat.turns.length]).toEqual([1, 1]);
    // Several events are answered by one request.
    send(ended);
    send({ ...ended, id: 2 });
    await vi.advanceTimersByTimeAsync(1000);
    expect([requests, chat.turns.length]).toEqual([2, 2]);
  });
});
