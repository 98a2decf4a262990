import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { stubPage } from "./page";

const NOW = Date.UTC(2026, 10, 23, 12);
const encoder = new TextEncoder();

/** The seconds by which the clock of the host is ahead. */
let ahead = 0;
let catalogReads = 0;
let events: ReadableStreamDefaultController<Uint8Array>;
let lastId = 0;

const hostTime = () => Date.now() / 1000 + ahead;

/** Sends an event that has happened some seconds ago. */
function send(event: object, ago = 0) {
  lastId += 1;
  events.enqueue(encoder.encode(`data: ${JSON.stringify({ id: lastId, time: hostTime() - ago, ...event })}\n\n`));
}

function answer(path: string): Response {
  if (path === "/events") {
    const body = new ReadableStream<Uint8Array>({ start: (controller) => void (events = controller) });
    return new Response(body, { headers: { Date: new Date(hostTime() * 1000).toUTCString() } });
  }
  if (path === "/components") {
    catalogReads += 1;
    return Response.json({ components: [], files: [], draining: [], generation: 1 });
  }
  return Response.json({ apps: [] });
}

async function open() {
  vi.resetModules();
  const { catalog } = await import("../src/app/catalog.svelte");
  const { tray } = await import("../src/app/tray.svelte");
  const stops = [tray.start(), catalog.start()];
  await vi.advanceTimersByTimeAsync(1000);
  const stop = () => {
    for (const stop of stops) stop();
  };
  return { catalog, tray, stop };
}

beforeEach(() => {
  vi.useFakeTimers({ now: NOW });
  stubPage();
  vi.stubGlobal("fetch", async (url: URL) => answer(url.pathname));
  [catalogReads, lastId] = [0, 0];
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe.each([0, 300, -300])("a host whose clock is %i seconds ahead", (seconds) => {
  beforeEach(() => {
    ahead = seconds;
  });

  it("has its changes in the catalog", async () => {
    const { stop } = await open();
    const before = catalogReads;
    send({ kind: "fileLoading", name: "dice" });
    await vi.advanceTimersByTimeAsync(100);
    expect(catalogReads).toBe(before + 1);
    stop();
  });

  it("shows its failures since the page was opened in the tray, until they are cleared", async () => {
    const { tray, stop } = await open();
    const failure = { kind: "fileRejected", name: "dice", path: "dice.wasm", reason: "broken" };
    send(failure, 60);
    send({ ...failure, name: "new" });
    await vi.advanceTimersByTimeAsync(100);
    expect(tray.failures.map((event) => "name" in event && event.name)).toEqual(["new"]);
    await vi.advanceTimersByTimeAsync(1000);
    tray.clearFailures();
    expect(tray.count).toBe(0);
    await vi.advanceTimersByTimeAsync(1000);
    send(failure);
    await vi.advanceTimersByTimeAsync(100);
    expect(tray.count).toBe(1);
    stop();
  });

  it("determines ages by its clock", async () => {
    const { catalog, stop } = await open();
    await catalog.refresh();
    expect(Math.abs(catalog.now - hostTime())).toBeLessThan(2);
    stop();
  });
});
