import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, component, Host, replaceFile, sampleFolder, say, variant, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start(sampleFolder());
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

test("a component is swapped under an open page, rejected, recovered and rolled back", () =>
  withPage(host, async (page) => {
    const file = host.file("dice/dice.wasm");
    const [first, second] = [component("dice"), variant(component("dice"), "second")];
    await page.goto(`${host.url}/dev-ui/components`);
    const changes = page.getByRole("region", { name: "Changes since this page was opened" });
    await changes.getByText("None yet").waitFor();
    await assertAccessible(page, "components");
    replaceFile(file, second);
    await changes.getByText("replaced").waitFor();
    replaceFile(file, "this is no component");
    await changes.getByText("rejected").waitFor();
    await page.getByText("The last good revision keeps serving.").waitFor();
    replaceFile(file, second);
    await changes.getByText("recovered").waitFor();
    await changes.getByRole("link", { name: "dice" }).first().click();
    await page.getByRole("button", { name: "Roll back…" }).click();
    await assertAccessible(page, "component");
    await page.getByRole("button", { name: "Roll back", exact: true }).click();
    await changes.getByText("replaced").nth(1).waitFor();
    assert.deepEqual(fs.readFileSync(file), first);
    await page.goto(`${host.url}/dev-ui/apps/dice`);
    await say(page, "Throw two dice");
    await page.getByText(/^You rolled/).waitFor();
  }));

test("a component shows requested and missing grants, with the lines that grant them", () =>
  withPage(host, async (page) => {
    const detail = await host.json("/components/greeter");
    assert.match(detail.missingLines, /^components:\n {2}greeter:\n {4}grants:\n/);
    await page.goto(`${host.url}/dev-ui/components/greeter`);
    await page.getByText("To grant the missing access, add to hatchery.yaml").waitFor();
    assert.equal((await page.locator("pre").filter({ hasText: "grants:" }).innerText()).trim(), detail.missingLines.trim());
    await page.getByRole("row", { name: /state\.write user:name .*it remembers the names of users/ }).waitFor();
    await assertAccessible(page, "component with missing grants");
  }));

test("a text is copied without permission, and the focus stays", () =>
  withPage(host, async (page) => {
    await page.addInitScript(() => Object.defineProperty(navigator, "clipboard", { value: undefined }));
    await page.goto(`${host.url}/dev-ui/components/dice`);
    const copy = page.getByRole("button", { name: "Copy hash" });
    await copy.focus();
    await page.keyboard.press("Enter");
    const button = page.getByRole("button", { name: "Copied", exact: true });
    await button.waitFor();
    // It has this name for a moment only.
    assert.match(await page.evaluate(() => document.activeElement?.textContent ?? ""), /Cop/);
    await page.evaluate(() => (document.execCommand = () => false));
    await copy.click();
    await page.getByRole("button", { name: "Not copied" }).waitFor();
  }));

