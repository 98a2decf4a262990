// The page over HTTPS: requests and WebSockets share a connection over HTTP/2.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { after, test } from "node:test";
import path from "node:path";
import { Host, closeBrowser, sampleFolder, say, withPage } from "./support.mjs";

after(closeBrowser);

const skip = spawnSync("openssl", ["version"]).status === 0 ? false : "openssl is not installed";

/** Writes a certificate for this machine into a folder, and returns the flags with which a host serves it. */
function serveHttps(folder) {
  const [key, certificate, config] = ["key.pem", "cert.pem", "operator.yaml"].map((name) => path.join(folder, "tls", name));
  fs.mkdirSync(path.dirname(key));
  const request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost";
  const subject = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate];
  execFileSync("openssl", [...request.split(" "), ...subject], { stdio: "pipe" });
  fs.writeFileSync(config, JSON.stringify({ server: { tls: { certificate, key } } }));
  return ["--config", config];
}

test("over HTTPS, runs by events and live runs by WebSocket use HTTP/2", { skip }, async () => {
  const host = await Host.start(sampleFolder(), serveHttps);
  try {
    await withPage(
      host,
      async (page) => {
        const statuses = [];
        const protocol = await page.context().newCDPSession(page);
        await protocol.send("Network.enable");
        protocol.on("Network.webSocketHandshakeResponseReceived", ({ response }) => statuses.push(response.status));
        await page.goto(`${host.url}/dev-ui/apps/dice/users/me`);
        await say(page, "Throw two dice");
        await page.getByText(/^You rolled \d and \d/).waitFor();
        await page.goto(`${host.url}/dev-ui/apps/dice/users/live`);
        await page.getByRole("button", { name: "Begin a live conversation" }).click();
        await page.getByRole("region", { name: "Live conversation" }).getByText("live", { exact: true }).waitFor();
        const field = page.getByRole("textbox", { name: "Message dice" });
        await field.fill("Throw two dice");
        await field.press("Enter");
        await page.getByText(/^You rolled \d and \d/).waitFor();
        const used = await page.evaluate(() => performance.getEntries().map((entry) => entry.nextHopProtocol).filter(Boolean));
        assert.deepEqual([...new Set(used)], ["h2"]);
        // Over HTTP/1.1 it would be 101.
        assert.deepEqual(statuses, [200]);
      },
      { ignoreHTTPSErrors: true },
    );
  } finally {
    await host.stop();
  }
});
