// Draws the pictures of docs/dev-ui.md: `npm run screenshots` after `cargo xtask components`.

import fs from "node:fs";
import path from "node:path";
import { browser, closeBrowser, component, Host, replaceFile, sample, say, variant } from "./support.mjs";

const output = path.resolve(import.meta.dirname, "../../../docs/images/dev-ui");
const files = {
  "dice/dice.wasm": component("dice"),
  "dice/answers.yaml": sample("dice/answers.yaml"),
  "greeter/greeter.wasm": component("greeter"),
  "help-desk/help-desk.wasm": component("help_desk"),
  "web-fetch/web-fetch.wasm": component("web_fetch"),
  "guide.wasm": component("guide"),
  "payments/root_agent.yaml": [
    "name: payments",
    "description: Sends money, if you agree.",
    "model: scripted:payments/answers.yaml",
    "instruction: Send money.",
    "tools: [{ name: guide/send_money, require_confirmation: true }]",
  ].join("\n"),
  "payments/answers.yaml": [
    "turns:",
    "  - when: { tool: send_money, result: error }",
    "    reply: Please agree to it, or say no.",
    '  - when: { tool: send_money }\n    reply: "Sent {tool.result} euros."',
    '  - reply: [{ call: { name: send_money, args: { euros: "{number}" } } }]',
  ].join("\n"),
  "trip-planner/tools/trip-tools.wasm": component("trip_tools"),
  "dice/rolls.evalset.json": sample("dice/rolls.evalset.json"),
  "dice/test_config.json": sample("dice/test_config.json"),
  "hatchery.yaml": [
    "server:",
    "  max_concurrent_runs: 64",
    "limits: { memory: 32MiB }",
    "prices:",
    "  currency: EUR",
    "  models:",
    '    "scripted:trip-planner/answers.yaml": { input: 100, output: 400 }',
  ].join("\n"),
};
for (const name of fs.readdirSync(path.resolve(import.meta.dirname, "../../../sample-agents/trip-planner"))) {
  if (name.endsWith(".yaml")) files[`trip-planner/${name}`] = sample(`trip-planner/${name}`);
}

const host = await Host.start(files, (folder) => ["--config", path.join(folder, "hatchery.yaml")]);
fs.mkdirSync(output, { recursive: true });

async function open(colorScheme, viewport, user) {
  const context = await (await browser()).newContext({ viewport, colorScheme, reducedMotion: "reduce", locale: "en-GB" });
  await context.addInitScript((user) => localStorage.setItem("hatchery-user", user), user);
  const page = await context.newPage();
  const shoot = async (name) => {
    // The button of the last click would stay marked.
    await page.mouse.move(0, 0);
    await page.evaluate(() => document.activeElement instanceof HTMLElement && document.activeElement.blur());
    await page.screenshot({ path: path.join(output, `${name}.png`) });
  };
  const visit = async (place) => {
    await page.goto(`${host.url}/dev-ui/${place}`);
    await page.getByRole("heading").first().waitFor();
    // The stream of events never ends, so there is no idle network.
    await page.waitForFunction(() => document.querySelector("main")?.innerText.length > 20 && !document.querySelector("main .spinner"));
  };
  return { context, page, shoot, visit };
}

async function converse(page, visit) {
  await visit("apps/dice");
  for (const text of ["Throw two dice", "Roll a die with 1 side", "Which of 2, 4, 7, 9 and 13 are prime?"]) await say(page, text);
  await page.getByText("Prime among them").waitFor();
}

