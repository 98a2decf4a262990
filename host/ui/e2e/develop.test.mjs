import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, component, Host, replaceFile, sample, sampleFolder, say, variant, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start({
    ...sampleFolder(),
    "dice/rolls.evalset.json": sample("dice/rolls.evalset.json"),
    "dice/test_config.json": sample("dice/test_config.json"),
    "misbehaver.wasm": component("misbehaver"),
  });
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

test("usage has tokens and time by app, model, tool and component, and the limits that were hit", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice`);
      await say(page, "Throw two dice");
      const { id } = await host.json("/apps/failing_agent/users/me/sessions", {});
      const run = { appName: "trapping_agent", userId: "me", sessionId: id, newMessage: { parts: [{ text: "x" }] } };
      await host.json("/apps/trapping_agent/users/me/sessions", { sessionId: id });
      const failed = await fetch(`${host.url}/run`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(run) });
      assert.equal(failed.status, 500);
      const { code } = await failed.json();
      await page.goto(`${host.url}/dev-ui/usage?app=dice&user=me`);
      await page.getByRole("region", { name: "Apps", exact: true }).getByRole("link", { name: "dice" }).waitFor();
      await page.getByRole("region", { name: "Models", exact: true }).getByText("scripted:dice/answers.yaml").waitFor();
      await page.getByRole("region", { name: "Tools", exact: true }).getByRole("cell", { name: "roll_die" }).waitFor();
      await page.getByRole("region", { name: "Components", exact: true }).getByRole("link", { name: "misbehaver" }).waitFor();
      const hits = page.getByRole("region", { name: "Limits and refusals" });
      await hits.getByText(code).waitFor();
      await page.getByRole("region", { name: "Stored runs" }).getByText(/1 run with 2 model calls/).waitFor();
      await page.getByRole("img", { name: /^Tokens by day/ }).waitFor();
      await assertAccessible(page, "usage");
      const download = page.waitForEvent("download");
      await page.getByRole("button", { name: "Export CSV" }).click();
      const csv = fs.readFileSync(await (await download).path(), "utf8");
      assert.match(csv, /^kind,name,calls/);
      assert.match(csv, /\ntools,roll_die,2,/);
    },
    { allowed: [/500/] },
  ));

test("an eval set is run with progress, its result compares expected and actual, and cases are edited", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/evals/dice`);
    await page.getByRole("heading", { name: "3 cases" }).waitFor();
    await page.getByRole("button", { name: "Run all" }).click();
    await page.getByRole("button", { name: "3/3 just now" }).waitFor();
    await page.getByRole("button", { name: "twenty_sides", exact: true }).click();
    const run = page.getByRole("region", { name: "Run 1 of twenty_sides" });
    await run.getByText('roll_die({"sides":20})').first().waitFor();
    assert.deepEqual(await run.getByRole("heading").allInnerTexts(), ["expected", "actual"]);
    await assertAccessible(page, "result of an evaluation");
    await run.getByRole("link", { name: "Open its session" }).click();
    await page.getByRole("button", { name: /roll_die\(/ }).waitFor();

    // A new set with a case from a session.
    await page.goto(`${host.url}/dev-ui/apps/dice/users/ada`);
    await say(page, "Roll a die with 1 side");
    await page.goto(`${host.url}/dev-ui/evals/dice`);
    await page.getByRole("textbox", { name: "Name of a new eval set" }).fill("mine");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByText("No case yet.").waitFor();
    await page.getByRole("button", { name: "Add a session" }).click();
    await page.getByLabel("User").fill("ada");
    await page.getByLabel("Session").getByText("Roll a die with 1 side").waitFor({ state: "attached" });
    await page.getByLabel("Name of the case").fill("one_side");
    await assertAccessible(page, "adding a session to an eval set");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.getByRole("button", { name: "Open one_side" }).click();
    await page.getByLabel("Expected response").fill("Something else entirely");
    await page.getByRole("button", { name: "Save the case" }).click();
    await page.getByRole("checkbox", { name: "Run one_side" }).check();
    await page.getByRole("button", { name: "Run 1 case" }).click();
    await page.getByRole("button", { name: "0/1 just now" }).waitFor();
    await page.getByRole("cell", { name: "failed" }).first().waitFor();
    await page.getByRole("button", { name: "Delete one_side" }).click();
    await page.getByRole("button", { name: "Keep" }).click();
    await page.getByRole("button", { name: "Delete one_side" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("button", { name: "Delete the set" }).click();
    await page.getByRole("heading", { name: "3 cases" }).waitFor();
  }));

