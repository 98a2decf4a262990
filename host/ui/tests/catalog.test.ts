import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { stubPage } from "./page";

let generation = 1;
let areAppsBroken = false;

beforeEach(() => {
  vi.useFakeTimers();
  stubPage();
  [generation, areAppsBroken] = [1, false];
  vi.stubGlobal("fetch", async (url: URL) => {
    if (url.pathname === "/list-apps") {
      return areAppsBroken ? Response.json({ detail: "Busy." }, { status: 500 }) : Response.json({ apps: [] });
    }
    const component = { name: "dice", sha256: `hash-${generation}`, file: "dice.wasm" };
    return Response.json({ components: [component], files: [], draining: [], generation });
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("lists a change once, also if the apps cannot be read at first", async () => {
  vi.resetModules();
  const { catalog } = await import("../src/app/catalog.svelte");
  await catalog.refresh();
  [generation, areAppsBroken] = [2, true];
  await catalog.refresh();
  expect([catalog.error, catalog.changes.length]).toEqual(["Busy.", 0]);
  areAppsBroken = false;
  await catalog.refresh();
  expect([catalog.error, catalog.changes.map(({ kind }) => kind)]).toEqual([undefined, ["replaced"]]);
});