test("a component shows the usage of its grants and limits by its calls", async () => {
  const files = { ...sampleFolder(), "hatchery.yaml": "components: { greeter: { grants: { state: { write: [\"user:*\"] } }, limits: { wall: 20s } } }\n" };
  const own = await Host.start(files, (folder) => ["--config", path.join(folder, "hatchery.yaml")]);
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/components/greeter`);
      await page.getByRole("row", { name: /state\.write user:\* asked given never/ }).waitFor();
      const { id } = await own.json("/apps/greeter/users/me/sessions", {});
      const newMessage = { parts: [{ text: "My name is Ada." }] };
      await own.json("/run", { appName: "greeter", userId: "me", sessionId: id, newMessage });
      // The page follows the runs of the host.
      await page.getByRole("row", { name: /state\.write user:\* asked given \d+×/ }).waitFor();
      const limits = page.getByRole("region", { name: "Limits of each call" });
      await limits.getByText(/^p99 .* most .*/).first().waitFor();
      const { usage, grants } = await own.json("/components/greeter");
      await limits.getByText(new RegExp(`^${usage.calls} calls? since this code serves`)).waitFor();
      assert(usage.memory.max > 0 && usage.agentWallSeconds.p99 <= usage.agentWallSeconds.max, JSON.stringify(usage));
      assert(grants.used["state.write"]["user:*"] > 0, JSON.stringify(grants));
      await assertAccessible(page, "component with usage");
    });
  } finally {
    await own.stop();
  }
});

test("a component shows how often a missing grant was refused", () =>
  withPage(host, async (page) => {
    const { id } = await host.json("/apps/greeter/users/me/sessions", {});
    const run = { appName: "greeter", userId: "me", sessionId: id, newMessage: { parts: [{ text: "My name is Ada." }] } };
    await fetch(`${host.url}/run`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(run) });
    await page.goto(`${host.url}/dev-ui/components/greeter`);
    await page.getByRole("row", { name: /state\.write user:name asked – denied \d+× missing/ }).waitFor();
    // A call whose run fails has used memory and time, too.
    const { usage } = await host.json("/components/greeter");
    assert(usage.calls > 0 && usage.agentWallSeconds.max > 0, JSON.stringify(usage));
  }));

test("the page of a component shows nothing of the component before", () =>
  withPage(host, async (page) => {
    let answer;
    const asked = new Promise((resolve) => (answer = resolve));
    await page.goto(`${host.url}/dev-ui/components/dice`);
    await page.getByText("roll_die", { exact: true }).waitFor();
    await page.route("**/components/greeter", async (route) => {
      await asked;
      await route.continue();
    });
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").fill("greeter component");
    await page.getByRole("option", { name: "greeter component" }).click();
    await page.getByRole("heading", { name: "greeter", level: 1 }).waitFor();
    assert.equal(await page.getByText("roll_die", { exact: true }).count(), 0);
    answer();
    await page.getByRole("heading", { name: "Grants" }).waitFor();
  }));

test("runs are filtered by state and text, and the filters are part of the address", () =>
  withPage(host, async (page) => {
    const user = "filters";
    for (const [app, text] of [["dice", "Throw two dice"], ["dice", "Roll a die with 12 sides"]]) {
      const { id } = await host.json(`/apps/${app}/users/${user}/sessions`, {});
      await host.json("/run", { appName: app, userId: user, sessionId: id, newMessage: { parts: [{ text }] } });
    }
    await page.goto(`${host.url}/dev-ui/runs?app=dice&user=${user}`);
    await page.getByText(/^2 runs/).waitFor();
    await page.getByRole("searchbox", { name: "Search runs" }).fill("twelve");
    await page.getByText(/^0 runs/).waitFor();
    await page.getByRole("searchbox", { name: "Search runs" }).fill("12 sides");
    await page.getByText(/^1 run ·/).waitFor();
    await page.getByRole("combobox", { name: "State" }).selectOption("ended");
    assert.match(page.url(), /\?app=dice&user=filters&state=ended&q=12\+sides$/);
    await assertAccessible(page, "filtered runs");
    await page.reload();
    await page.getByText(/^1 run ·/).waitFor();
    await page.getByRole("combobox", { name: "State" }).selectOption("failed");
    await page.getByText(/^0 runs/).waitFor();
  }));

test("the attempts of a model call are steps of its run", async () => {
  let requests = 0;
  const provider = http.createServer((_, response) => {
    requests += 1;
    if (requests < 3) {
      response.writeHead(429, { "retry-after": "0", "content-type": "application/json" });
      response.end(JSON.stringify({ error: { message: "slow down" } }));
      return;
    }
    const content = { role: "model", parts: [{ text: "Here I am." }] };
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`data: ${JSON.stringify({ candidates: [{ content, finishReason: "STOP" }] })}\n\n`);
  });
  await new Promise((resolve) => provider.listen(0, "127.0.0.1", resolve));
  const environment = { GOOGLE_API_KEY: "k", GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${provider.address().port}` };
  const own = await Host.start({ "asks/root_agent.yaml": "name: asks\nmodel: gemini-2.5-flash\ninstruction: Answer.\n" }, [], environment);
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/apps/asks`);
      await say(page, "Hello");
      await page.getByText("Here I am.").waitFor();
      await page.goto(`${own.url}/dev-ui/runs?app=asks&user=me`);
      await page.getByRole("link", { name: /Hello/ }).first().click();
      const steps = page.getByRole("region", { name: "Steps" });
      await steps.getByRole("button", { name: /attempt 1 gemini-2\.5-flash.*attempt, failed/ }).click();
      const step = page.getByRole("region", { name: "Step", exact: true });
      await step.getByText("MODEL_RATE_LIMITED").first().waitFor();
      await step.getByText(/Gemini answered HTTP 429: slow down/).waitFor();
      assert.equal(await steps.getByText(/^attempt \d gemini/).count(), 3);
      // Beside the details of a step there is no room for notes.
      await step.getByRole("button", { name: "Close" }).click();
      await steps.getByText("HTTP 200").waitFor();
      await assertAccessible(page, "attempts of a model call");
    });
  } finally {
    await own.stop();
    provider.close();
  }
});

test("a YAML file with an error is shown with its line, and its recovery", () =>
  withPage(host, async (page) => {
    const file = host.file("slow/root_agent.yaml");
    const good = fs.readFileSync(file);
    await page.goto(`${host.url}/dev-ui/apps/slow`);
    await page.getByRole("textbox", { name: "Message slow" }).waitFor();
    replaceFile(file, "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: x\ntools: [{ name: no/such }]\n");
    await page.getByRole("alert").getByText(/slow\/root_agent\.yaml:4:\d+/).waitFor();
    replaceFile(file, good);
    await page.getByRole("alert").waitFor({ state: "hidden" });
  }));

test("a session that could not be read while the host was away is shown when it is back", () =>
  withPage(
    host,
    async (page) => {
      const { id } = await host.json("/apps/dice/users/away/sessions", {});
      const route = `**/apps/dice/users/away/sessions/${id}`;
      await page.route(route, (request) => request.abort());
      await page.goto(`${host.url}/dev-ui/sessions/dice/users/away/sessions/${id}`);
      await page.getByRole("alert").getByText("The host cannot be reached").waitFor();
      await page.unroute(route);
      await page.getByText("No event yet").waitFor();
      await page.getByRole("alert").waitFor({ state: "hidden" });
    },
    { allowed: [/ERR_FAILED/] },
  ));

test("sessions are listed, searched, read and deleted", () =>
  withPage(
    host,
    async (page) => {
      const user = "ada b/c?";
      await page.goto(`${host.url}/dev-ui/apps/dice/users/${encodeURIComponent(user)}`);
      await say(page, "Roll a die with 12 sides");
      await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
      await page.getByRole("searchbox", { name: "Search sessions" }).fill("last_sides");
      await page.getByText("1 session", { exact: true }).waitFor();
      await page.getByRole("searchbox", { name: "Search sessions" }).fill("nothing like this");
      await page.getByRole("heading", { name: "No session matches" }).waitFor();
      await page.getByRole("searchbox", { name: "Search sessions" }).fill("last_sides");
      await assertAccessible(page, "sessions");
      await page.getByRole("link", { name: "Roll a die with 12 sides" }).click();
      await page.getByRole("button", { name: /roll_die\(/ }).click();
      await page.locator(".detail summary").getByText("functionCall").last().click();
      await page.locator(".detail .name").getByText("functionCall", { exact: true }).waitFor();
      await assertAccessible(page, "session");
      await page.getByRole("link", { name: "State" }).click();
      await page.getByText("last_sides").waitFor();
      await page.getByRole("link", { name: "Artifacts" }).click();
      await page.getByText("No artifacts").waitFor();
      await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
      const address = /\/sessions\/[^/]+$/;
      await page.route(address, (route) =>
        route.request().method() === "DELETE" ? route.fulfill({ status: 500, json: { code: "STORE", detail: "The disk is full." } }) : route.continue(),
      );
      // The question takes the focus, and gives it back.
      const bin = page.getByRole("button", { name: /^Delete ./ });
      await bin.focus();
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Keep");
      await page.keyboard.press("Enter");
      await bin.waitFor();
      assert(await bin.evaluate((element) => element === document.activeElement));
      await bin.click();
      await page.getByRole("button", { name: "Delete", exact: true }).click();
      await page.getByRole("alert").getByText("The disk is full.").waitFor();
      await page.getByRole("button", { name: /^Delete/ }).waitFor();
      assert.equal(await page.getByRole("alert").count(), 1, "the error stays when the list is read again");
      await page.unroute(address);
      await page.getByRole("button", { name: /^Delete/ }).click();
      await page.getByRole("button", { name: "Delete", exact: true }).click();
      await page.getByText("No session yet").waitFor();
    },
    { allowed: [/500/] },
  ));

test("a session that is closed is added to the memory of its user, and its data stays", async () => {
  const files = { ...sampleFolder(), "hatchery.yaml": "apps:\n  dice: { memory: { add: on_close } }\n" };
  const own = await Host.start(files, (folder) => ["--config", path.join(folder, "hatchery.yaml")]);
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/apps/dice/users/ada`);
      await say(page, "Roll a die with 12 sides");
      const memory = "/apps/dice/users/ada/memory?query=sides";
      assert.deepEqual(await own.json(memory), { memories: [] });
      await page.goto(`${own.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user: "ada" })}`);
      await page.getByRole("button", { name: /^Close / }).click();
      await page.getByText("The session Roll a die with 12 sides is closed. Its data stays.").waitFor();
      assert.match(JSON.stringify(await own.json(memory)), /Roll a die with 12 sides/);
      await assertAccessible(page, "sessions after one is closed");
      await page.getByRole("link", { name: "Roll a die with 12 sides" }).click();
      await page.getByRole("button", { name: /roll_die\(/ }).waitFor();
    });
  } finally {
    await own.stop();
  }
});

