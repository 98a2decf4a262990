// Tools that send HTTP requests and wait.

import { s, tool } from "hatchery-guest";

export const visit = tool({
  name: "visit",
  description: "Sends a request. The header is `x-one`. Returns what has arrived, or the error.",
  parameters: s.object({
    url: s.string(), method: s.string().default("GET"), header: s.string().default(""), body: s.string().default(""),
  }),
  async run({ url, method, header, body }) {
    try {
      const response = await fetch(url, { method, headers: header ? { "x-one": header } : {}, body: body || undefined });
      return { status: response.status, url: response.url, type: response.headers.get("content-type"), text: await response.text() };
    } catch (error) {
      return { code: error.code ?? "", error: error.message };
    }
  },
});

export const visitAll = tool({
  name: "visit_all",
  description: "Sends requests together, and returns their statuses.",
  parameters: s.object({ urls: s.array(s.string()) }),
  async run({ urls }) {
    const responses = await Promise.all(urls.map((url) => fetch(url)));
    return responses.map(({ status }) => status);
  },
});

export const waitInTurn = tool({
  name: "wait_in_turn",
  description: "Returns the names of timers in the order in which they have fired.",
  async run() {
    const fired = [];
    const wait = (name, milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)).then(() => fired.push(name));
    await Promise.all([wait("late", 50), wait("early", 1), wait("at once", 0)]);
    return fired;
  },
});

export const giveUp = tool({
  name: "give_up",
  description: "Gives up a request after a time, and sends another one.",
  parameters: s.object({ endless: s.string(), other: s.string() }),
  async run({ endless, other }) {
    const outcome = await fetch(endless, { signal: AbortSignal.timeout(10) }).then(
      () => "answered", ({ name }) => (name === "TimeoutError" ? "given up" : name),
    );
    return [outcome, (await fetch(other)).status];
  },
});

export const useGlobals = tool({
  name: "use_globals",
  description: "Uses what browsers and Node have.",
  run() {
    const url = new URL("../b?q=1", "https://a.com/x/y");
    const copy = structuredClone({ list: new Set([1]), date: new Date(5) });
    return {
      url: url.href,
      bytes: [...new TextEncoder().encode("é")],
      text: new TextDecoder().decode(Uint8Array.of(0xc3, 0xa9)),
      clone: [[...copy.list], copy.date.getTime()],
      base64: atob(btoa("ab")),
      id: /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()),
      random: crypto.getRandomValues(new Uint8Array(8)).length,
    };
  },
});

export const hang = tool({ name: "hang", description: "Waits for something that never happens.", run: () => new Promise(() => {}) });
