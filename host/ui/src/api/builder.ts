// The YAML files of apps.

import { getJson, path, sendJson } from "./http";
import type { AppFile, Diagnostic } from "./types";

export type Texts = { [path: string]: string };

const appPath = (app: string) => `dev/apps/${path(app)}`;

export const readFiles = async (app: string) => (await getJson<{ files: AppFile[] }>(`${appPath(app)}/files`)).files;

export async function checkFiles(app: string, files: Texts): Promise<Diagnostic[]> {
  return (await sendJson<{ diagnostics: Diagnostic[] }>("POST", `${appPath(app)}/check`, { files }))?.diagnostics ?? [];
}

/** Writes files if nobody else has changed them and the app can be loaded with them. Returns all files of the app. */
export async function writeFiles(app: string, files: Texts, known: Texts): Promise<AppFile[]> {
  return (await sendJson<{ files: AppFile[] }>("POST", `${appPath(app)}/files`, { files, known }))?.files ?? [];
}
