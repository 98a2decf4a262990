import assert from "node:assert/strict";
import fs from "node:fs";
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

test("sessions are listed, searched, read and deleted", () =>
  withPage(host, async (page) => {
    const user = "ada b/c?";
    await page.goto(`${host.url}/dev-ui/apps/dice/users/${encodeURIComponent(user)}`);
    await say(page, "Roll a die with 12 sides");
    await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
    await page.getByRole("searchbox").fill("last_sides");
    await page.getByText("1 session", { exact: true }).waitFor();
    await assertAccessible(page, "sessions");
    await page.getByRole("link", { name: "Roll a die with 12 sides" }).click();
    await page.getByRole("button", { name: /roll_die\(/ }).click();
    await page.locator('.detail .name').getByText('functionCall').waitFor({ state: 'attached' });
    await assertAccessible(page, "session");
    await page.getByRole("link", { name: "State" }).click();
    await page.getByText("last_sides").waitFor();
    await page.getByRole("link", { name: "Artifacts" }).click();
    await page.getByText("No artifacts").waitFor();
    await page.goto(`${host.url}/dev-ui/sessions?${new URLSearchParams({ app: "dice", user })}`);
    await page.getByRole("button", { name: /^Delete/ }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("No session yet").waitFor();
  }));

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

test("a run shows where its time went", () =>
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
        for (const place of ["apps/dice", "runs", "sessions", "agents/dice", "components", "components/dice", "usage", "evals/dice", "build/slow"]) {
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

test("a page that only shows offers no changes", async () => {
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
