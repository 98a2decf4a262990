import { beforeAll, describe, expect, it, vi } from "vitest";
import type { router as Router } from "../src/app/router.svelte";

let router: typeof Router;
let address = "";

beforeAll(async () => {
  vi.stubGlobal("document", { baseURI: "http://localhost/prefix/dev-ui/" });
  vi.stubGlobal("location", new URL("http://localhost/prefix/dev-ui/evals/dice/throws?result=old"));
  vi.stubGlobal("addEventListener", () => {});
  const open = (_state: unknown, _title: string, url: URL) => (address = url.href);
  vi.stubGlobal("history", { pushState: open, replaceState: open });
  ({ router } = await import("../src/app/router.svelte"));
});

describe("the open route", () => {
  it("changes when work has ended", async () => {
    await router.openAfter(Promise.resolve(), { page: "evals", app: "dice", set: "throws" });
    expect(router.route).toEqual({ page: "evals", app: "dice", set: "throws" });
    expect(address).toBe("http://localhost/prefix/dev-ui/evals/dice/throws");
  });

  it("stays if the person has opened another one during the work", async () => {
    let end = () => {};
    const opened = router.openAfter(new Promise<void>((resolve) => (end = resolve)), { page: "evals", app: "dice", set: "throws" });
    router.open({ page: "chat", app: "dice" });
    end();
    await opened;
    expect(router.route).toEqual({ page: "chat", app: "dice" });
    expect(address).toBe("http://localhost/prefix/dev-ui/apps/dice");
  });
});
