// What keeps a page usable: long texts, folders without apps, a host that is away, the focus, titles of tabs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, component, Host, sample, sampleFolder, say, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start({
    ...sampleFolder(),
    "writer/root_agent.yaml": "name: writer\nmodel: scripted:writer/answers.yaml\ninstruction: Write.\n",
    "writer/answers.yaml": "turns:\n  - reply: It is **bold**.\n",
  });
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

test("the heading of a run has the beginning of a long message, and the page the whole one", () =>
  withPage(
    host,
    async (page) => {
      const text = `Explain this: ${"one more word ".repeat(300)}and the end.`;
      const { id } = await host.json("/apps/dice/users/author/sessions", {});
      const [event] = await host.json("/run", { appName: "dice", userId: "author", sessionId: id, newMessage: { parts: [{ text }] } });
      await page.goto(`${host.url}/dev-ui/runs/dice/users/author/sessions/${id}/${event.invocationId}`);
      await page.getByText("Measured by the host").waitFor();
      const heading = page.getByRole("heading", { level: 1 });
      assert.match(await heading.innerText(), /^Explain this: one more word .*…$/);
      const { height } = await heading.boundingBox();
      assert(height < 300, `the heading is ${height} pixels high`);
      await page.getByText("The whole message").click();
      await page.getByText("and the end.").first().waitFor();
      await assertAccessible(page, "a run with a long message");
    },
    { viewport: { width: 360, height: 740 } },
  ));

test("pages of a folder without apps say so, and lead to a new app and to rejected files", async () => {
  const own = await Host.start({ "broken/root_agent.yaml": "name: broken\n" });
  try {
    await withPage(own, async (page) => {
      for (const place of ["", "runs", "sessions", "evals", "agents"]) {
        await page.goto(`${own.url}/dev-ui/${place}`);
        await page.getByRole("heading", { name: "No app is loaded" }).waitFor();
        await page.getByRole("link", { name: "Why the host has rejected files" }).waitFor();
        assert.equal(await page.getByRole("combobox", { name: "App" }).and(page.locator(":enabled")).count(), 0, `${place} has no app to choose`);
        await assertAccessible(page, `${place} without apps`);
      }
      await page.getByRole("link", { name: "build an app here" }).click();
      await page.getByRole("textbox", { name: "Name of a new app" }).waitFor();
    });
  } finally {
    await own.stop();
  }
});

test("the note that the host is away covers nothing and moves nothing out of the window", async () => {
  for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 640 }]) {
    const own = await Host.start(sampleFolder());
    try {
      await withPage(
        own,
        async (page) => {
          await page.goto(`${own.url}/dev-ui/apps/dice`);
          await page.getByText("Rolls dice and knows prime numbers.").waitFor();
          await own.kill();
          const note = page.getByRole("status").getByText("The host cannot be reached");
          await note.waitFor();
          const overflow = await page.getByRole("main").evaluate(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight);
          assert.equal(overflow, 0, "the conversation has the height that is left");
          const [above, main, field] = await Promise.all(
            [note, page.getByRole("main"), page.getByRole("textbox", { name: "Message dice" })].map((element) => element.boundingBox()),
          );
          assert(above.y + above.height <= main.y + 1, "the page begins below the note");
          assert(field.y + field.height <= viewport.height, "the field is in the window");
          await assertAccessible(page, "a host that is away");
        },
        { viewport, allowed: [/ERR_/] },
      );
    } finally {
      await own.stop();
    }
  }
});

test("a closed inspector gives the focus back, and a new session waits for its message", () =>
  withPage(host, async (page) => {
    const isFocused = (locator) => locator.evaluate((element) => element === document.activeElement);
    await page.goto(`${host.url}/dev-ui/apps/dice/users/focus`);
    await say(page, "Roll a die");
    await page.locator("details.tool > summary").click();
    const inspect = page.getByRole("button", { name: "Inspect the event" });
    await inspect.focus();
    await page.keyboard.press("Enter");
    const close = page.getByRole("button", { name: "Close the inspector" });
    await close.focus();
    await page.keyboard.press("Enter");
    await close.waitFor({ state: "hidden" });
    assert(await isFocused(inspect));
    // The focus stays if it is elsewhere.
    const field = page.getByRole("textbox", { name: "Message dice" });
    await page.keyboard.press("Enter");
    await close.waitFor();
    await field.focus();
    await page.keyboard.press("Escape");
    await close.waitFor({ state: "hidden" });
    assert(await isFocused(field));
    const begin = page.getByRole("link", { name: "New session" });
    await begin.focus();
    await page.keyboard.press("Enter");
    await page.getByText("Rolls dice and knows prime numbers.").waitFor();
    await page.waitForFunction(() => document.activeElement?.matches("textarea"));
    await page.keyboard.type("Roll");
    assert.equal(await field.inputValue(), "Roll");
  }));

