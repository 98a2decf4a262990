import { vi } from "vitest";

/** Mocks the browser APIs that the stores of the page use. */
export function stubPage(): void {
  const document = { baseURI: "http://localhost/dev-ui/", visibilityState: "visible", querySelector: () => null, documentElement: {} };
  vi.stubGlobal("document", { ...document, addEventListener: () => {}, removeEventListener: () => {} });
  vi.stubGlobal("location", new URL("http://localhost/dev-ui/"));
  vi.stubGlobal("addEventListener", () => {});
}
