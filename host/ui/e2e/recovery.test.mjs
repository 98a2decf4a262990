// Files of a message, requests that are sent again when the host is back, answers that come too late, the palette.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, Host, sampleFolder, say, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start(sampleFolder());
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

/** Creates a session with runs of these messages. Returns its id and the ids of the runs. */
async function converse(user, ...messages) {
  const { id } = await host.json(`/apps/dice/users/${user}/sessions`, {});
  const runs = [];
  for (const text of messages) {
    const events = await host.json("/run", { appName: "dice", userId: user, sessionId: id, newMessage: { parts: [{ text }] } });
    runs.push(events[0].invocationId);
  }
  return { id, runs };
}

/** Drops or pastes a file with this name and text onto an element. */
const transfer = (locator, type, name, text) =>
  locator.evaluate(
    (element, [type, name, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name, { type: "text/plain" }));
      const init = { bubbles: true, cancelable: true, [type === "paste" ? "clipboardData" : "dataTransfer"]: data };
      element.dispatchEvent(type === "paste" ? new ClipboardEvent(type, init) : new DragEvent(type, init));
    },
    [type, name, text],
  );

test("files are chosen, dropped and pasted, removed and chosen again, and sent", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice/users/files`);
    const message = page.getByRole("group", { name: "New message" });
    const field = message.getByRole("textbox");
    const file = { name: "chosen.txt", mimeType: "text/plain", buffer: Buffer.from("chosen") };
    const choose = async () => {
      const chooser = page.waitForEvent("filechooser");
      await message.getByRole("button", { name: "Attach files" }).click();
      await (await chooser).setFiles(file);
      await message.getByText("chosen.txt").waitFor();
      // A browser reports no change if the same file is chosen again.
      await page.waitForFunction(() => document.querySelector("input[type=file]")?.value === "");
    };
    await choose();
    await message.getByRole("button", { name: "Remove chosen.txt" }).click();
    await message.getByText("chosen.txt").waitFor({ state: "detached" });
    await choose();
    await transfer(field, "drop", "dropped.txt", "dropped");
    await transfer(field, "paste", "pasted.txt", "pasted");
    await message.getByText("pasted.txt").waitFor();
    await say(page, "Throw two dice");
    await message.getByRole("listitem").first().waitFor({ state: "detached" });
    const session = new URL(page.url()).pathname.replace("/dev-ui", "");
    const { events } = await host.json(session);
    const sent = events[0].content.parts.flatMap(({ inlineData }) => (inlineData ? [[inlineData.displayName, Buffer.from(inlineData.data, "base64").toString()]] : []));
    assert.deepEqual(sent, [["chosen.txt", "chosen"], ["dropped.txt", "dropped"], ["pasted.txt", "pasted"]]);
  }));

test("a file that cannot be read is an error, and the next one is attached", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice/users/folders`);
    const message = page.getByRole("group", { name: "New message" });
    await message.waitFor();
    // Browsers do so for a folder.
    await page.evaluate(() => {
      globalThis.readFile = Blob.prototype.arrayBuffer;
      Blob.prototype.arrayBuffer = () => Promise.reject(new DOMException("A requested file could not be found.", "NotFoundError"));
    });
    await transfer(message, "drop", "folder", "");
    await message.getByRole("alert").getByText("a folder cannot be attached").waitFor();
    await page.evaluate(() => (Blob.prototype.arrayBuffer = globalThis.readFile));
    await transfer(message, "drop", "good.txt", "good");
    await message.getByText("good.txt").waitFor();
    assert.equal(await message.getByRole("alert").count(), 0);
  }));

