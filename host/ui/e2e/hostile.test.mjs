import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertAccessible, closeBrowser, component, Host, sample, say, withPage } from "./support.mjs";

after(closeBrowser);

const SCRIPT = "<script>alert('from the model')</script><img src=x onerror=\"alert('image')\">";
const TEXTS = [
  SCRIPT,
  "[a link](javascript:alert(1)) [another](https://example.com/x) ![a picture](https://example.com/beacon.png)",
  "\u202Eright to left\u202C and \u001b[31mred\u001b[0m",
  "| a | b |\n|---|---|\n| <b>cell</b> | `code <i>` |\n\n- item\n\n```html\n<iframe src='https://example.com'></iframe>\n```",
  `${">".repeat(3000)} deep`,
  "- [x] done\n- [ ] open\n\n[**bold** link](https://example.com/y) ![](https://example.com/z.png)",
];

function answers(texts) {
  const turns = texts.map((text, index) => `  - when: { user: "text ${index}" }\n    reply: ${JSON.stringify(text)}`);
  return `turns:\n${turns.join("\n")}\n  - when: { user: call }\n    reply: [{ call: { name: ${JSON.stringify("roll_die")}, args: { sides: 2, note: ${JSON.stringify(SCRIPT)} } } }]\n  - reply: done\n`;
}

