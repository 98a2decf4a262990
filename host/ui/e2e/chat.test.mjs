import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, Host, sampleFolder, say, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start(sampleFolder());
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

test("a conversation shows answers, tool calls, state and errors, and is there again after a reload", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/`);
    assert.match(page.url(), /\/dev-ui\//);
    await page.goto(`${host.url}/dev-ui/apps/dice`);
    await page.getByText("Rolls dice and knows prime numbers.").waitFor();
    assert.equal(await page.getByRole("combobox", { name: "App" }).inputValue(), "dice");
    await say(page, "Throw two dice");
    assert.match(page.url(), /\/dev-ui\/apps\/dice\/users\/me\/sessions\/[^/]+$/);
    await page.getByText(/^You rolled \d and \d/).waitFor();
    assert.equal(await page.locator("details.tool").count(), 2);
    await page.getByRole("button", { name: /last_sides = 6/ }).waitFor();
    await say(page, "Roll a die with 1 side");
    await page.locator("details.tool.failed > summary").click();
    await page.locator("details.tool.failed pre").getByText("a die has two sides or more, not 1").waitFor();
    await assertAccessible(page, "chat");
    await page.reload();
    await page.getByText(/^You rolled \d and \d/).waitFor();
    assert.equal(await page.locator("article").count(), 2);
    // The title of the session is its first message.
    await page.getByRole("link", { name: /^Throw two dice/ }).waitFor();
  }));

test("the inspector shows an event and the state", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice`);
    await say(page, "Roll a die with 20 sides");
    await page.getByRole("button", { name: "Inspector", exact: true }).click();
    const inspector = page.getByRole("complementary", { name: "Inspector" });
    await inspector.getByText("last_sides").waitFor();
    await page.locator("details.tool > summary").click();
    await page.getByRole("button", { name: "Inspect the event" }).click();
    await inspector.getByText("scripted:dice/answers.yaml").first().waitFor();
    await assertAccessible(page, "inspector");
    await inspector.getByRole("link", { name: "Where the time of this run went" }).click();
    await page.getByRole("heading", { name: "Roll a die with 20 sides" }).waitFor();
  }));

test("a person agrees to a call, and denies another one", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/payments`);
    await say(page, "Roll");
    const card = page.getByRole("region", { name: "Confirmation of roll_die" });
    await card.first().getByText("waits for you").waitFor();
    await assertAccessible(page, "confirmation");
    await card.first().getByRole("button", { name: "Agree" }).click();
    await page.getByText("It was rolled.").waitFor();
    await card.first().getByText("you agreed").waitFor();
    await say(page, "Roll");
    await card.last().getByRole("button", { name: "Deny" }).click();
    await card.last().getByText("you denied it").waitFor();
    assert.equal(await page.getByText("It was rolled.").count(), 1);
  }));

test("a run is cancelled at the host, and the session goes on", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/slow`);
    const field = page.getByRole("textbox", { name: "Message slow" });
    await field.fill("Tell me");
    await field.press("Enter");
    await page.getByText("one", { exact: true }).waitFor();
    const cancel = page.waitForResponse((response) => /\/runs\/[^/]+\/cancel$/.test(response.url()));
    await page.getByRole("button", { name: "Stop the run" }).click();
    assert.equal((await cancel).status(), 200);
    await page.getByRole("button", { name: "Send" }).waitFor();
    await page.getByText("The run was cancelled.").waitFor();
    assert.equal(await page.getByRole("alert").count(), 0, "a cancelled run is no error");
    const session = page.url().split("/").at(-1);
    const { runs } = await host.json(`/apps/slow/users/me/sessions/${session}/runs`);
    assert.deepEqual(runs.map((run) => run.state), ["cancelled"]);
    await say(page, "again");
    await page.getByText("Here I am again.").waitFor();
  }));

