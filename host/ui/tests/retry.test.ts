import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { stubPage } from "./page";

async function open() {
  vi.resetModules();
  const { retryWhenBack } = await import("../src/app/retry");
  const { catalog } = await import("../src/app/catalog.svelte");
  const { HostError } = await import("../src/api/http");
  return { retryWhenBack, catalog, away: new HostError(0, "OFFLINE", "The host cannot be reached."), refusal: new HostError(404, "NOT_FOUND", "No.") };
}

beforeEach(() => {
  vi.useFakeTimers();
  stubPage();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a request that failed while the host was away", () => {
  it("is repeated once when the host is back", async () => {
    const { retryWhenBack, catalog, away } = await open();
    const request = vi.fn();
    catalog.error = away.message;
    retryWhenBack(away, () => true, request);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(request).not.toHaveBeenCalled();
    catalog.error = undefined;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(request).toHaveBeenCalledOnce();
  });

  it("is not repeated if it is no longer wanted, or if the host refused it", async () => {
    const { retryWhenBack, away, refusal } = await open();
    const request = vi.fn();
    retryWhenBack(away, () => false, request);
    retryWhenBack(refusal, () => true, request);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(request).not.toHaveBeenCalled();
  });
});
