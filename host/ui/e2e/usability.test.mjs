// What keeps a page usable: long texts, folders without apps, a host that is away, the focus, titles of tabs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, Host, sampleFolder, say, withPage } from "./support.mjs";

let host;

before(async () => {
  host = await Host.start(sampleFolder());
});

after(async () => {
  await closeBrowser();
  await host?.stop();
});

test("the heading of a run has the beginning of a long message, and the page the whole one", () =>
  withPage(
    host,
    async (page) => {
      const text = `Explain this: ${"one more word ".repeat(300)}and the end.`;
      const { id } = await host.json("/apps/dice/users/author/sessions", {});
      const [event] = await host.json("/run", { appName: "dice", userId: "author", sessionId: id, newMessage: { parts: [{ text }] } });
      await page.goto(`${host.url}/dev-ui/runs/dice/users/author/sessions/${id}/${event.invocationId}`);
      await page.getByText("Measured by the host").waitFor();
      const heading = page.getByRole("heading", { level: 1 });
      assert.match(await heading.innerText(), /^Explain this: one more word .*…$/);
      const { height } = await heading.boundingBox();
      assert(height < 300, `the heading is ${height} pixels high`);
      await page.getByText("The whole message").click();
      await page.getByText("and the end.").first().waitFor();
      await assertAccessible(page, "a run with a long message");
    },
    { viewport: { width: 360, height: 740 } },
  ));

test("pages of a folder without apps say so, and lead to a new app and to rejected files", async () => {
  const own = await Host.start({ "broken/root_agent.yaml": "name: broken\n" });
  try {
    await withPage(own, async (page) => {
      for (const place of ["", "runs", "sessions", "evals", "agents"]) {
        await page.goto(`${own.url}/dev-ui/${place}`);
        await page.getByRole("heading", { name: "No app is loaded" }).waitFor();
        await page.getByRole("link", { name: "Why the host has rejected files" }).waitFor();
        await assertAccessible(page, `${place} without apps`);
      }
      await page.getByRole("link", { name: "build an app here" }).click();
      await page.getByRole("textbox", { name: "Name of a new app" }).waitFor();
    });
  } finally {
    await own.stop();
  }
});

test("the note that the host is away covers nothing and moves nothing out of the window", async () => {
  for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 640 }]) {
    const own = await Host.start(sampleFolder());
    try {
      await withPage(
        own,
        async (page) => {
          await page.goto(`${own.url}/dev-ui/apps/dice`);
          await page.getByText("Rolls dice and knows prime numbers.").waitFor();
          await own.kill();
          const note = page.getByRole("status").getByText("The host cannot be reached");
          await note.waitFor();
          const overflow = await page.getByRole("main").evaluate(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight);
          assert.equal(overflow, 0, "the conversation has the height that is left");
          const [above, main, field] = await Promise.all(
            [note, page.getByRole("main"), page.getByRole("textbox", { name: "Message dice" })].map((element) => element.boundingBox()),
          );
          assert(above.y + above.height <= main.y + 1, "the page begins below the note");
          assert(field.y + field.height <= viewport.height, "the field is in the window");
          await assertAccessible(page, "a host that is away");
        },
        { viewport, allowed: [/ERR_/] },
      );
    } finally {
      await own.stop();
    }
  }
});