test("texts of components, models and files are shown as text", async () => {
  const host = await Host.start({
    "dice/dice.wasm": component("dice"),
    "dice/answers.yaml": "turns:\n  - reply: hello\n",
    "hostile/root_agent.yaml": `name: hostile\ndescription: ${JSON.stringify(SCRIPT)}\nmodel: scripted:hostile/answers.yaml\ninstruction: x\ntools: [{ name: dice/roll_die }]\n`,
    "hostile/answers.yaml": answers([...TEXTS, "x".repeat(1_000_000)]),
    "broken/root_agent.yaml": `name: broken\nmodel: ${JSON.stringify(SCRIPT)}\ninstruction: x\ntools: [${JSON.stringify(SCRIPT)}]\n`,
  });
  try {
    await withPage(host, async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/hostile`);
      await page.getByText(SCRIPT).waitFor();
      for (let index = 0; index < TEXTS.length; index += 1) await say(page, `text ${index}`);
      await page.getByText(SCRIPT).last().waitFor();
      await page.getByText("<iframe src='https://example.com'></iframe>").waitFor();
      await page.getByText("<b>cell</b>").waitFor();
      await page.getByText(/^>{3000} deep$/).waitFor();
      await say(page, "call");
      await page.locator("details.tool > summary").click();
      const links = await page.locator("article a").evaluateAll((links) => links.map((link) => [link.protocol, link.rel]));
      assert.deepEqual(links, new Array(4).fill(["https:", "noopener noreferrer"]));
      await page.getByRole("link", { name: "bold link", exact: true }).waitFor();
      await page.getByRole("link", { name: "https://example.com/z.png" }).waitFor();
      await page.getByText("☑ done").waitFor();
      assert.equal(await page.locator("main script, main img, main iframe").count(), 0);
      await assertAccessible(page, "hostile texts");
      await say(page, `text ${TEXTS.length}`);
      await page.getByText(/^x{1000}/).waitFor();
      const session = page.url().split("/").at(-1);
      const { runs } = await host.json(`/apps/hostile/users/me/sessions/${session}/runs`);
      for (const { id } of runs.slice(0, 3)) {
        await page.goto(`${host.url}/dev-ui/runs/hostile/users/me/sessions/${session}/${id}`);
        const steps = page.getByRole("region", { name: "Steps" }).getByRole("button");
        await steps.first().waitFor();
        for (const step of await steps.all()) await step.click();
        assert.equal(await page.locator("main script, main img, main iframe").count(), 0);
      }
      for (const place of ["components", "agents/hostile", "runs?app=hostile&user=me", "sessions?app=hostile&user=me", "usage?app=hostile&user=me", "evals/hostile", "build/hostile"]) {
        await page.goto(`${host.url}/dev-ui/${place}`);
        await page.getByRole("heading").first().waitFor();
        await page.waitForFunction(() => document.querySelector("main")?.innerText.length > 40);
      }
    });
  } finally {
    await host.stop();
  }
});

/** Returns the component with other texts, which are padded to the length of those that they replace. */
function withTexts(name, texts) {
  const bytes = component(name);
  for (const [before, after] of texts) {
    const at = bytes.indexOf(before);
    assert(at !== -1 && bytes.indexOf(before, at + 1) === -1, `${before} is once in ${name}`);
    const [length, room] = [Buffer.byteLength(after), Buffer.byteLength(before)];
    assert(length <= room, `${after} is too long`);
    bytes.write(after + ".".repeat(room - length), at);
  }
  return bytes;
}

test("descriptions, schemas, reasons, logs and answers of a hostile component are shown as text", async () => {
  const files = {
    "hatchery.yaml": 'components: { greeter: { grants: { state: { write: ["user:name"] } } } }\n',
    "dice/dice.wasm": withTexts("dice", [
      ["Rolls dice and knows prime numbers.", "<script>alert('agent')</script>"],
      ["Rolls a die and returns the number.", "<img src=x onerror=\"alert(1)\">"],
      ["Returns those of the numbers that are prime.", "\u001b[31m[a](javascript:alert(1)) \u202Etfel"],
      ["Number of sides of the die; 6 by default.", "<iframe src='//example.com'></iframe>"],
    ]),
    "dice/answers.yaml": sample("dice/answers.yaml"),
    "greeter/greeter.wasm": withTexts("greeter", [
      ["it remembers the names of users", "<b onclick=alert(1)>reason</b>"],
      ["Hello! What is your name?", "<svg onload=alert(1)>"],
      ["greeted", "<i>log"],
    ]),
  };
  const host = await Host.start(files, (folder) => ["--config", `${folder}/hatchery.yaml`]);
  try {
    await withPage(host, async (page) => {
      const assertText = async (place) => {
        const found = await page.locator("main :is(script, iframe, img, b, i, [onclick], [onload], [onerror])").count();
        assert.equal(found, 0, place);
        const links = await page.locator("main a").evaluateAll((links) => links.map(({ protocol }) => protocol));
        assert.deepEqual(links.filter((protocol) => protocol !== "http:"), [], place);
        await assertAccessible(page, place);
      };
      await page.goto(`${host.url}/dev-ui/apps/dice`);
      await page.getByText("<script>alert('agent')</script>").first().waitFor();
      await assertText("chat");
      await page.goto(`${host.url}/dev-ui/components/dice`);
      await page.getByText('<img src=x onerror="alert(1)">').first().waitFor();
      await page.getByText("[a](javascript:alert(1))").first().waitFor();
      await page.getByRole("button", { name: "Try roll_die…" }).click();
      // Within the schema, which is folded.
      await page.getByText("<iframe src='//example.com'></iframe>").first().waitFor({ state: "attached" });
      await assertText("component");
      await page.goto(`${host.url}/dev-ui/agents/dice`);
      await page.locator("figure").waitFor();
      await page.goto(`${host.url}/dev-ui/components/greeter`);
      await page.getByText("<b onclick=alert(1)>reason</b>").waitFor();
      await assertText("grants");
      await page.goto(`${host.url}/dev-ui/apps/greeter`);
      await say(page, "Hello");
      await page.getByText("<svg onload=alert(1)>").first().waitFor();
      await assertText("conversation");
      await page.goto(`${host.url}/dev-ui/runs?app=greeter&user=me`);
      await page.getByRole("link", { name: /Hello/ }).first().click();
      await page.getByRole("button", { name: /^greeter .*guest/ }).first().click();
      await page.getByRole("list", { name: "Log" }).getByText("<i>log").waitFor();
      await assertText("log");
    });
  } finally {
    await host.stop();
  }
});

test("a session of 10,000 events stays usable", async () => {
  const files = {
    "hatchery.yaml": "server: { allow_import: true }\nquotas: { session_events: 20000 }\n",
    "dice/dice.wasm": component("dice"),
    "dice/answers.yaml": "turns:\n  - reply: hello\n",
  };
  const host = await Host.start(files, (folder) => ["--config", `${folder}/hatchery.yaml`]);
  try {
    const events = Array.from({ length: 10_000 }, (_, index) => {
      const isUser = index % 2 === 0;
      const content = { role: isUser ? "user" : "model", parts: [{ text: `text ${index}` }] };
      return { author: isUser ? "user" : "dice", invocationId: `e-${index >> 1}`, timestamp: 1000 + index, content };
    });
    const { id } = await host.json("/apps/dice/users/me/sessions", { events });
    await withPage(host, async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice/users/me/sessions/${id}`);
      await page.getByText("text 9999", { exact: true }).waitFor();
      assert((await page.locator("article").count()) <= 40, "only the newest turns are drawn");
      await say(page, "Hello");
      await page.getByText("hello", { exact: true }).waitFor();
      const earlier = page.getByRole("button", { name: /Show earlier turns/ });
      await earlier.scrollIntoViewIfNeeded();
      const first = page.locator("article").getByText(/^text \d+$/).first();
      const seen = page.getByText(await first.innerText(), { exact: true });
      const before = (await seen.boundingBox()).y;
      await earlier.click();
      await page.waitForFunction(() => document.querySelectorAll("article").length > 40);
      await page.waitForFunction(() => document.querySelector("[role=log]").scrollTop > 0);
      assert(Math.abs((await seen.boundingBox()).y - before) < 60, "the turns in view stay there");
      await page.goto(`${host.url}/dev-ui/sessions/dice/users/me/sessions/${id}`);
      await page.getByText("10002 of 10002").waitFor();
      await page.getByRole("searchbox").fill("text 4321");
      await page.getByText("1 of 10002").waitFor();
    });
  } finally {
    await host.stop();
  }
});

