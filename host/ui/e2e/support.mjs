// A host with a temporary folder, and a browser that fails a test on console errors and requests to other hosts.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const repository = path.resolve(import.meta.dirname, "../../..");
const binary = process.env.HATCHERY_BINARY ?? path.join(repository, "target/debug/hatchery");
const components = process.env.HATCHERY_COMPONENTS ?? path.join(repository, "target/wasm32-wasip2/guest");
const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--use-fake-device-for-media-stream",
];

/** The timeout of all waits. */
const TIMEOUT = 30_000;

/** Returns the bytes of a built component. */
export function component(name) {
  return fs.readFileSync(path.join(components, `${name}.wasm`));
}

/** Returns the component with a custom section, which changes its hash and nothing else. */
export function variant(bytes, text) {
  const name = Buffer.from("variant");
  const content = Buffer.concat([Buffer.from([name.length]), name, Buffer.from(text)]);
  assert(content.length < 128, "the length fits into one byte");
  return Buffer.concat([bytes, Buffer.from([0, content.length]), content]);
}

/** Replaces a file atomically: other programs see the old or the new one. */
export function replaceFile(file, content) {
  const temporary = path.join(path.dirname(file), `.${path.basename(file)}.tmp`);
  fs.writeFileSync(temporary, content);
  fs.renameSync(temporary, file);
}

export function sample(file) {
  return fs.readFileSync(path.join(repository, "sample-agents", file), "utf8");
}

export class Host {
  /** Starts a host that serves these files, given as a map from paths to contents. `args` may depend on the folder. */
  static async start(files, args = [], environment = {}) {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "hatchery-ui-"));
    for (const [name, content] of Object.entries(files)) {
      const file = path.join(folder, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, content);
    }
    const host = new Host();
    Object.assign(host, { folder, environment, args: typeof args === "function" ? args(folder) : args });
    await host.launch(0);
    return host;
  }

  async launch(port) {
    const options = ["serve", this.folder, "--port", String(port), "--json", ...this.args];
    this.process = spawn(binary, options, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, RUST_LOG: "warn", ...this.environment } });
    this.log = "";
    this.process.stderr.on("data", (data) => (this.log += data));
    const exited = new Promise((resolve) => this.process.once("exit", resolve));
    this.exited = exited;
    const lines = readline.createInterface({ input: this.process.stdout });
    const ready = (async () => {
      for await (const line of lines) {
        const { url, loading } = JSON.parse(line);
        if (loading.length === 0) return url;
      }
      throw new Error(`the host has stopped:\n${this.log}`);
    })();
    this.url = await ready;
    this.port = Number(new URL(this.url).port);
  }

  file(name) {
    return path.join(this.folder, name);
  }

  /** Ends the process as a crash does. */
  async kill() {
    this.process.kill("SIGKILL");
    await this.exited;
  }

  async stop() {
    await this.kill();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  async json(target, body) {
    const init = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const response = await fetch(this.url + target, init);
    assert(response.ok, `${target}: ${response.status} ${await response.clone().text()}`);
    return response.json();
  }
}

let shared;

export async function browser() {
  shared ??= await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  return shared;
}

export async function closeBrowser() {
  await shared?.close();
}

/** Runs a test in a new page. Fails on console errors, exceptions, dialogs, CSP violations and requests to other origins. */
export async function withPage(host, test, { allowed = [], ...options } = {}) {
  const context = await (await browser()).newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const problems = [];
  const isAllowed = (text) => allowed.some((pattern) => pattern.test(text));
  await context.addInitScript(() => {
    globalThis.violations = [];
    addEventListener("securitypolicyviolation", (event) => {
      globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
    });
  });
  // Requests to other origins are blocked, and fail the test.
  await context.route(
    (url) => url.origin !== new URL(host.url).origin && url.protocol.startsWith("http"),
    (route) => {
      problems.push(`a request to another origin: ${route.request().url()}`);
      return route.abort();
    },
  );
  const page = await context.newPage();
  page.on("console", (message) => {
    const text = message.text();
    if (["error", "warning"].includes(message.type()) && !isAllowed(text)) problems.push(`${message.type()}: ${text}`);
  });
  page.on("pageerror", (error) => problems.push(`exception: ${error.stack}`));
  page.on("dialog", (dialog) => {
    problems.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  try {
    await test(page);
    problems.push(...(await page.evaluate(() => globalThis.violations)));
    assert.deepEqual(problems, []);
  } catch (error) {
    if (process.env.HATCHERY_UI_SHOTS) {
      await page.screenshot({ path: path.join(process.env.HATCHERY_UI_SHOTS, `failure-${Date.now()}.png`) });
    }
    if (problems.length > 0) error.message += `\n${problems.join("\n")}`;
    throw error;
  } finally {
    await context.close();
  }
}

/** Checks the page with axe. */
export async function assertAccessible(page, name) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join("\n  ")}`);
  });
  assert.deepEqual(found, [], name);
  // A label names the first element that has its id.
  const ids = await page.evaluate(() => [...document.querySelectorAll("[id]")].map(({ id }) => id));
  assert.deepEqual(ids.filter((id, index) => ids.indexOf(id) !== index), [], `${name}: ids of several elements`);
}

/** Sends a message and waits until the run has ended. */
export async function say(page, text) {
  const field = page.getByRole("textbox", { name: /^Message / });
  await field.fill(text);
  await field.press("Enter");
  await page.getByRole("button", { name: "Send" }).waitFor();
}

/** The folder that most tests serve. */
export function sampleFolder() {
  return {
    "dice/dice.wasm": component("dice"),
    "dice/answers.yaml": sample("dice/answers.yaml"),
    "greeter/greeter.wasm": component("greeter"),
    "payments/root_agent.yaml": [
      "name: payments",
      "description: Rolls dice when you agree.",
      "model: scripted:payments/answers.yaml",
      "instruction: Roll.",
      "tools:",
      "  - name: dice/roll_die",
      "    require_confirmation: true",
    ].join("\n"),
    "payments/answers.yaml": [
      "turns:",
      "  - when: { tool: roll_die, result: error }",
      "    reply: It needs your consent.",
      "  - when: { tool: roll_die }",
      "    reply: It was rolled.",
      "  - reply: [{ call: { name: roll_die, args: { sides: 6 } } }]",
    ].join("\n"),
    "slow/root_agent.yaml": "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Answer slowly.\n",
    "slow/answers.yaml": [
      "turns:",
      "  - when: { user: again }",
      "    reply: Here I am again.",
      "  - chunk_delay_ms: 60000",
      "    reply: [{ text: one two three four, chunks: 4 }]",
    ].join("\n"),
  };
}
