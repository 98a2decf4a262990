import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { stubPage } from "./page";

let requests: string[] = [];
let answer: () => Response;

async function open() {
  vi.resetModules();
  const { hostEvents } = await import("../src/app/host-events.svelte");
  return { hostEvents, stop: hostEvents.start() };
}

/** A stream that stays open. */
const stream = () => new Response(new ReadableStream({}), { headers: { "Content-Type": "text/event-stream" } });
const refusal = (status: number, headers: Record<string, string> = {}) => Response.json({ code: "REFUSED", detail: "Not now." }, { status, headers });

beforeEach(() => {
  vi.useFakeTimers();
  stubPage();
  requests = [];
  vi.stubGlobal("fetch", async (url: URL) => {
    requests.push(url.pathname);
    return answer();
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the stream of host events", () => {
  it("reconnects after too many requests when the host allows it", async () => {
    answer = () => refusal(429, { "Retry-After": "20" });
    const { hostEvents, stop } = await open();
    await vi.advanceTimersByTimeAsync(19_000);
    expect([requests.length, hostEvents.isConnected]).toEqual([1, false]);
    answer = stream;
    await vi.advanceTimersByTimeAsync(2000);
    expect([requests.length, hostEvents.isConnected]).toEqual([2, true]);
    stop();
  });

  it("reconnects after too many requests if the host names no time", async () => {
    answer = () => refusal(429);
    const { stop } = await open();
    await vi.advanceTimersByTimeAsync(2000);
    expect(requests.length).toBe(2);
    stop();
  });

  it("does not reconnect if it requires a login or does not exist", async () => {
    for (const status of [401, 403, 404]) {
      answer = () => refusal(status);
      requests = [];
      const { stop } = await open();
      await vi.advanceTimersByTimeAsync(120_000);
      expect([status, requests.length]).toEqual([status, 1]);
      stop();
    }
  });
});
