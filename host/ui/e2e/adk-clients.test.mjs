// The unmodified web clients of ADK work with the host: every panel, without a failed request or an error in the console.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { download, isOwnDefect, VERSIONS } from "./adk-clients.mjs";
import { browser, closeBrowser, Host, sample, sampleFolder } from "./support.mjs";

const TIMEOUT = 20_000;

after(closeBrowser);

/** Returns a button with an icon, whose name is its only text. */
const icon = (page, name) => page.locator("button", { has: page.locator("mat-icon", { hasText: new RegExp(`^\\s*${name}\\s*$`) }) });

async function send(page, text) {
  const field = page.locator("textarea").first();
  await field.fill(text);
  await field.press("Enter");
}

/** Runs a test in a page of the client. Fails if the page has shown an error or a request has failed. */
async function withClient(host, test) {
  const context = await (await browser()).newContext({ viewport: { width: 1500, height: 950 } });
  context.setDefaultTimeout(TIMEOUT);
  const problems = [];
  await context.route(
    (url) => url.protocol.startsWith("http") && url.origin !== new URL(host.url).origin,
    (route) => {
      const url = route.request().url();
      if (!isOwnDefect(url)) problems.push(`a request to another origin: ${url}`);
      return route.abort();
    },
  );
  const page = await context.newPage();
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (message.type() === "error" && !isOwnDefect(text)) problems.push(`console: ${text}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.stack}`));
  page.on("response", (response) => {
    if (response.status() >= 400) problems.push(`${response.status()}: ${response.request().method()} ${response.url()}`);
  });
  try {
    await test(page);
    assert.deepEqual(problems, []);
  } catch (error) {
    if (problems.length > 0) error.message += `\n${problems.join("\n")}`;
    throw error;
  } finally {
    await context.close();
  }
}

async function converse(page, host) {
  await page.goto(`${host.url}/dev-ui/`);
  const app = page.getByText("dice", { exact: true });
  // The newer client opens the list by itself.
  await app.or(page.getByText("Select an app", { exact: true })).first().waitFor();
  if (!(await app.isVisible())) await page.locator(".selector-button").first().click();
  for (const name of ["greeter", "payments", "slow"]) await page.getByText(name, { exact: true }).first().waitFor();
  await app.first().click();
  await send(page, "Throw two dice");
  await page.getByText(/You rolled \d and \d\./).first().waitFor();
}

async function openEvent(page) {
  await page.getByText(/You rolled/).first().click();
  await icon(page, "input").last().click();
  await page.getByText("Roll dice with `roll_die`").first().waitFor();
  await icon(page, "output").last().click();
  await page.getByText('"STOP"').first().waitFor();
  await icon(page, "analytics").last().click();
  await page.getByText(/totalTokenCount/).first().waitFor();
  await icon(page, "account_tree").last().click();
  await page.locator("svg text", { hasText: "roll_die" }).first().waitFor();
  await icon(page, "info").last().click();
  await page.getByText("Invocation ID").first().waitFor();
}

async function openTrace(page) {
  await page.getByText("Traces", { exact: true }).click();
  await page.getByText(/^\s*Total latency: /).waitFor();
  await page.getByText(/call_guest dice/).first().waitFor();
  await page.getByText("Events", { exact: true }).click();
}

async function openSession(page, host) {
  await page.getByRole("tab", { name: "State" }).click();
  await page.getByText("last_sides").first().waitFor();
  const session = new URL(page.url()).searchParams.get("session");
  await page.locator(".selector-button").nth(1).click();
  await page.getByText(session).first().waitFor();
  await page.goto(`${host.url}/dev-ui/?app=dice&userId=user&session=${session}`);
  await page.getByText(/You rolled/).first().waitFor();
  await page.getByRole("button", { name: "New Session" }).click();
  await page.getByText(/You rolled/).waitFor({ state: "detached" });
}

/** Checks that a file of a message becomes an artifact that an event reports. */
async function openArtifact(page, host) {
  const place = "/apps/dice/users/me/sessions";
  await host.json(place, { sessionId: "with-file" });
  const inlineData = { mimeType: "text/plain", data: Buffer.from("milk and eggs").toString("base64") };
  const newMessage = { role: "user", parts: [{ text: "Throw two dice" }, { inlineData }] };
  await host.json("/run", { appName: "dice", userId: "me", sessionId: "with-file", newMessage });
  await page.goto(`${host.url}/dev-ui/?app=dice&userId=me&session=with-file`);
  await page.getByText(/You rolled/).first().waitFor();
  await page.getByRole("tab", { name: "Artifacts" }).click();
  const downloaded = page.waitForEvent("download");
  await icon(page, "file_download").first().click();
  assert.equal(fs.readFileSync(await (await downloaded).path(), "utf8"), "milk and eggs");
}

