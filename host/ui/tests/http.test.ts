import { beforeAll, describe, expect, it, vi } from "vitest";
import type { HostError } from "../src/api/http";

/** Returns the error that is thrown for a response of a server. */
let failure: (status: number, body: string, statusText?: string) => Promise<HostError>;

beforeAll(async () => {
  vi.stubGlobal("document", { baseURI: "http://localhost/prefix/dev-ui/" });
  const { sendRequest } = await import("../src/api/http");
  failure = (status, body, statusText) => {
    vi.stubGlobal("fetch", async () => new Response(body, { status, statusText }));
    return sendRequest("GET", "version").then(
      () => expect.unreachable(),
      (error: HostError) => error,
    );
  };
});

const PAGE = "<html>\n<head><title>502 Bad Gateway</title></head></html>";

describe("an error", () => {
  it("of the host has its code and its message", async () => {
    const error = await failure(503, JSON.stringify({ code: "OVERLOADED", detail: "Too many runs." }));
    expect([error.code, error.message, error.isOffline]).toEqual(["OVERLOADED", "Too many runs.", false]);
  });

  it("of a proxy that does not reach the host is a broken connection, after which a run is continued", async () => {
    for (const [status, text] of [[502, "Bad Gateway"], [503, "Service Unavailable"], [504, "Gateway Timeout"]] as const) {
      const error = await failure(status, PAGE, text);
      expect(error.isOffline).toBe(true);
      expect(error.message).toBe(`The host cannot be reached: a proxy in front of it answered ${status} ${text}.`);
    }
  });

  it("of another server shows its status, not its HTML", async () => {
    expect((await failure(413, PAGE, "Content Too Large")).message).toBe("The server answered 413 Content Too Large.");
    expect((await failure(404, "no such route")).message).toBe("no such route");
    expect((await failure(404, "", "Not Found")).message).toBe("The server answered 404 Not Found.");
  });
});