test("the error of an evaluation stays when its set is read again", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/evals/dice`);
      await page.getByRole("heading", { name: "3 cases" }).waitFor();
      await page.route(/\/run$/, (route) => route.fulfill({ status: 500, json: { code: "STORE", detail: "The disk is full." } }));
      const read = page.waitForResponse((response) => response.url().endsWith("/eval-results"));
      await page.getByRole("button", { name: "Run all" }).click();
      await (await read).finished();
      await page.getByRole("alert").getByText("The disk is full.").waitFor();
    },
    { allowed: [/500/] },
  ));

test("a tool is called by a form, with its result, its state and its time by activity", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/components/dice`);
    await page.getByRole("button", { name: "Try roll_die…" }).click();
    const form = page.getByRole("form", { name: "Try roll_die" });
    assert.equal(await form.getByLabel(/^sides/).inputValue(), "6");
    await form.getByLabel(/^sides/).fill("-1");
    await form.getByRole("button", { name: "Call" }).click();
    await page.getByRole("alert").getByText("-1 is less than the minimum of 0").waitFor();
    await form.getByLabel(/^sides/).fill("20");
    await form.getByRole("button", { name: "Call" }).click();
    await page.getByText(/, CPU \d/).waitFor();
    await page.getByText("last_sides").first().waitFor({ state: "attached" });
    await page.getByRole("region", { name: "Steps" }).getByRole("button", { name: /roll_die .*tool/ }).waitFor();
    await assertAccessible(page, "calling a tool");
    await form.getByLabel(/^sides/).fill("six");
    await form.getByRole("button", { name: "Call" }).click();
    await page.getByText("sides is not a number.").waitFor();
  }));

test("a revision is compared with the active one", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/components/greeter`);
    await page.getByRole("heading", { name: "Revisions" }).waitFor();
    const file = host.file("greeter/greeter.wasm");
    // Another component replaces it, with other tools and requests.
    replaceFile(file, variant(component("help_desk"), "other"));
    await page.getByRole("button", { name: /^Compare / }).click();
    const removed = page.getByRole("listitem").filter({ hasText: "removed" });
    await removed.first().waitFor();
    await page.getByRole("listitem").filter({ hasText: "added" }).first().waitFor();
    await assertAccessible(page, "comparison");
    replaceFile(file, component("greeter"));
    await page.getByRole("button", { name: /^Compare / }).first().waitFor();
  }));

test("a YAML agent is built: the host's errors with their line, saving, and trying it", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/build`);
      const name = page.getByRole("textbox", { name: "Name of a new app" });
      await name.fill("dice");
      await page.getByRole("button", { name: "Create" }).click();
      await page.getByText("There is an app dice already.").waitFor();
      await name.fill("fresh");
      await page.getByRole("button", { name: "Create" }).click();
      const editor = page.getByRole("textbox", { name: "root_agent.yaml" });
      await editor.waitFor();
      await page.waitForURL(/\/build\/fresh$/);
      await page.getByText("valid", { exact: true }).waitFor();
      const good = await editor.inputValue();
      await editor.fill(`${good}tools: [{ name: no/such }]\n`);
      await page.getByRole("button", { name: /^root_agent\.yaml:6:\d+/ }).click();
      await page.waitForFunction(() => document.activeElement?.matches("textarea") && document.activeElement.selectionStart > 0);
      assert(await page.getByRole("button", { name: "Save", exact: true }).isDisabled());
      await assertAccessible(page, "an error in a YAML agent");
      await editor.fill(`${good}tools: [{ name: dice/roll_die }]\n`);
      // Changes that are not saved stay when another page is opened.
      await page.getByRole("link", { name: "Components", exact: true }).click();
      await page.getByRole("heading", { name: "Components" }).waitFor();
      await page.goBack();
      await page.getByText("1 file not saved").waitFor();
      assert.equal(await editor.inputValue(), `${good}tools: [{ name: dice/roll_die }]\n`);
      await page.getByText("valid", { exact: true }).waitFor();
      await editor.press("Control+s");
      await page.getByText("1 file saved; the app is loaded again.").waitFor();
      assert.match(fs.readFileSync(host.file("fresh/root_agent.yaml"), "utf8"), /dice\/roll_die/);
      // Somebody else changes the file.
      replaceFile(host.file("fresh/root_agent.yaml"), `${good}# by hand\n`);
      await editor.fill(`${good}# by the page\n`);
      await page.getByText("valid", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByRole("alert").getByText("`root_agent.yaml` has changed since it was read; read it again").waitFor();
      await page.getByRole("button", { name: "Read the files again" }).click();
      await page.waitForFunction(() => document.querySelector("textarea")?.value.endsWith("# by hand\n"));
      await page.getByRole("link", { name: "Try it" }).click();
      await say(page, "Hello");
      await page.getByText(/^Hello\. Change answers\.yaml/).waitFor();
    },
    { allowed: [/412/] },
  ));

