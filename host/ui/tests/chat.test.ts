import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { noActions } from "./events";
import { stubPage } from "./page";

const key = { app: "dice", user: "me", session: "s" };
const event = { id: "1", invocationId: "e-1", author: "user", timestamp: 1, content: { role: "user", parts: [{ text: "Hi" }] }, actions: noActions };

let isOffline = false;
let requests = 0;
let stored = [event];
/** The runs of the session, newest first. */
let runs: { id: string; state: string; background?: boolean }[] = [];
/** The paths and bodies of requests for runs. */
let runRequests: [path: string, body: unknown][] = [];
/** The stream of the run. */
let stream: TransformStream<Uint8Array>;
let isAccepted: Promise<void> = Promise.resolve();
let stateAfterCancel = "cancelled";

/** Returns the response to a request for a run: its stream, which breaks when the request is aborted, or the run. */
async function answerRun(url: URL, body: RequestInit["body"], signal: RequestInit["signal"]): Promise<Response> {
  runRequests.push([url.pathname + url.search, body ? JSON.parse(String(body)) : undefined]);
  if (url.pathname.endsWith("/cancel")) return Response.json({ id: "e-2", state: stateAfterCancel });
  await isAccepted;
  signal?.throwIfAborted();
  signal?.addEventListener("abort", () => void stream.writable.abort(signal.reason).catch(() => {}));
  return new Response(stream.readable, { headers: url.pathname.endsWith("/run_sse") ? { "X-Hatchery-Run": "e-2" } : {} });
}

async function emit(...values: object[]) {
  const writer = stream.writable.getWriter();
  for (const value of values) await writer.write(new TextEncoder().encode(`data: ${JSON.stringify(value)}\n\n`));
  writer.releaseLock();
  await vi.advanceTimersByTimeAsync(0);
}