test("a session is added to the memory of its user, which can be searched", () =>
  withPage(host, async (page) => {
    const user = "grace";
    await page.goto(`${host.url}/dev-ui/apps/dice/users/${user}`);
    await say(page, "Roll a die with 12 sides");
    const session = new URL(page.url()).pathname.split("/").at(-1);
    await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
    const memory = page.getByRole("region", { name: "Memory" });
    await memory.getByRole("searchbox").fill("twelve sides");
    await memory.getByRole("button", { name: "Search" }).click();
    await memory.getByText("0 messages found").waitFor();
    await page.goto(`${host.url}/dev-ui/sessions/dice/users/${user}/sessions/${session}`);
    await page.getByRole("button", { name: "Add to the memory" }).click();
    await page.getByRole("button", { name: "In the memory" }).waitFor();
    await assertAccessible(page, "a remembered session");
    await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
    await memory.getByRole("searchbox").fill("sides");
    await memory.getByRole("searchbox").press("Enter");
    await memory.getByText("Roll a die with 12 sides").waitFor();
    await assertAccessible(page, "the memory of a user");
  }));

test("an artifact is shown as text, also if it is HTML", () =>
  withPage(host, async (page) => {
    const session = "/apps/dice/users/me/sessions";
    const { id } = await host.json(session, {});
    const data = Buffer.from("<script>alert(1)</script>").toString("base64");
    const artifact = { inlineData: { mimeType: "text/html", data } };
    await host.json(`${session}/${id}/artifacts`, { filename: "notes/page.html", artifact });
    await page.goto(`${host.url}/dev-ui/sessions/dice/users/me/sessions/${id}/artifacts`);
    await page.getByRole("button", { name: "notes/page.html" }).click();
    await page.locator("pre").getByText("<script>alert(1)</script>").waitFor();
    await assertAccessible(page, "artifacts");
  }));