test("in a narrow window a session that is chosen in the list can be written to", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice/users/narrow`);
      await say(page, "Roll a die");
      const list = page.getByRole("complementary", { name: "Sessions" });
      const open = page.getByRole("button", { name: "Sessions", exact: true });
      for (const choose of [list.getByRole("link", { name: "New session" }), list.getByRole("link", { name: /^Roll a die/ }), list.getByRole("button", { name: "Close the list" })]) {
        await open.click();
        await choose.focus();
        await page.keyboard.press("Enter");
        await list.waitFor({ state: "hidden" });
        await page.waitForFunction(() => document.activeElement?.matches("textarea"));
      }
    },
    { viewport: { width: 360, height: 640 } },
  ));

test("the title of a tab names the app or the component", () =>
  withPage(host, async (page) => {
    for (const [place, title] of [
      ["apps/dice", "dice · Chat · Hatchery"],
      ["apps/dice/users/me", "dice · Chat · Hatchery"],
      ["components/greeter", "greeter · Component · Hatchery"],
      ["evals/dice", "dice · Evals · Hatchery"],
      ["runs", "Runs · Hatchery"],
      ["settings", "Settings · Hatchery"],
    ]) {
      await page.goto(`${host.url}/dev-ui/${place}`);
      await page.waitForFunction((title) => document.title === title, title);
    }
    await page.getByRole("link", { name: "Components", exact: true }).click();
    await page.getByRole("link", { name: "dice", exact: true }).first().click();
    await page.waitForFunction(() => document.title === "dice · Component · Hatchery");
  }));

test("a failure is shown once, and with a next step if its message has none", async () => {
  const agent = "name: lost\nmodel: no-such-model\ninstruction: Answer.\n";
  const own = await Host.start({ "lost/root_agent.yaml": agent });
  try {
    await withPage(
      own,
      async (page) => {
        await page.goto(`${own.url}/dev-ui/apps/lost`);
        await say(page, "Hello");
        const failure = page.getByRole("alert").filter({ hasText: "MODEL_UNKNOWN" });
        await failure.getByText("run hatchery doctor in the served folder").waitFor();
        assert.equal(await failure.count(), 1);
      },
      { allowed: [/500/] },
    );
  } finally {
    await own.stop();
  }
});

test("a failure for want of a grant leads to the grants of the component", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/greeter`);
      await say(page, "My name is Ada.");
      const failure = page.getByRole("alert").filter({ hasText: "DENIED" });
      await failure.getByText("The page of the component shows its grants").waitFor();
    },
    { allowed: [/500/] },
  ));

test("a model that cannot be used is shown before the first message, and on the page of the components", async () => {
  const agent = (name, model) => `name: ${name}\nmodel: ${model}\ninstruction: Answer.\n`;
  const own = await Host.start({ "lost/root_agent.yaml": agent("lost", "no-such-model"), "fine/root_agent.yaml": agent("fine", "scripted:x.yaml") });
  try {
    await withPage(own, async (page) => {
      const problem = page.getByText("model `no-such-model`: no provider serves this name");
      await page.goto(`${own.url}/dev-ui/apps/lost`);
      await problem.waitFor();
      await assertAccessible(page, "an app whose model cannot be used");
      await page.goto(`${own.url}/dev-ui/apps/fine`);
      await page.getByText("It answers from a script").waitFor();
      assert.equal(await problem.count(), 0);
      await page.goto(`${own.url}/dev-ui/components`);
      await page.getByRole("list", { name: "Warnings" }).getByText("no-such-model").waitFor();
      await page.getByText("1 warning", { exact: true }).waitFor();
      await assertAccessible(page, "components with a warning");
    });
  } finally {
    await own.stop();
  }
});

