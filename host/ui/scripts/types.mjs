// Writes the types of the host's JSON, src/api/wire.ts. With `--check`, fails if they differ from the types of the host.

import { spawn } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { toTypeScript } from "./openapi.mjs";

const file = path.resolve(import.meta.dirname, "../src/api/wire.ts");
const binary = process.env.HATCHERY_BINARY ?? path.resolve(import.meta.dirname, "../../../target/debug/hatchery");

/** Reads the document of a host that serves an empty folder. */
async function readDocument() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "hatchery-openapi-"));
  const host = spawn(binary, ["serve", folder, "--port", "0", "--memory", "--json"], { stdio: ["ignore", "pipe", "ignore"] });
  try {
    for await (const line of readline.createInterface({ input: host.stdout })) {
      return await (await fetch(`${JSON.parse(line).url}/openapi.json`)).json();
    }
    throw new Error(`${binary} ended before it served`);
  } finally {
    const exited = new Promise((resolve) => host.once("exit", resolve));
    if (host.exitCode === null && host.kill()) await exited;
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

const types = toTypeScript(await readDocument());
if (!process.argv.includes("--check")) {
  fs.writeFileSync(file, types);
} else if (fs.readFileSync(file, "utf8") !== types) {
  console.error("host/ui/src/api/wire.ts is not what the host's /openapi.json gives; run `cargo xtask ui` and commit it");
  process.exit(1);
}