test("a run shows its time by activity", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice`);
    await say(page, "Which of 2, 4 and 7 are prime?");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("link", { name: /Which of 2, 4 and 7 are prime/ }).first().waitFor();
    await assertAccessible(page, "runs");
    await page.getByRole("link", { name: /Which of 2, 4 and 7 are prime/ }).first().click();
    const where = page.getByRole("region", { name: "Where the time went" });
    await where.getByText(/Measured by the host/).waitFor();
    await where.getByText("waiting for its turn").waitFor();
    await page.getByRole("button", { name: /check_prime .*tool/ }).click();
    const step = page.getByRole("region", { name: "Step", exact: true });
    await step.getByText("Arguments").waitFor();
    await assertAccessible(page, "run");
    // The address leads back to the step.
    assert.match(page.url(), /\?span=[0-9a-f]{16}$/);
    await page.reload();
    await step.getByText("Arguments").waitFor();
    await page.getByRole("button", { name: /scripted:dice.*model/ }).last().click();
    await step.getByText(/^\d+ new since the call before$/).waitFor();
    await step.getByText("2 tools: roll_die, check_prime").waitFor();
    // A component has its time on the processor.
    const guest = page.getByRole("button", { name: /^dice .*guest/ }).first();
    await guest.click();
    await step.getByText(/CPU .* waiting/).waitFor();
    await guest.press("ArrowDown");
    assert(!(await guest.evaluate((button) => button === document.activeElement)), "the arrow key moves to the next step");
    await step.getByRole("button", { name: "Close" }).click();
    await step.waitFor({ state: "hidden" });
  }));

test("a run without a trace shows the times of its events", async () => {
  const own = await Host.start({ ...sampleFolder(), "hatchery.yaml": "server: { dev_ui: read }\n" });
  try {
    const { id } = await own.json("/apps/dice/users/me/sessions", {});
    const newMessage = { parts: [{ text: "Which of 2, 4 and 7 are prime?" }] };
    const [event] = await own.json("/run", { appName: "dice", userId: "me", sessionId: id, newMessage });
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/runs/dice/users/me/sessions/${id}/${event.invocationId}`);
      await page.getByText(/The host has no trace of this run any more/).waitFor();
      await page.getByRole("button", { name: /check_prime .*tool/ }).click();
      await page.getByText("The event of this step").waitFor();
      await assertAccessible(page, "run without a trace");
    });
  } finally {
    await own.stop();
  }
});