test("the build page says which apps it cannot edit, and a rejected app leads to it", async () => {
  const own = await Host.start({ ...sampleFolder(), "broken/root_agent.yaml": "name: broken\nmodle: x\n" });
  try {
    await withPage(
      own,
      async (page) => {
        await page.goto(`${own.url}/dev-ui/build/dice`);
        await page.getByRole("heading", { name: "dice is not made of YAML files" }).waitFor();
        assert.equal(await page.getByText("valid", { exact: true }).count(), 0);
        await assertAccessible(page, "an app that cannot be edited");
        await page.getByRole("link", { name: "the component dice" }).click();
        await page.getByRole("heading", { name: "dice", level: 1 }).waitFor();
        await page.goto(`${own.url}/dev-ui/apps/broken`);
        await page.getByRole("link", { name: "Correct its files" }).click();
        await page.getByRole("textbox", { name: "root_agent.yaml" }).waitFor();
      },
      { allowed: [/40[49]/, /500/] },
    );
  } finally {
    await own.stop();
  }
});

test("a session that does not exist offers nothing to do with it", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/sessions/dice/users/me/sessions/nobody`);
      await page.getByRole("alert").getByText(/Session not found/).waitFor();
      assert.equal(await page.getByRole("main").getByRole("button").count(), 0);
      assert.equal(await page.getByRole("link", { name: "Open in the chat" }).count(), 0);
    },
    { allowed: [/404/] },
  ));

test("the list of keys begins at its top, also in a low window", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/components`);
      await page.getByRole("heading", { name: "Components", level: 1 }).waitFor();
      await page.keyboard.press("?");
      const dialog = page.getByRole("dialog", { name: "Keys" });
      await dialog.waitFor();
      assert.equal(await dialog.evaluate(({ scrollTop }) => scrollTop), 0);
      await assertAccessible(page, "the list of keys");
      await page.keyboard.press("Enter");
      await dialog.waitFor({ state: "hidden" });
    },
    { viewport: { width: 390, height: 500 } },
  ));

/** Returns the number of lines of an element's text. */
const countLines = (element) =>
  element.evaluate((element) => {
    const text = document.createRange();
    text.selectNodeContents(element);
    return new Set([...text.getClientRects()].map(({ top }) => top)).size;
  });

test("tables of a narrow window scroll instead of breaking their words", async () => {
  const table = "| one | two | three | four | five | six | seven |\n|---|---|---|---|---|---|---|\n| incomprehensibilities | b | c | d | e | f | g |";
  const own = await Host.start({
    ...sampleFolder(),
    "tables/root_agent.yaml": "name: tables\nmodel: scripted:tables/answers.yaml\ninstruction: Answer.\n",
    "tables/answers.yaml": `turns:\n  - reply: ${JSON.stringify(table)}\n`,
  });
  try {
    await withPage(
      own,
      async (page) => {
        await page.goto(`${own.url}/dev-ui/components/greeter`);
        const grants = page.getByRole("region", { name: "Table of grants" });
        assert.equal(await countLines(grants.getByRole("cell", { name: "state.write", exact: true })), 1);
        await assertAccessible(page, "grants in a narrow window");
        await page.goto(`${own.url}/dev-ui/apps/tables`);
        await say(page, "A table");
        const answer = page.getByRole("region", { name: "Table", exact: true });
        assert.equal(await countLines(answer.getByRole("cell", { name: "incomprehensibilities" })), 1);
        await assertAccessible(page, "a table of an answer in a narrow window");
      },
      { viewport: { width: 390, height: 800 } },
    );
  } finally {
    await own.stop();
  }
});

test("a page that waits for the host says what it reads", () =>
  withPage(host, async (page) => {
    let answer;
    const asked = new Promise((resolve) => (answer = resolve));
    await page.route("**/apps/dice/users/*/sessions", async (route) => {
      await asked;
      await route.continue();
    });
    for (const [place, what] of [["runs", "runs"], ["sessions", "sessions"], ["usage", "sessions"]]) {
      await page.goto(`${host.url}/dev-ui/${place}?app=dice&user=nobody`);
      await page.getByRole("status").getByText(`Reading the ${what}…`).waitFor();
      await assertAccessible(page, `${place} before its data`);
    }
    answer();
    await page.getByText("No model was called in the sessions of nobody").waitFor();
    assert.equal(await page.getByText("Reading the").count(), 0);
  }));

