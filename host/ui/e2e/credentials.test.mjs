import assert from "node:assert/strict";
import { createServer } from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { assertAccessible, closeBrowser, Host, say, withPage } from "./support.mjs";

const KEY = "k3y-of-ada";
const PASSWORD = "p4ss of ada";

/** An API with orders for those who have a credential, and a token server. */
class Shop {
  credentials = [];
  forms = [];

  async start() {
    this.server = createServer(async (request, response) => {
      let body = "";
      for await (const chunk of request) body += chunk;
      const { status, json } = request.url === "/token" ? this.token(body) : this.orders(request.headers);
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(json));
    });
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  orders({ "x-api-key": key, authorization }) {
    const credential = key ?? authorization;
    this.credentials.push(credential);
    const basic = `Basic ${Buffer.from(`ada:${PASSWORD}`).toString("base64")}`;
    return [KEY, basic, "Bearer us3r-t0ken"].includes(credential) ? { status: 200, json: { orders: 2 } } : { status: 401, json: {} };
  }

  token(form) {
    this.forms.push(new URLSearchParams(form));
    return { status: 200, json: { access_token: "us3r-t0ken", expires_in: 3600 } };
  }
}

const shop = new Shop();
let host;

/** Returns the files of an app whose tool needs a credential of the user. */
function app(name) {
  const document = { openapi: "3.1.0", info: { title: "Shop", version: "1" }, paths: { "/orders": { get: { operationId: "list_orders" } } } };
  return {
    [`${name}/shop.json`]: JSON.stringify(document),
    [`${name}/root_agent.yaml`]: [
      `name: ${name}`,
      `model: scripted:${name}/answers.yaml`,
      "instruction: Answer.",
      "tools:",
      "  - name: OpenAPIToolset",
      `    args: { api: ${name} }`,
    ].join("\n"),
    [`${name}/answers.yaml`]: [
      "turns:",
      "  - when: { tool: list_orders, result: pending }",
      "    reply: I wait for you.",
      "  - when: { tool: list_orders, result: the user has not granted }",
      "    reply: As you like.",
      "  - when: { tool: list_orders }",
      '    reply: "There are {tool.orders} orders."',
      "  - reply: [{ call: { name: list_orders } }]",
    ].join("\n"),
  };
}

before(async () => {
  await shop.start();
  const users = {
    keyed: { api_key: { in: "header", name: "X-Api-Key" } },
    named: { http: "basic" },
    login: { oauth2: { authorization_url: `${shop.url}/authorize`, token_url: `${shop.url}/token`, client_id: "hatchery", scopes: ["orders.read"] } },
  };
  const api = ([name, user]) => [name, { document: `${name}/shop.json`, base_url: `${shop.url}/v1`, auth: { user } }];
  const apis = Object.fromEntries(Object.entries(users).map(api));
  const files = Object.assign({ "hatchery.yaml": JSON.stringify({ openapi: { apis } }) }, ...Object.keys(users).map(app));
  host = await Host.start(files, (folder) => ["--config", path.join(folder, "hatchery.yaml")]);
});

after(async () => {
  await closeBrowser();
  await host?.stop();
  shop.server?.close();
});

const card = (page) => page.getByRole("region", { name: "Credential for list_orders" });

test("a person enters an API key, which the session does not show", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/keyed`);
    await say(page, "Which orders?");
    await card(page).getByText("waits for you").waitFor();
    await card(page).getByText("list_orders needs your API key").waitFor();
    const field = card(page).getByLabel("API key for the header X-Api-Key");
    assert.equal(await field.getAttribute("type"), "password");
    await assertAccessible(page, "credential");
    await field.fill(KEY);
    await field.press("Enter");
    await page.getByText("There are 2 orders.").waitFor();
    await card(page).getByText("you gave it").waitFor();
    assert.deepEqual(shop.credentials.splice(0), [KEY]);
    assert(!(await page.content()).includes(KEY));
    await page.reload();
    await card(page).getByText("you gave it").waitFor();
  }));

test("a person declines, and enters a user name with a password the next time", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/named`);
    await say(page, "Which orders?");
    await card(page).getByRole("button", { name: "Decline" }).click();
    await card(page).getByText("you declined").waitFor();
    await page.getByText("As you like.").waitFor();
    assert.deepEqual(shop.credentials, []);
    await say(page, "Which orders?");
    await card(page).last().getByLabel("User name").fill("ada");
    await card(page).last().getByLabel("Password").fill(PASSWORD);
    await card(page).last().getByRole("button", { name: "Submit" }).click();
    await page.getByText("There are 2 orders.").waitFor();
    assert.equal(shop.credentials.splice(0).length, 1);
  }));

test("a login in another tab answers the conversation that has begun it", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/apps/login`);
    await say(page, "Which orders?");
    const link = card(page).getByRole("link", { name: `Log in at ${new URL(shop.url).host}` });
    const { searchParams } = new URL(await link.getAttribute("href"));
    assert.equal(searchParams.get("redirect_uri"), `${host.url}/dev-ui/`);
    await assertAccessible(page, "login");
    // The OAuth server redirects the other tab to this address.
    const tab = await page.context().newPage();
    await tab.goto(`${host.url}/dev-ui/?${new URLSearchParams({ code: "c0de", state: searchParams.get("state") })}`);
    await tab.getByRole("heading", { name: "The login has ended" }).waitFor();
    assert.equal(tab.url(), `${host.url}/dev-ui/`);
    await page.getByText("There are 2 orders.").waitFor();
    assert.deepEqual(shop.credentials.splice(0), ["Bearer us3r-t0ken"]);
    const [form] = shop.forms;
    assert.deepEqual([form.get("code"), form.get("redirect_uri")], ["c0de", `${host.url}/dev-ui/`]);
  }));

test("a request of another session waits in the tray, which leads to its conversation", () =>
  withPage(host, async (page) => {
    await page.goto(`${host.url}/dev-ui/components`);
    await page.getByRole("heading", { name: "Components" }).waitFor();
    const { id } = await host.json("/apps/keyed/users/grace/sessions", {});
    await host.json("/run", { appName: "keyed", userId: "grace", sessionId: id, newMessage: { parts: [{ text: "Which orders?" }] } });
    await page.getByRole("button", { name: /^Waiting for you, and failures: [1-9]/ }).click();
    const tray = page.getByRole("region", { name: "Waiting for you, and failures" });
    await tray.getByText("needs a credential").first().waitFor();
    await assertAccessible(page, "tray");
    await tray.getByRole("link", { name: "grace with keyed" }).click();
    await card(page).getByText("waits for you").waitFor();
  }));