test("agents are a graph and an outline", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/agents/dice`);
    await page.locator("figure").waitFor();
    await page.getByRole("listitem").filter({ hasText: "check_prime" }).waitFor();
    await assertAccessible(page, "agents");
  }));

test("links of ADK's web client and unknown addresses are understood", () =>
  withPage(host, async (page) => {
    const { id } = await host.json("/apps/dice/users/me/sessions", {});
    await page.goto(`${host.url}/dev-ui/?app=dice&userId=me&session=${id}`);
    await page.getByRole("textbox", { name: "Message dice" }).waitFor();
    await page.getByText(id).first().waitFor();
    await page.goto(`${host.url}/dev-ui/no/such/place`);
    await page.getByText("There is nothing at this address").waitFor();
  }));

test("every page fits a narrow and a wide window, in light and dark", async () => {
  for (const options of [
    { viewport: { width: 320, height: 640 }, colorScheme: "dark" },
    { viewport: { width: 2560, height: 1440 }, colorScheme: "light" },
  ]) {
    await withPage(
      host,
      async (page) => {
        for (const place of ["apps/dice", "runs", "sessions", "agents/dice", "components", "components/dice", "usage", "evals/dice", "build/slow", "settings"]) {
          await page.goto(`${host.url}/dev-ui/${place}`);
          await page.getByRole("heading").first().waitFor();
          await page.waitForFunction(() => document.querySelector("main")?.innerText.length > 20);
          const overflow = await page.evaluate(() => {
            const { scrollWidth, clientWidth } = document.documentElement;
            const main = document.querySelector("main");
            return Math.max(scrollWidth - clientWidth, main.scrollWidth - main.clientWidth);
          });
          assert.equal(overflow, 0, `${place} at ${options.viewport.width} px`);
          await assertAccessible(page, `${place} ${JSON.stringify(options)}`);
        }
      },
      options,
    );
  }
});

test("a new page begins at its top and has the focus, and a closed panel gives it back", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/sessions`);
      const main = page.getByRole("main");
      const isFocused = (locator) => locator.evaluate((element) => element === document.activeElement);
      await page.getByRole("heading", { name: "Sessions" }).waitFor();
      await page.getByRole("link", { name: "Components", exact: true }).click();
      await page.getByRole("link", { name: "greeter", exact: true }).first().waitFor();
      assert(await isFocused(main));
      await main.evaluate((element) => element.scrollTo(0, 200));
      assert((await main.evaluate((element) => element.scrollTop)) > 0);
      await page.keyboard.press("g");
      await page.keyboard.press("o");
      await page.getByRole("heading", { name: "Settings", level: 1 }).waitFor();
      assert(await isFocused(main));
      assert.equal(await main.evaluate((element) => element.scrollTop), 0);
      const bell = page.getByRole("button", { name: /^Waiting for you, and failures/ });
      await bell.click();
      const tray = page.getByRole("region", { name: "Waiting for you, and failures" });
      assert(await isFocused(tray));
      await page.keyboard.press("Escape");
      await tray.waitFor({ state: "hidden" });
      assert(await isFocused(bell));
    },
    { viewport: { width: 600, height: 400 } },
  ));