test("a run of 2,000 calls with nested results stays usable", async () => {
  const files = {
    "hatchery.yaml": "server: { allow_import: true }\nquotas: { session_events: 20000 }\n",
    "dice/dice.wasm": component("dice"),
    "dice/answers.yaml": "turns:\n  - reply: hello\n",
  };
  const host = await Host.start(files, (folder) => ["--config", `${folder}/hatchery.yaml`]);
  try {
    const result = { rows: Array.from({ length: 10 }, () => ({ cells: Array.from({ length: 10 }, () => ({ deep: "value" })) })) };
    const event = (author, part, index) => ({ author, invocationId: "e-1", timestamp: 1000 + index, content: { role: author === "user" ? "user" : "model", parts: [part] } });
    const calls = Array.from({ length: 2000 }, (_, index) => [
      event("dice", { functionCall: { id: `c-${index}`, name: "look", args: { index } } }, 2 * index + 1),
      event("dice", { functionResponse: { id: `c-${index}`, name: "look", response: result } }, 2 * index + 2),
    ]);
    const { id } = await host.json("/apps/dice/users/me/sessions", { events: [event("user", { text: "Look" }, 0), ...calls.flat()] });
    await withPage(host, async (page) => {
      await page.goto(`${host.url}/dev-ui/apps/dice/users/me/sessions/${id}`);
      await page.getByText("Show earlier steps (1,900 more)").waitFor();
      assert.equal(await page.locator("details.tool").count(), 100);
      assert((await page.locator("main *").count()) < 5000, "closed calls are not drawn");
      await page.locator("details.tool > summary").last().click();
      assert.equal(await page.getByText("deep", { exact: true }).count(), 0, "closed levels are not drawn");
      await page.locator("details.tool").last().locator(".name").getByText("rows", { exact: true }).click();
      const names = page.locator("details.tool").last().locator(".name");
      await names.getByText("9", { exact: true }).waitFor();
      assert.equal(await names.getByText("cells", { exact: true }).count(), 0, "closed levels are not drawn");
      await page.getByText("Show earlier steps (1,900 more)").click();
      await page.getByText("Show earlier steps (1,800 more)").waitFor();
    });
  } finally {
    await host.stop();
  }
});