const answer = (id: string, text: string) => ({ ...event, id, invocationId: "e-2", author: "dice", timestamp: Number(id), content: { role: "model", parts: [{ text }] } });

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
  [isOffline, requests, stored, runs, runRequests] = [true, 0, [event], [], []];
  [stream, isAccepted, stateAfterCancel] = [new TransformStream(), Promise.resolve(), "cancelled"];
  vi.stubGlobal("fetch", async (url: URL, { body, signal }: RequestInit) => {
    if (/\/runs$/.test(url.pathname)) return Response.json({ runs });
    if (/\/runs\/[^/]+$/.test(url.pathname)) return Response.json(runs.find(({ id }) => url.pathname.endsWith(`/${id}`)));
    if (/\/run_sse$|\/runs\/.*/.test(url.pathname)) return answerRun(url, body, signal);
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

describe("a run", () => {
  const cancelled = () => runRequests.filter(([path]) => path.endsWith("/cancel")).map(([path]) => path);

  it("goes on at the host when another session is opened, and is followed again in its own", async () => {
    isOffline = false;
    const { chat } = await open();
    await chat.open(key);
    const sent = chat.send([{ text: "Roll" }], true);
    await vi.advanceTimersByTimeAsync(0);
    expect(runRequests[0]![1]).toMatchObject({ cancelOnDisconnect: false });
    await emit(answer("2", "One"));
    expect(chat.isRunning).toBe(true);
    await chat.open({ ...key, session: "other" });
    expect([await sent, chat.isRunning, cancelled()]).toEqual([true, false, []]);
    // The oldest active run comes first, from where the stored events end.
    stored = [event, answer("2", "One")];
    runs = [{ id: "e-3", state: "accepted" }, { id: "e-2", state: "running" }, { id: "e-1", state: "done" }];
    [stream, runRequests] = [new TransformStream(), []];
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    expect([chat.isRunning, runRequests.map(([path]) => path)]).toEqual([true, ["/apps/dice/users/me/sessions/s/runs/e-2/events?after=2"]]);
    await emit(answer("3", "Two"));
    stored = [...stored, answer("3", "Two")];
    [runs] = [[{ id: "e-2", state: "done" }]];
    await emit({ id: "e-2", state: "done", attempts: 1 });
    expect([chat.isRunning, chat.error, chat.log.events.map(({ id }) => id)]).toEqual([false, undefined, ["1", "2", "3"]]);
  });

  it("shows its failure, and attaches again when the connection broke", async () => {
    [isOffline, runs] = [false, [{ id: "e-2", state: "running" }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    await stream.writable.close();
    stream = new TransformStream();
    await vi.advanceTimersByTimeAsync(0);
    expect(chat.isReconnecting).toBe(true);
    await vi.advanceTimersByTimeAsync(1000);
    await emit(answer("2", "One"));
    expect([chat.isReconnecting, runRequests.length]).toEqual([false, 2]);
    runs = [{ id: "e-2", state: "failed" }];
    await emit({ id: "e-2", state: "failed", attempts: 1, error: { code: "MODEL_TIMEOUT", message: "It took too long." } });
    expect([chat.isRunning, chat.error]).toEqual([false, { code: "MODEL_TIMEOUT", message: "It took too long." }]);
  });

  it("does not show a message twice that is streamed while the connection breaks", async () => {
    [isOffline, runs] = [false, [{ id: "e-2", state: "running" }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    const chunk = (text: string) => ({ ...answer("2", text), partial: true });
    const shown = () => chat.log.events.at(-1)?.content?.parts;
    await emit(chunk("Hel"), chunk("lo "));
    expect(shown()).toEqual([{ text: "Hello " }]);
    await stream.writable.close();
    stream = new TransformStream();
    await vi.advanceTimersByTimeAsync(1000);
    // The host sends the message so far.
    await emit(chunk("Hello "), chunk("there"));
    expect(shown()).toEqual([{ text: "Hello there" }]);
  });

  it("of a live conversation in another page shows what was said, and no chunk of sound", async () => {
    [isOffline, runs] = [false, [{ id: "e-2", state: "running" }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    const spoken = (text: string) => ({ ...answer("2", ""), content: undefined, partial: true, outputTranscription: { text, finished: false } });
    const sound = { ...answer("3", ""), partial: true, content: { parts: [{ inlineData: { mimeType: "audio/pcm", data: "AA==" } }] } };
    await emit(spoken("Hello "), sound, spoken("there"));
    expect(chat.log.events.map(({ id, content }) => [id, content?.parts?.[0]?.text])).toEqual([["1", "Hi"], ["2", "Hello there"]]);
  });

  it("is cancelled at the host if it was stopped before the host has accepted it", async () => {
    isOffline = false;
    const { chat } = await open();
    await chat.open(key);
    let accept = () => {};
    isAccepted = new Promise((resolve) => (accept = resolve));
    const sent = chat.send([{ text: "Roll" }], true);
    await chat.stop();
    expect([chat.isStopping, cancelled()]).toEqual([true, []]);
    accept();
    await vi.advanceTimersByTimeAsync(0);
    expect(cancelled()).toEqual(["/apps/dice/users/me/sessions/s/runs/e-2/cancel"]);
    await stream.writable.close();
    expect([await sent, chat.isRunning, chat.error]).toEqual([true, false, undefined]);
  });

  it("is not followed again if it was stopped and the host does not react", async () => {
    [isOffline, runs, stateAfterCancel] = [false, [{ id: "e-2", state: "running" }], "running"];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    expect(chat.isRunning).toBe(true);
    await chat.stop();
    await vi.advanceTimersByTimeAsync(0);
    const followed = runRequests.filter(([path]) => path.includes("/events?"));
    expect([chat.isRunning, chat.isStopping, chat.error, followed.length]).toEqual([false, false, undefined, 1]);
  });

  it("takes its message if another session is opened before the host has accepted it", async () => {
    isOffline = false;
    const { chat } = await open();
    await chat.open(key);
    let accept = () => {};
    isAccepted = new Promise((resolve) => (accept = resolve));
    const sent = chat.send([{ text: "Roll" }], true);
    await chat.open({ ...key, session: "other" });
    accept();
    expect([await sent, chat.isRunning, cancelled(), chat.log.events.map(({ id }) => id)]).toEqual([true, false, [], ["1"]]);
  });
});

describe("an interrupted run", () => {
  const followed = () => runRequests.filter(([path]) => path.includes("/events?"));

  it("is not followed when its session is opened, and can be resumed", async () => {
    [isOffline, stored, runs] = [false, [event, answer("2", "One")], [{ id: "e-2", state: "interrupted" }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(0);
    expect([chat.isRunning, chat.interrupted, followed()]).toEqual([false, "e-2", []]);
    const resumed = chat.resume();
    await vi.advanceTimersByTimeAsync(0);
    expect([chat.isRunning, chat.interrupted]).toEqual([true, undefined]);
    const body = { appName: "dice", userId: "me", sessionId: "s", invocationId: "e-2", streaming: true, cancelOnDisconnect: false };
    expect(runRequests).toEqual([["/run_sse", body]]);
    // Once it is continued, it is followed when the connection breaks.
    await emit(answer("3", "Two"));
    stored = [...stored, answer("3", "Two")];
    await stream.writable.abort();
    stream = new TransformStream();
    await vi.advanceTimersByTimeAsync(1000);
    expect(followed().map(([path]) => path)).toEqual(["/apps/dice/users/me/sessions/s/runs/e-2/events?after=2"]);
    await emit({ id: "e-2", state: "done", attempts: 2 });
    await resumed;
    expect([chat.isRunning, chat.interrupted, chat.error, chat.log.events.map(({ id }) => id)]).toEqual([false, undefined, undefined, ["1", "2", "3"]]);
  });

  it("is no longer followed once its host has died", async () => {
    [isOffline, runs] = [false, [{ id: "e-2", state: "running" }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(5000);
    expect([chat.isRunning, chat.interrupted]).toEqual([true, undefined]);
    runs = [{ id: "e-2", state: "interrupted" }];
    await vi.advanceTimersByTimeAsync(5000);
    expect([chat.isRunning, chat.interrupted, chat.error, followed().length]).toEqual([false, "e-2", undefined, 1]);
    await chat.open({ ...key, session: "other" });
    expect(chat.interrupted).toBe(undefined);
  });

  it("is followed if it is a background run, which a host continues, and hidden by a later one", async () => {
    [isOffline, runs] = [false, [{ id: "e-2", state: "interrupted", background: true }]];
    const { chat } = await open();
    await chat.open(key);
    await vi.advanceTimersByTimeAsync(5000);
    expect([chat.isRunning, followed().length]).toEqual([true, 1]);
    runs = [{ id: "e-3", state: "done" }, { id: "e-2", state: "interrupted" }];
    await chat.open({ ...key, session: "other" });
    await vi.advanceTimersByTimeAsync(0);
    expect([chat.isRunning, chat.interrupted]).toEqual([false, undefined]);
  });
});
