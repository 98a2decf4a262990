// The built web clients of ADK, from the packages of google-adk on PyPI.

import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

/** The newest versions of the two generations of the client. */
export const VERSIONS = ["1.39.1", "2.13.0"];

/** Packages stay here, so that they are downloaded once. */
const cache = path.join(os.tmpdir(), "hatchery-adk-clients");
const folderOf = (version) => path.join(cache, version, "google/adk/cli/browser");

const UNPACK = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); z.extractall(sys.argv[2], [n for n in z.namelist() if n.startswith('google/adk/cli/browser/')])";

function python(...args) {
  const { status, stderr, error } = spawnSync("python3", args, { encoding: "utf8" });
  if (error) throw error;
  if (status !== 0) throw new Error(stderr.trim().split("\n").at(-1));
}

/** Returns the folder of a client, after a download by pip if it is the first time. */
export function download(version) {
  const folder = folderOf(version);
  if (fs.existsSync(path.join(folder, "index.html"))) return folder;
  const packages = fs.mkdtempSync(path.join(os.tmpdir(), "hatchery-pip-"));
  try {
    python("-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--dest", packages, `google-adk==${version}`);
    const [wheel] = fs.readdirSync(packages);
    python("-c", UNPACK, path.join(packages, wheel), path.join(cache, version));
  } finally {
    fs.rmSync(packages, { recursive: true, force: true });
  }
  return folder;
}

/** Resources that the packages lack: fonts are on another host, and a style sheet was left out. */
const OWN_DEFECTS = [/fonts\.(googleapis|gstatic)\.com/, /prism-dark\.css/];
export const isOwnDefect = (text) => OWN_DEFECTS.some((pattern) => pattern.test(text));