test("a run goes on while another session is open, and is followed again when its own is opened or loaded", async () => {
  const files = {
    ...sampleFolder(),
    "waits/root_agent.yaml": "name: waits\nmodel: scripted:waits/answers.yaml\ninstruction: Wait.\ntools:\n  - name: dice/roll_die\n",
    "waits/answers.yaml": [
      "turns:",
      "  - when: { tool: roll_die }",
      "    chunk_delay_ms: 60000",
      "    reply: [{ text: one two three four, chunks: 4 }]",
      "  - reply: [{ call: { name: roll_die, args: { sides: 6 } } }]",
    ].join("\n"),
  };
  const own = await Host.start(files);
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/apps/waits`);
      const field = page.getByRole("textbox", { name: "Message waits" });
      await field.fill("Begin");
      await field.press("Enter");
      await page.getByText("one", { exact: true }).waitFor();
      const session = new URL(page.url()).pathname;
      const runsOf = async () => (await own.json(`/apps/waits/users/me/sessions/${session.split("/").at(-1)}/runs`)).runs.map(({ state }) => state);
      await page.getByRole("link", { name: "New session" }).click();
      await page.getByText("Running…").waitFor({ state: "detached" });
      // The other session answers meanwhile.
      await page.getByRole("combobox", { name: "App" }).selectOption("dice");
      await say(page, "Throw two dice");
      await page.getByText(/^You rolled/).waitFor();
      assert.deepEqual(await runsOf(), ["running"]);
      await page.goBack();
      await page.goBack();
      await page.goBack();
      await page.waitForURL((url) => url.pathname === session);
      await page.getByText("Running…").waitFor();
      // What was said before, too.
      await page.getByText("one", { exact: true }).waitFor();
      assert.equal(await page.locator("details.tool").count(), 1);
      await page.reload();
      await page.getByText("Running…").waitFor();
      await page.getByText("one", { exact: true }).waitFor();
      assert.deepEqual(await runsOf(), ["running"]);
      await page.getByRole("button", { name: "Stop the run" }).click();
      await page.getByRole("button", { name: "Send" }).waitFor();
      await page.getByText("The run was cancelled.").waitFor();
      assert.deepEqual(await runsOf(), ["cancelled"]);
      assert.equal(await page.getByRole("alert").count(), 0);
      assert.equal(await page.locator("details.tool").count(), 1);
    });
  } finally {
    await own.stop();
  }
});

test("an unknown app and session are errors with the message of the host", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice/users/me/sessions/nobody`);
      await page.getByRole("alert").getByText(/Session not found/).waitFor();
      await page.getByRole("link", { name: "Begin a new session" }).click();
      await page.getByText("Rolls dice and knows prime numbers.").waitFor();
      await page.goto(`${host.url}/dev-ui/apps/nobody`);
      await page.getByRole("heading", { name: "The host serves no app nobody" }).waitFor();
      await say(page, "Hello");
      await page.getByRole("alert").getByText(/App not found: nobody; available: `dice`/).waitFor();
      assert.equal(await page.getByRole("textbox", { name: "Message nobody" }).inputValue(), "Hello");
    },
    { allowed: [/404/] },
  ));

test("a message that was not sent stays in its conversation, also if the host refuses it", () =>
  withPage(
    host,
    async (page) => {
      const field = page.getByRole("textbox", { name: "Message dice" });
      await page.goto(`${host.url}/dev-ui/apps/dice/users/drafter`);
      await say(page, "Roll a die");
      await field.fill("not sent");
      await page.getByRole("link", { name: "Runs", exact: true }).click();
      await page.getByRole("heading", { name: "Runs" }).waitFor();
      await page.goBack();
      await page.waitForFunction(() => document.querySelector("textarea")?.value === "not sent");
      await page.getByRole("link", { name: "New session" }).click();
      await page.waitForFunction(() => document.querySelector("textarea")?.value === "");
      await page.goBack();
      await page.locator(".bubble").getByText("Roll a die").waitFor();
      await page.route("**/run_sse", (route) => route.fulfill({ status: 429, json: { code: "RATE_LIMITED", detail: "Too many requests." } }));
      await field.press("Enter");
      await page.getByRole("alert").getByText("Too many requests.").waitFor();
      await page.waitForFunction(() => document.querySelector("textarea")?.value === "not sent");
      await page.unroute("**/run_sse");
      await field.press("Enter");
      await page.locator(".bubble").getByText("not sent").waitFor();
      await page.waitForFunction(() => document.querySelector("textarea")?.value === "");
    },
    { allowed: [/429/] },
  ));

test("the end of a run does not move the focus", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/slow`);
    await page.getByRole("textbox", { name: "Message slow" }).fill("Go");
    await page.keyboard.press("Enter");
    await page.getByText("Running…").waitFor();
    await page.getByRole("status").getByText("The run has begun.").waitFor();
    const user = page.getByRole("textbox", { name: "User" });
    await user.focus();
    await page.getByRole("button", { name: "Stop the run" }).click();
    await user.focus();
    await page.getByText("The run was cancelled.").waitFor();
    await page.getByRole("button", { name: "Send" }).waitFor();
    assert(await user.evaluate((element) => element === document.activeElement));
    await page.getByRole("status").getByText("The run has ended.").waitFor();
  }));

test("a conversation needs only the keyboard", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice`);
    await page.getByText("Rolls dice and knows prime numbers.").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("Throw two dice");
    await page.keyboard.press("Enter");
    await page.getByText(/^You rolled/).waitFor();
    await page.locator("details.tool > summary").last().waitFor();
    // Moves the focus back to the last tool call.
    for (let presses = 0; presses < 60; presses += 1) {
      await page.keyboard.press("Shift+Tab");
      if (await page.evaluate(() => document.activeElement?.matches("details.tool > summary"))) break;
    }
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Inspect the event" }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("k");
    await page.getByRole("heading", { name: "Components" }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    await page.keyboard.press("Tab");
  }));

