import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { stubPage } from "./page";

const key = { app: "dice", user: "me", session: "s" };

/** The permission requests for the microphone that the person has not answered yet. */
let questions: ((isAllowed: boolean) => void)[] = [];
let openStreams = 0;
let sockets: FakeSocket[] = [];

class FakeSocket {
  static readonly OPEN = 1;
  readyState = 1;
  onopen = () => {};
  onclose: (event: { code: number; reason: string }) => void = () => {};
  sent: string[] = [];

  constructor() {
    sockets.push(this);
  }

  send(text: string) {
    this.sent.push(text);
  }

  close() {}
}

class FakeAudio {
  audioWorklet = { addModule: async () => {} };
  createMediaStreamSource(): unknown {
    return { connect: () => {} };
  }
  async close() {}
}

class FakeWorklet {
  port = {};
}

function getUserMedia(): Promise<unknown> {
  return new Promise((resolve, reject) => {
    questions.push((isAllowed) => {
      if (!isAllowed) return reject(new Error("Permission denied"));
      openStreams += 1;
      resolve({ getTracks: () => [{ stop: () => (openStreams -= 1) }] });
    });
  });
}

async function open() {
  vi.resetModules();
  const { live } = await import("../src/pages/chat/live.svelte");
  const { chat } = await import("../src/pages/chat/chat.svelte");
  return { live, chat };
}

const settle = () => vi.advanceTimersByTimeAsync(10);

beforeEach(() => {
  vi.useFakeTimers();
  stubPage();
  vi.stubGlobal("navigator", { mediaDevices: { getUserMedia } });
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("AudioContext", FakeAudio);
  vi.stubGlobal("AudioWorkletNode", FakeWorklet);
  vi.stubGlobal("fetch", async () => Response.json({ id: "s", events: [], state: {} }));
  [questions, openStreams, sockets] = [[], 0, []];
});

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the microphone", () => {
  it("is requested once, however often its button is clicked before the person has answered", async () => {
    const { live } = await open();
    live.start(key);
    sockets[0]!.onopen();
    const clicks = [live.toggleMicrophone(), live.toggleMicrophone()];
    expect([questions.length, live.isAsking]).toEqual([1, true]);
    for (const allow of questions) allow(true);
    await Promise.all(clicks);
    expect([openStreams, live.level, live.isAsking]).toEqual([1, 0, false]);
    await live.toggleMicrophone();
    expect([openStreams, live.level]).toEqual([0, undefined]);
  });

  it("can be requested again after a refusal", async () => {
    const { live } = await open();
    live.start(key);
    const refused = live.toggleMicrophone();
    questions[0]!(false);
    await refused;
    expect([live.problem, live.isAsking]).toEqual(["The microphone cannot be used: Permission denied", false]);
    const allowed = live.toggleMicrophone();
    questions[1]!(true);
    await allowed;
    expect([live.problem, openStreams]).toEqual(["", 1]);
  });

  it("does not stay on if its sound cannot be read", async () => {
    const { live } = await open();
    live.start(key);
    vi.spyOn(FakeAudio.prototype, "createMediaStreamSource").mockImplementation(() => expect.unreachable("no sound"));
    const click = live.toggleMicrophone();
    questions[0]!(true);
    await click;
    expect(live.problem).toContain("The microphone cannot be used");
    expect([openStreams, live.level]).toEqual([0, undefined]);
  });

  it("of a conversation that has ended stays off, whatever is answered", async () => {
    const { live } = await open();
    live.start(key);
    const clicks = [live.toggleMicrophone()];
    live.stop();
    live.start(key);
    clicks.push(live.toggleMicrophone());
    questions[0]!(false);
    await settle();
    expect([live.problem, live.isAsking]).toEqual(["", true]);
    questions[1]!(true);
    await Promise.all(clicks);
    expect([openStreams, live.isAsking]).toEqual([1, false]);
  });
});

describe("a live conversation without a session", () => {
  it("shows why its session cannot be created", async () => {
    const { live, chat } = await open();
    vi.stubGlobal("fetch", async () => Response.json({ code: "QUOTA_EXCEEDED", detail: "The app has its maximum of sessions." }, { status: 429 }));
    const onCreate = vi.fn();
    await live.begin("dice", "me", onCreate);
    expect(live.problem).toBe("The live conversation cannot begin: The app has its maximum of sessions.");
    expect([live.state, chat.isBusy, chat.key, sockets.length]).toEqual(["off", false, undefined, 0]);
    expect(onCreate).not.toHaveBeenCalled();
  });

  it("begins in a new session", async () => {
    const { live, chat } = await open();
    live.problem = "The live conversation cannot begin: no.";
    const onCreate = vi.fn();
    await live.begin("dice", "me", onCreate);
    expect(onCreate).toHaveBeenCalledExactlyOnceWith(key);
    expect([live.problem, live.state, chat.isBusy, chat.key, sockets.length]).toEqual(["", "connecting", false, key, 1]);
  });

  it("begins in the open session", async () => {
    const { live, chat } = await open();
    await chat.open(key);
    const onCreate = vi.fn();
    await live.begin("dice", "me", onCreate);
    expect(onCreate).not.toHaveBeenCalled();
    expect(sockets.length).toBe(1);
  });
});