test("long names and words fit a narrow window", () =>
  withPage(
    host,
    async (page) => {
      const name = "a_long_name_of_a_user_or_a_file_without_spaces_".repeat(3);
      await page.goto(`${host.url}/dev-ui/apps/dice/users/${name}`);
      await page.locator("input[type=file]").setInputFiles({ name: `${name}.txt`, mimeType: "text/plain", buffer: Buffer.from("text") });
      await page.getByText(`${name}.txt`).waitFor();
      const assertFits = async (what) => {
        const width = await page.evaluate(() => Math.max(...[...document.querySelectorAll("main :is(p, a, button, .badge, h2, h3)")].map((element) => element.getBoundingClientRect().right)));
        assert(width <= 360, `${what} is ${width} pixels wide`);
      };
      await assertFits("a file of a new message");
      await say(page, name);
      await page.getByRole("link", { name: `${name}.txt` }).waitFor();
      await assertFits("a message with a file");
      await page.goto(`${host.url}/dev-ui/sessions?app=dice&user=${name}`);
      await page.getByText("1 session", { exact: true }).waitFor();
      await assertFits("the sessions");
    },
    { viewport: { width: 360, height: 740 } },
  ));

test("an idle page sends no requests", () =>
  withPage(host, async (page) => {
    await page.clock.install();
    for (const place of ["apps/dice", "runs?app=dice&user=me", "sessions?app=dice&user=me", "agents/dice"]) {
      await page.goto(`${host.url}/dev-ui/${place}`);
      await page.waitForFunction(() => document.querySelector("main")?.innerText.length > 40 && !document.querySelector("main .spinner"));
      const requests = [];
      const add = (request) => requests.push(request.url());
      page.on("request", add);
      // Until it is connected to the events of the host, the page asks for changes.
      for (let periods = 0; periods < 5; periods += 1) {
        requests.length = 0;
        await page.clock.runFor(300_000);
        if (requests.length === 0) break;
      }
      page.off("request", add);
      assert.deepEqual(requests, [], place);
    }
  }));

test("the files stay within their budget", () => {
  const dist = path.resolve(import.meta.dirname, "../dist");
  const files = fs.readdirSync(dist, { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
  const bytes = files.reduce((sum, file) => sum + fs.statSync(path.join(file.parentPath ?? file.path, file.name)).size, 0);
  assert(files.length <= 20 && bytes < 1_000_000, `${files.length} files, ${bytes} bytes`);
  const packed = (pattern) =>
    files
      .filter(({ name }) => pattern.test(name))
      .map((file) => [file.name, gzipSync(fs.readFileSync(path.join(file.parentPath ?? file.path, file.name))).length]);
  const [[, entry]] = packed(/^index-.*\.js$/);
  assert(entry <= 90_000, `the page needs ${entry} bytes of packed code to begin`);
  for (const [name, size] of packed(/\.js$/)) assert(name.startsWith("index-") || size <= 60_000, `${name}: ${size}`);
  const all = packed(/./).reduce((sum, [, size]) => sum + size, 0);
  assert(all <= 350_000, `${all} packed bytes`);
});

test("a read-only page offers no changes", async () => {
  const own = await Host.start({ ...sampleFolder(), "hatchery.yaml": "server: { dev_ui: read }\n" });
  try {
    await withPage(own, async (page) => {
      await page.goto(`${own.url}/dev-ui/apps/dice`);
      await page.getByText("read only").waitFor();
      assert.equal(await page.getByRole("textbox", { name: "Message dice" }).count(), 0);
      await page.goto(`${own.url}/dev-ui/components/dice`);
      await page.getByRole("heading", { name: "Revisions" }).waitFor();
      assert.equal(await page.getByRole("button", { name: "Roll back…" }).count(), 0);
    });
  } finally {
    await own.stop();
  }
});
