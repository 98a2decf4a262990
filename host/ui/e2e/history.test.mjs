// Forks, rewinds and changed messages; two runs side by side; a session as an eval case; the settings; the live graph.

import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, Host, sampleFolder, say, withPage } from "./support.mjs";

const CONFIG = `server:
  max_connections: 77
prices:
  currency: EUR
  models:
    "scripted:dice/answers.yaml": { input: 100000, output: 200000 }
openapi:
  apis:
    shop: { document: shop.json, auth: { bearer: s3cret } }
`;

const SHOP = JSON.stringify({ openapi: "3.1.0", info: { title: "Shop", version: "1" }, servers: [{ url: "http://127.0.0.1:1" }], paths: {} });

let host;

before(async () => {
  const files = { ...sampleFolder(), "hatchery.yaml": CONFIG, "shop.json": SHOP };
  host = await Host.start(files, (folder) => ["--config", path.join(folder, "hatchery.yaml")]);
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

/** Begins a conversation and returns the path of its session. */
async function converse(page, user, ...messages) {
  await page.goto(`${host.url}/dev-ui/apps/dice/users/${user}`);
  for (const message of messages) await say(page, message);
  return `/apps/dice/users/${user}/sessions/${new URL(page.url()).pathname.split("/").at(-1)}`;
}

const texts = (session) => session.events.flatMap(({ author, content }) => (author === "user" ? content.parts[0].text : []));

test("a message is changed and sent in a copy of the session", () =>
  withPage(host, async (page) => {
    const original = await converse(page, "edits", "Throw two dice", "Which of 2, 4 and 7 are prime?");
    await page.getByRole("button", { name: "Edit in a copy of the session" }).nth(1).click();
    await assertAccessible(page, "a message that is edited");
    const draft = page.getByRole("textbox", { name: "Changed message" });
    await draft.fill("Roll a die with 12 sides");
    await page.getByRole("button", { name: "Send", exact: true }).first().click();
    await page.waitForURL((url) => !url.pathname.endsWith(original));
    await page.getByText("Roll a die with 12 sides").waitFor();
    await page.getByRole("button", { name: "Edit in a copy of the session" }).nth(1).waitFor();
    const copy = new URL(page.url()).pathname.replace("/dev-ui", "");
    assert.deepEqual(texts(await host.json(copy)), ["Throw two dice", "Roll a die with 12 sides"]);
    assert.deepEqual(texts(await host.json(original)), ["Throw two dice", "Which of 2, 4 and 7 are prime?"]);
    await page.getByRole("button", { name: "Repeat in a copy of the session" }).first().click();
    await page.waitForURL((url) => !url.pathname.endsWith(copy));
    await page.getByRole("button", { name: "Edit in a copy of the session" }).first().waitFor();
    const again = new URL(page.url()).pathname.replace("/dev-ui", "");
    assert.deepEqual(texts(await host.json(again)), ["Throw two dice"]);
  }));

test("a session is forked after an event and rewound to it", () =>
  withPage(host, async (page) => {
    const original = await converse(page, "history", "Throw two dice", "Roll a die with 12 sides");
    const { events } = await host.json(original);
    await page.goto(`${host.url}/dev-ui/sessions${original.replace("/apps", "")}`);
    const first = page.getByRole("button", { name: /Throw two dice/ });
    await first.click();
    await assertAccessible(page, "an event of a session");
    await page.getByRole("button", { name: "Fork after this event" }).click();
    await page.waitForURL((url) => !url.pathname.endsWith(original.split("/").at(-1)));
    await first.waitFor();
    const copy = new URL(page.url()).pathname.replace("/dev-ui/sessions", "/apps");
    assert.equal((await host.json(copy)).events.length, 1);
    await page.goBack();
    await page.getByRole("button", { name: /You rolled/ }).first().click();
    await page.getByRole("button", { name: "Rewind to this event…" }).click();
    await page.getByText(`Remove ${events.length - 4} events after this one`).waitFor();
    await page.getByRole("button", { name: "Rewind", exact: true }).click();
    await page.getByRole("button", { name: /Roll a die with 12 sides/ }).waitFor({ state: "detached" });
    const rewound = await host.json(original);
    assert.deepEqual([rewound.events.length, rewound.state.last_sides], [4, 6]);
  }));

test("two runs are compared step by step", () =>
  withPage(host, async (page) => {
    await converse(page, "pairs", "Throw two dice", "Roll a die with 12 sides");
    await page.goto(`${host.url}/dev-ui/runs?app=dice&user=pairs`);
    await page.getByRole("checkbox", { name: /Throw two dice/ }).check();
    await page.getByRole("checkbox", { name: /Roll a die with 12 sides/ }).check();
    await assertAccessible(page, "runs that are chosen");
    await page.getByRole("link", { name: "Compare the two" }).click();
    const steps = page.getByRole("region", { name: "Steps of both runs" });
    await steps.locator("tr.different mark", { hasText: "12" }).first().waitFor();
    await steps.getByText("roll_die", { exact: true }).first().waitFor();
    await page.getByText(/\d+ steps of \d+ differ/).waitFor();
    await assertAccessible(page, "two runs");
  }));

test("a session is saved as a case of a new eval set", () =>
  withPage(host, async (page) => {
    const session = await converse(page, "cases", "Throw two dice");
    await page.goto(`${host.url}/dev-ui/sessions${session.replace("/apps", "")}`);
    await page.getByRole("button", { name: "Save as eval case" }).click();
    const form = page.getByRole("form", { name: "Save as an eval case" });
    await form.getByLabel("Name of the set").fill("saved");
    await form.getByLabel("Name of the case").fill("two_dice");
    await assertAccessible(page, "the form of an eval case");
    await form.getByRole("button", { name: "Save" }).click();
    await form.getByRole("link", { name: "saved" }).click();
    await page.getByText("two_dice", { exact: true }).first().waitFor();
    const { conversation } = await host.json("/dev/apps/dice/eval-sets/saved/eval-cases/two_dice");
    assert.equal(conversation[0].userContent.parts[0].text, "Throw two dice");
  }));

test("settings are shown with their origins, without secrets", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/settings`);
    const server = page.getByRole("region", { name: "server", exact: true });
    await server.getByText("hatchery.yaml:2").waitFor();
    await server.getByText("77", { exact: true }).waitFor();
    const shop = page.getByRole("region", { name: "openapi", exact: true });
    await shop.getByText("hatchery.yaml:9").first().waitFor();
    await shop.getByText("not shown").first().waitFor();
    await page.getByRole("region", { name: "Host" }).getByText("--port").waitFor();
    assert(!(await page.content()).includes("s3cret"));
    await assertAccessible(page, "settings");
    await page.getByRole("checkbox", { name: "without defaults" }).check();
    await page.getByRole("searchbox", { name: "Search settings" }).fill("max_connections");
    await page.getByText("1 setting", { exact: true }).waitFor();
  }));

test("usage has the costs at the prices of the operator", () =>
  withPage(host, async (page) => {
    const session = await converse(page, "buyer", "Throw two dice");
    const { events } = await host.json(session);
    const sum = (key) => events.reduce((sum, event) => sum + (event.usageMetadata?.[key] ?? 0), 0);
    const cost = sum("promptTokenCount") * 0.1 + sum("candidatesTokenCount") * 0.2;
    await page.goto(`${host.url}/dev-ui/usage?app=dice&user=buyer`);
    const text = `They cost €${cost.toFixed(2)}.`;
    await page.getByRole("region", { name: "Stored runs" }).getByText(text).waitFor();
    await page.getByRole("region", { name: "Models", exact: true }).getByRole("columnheader", { name: "cost" }).waitFor();
    await assertAccessible(page, "usage with costs");
  }));

test("the graph shows the active agents and tools during a run", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/slow/users/live`);
    const field = page.getByRole("textbox", { name: "Message slow" });
    await field.fill("go");
    await field.press("Enter");
    await page.getByRole("button", { name: "Inspector" }).click();
    const graph = page.getByRole("figure", { name: "Graph of the agents" });
    await graph.getByText("Active now: slow").waitFor({ state: "attached" });
    await graph.locator("g.active", { hasText: "slow" }).waitFor();
    await assertAccessible(page, "the graph of an active run");
    await page.getByRole("button", { name: "Stop" }).click();
    await graph.locator("g.active").waitFor({ state: "detached" });
    await graph.locator("g.past", { hasText: "slow" }).waitFor();
  }));