test("a live conversation of an agent without a live model answers turn by turn", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice/users/live`);
      await page.getByRole("button", { name: "Begin a live conversation" }).click();
      const bar = page.getByRole("region", { name: "Live conversation" });
      await bar.getByText("live", { exact: true }).waitFor();
      await assertAccessible(page, "live conversation");
      for (const [index, text] of ["Throw two dice", "Which of 2, 4 and 7 are prime?"].entries()) {
        const field = page.getByRole("textbox", { name: "Message dice" });
        await field.fill(text);
        await field.press("Enter");
        await page.getByText(index === 0 ? /^You rolled \d and \d/ : "Prime among them: [2,7,13].").waitFor();
      }
      await bar.getByRole("button", { name: "Hang up" }).click();
      await bar.waitFor({ state: "hidden" });
      assert.equal(await page.locator("article").count(), 2);
      await page.reload();
      await page.getByText("Prime among them: [2,7,13].").waitFor();
      assert.equal(await page.getByText(/^You rolled/).count(), 1);
      // This model accepts no audio; the page shows the error of the host.
      await page.getByRole("button", { name: "Begin a live conversation" }).click();
      await bar.getByRole("button", { name: "Microphone" }).click();
      await page.getByRole("alert").getByText(/agent `dice` has no live model and takes no `audio\/pcm;rate=16000`/).waitFor();
    },
    { permissions: ["microphone"] },
  ));

test("confirmations of all sessions are answered in the tray, and failures are listed", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/components`);
      await page.getByRole("heading", { name: "Components" }).waitFor();
      const { id } = await host.json("/apps/payments/users/ada/sessions", {});
      const body = { appName: "payments", userId: "ada", sessionId: id, newMessage: { parts: [{ text: "Roll" }] } };
      await host.json("/run", body);
      const bell = page.getByRole("button", { name: /^Waiting for you, and failures: [1-9]/ });
      await bell.click();
      const tray = page.getByRole("region", { name: "Waiting for you, and failures" });
      await tray.getByText("ada with payments").waitFor();
      await assertAccessible(page, "tray");
      const answered = page.waitForResponse((response) => response.url().endsWith("/run_sse"));
      await tray.getByRole("button", { name: "Agree" }).first().click();
      await (await answered).finished();
      await tray.getByText("Nothing waits for you.").waitFor();
      await page.goto(`${host.url}/dev-ui/apps/payments/users/ada/sessions/${id}`);
      await page.getByText("It was rolled.").waitFor();
      // The open conversation follows an answer that is given in the tray.
      await say(page, "Roll again");
      await bell.click();
      await tray.getByRole("button", { name: "Agree" }).click();
      await page.getByText("It was rolled.").nth(1).waitFor();
      assert.equal(await page.getByText("waits for you", { exact: true }).count(), 0);
      await say(page, "Roll once more");
      await tray.getByText("ada with payments").waitFor();
      await page.goto(`${host.url}/dev-ui/sessions?app=payments&user=ada`);
      await bell.click();
      await tray.getByText("ada with payments").waitFor();
      await page.getByRole("button", { name: `Delete ${id}` }).click();
      await page.getByRole("button", { name: "Delete", exact: true }).click();
      await tray.getByText("Nothing waits for you.").waitFor();
      replaceFile(host.file("misbehaver.wasm"), "this is no component");
      await tray.getByRole("link", { name: "misbehaver.wasm" }).waitFor();
      await tray.getByRole("button", { name: "Clear" }).click();
      await tray.getByRole("link", { name: "misbehaver.wasm" }).waitFor({ state: "hidden" });
      replaceFile(host.file("misbehaver.wasm"), component("misbehaver"));
    },
  ));