test("single keys press the buttons of the page, but not in text fields", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/payments`);
    await say(page, "Roll, and e is typed");
    const agree = page.getByRole("button", { name: "Agree" });
    await agree.waitFor();
    // The key acts only if the card has the focus.
    await page.getByRole("link", { name: "Chat", exact: true }).focus();
    await page.keyboard.press("y");
    assert.equal(await agree.count(), 1);
    await page.getByRole("button", { name: "Deny" }).focus();
    await page.keyboard.press("y");
    await page.getByText("It was rolled.").waitFor();
    await page.getByRole("button", { name: "Edit in a copy of the session" }).last().waitFor();
    await page.getByRole("link", { name: "Chat", exact: true }).focus();
    await page.keyboard.press("e");
    const draft = page.getByRole("textbox", { name: "Changed message" });
    assert.equal(await draft.inputValue(), "Roll, and e is typed");
    await page.keyboard.press("Escape");
    const session = page.url();
    await page.getByRole("link", { name: "Chat", exact: true }).focus();
    await page.keyboard.press("n");
    await page.waitForURL((url) => url.href !== session);
    // What is typed next is the message.
    await page.waitForFunction(() => document.activeElement?.matches("textarea"));
    await page.getByRole("link", { name: "Chat", exact: true }).focus();
    await page.keyboard.press("?");
    await page.getByRole("dialog").getByText("Agree to the call in whose card the focus is").waitFor();
    await assertAccessible(page, "keys");
  }));

test("the page waits for a killed host, and no event is lost or duplicated", async () => {
  const own = await Host.start(sampleFolder());
  try {
    await withPage(
      own,
      async (page) => {
        await page.goto(`${own.url}/dev-ui/apps/dice`);
        await say(page, "Throw two dice");
        await page.getByText(/^You rolled/).waitFor();
        await own.kill();
        await page.getByRole("status").getByText("The host cannot be reached").waitFor();
        const field = page.getByRole("textbox", { name: "Message dice" });
        await field.fill("Which of 2, 4 and 7 are prime?");
        await field.press("Enter");
        await page.getByText("reconnecting").waitFor();
        await own.launch(own.port);
        await page.getByText("Prime among them: [2,7,13].").waitFor();
        await page.getByText("The host cannot be reached").waitFor({ state: "hidden" });
        assert.equal(await page.locator("article").count(), 2);
        assert.equal(await page.getByText(/^You rolled/).count(), 1);
      },
      { allowed: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/] },
    );
  } finally {
    await own.stop();
  }
});

test("every request of the page stays below the base path of the host", async () => {
  const below = await Host.start(sampleFolder(), ["--base-path", "/team/agents"]);
  try {
    await withPage(below, async (page) => {
      const paths = new Set();
      const add = (url) => url.match(/^(http|ws):/) && paths.add(new URL(url).pathname);
      page.on("request", (request) => add(request.url()));
      page.on("websocket", (socket) => add(socket.url()));
      await page.goto(below.url);
      assert.match(page.url(), /^http:\/\/[^/]+\/team\/agents\/dev-ui\//);
      await page.goto(`${below.url}/dev-ui/apps/dice/users/me`);
      await say(page, "Throw two dice");
      await page.getByText(/^You rolled \d and \d/).waitFor();
      assert.match(new URL(page.url()).pathname, /^\/team\/agents\/dev-ui\/apps\/dice\/users\/me\/sessions\/[^/]+$/);
      await page.reload();
      await page.getByText(/^You rolled \d and \d/).waitFor();
      await page.goto(`${below.url}/dev-ui/apps/dice/users/live`);
      await page.getByRole("button", { name: "Begin a live conversation" }).click();
      await page.getByRole("region", { name: "Live conversation" }).getByText("live", { exact: true }).waitFor();
      for (const route of ["list-apps", "events", "run_sse", "run_live"]) assert(paths.has(`/team/agents/${route}`), route);
      assert.deepEqual([...paths].filter((path) => !/^\/team\/agents(\/|$)/.test(path)), []);
    });
  } finally {
    await below.stop();
  }
});