for (const theme of ["light", "dark"]) {
  const { context, page, shoot, visit } = await open(theme, { width: 1280, height: 800 }, theme === "light" ? "ada" : "grace");
  await converse(page, visit);
  await page.locator("details.tool > summary").last().click();
  await page.getByRole("button", { name: "Inspect the event" }).last().click();
  await shoot(`chat-${theme}`);
  await visit("apps/payments");
  await say(page, "Send 50 euros");
  await page.getByRole("button", { name: "Agree" }).waitFor();
  await shoot(`confirmation-${theme}`);
  await visit("apps/trip-planner");
  await say(page, "Plan 3 nights in Lisbon.");
  const url = new URL(page.url());
  const session = decodeURIComponent(url.pathname.split("/").at(-1));
  const user = decodeURIComponent(url.pathname.split("/").at(-3));
  await visit(`runs?app=trip-planner&user=${user}`);
  await page.locator("main li a").first().click();
  await page.getByRole("button", { name: /^estimate_cost/ }).first().click();
  await page.getByRole("region", { name: "Step", exact: true }).waitFor();
  await page.locator("main").evaluate((main) => main.scrollTo(0, 0));
  await shoot(`run-${theme}`);
  await visit(`runs?app=dice&user=${user}`);
  await page.locator("main li a").first().waitFor();
  await page.getByRole("checkbox", { name: /Throw two dice/ }).check();
  await page.getByRole("checkbox", { name: /Roll a die with 1 side/ }).check();
  await shoot(`runs-${theme}`);
  await page.getByRole("link", { name: "Compare the two" }).click();
  await page.getByRole("region", { name: "Steps of both runs" }).waitFor();
  await shoot(`compare-${theme}`);
  await visit("settings");
  await page.getByRole("region", { name: "Host" }).waitFor();
  await page.getByRole("region", { name: "limits" }).scrollIntoViewIfNeeded();
  await shoot(`settings-${theme}`);
  await visit("agents/trip-planner");
  await page.locator("figure").waitFor();
  await shoot(`agents-${theme}`);
  await visit(`sessions?app=dice&user=${user}`);
  await page.getByRole("cell").first().waitFor();
  await shoot(`sessions-${theme}`);
  await visit(`sessions/trip-planner/users/${user}/sessions/${session}`);
  await page.locator("button.line").nth(3).click();
  await shoot(`session-${theme}`);
  await visit("components");
  const dice = host.file("dice/dice.wasm");
  const changes = page.getByRole("region", { name: "Changes since this page was opened" });
  replaceFile(dice, variant(component("dice"), theme));
  await changes.getByText("replaced").waitFor();
  replaceFile(host.file("help-desk/help-desk.wasm"), "this is no component");
  await changes.getByText("rejected").waitFor();
  await shoot(`components-${theme}`);
  await visit("apps/greeter");
  await say(page, "My name is Ada.");
  await visit("components/greeter");
  await page.getByText("To grant the missing access").waitFor();
  await page.getByRole("region", { name: "Limits of each call" }).getByText(/^p99/).first().waitFor();
  await shoot(`component-${theme}`);
  replaceFile(host.file("help-desk/help-desk.wasm"), component("help_desk"));
  await visit("components/dice");
  await page.getByRole("button", { name: "Try roll_die…" }).click();
  await page.getByRole("button", { name: "Call" }).click();
  await page.getByText(/, CPU \d/).waitFor();
  await page.getByRole("form").scrollIntoViewIfNeeded();
  await shoot(`tool-${theme}`);
  await visit("evals/dice");
  const evaluated = page.waitForResponse((response) => response.url().endsWith("/eval-sets/rolls/run"));
  await page.getByRole("button", { name: "Run all" }).click();
  await (await evaluated).finished();
  await page.getByRole("button", { name: /just now/ }).waitFor();
  await page.getByRole("button", { name: "dice_then_primes", exact: true }).click();
  await page.getByRole("region", { name: "Run 1 of dice_then_primes" }).waitFor();
  await shoot(`evals-${theme}`);
  await visit(`usage?app=trip-planner&user=${user}`);
  await page.getByRole("region", { name: "Tools", exact: true }).waitFor();
  await shoot(`usage-${theme}`);
  await visit("build/payments");
  const editor = page.getByRole("textbox", { name: "root_agent.yaml" });
  await editor.fill((await editor.inputValue()).replace("guide/send_money", "guide/send_mony"));
  await page.getByRole("button", { name: /^root_agent.yaml:5/ }).waitFor();
  await shoot(`build-${theme}`);
  await context.close();
}

const { context, page, shoot, visit } = await open("dark", { width: 390, height: 800 }, "edsger");
await converse(page, visit);
await shoot("chat-narrow-dark");
await context.close();
await closeBrowser();
await host.stop();