test("the palette opens every page by name", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/runs`);
    await page.getByRole("heading", { name: "Runs" }).waitFor();
    await page.keyboard.press("Control+k");
    const field = page.getByRole("combobox", { name: /^Go to/ });
    await field.fill("component greet");
    await assertAccessible(page, "palette");
    await field.press("Enter");
    await page.getByRole("heading", { name: "greeter" }).waitFor();
    await page.getByRole("button", { name: "Go to…" }).click();
    await field.fill("evals dice");
    await field.press("ArrowDown");
    await field.press("ArrowUp");
    await page.getByRole("option", { selected: true }).click();
    await page.getByRole("heading", { name: "Evals" }).waitFor();
    assert.match(page.url(), /\/evals\/dice$/);
  }));

test("the palette shows the selected entry in a low window", () =>
  withPage(
    host,
    async (page) => {
      await page.goto(`${host.url}/dev-ui/runs`);
      await page.getByRole("heading", { name: "Runs" }).waitFor();
      await page.keyboard.press("Control+k");
      const field = page.getByRole("combobox", { name: /^Go to/ });
      const isShown = (option) => {
        const [list, entry] = [option.parentElement, option].map((element) => element.getBoundingClientRect());
        return entry.top >= list.top - 1 && entry.bottom <= list.bottom + 1;
      };
      // Apps follow the pages once they are known. At most twelve entries are shown.
      const count = 12;
      await page.getByRole("option").nth(count - 1).waitFor();
      for (let index = 1; index < count; index += 1) {
        await field.press("ArrowDown");
        assert(await page.locator(`#palette-${index}[aria-selected="true"]`).evaluate(isShown), `entry ${index}`);
      }
      await field.press("ArrowDown");
      assert(await page.locator('#palette-0[aria-selected="true"]').evaluate(isShown));
    },
    { viewport: { width: 1280, height: 320 } },
  ));

test("a required login is shown", () =>
  withPage(
    host,
    async (page) => {
      const refusal = { title: "Unauthorized", status: 401, code: "LOGGED_OUT", detail: "the login has ended; log in again at /dev-ui" };
      await page.route("**/list-apps**", (route) => route.fulfill({ status: 401, contentType: "application/problem+json", body: JSON.stringify(refusal) }));
      await page.goto(`${host.url}/dev-ui/components`);
      await page.getByRole("alert").getByText("the login has ended; log in again at /dev-ui").waitFor();
      await assertAccessible(page, "login");
      await page.unroute("**/list-apps**");
      await page.getByRole("button", { name: "Log in" }).click();
      await page.getByRole("alert").waitFor({ state: "hidden" });
    },
    { allowed: [/401/] },
  ));