test("a file that takes long to read is attached to the conversation in which it was chosen", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice/users/patient`);
    const message = page.getByRole("group", { name: "New message" });
    await message.waitFor();
    await page.evaluate(() => {
      const readFile = Blob.prototype.arrayBuffer;
      const permission = new Promise((resolve) => (globalThis.permitReading = resolve));
      Blob.prototype.arrayBuffer = async function () {
        await permission;
        return readFile.call(this);
      };
    });
    await transfer(message, "drop", "large.txt", "large");
    await page.getByRole("combobox", { name: "App" }).selectOption("greeter");
    await page.getByRole("textbox", { name: "Message greeter" }).fill("Written meanwhile");
    await page.evaluate(() => globalThis.permitReading());
    await page.getByRole("combobox", { name: "App" }).selectOption("dice");
    await message.getByText("large.txt").waitFor();
    await page.getByRole("combobox", { name: "App" }).selectOption("greeter");
    await page.waitForFunction(() => document.querySelector("textarea")?.value === "Written meanwhile");
    assert.equal(await message.getByText("large.txt").count(), 0);
  }));

test("the files of an app that could not be read while the host was away are shown when it is back", () =>
  withPage(
    host,
    async (page) => {
      const route = /\/dev\/apps\/slow\/files$/;
      await page.route(route, (request) => request.abort());
      await page.goto(`${host.url}/dev-ui/build/slow`);
      await page.getByRole("alert").getByText("The host cannot be reached").waitFor();
      await page.unroute(route);
      await page.getByRole("textbox", { name: "root_agent.yaml" }).waitFor();
      await page.getByRole("alert").waitFor({ state: "hidden" });
    },
    { allowed: [/ERR_FAILED/] },
  ));

test("runs that could not be read while the host was away are compared when it is back", () =>
  withPage(
    host,
    async (page) => {
      const { id, runs } = await converse("pairs", "Throw two dice", "Roll a die with 12 sides");
      const route = `**/apps/dice/users/pairs/sessions/${id}`;
      await page.goto(`${host.url}/dev-ui/runs?app=dice&user=pairs`);
      for (const text of [/Throw two dice/, /Roll a die with 12 sides/]) await page.getByRole("checkbox", { name: text }).check();
      await page.route(route, (request) => request.abort());
      await page.getByRole("link", { name: "Compare the two" }).click();
      await page.getByRole("alert").getByText("The host cannot be reached").waitFor();
      await page.unroute(route);
      await page.getByRole("region", { name: "Steps of both runs" }).getByText("roll_die", { exact: true }).first().waitFor();
      await page.getByRole("alert").waitFor({ state: "hidden" });
      // A run that does not exist is named, and not asked for again.
      const requests = [];
      page.on("request", (request) => request.url().endsWith(id) && requests.push(request.url()));
      const missing = page.url().replace(runs[0], "e-missing");
      assert.notEqual(missing, page.url());
      await page.goto(missing);
      await page.getByRole("alert").getByText(`The session ${id} has no run e-missing.`).waitFor();
      assert.equal(requests.length, 2);
    },
    { allowed: [/ERR_FAILED/] },
  ));

test("the found messages belong to the last search and to its user", () =>
  withPage(
    host,
    async (page) => {
      const { id } = await converse("keeper", "Roll a die with 12 sides");
      const remembered = await fetch(`${host.url}/apps/dice/users/keeper/memory`, {
        method: "PATCH",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ sessionId: id }),
      });
      assert(remembered.ok);
      await page.goto(`${host.url}/dev-ui/sessions?app=dice&user=keeper`);
      const memory = page.getByRole("region", { name: "Memory" });
      const search = async (text) => {
        await memory.getByRole("searchbox").fill(text);
        await memory.getByRole("searchbox").press("Enter");
      };
      // The answer to the first search comes after the answer to the second one.
      let answer;
      const asked = new Promise((resolve) => (answer = resolve));
      await page.route(/memory\?query=nothing$/, async (route) => {
        await asked;
        await route.continue();
      });
      const first = page.waitForResponse(/memory\?query=nothing$/);
      await search("nothing");
      await search("sides");
      await memory.getByText("1 message found").waitFor();
      answer();
      await (await first).finished();
      await memory.getByText("Roll a die with 12 sides").waitFor();
      await page.route(/memory\?query=broken$/, (route) => route.fulfill({ status: 500, json: { code: "STORE", detail: "The disk is full." } }));
      await search("broken");
      await memory.getByRole("alert").getByText("The disk is full.").waitFor();
      assert.equal(await memory.getByText("Roll a die with 12 sides").count(), 0);
      await search("sides");
      await memory.getByText("1 message found").waitFor();
      assert.equal(await memory.getByRole("alert").count(), 0);
      await page.getByRole("textbox", { name: "User" }).fill("another");
      await page.getByRole("textbox", { name: "User" }).press("Enter");
      await memory.getByText("that agents of dice find for another").waitFor();
      assert.equal(await memory.getByText("1 message found").count(), 0);
    },
    { allowed: [/500/] },
  ));

test("the palette shows no sessions of the app before", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/dice/users/mover`);
    await say(page, "Throw two dice");
    let answer;
    const asked = new Promise((resolve) => (answer = resolve));
    const field = page.getByRole("combobox", { name: /^Go to/ });
    const sessions = page.getByRole("option", { name: / session$/ });
    await page.keyboard.press("Control+k");
    await field.fill("session two dice");
    await sessions.waitFor();
    await field.press("Escape");
    // The list of the app before arrives after the list of the open one.
    await page.route(/\/apps\/dice\/users\/mover\/sessions$/, async (route) => {
      await asked;
      await route.continue();
    });
    const late = page.waitForResponse(/\/apps\/dice\/users\/mover\/sessions$/);
    await page.keyboard.press("Control+k");
    await field.press("Escape");
    await page.getByRole("combobox", { name: "App" }).selectOption("greeter");
    await say(page, "My name is Ada.");
    await page.keyboard.press("Control+k");
    await field.fill("session my name");
    await sessions.filter({ hasText: "My name is Ada." }).waitFor();
    answer();
    await (await late).finished();
    assert.equal(await sessions.filter({ hasText: "My name is Ada." }).count(), 1);
    await field.fill("session two dice");
    assert.equal(await sessions.filter({ hasText: "Throw two dice" }).count(), 0);
  }));

test("the palette finds the sessions of the open app, and everything else if they cannot be read", () =>
  withPage(
    host,
    async (page) => {
      await converse("finder", "Throw two dice");
      await page.goto(`${host.url}/dev-ui/apps/dice/users/finder`);
      await say(page, "Roll a die with 20 sides");
      const field = page.getByRole("combobox", { name: /^Go to/ });
      const options = page.getByRole("option");
      await page.keyboard.press("Control+k");
      await field.fill("20 sides");
      await options.filter({ hasText: "Roll a die with 20 sides" }).waitFor();
      await field.fill("no such place");
      await page.getByText("Nothing has this name.").waitFor();
      const { href } = new URL(page.url());
      await field.press("ArrowDown");
      await field.press("Enter");
      assert.deepEqual([page.url(), await field.inputValue()], [href, "no such place"]);
      await field.press("Escape");
      await field.waitFor({ state: "hidden" });
      // It begins anew.
      await page.route(/\/users\/finder\/sessions$/, (route) => route.fulfill({ status: 500, json: { code: "STORE", detail: "The disk is full." } }));
      await page.keyboard.press("Control+k");
      assert.equal(await field.inputValue(), "");
      await field.fill("session");
      await options.getByText("Sessions", { exact: true }).waitFor();
      await field.press("Enter");
      await page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
      assert.match(page.url(), /\/sessions$/);
    },
    { allowed: [/500/] },
  ));