async function evaluate(page) {
  await page.getByRole("tab", { name: "Evals" }).click();
  await page.getByText("rolls", { exact: true }).first().click();
  for (const name of ["twenty_sides", "impossible_die", "dice_then_primes"]) await page.getByText(name).first().waitFor();
  const ran = page.waitForResponse((response) => /\/run(_eval|-eval)?$/.test(response.url()) && response.request().method() === "POST");
  await page.getByText(/^\s*Run (All|Evaluation)\s*$/).first().click();
  await page.getByRole("button", { name: /(Run|Start)\s*$/ }).last().click();
  await ran;
  await page.getByText(/\d PASS|\d\/3|PASS/i).first().waitFor();
}

async function openStructure(page) {
  await icon(page, "account_tree").first().click();
  await page.locator("svg text", { hasText: "check_prime" }).last().waitFor();
  await page.keyboard.press("Escape");
}

async function confirm(page, host) {
  await page.goto(`${host.url}/dev-ui/?app=payments`);
  await send(page, "Send 50");
  await page.getByText(/Please approve or reject/).waitFor();
  await page.locator("input[type=checkbox]").last().check();
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByText("It was rolled.").waitFor();
}

/** Makes a test of a session, and runs it. Only the newer client has this panel. */
async function testSession(page, host) {
  await host.json("/apps/hello/users/me/sessions", { sessionId: "first" });
  const newMessage = { role: "user", parts: [{ text: "Good morning" }] };
  await host.json("/run", { appName: "hello", userId: "me", sessionId: "first", newMessage });
  await page.goto(`${host.url}/dev-ui/?app=hello&userId=me&session=first&tests=true`);
  await page.getByText("Hello to you.").first().waitFor();
  await page.getByRole("tab", { name: "Tests" }).click();
  await page.getByText("No tests found for this agent.").waitFor();
  await page.getByRole("button", { name: "From Current Session" }).click();
  const listed = page.waitForResponse((response) => response.url().endsWith("/tests"));
  await page.getByRole("button", { name: "Submit" }).click();
  assert.deepEqual(await (await listed).json(), ["first.json"]);
  // The client shows the list with the next change of the page.
  await page.locator("app-tests-tab mat-icon", { hasText: /^\s*refresh\s*$/ }).click();
  await page.locator("td", { hasText: /^\s*first\s*$/ }).waitFor();
  await page.getByRole("button", { name: "Run All" }).click();
  await page.locator("pre", { hasText: "first.json: passed\n1 passed, 0 failed" }).waitFor();
  await page.getByRole("button", { name: "Close" }).click();
  // A click on a row shows its events. The button that deletes a test is in the row, so the client then asks for a test that is gone.
  await page.locator("td", { hasText: /^\s*first\s*$/ }).click();
  await page.getByText("Hello to you.").first().waitFor();
}

for (const version of VERSIONS) {
  test(`every panel of ADK's web client ${version} works`, async (context) => {
    let client;
    try {
      client = download(version);
    } catch (error) {
      console.error(`\nSKIPPED: the web client of google-adk ${version} was not tested, because pip cannot download it: ${error.message}\n`);
      return context.skip(error.message);
    }
    const files = {
      ...sampleFolder(),
      "dice/rolls.evalset.json": sample("dice/rolls.evalset.json"),
      "dice/test_config.json": sample("dice/test_config.json"),
      "hatchery.yaml": "app_defaults: { save_input_blobs_as_artifacts: true }\n",
      "hello/root_agent.yaml": "name: hello\nmodel: scripted:hello/answers.yaml\ninstruction: Greet.\n",
      "hello/answers.yaml": "turns:\n  - reply: Hello to you.\n",
    };
    const host = await Host.start(files, (folder) => ["--dev-ui-dir", client, "--config", path.join(folder, "hatchery.yaml")]);
    try {
      await withClient(host, async (page) => {
        await converse(page, host);
        await openEvent(page);
        await openTrace(page);
        await openSession(page, host);
        await openArtifact(page, host);
        await evaluate(page);
        await openStructure(page);
        await confirm(page, host);
        if (version.startsWith("2.")) await testSession(page, host);
      });
    } finally {
      await host.stop();
    }
  });
}
