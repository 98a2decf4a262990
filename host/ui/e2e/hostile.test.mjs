import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertAccessible, closeBrowser, component, Host, say, withPage } from "./support.mjs";

after(closeBrowser);

const SCRIPT = "<script>alert('from the model')</script><img src=x onerror=\"alert('image')\">";
const TEXTS = [
  SCRIPT,
  "[a link](javascript:alert(1)) [another](https://example.com/x) ![a picture](https://example.com/beacon.png)",
  "\u202Eright to left\u202C and \u001b[31mred\u001b[0m",
  "| a | b |\n|---|---|\n| <b>cell</b> | `code <i>` |\n\n- item\n\n```html\n<iframe src='https://example.com'></iframe>\n```",
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
      await say(page, "call");
      await page.locator("details.tool > summary").click();
      const links = await page.locator("article a").evaluateAll((links) => links.map((link) => [link.protocol, link.rel]));
      assert.deepEqual(links, [
        ["https:", "noopener noreferrer"],
        ["https:", "noopener noreferrer"],
      ]);
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
      await page.getByRole("button", { name: /Show earlier turns/ }).click();
      await page.goto(`${host.url}/dev-ui/sessions/dice/users/me/sessions/${id}`);
      await page.getByText("10002 of 10002").waitFor();
      await page.getByRole("searchbox").fill("text 4321");
      await page.getByText("1 of 10002").waitFor();
    });
  } finally {
    await host.stop();
  }
});
