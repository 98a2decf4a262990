import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { noActions } from "./events";
import { stubPage } from "./page";

const key = { app: "dice", user: "me", session: "s" };
const message = { id: "1", invocationId: "e-1", author: "user", timestamp: 1, content: { role: "user", parts: [{ text: "Hi" }] }, actions: noActions };
const refusal = () => Response.json({ code: "RATE_LIMITED", detail: "Too many requests." }, { status: 429 });
let isRefused = false;

async function open() {
  vi.resetModules();
  const { chat } = await import("../src/pages/chat/chat.svelte");
  const { drafts } = await import("../src/pages/chat/drafts.svelte");
  await chat.open(key);
  return { chat, drafts };
}

beforeEach(() => {
  stubPage();
  isRefused = true;
  vi.stubGlobal("fetch", async (url: URL) => {
    if (url.pathname === "/run_sse") return isRefused ? refusal() : new Response("");
    if (url.pathname.endsWith("/fork")) return Response.json({ id: "copy" });
    return Response.json({ id: "s", events: [message], state: {} });
  });
});

afterEach(() => void vi.unstubAllGlobals());

describe("a draft", () => {
  it("belongs to its conversation", async () => {
    const { drafts } = await open();
    drafts.set(key, { text: "Roll", files: [] });
    drafts.set({ app: "dice", user: "me" }, { text: "New", files: [] });
    expect([drafts.get(key).text, drafts.get({ ...key, session: "other" }).text]).toEqual(["Roll", ""]);
    expect([drafts.take({ app: "dice", user: "me" }).text, drafts.get({ app: "dice", user: "me" }).text]).toEqual(["New", ""]);
  });

  it("is restored, unless a new one was begun", async () => {
    const { drafts } = await open();
    drafts.restore(key, { text: "old", files: [] });
    drafts.restore(key, { text: "older", files: [] });
    expect(drafts.get(key).text).toBe("old");
  });
});

describe("a message", () => {
  it("is reported as not accepted if the host refuses it", async () => {
    const { chat } = await open();
    expect(await chat.send([{ text: "Roll" }], true)).toBe(false);
    expect([chat.error?.code, chat.isRunning]).toEqual(["RATE_LIMITED", false]);
    isRefused = false;
    expect(await chat.send([{ text: "Roll" }], true)).toBe(true);
  });

  it("that is refused in a copy of the session is a draft there", async () => {
    const { chat, drafts } = await open();
    const file = { inlineData: { mimeType: "text/plain", data: "" } };
    await chat.resend("1", [{ text: "Changed" }, file], true);
    const draft = () => drafts.get({ ...key, session: "copy" });
    await vi.waitFor(() => expect(draft()).toEqual({ text: "Changed", files: [file] }));
  });
});