test("a reader of earlier messages returns to the newest ones with a button", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/writer`);
    await say(page, Array.from({ length: 80 }, (_, index) => `line ${index}`).join("\n"));
    await page.getByText("It is bold.").waitFor();
    const latest = page.getByRole("button", { name: "Latest" });
    const log = page.getByRole("log");
    await page.waitForFunction(() => document.querySelector("[role=log]").scrollTop > 0);
    assert.equal(await latest.count(), 0);
    await log.evaluate((element) => element.scrollTo(0, 0));
    await latest.waitFor();
    await assertAccessible(page, "earlier messages");
    await latest.focus();
    await page.keyboard.press("Enter");
    await latest.waitFor({ state: "detached" });
    await page.waitForFunction(() => {
      const { scrollHeight, scrollTop, clientHeight } = document.querySelector("[role=log]");
      return scrollHeight - scrollTop - clientHeight < 2;
    });
    assert.equal(await log.evaluate((element) => element === document.activeElement), true, "the focus stays in the conversation");
  }));

test("an answer is copied as the model has written it", () =>
  withPage(host, async (page) => {
    await page.addInitScript(() => {
      Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => void (globalThis.copied = text) } });
    });
    await page.goto(`${host.url}/dev-ui/apps/writer`);
    await say(page, "Hello");
    await page.getByRole("button", { name: "Copy the answer of writer" }).click();
    await page.getByRole("button", { name: "Copied", exact: true }).waitFor();
    assert.equal(await page.evaluate(() => globalThis.copied), "It is **bold**.");
  }));

test("the duration of a run is shown when the run has ended", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/slow`);
    const field = page.getByRole("textbox", { name: "Message slow" });
    await field.fill("Tell me");
    await field.press("Enter");
    await page.getByText("one", { exact: true }).waitFor();
    const duration = page.getByText(/^\d\d:\d\d:\d\d · /);
    assert.equal(await duration.count(), 0);
    await page.getByRole("button", { name: "Stop the run" }).click();
    await page.getByText("The run was cancelled.").waitFor();
    await duration.waitFor();
  }));

test("a component shows refused access that it has not requested", async () => {
  const own = await Host.start({
    "web-fetch/web-fetch.wasm": component("web_fetch"),
    "web-fetch/root_agent.yaml": sample("web-fetch/root_agent.yaml"),
    "web-fetch/answers.yaml": sample("web-fetch/answers.yaml"),
  });
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/apps/web-fetch`);
      await say(page, "Read https://www.rust-lang.org/");
      await page.goto(`${own.url}/dev-ui/components/web-fetch`);
      await page.getByText("network denied 1×").waitFor();
      await assertAccessible(page, "a component with refused access");
    });
  } finally {
    await own.stop();
  }
});

test("the runs are read a constant number of times, however many the host has reported before", () =>
  withPage(host, async (page) => {
    const { id } = await host.json("/apps/dice/users/runner/sessions", {});
    for (let count = 0; count < 12; count += 1) {
      await host.json("/run", { appName: "dice", userId: "runner", sessionId: id, newMessage: { parts: [{ text: "Hello" }] } });
    }
    let requests = 0;
    page.on("request", (request) => (requests += request.url().endsWith("/runs?limit=100") ? 1 : 0));
    const reported = page.waitForResponse((response) => new URL(response.url()).pathname === "/events");
    await page.goto(`${host.url}/dev-ui/runs?app=dice&user=runner`);
    await reported;
    await page.getByText("12 runs").waitFor();
    // A run that ends later is read, so all reports before it have arrived.
    await host.json("/run", { appName: "dice", userId: "runner", sessionId: id, newMessage: { parts: [{ text: "Hello" }] } });
    await page.getByText("13 runs").waitFor();
    assert(requests >= 2 && requests <= 4, `${requests} requests`);
  }));
