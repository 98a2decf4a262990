import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

/** The host that `npm run dev` talks to. */
const host = process.env.HATCHERY_URL ?? "http://127.0.0.1:8080";
const api = ["/apps", "/components", "/dev/", "/events", "/list-apps", "/metrics", "/run", "/run_live", "/run_sse", "/version"];

export default defineConfig({
  // Relative, so that the page works below any prefix; the host adds a `<base>`.
  base: "./",
  plugins: [svelte()],
  resolve: { conditions: ["browser"] },
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    sourcemap: false,
    reportCompressedSize: false,
    assetsInlineLimit: 0,
  },
  server: {
    proxy: Object.fromEntries(
      api.map((path) => [
        path,
        {
          target: host,
          changeOrigin: true,
          ws: path === "/run_live",
          configure: (proxy) => {
            proxy.on("proxyReq", (request) => request.removeHeader("origin"));
            proxy.on("proxyReqWs", (request) => request.removeHeader("origin"));
          },
        },
      ]),
    ),
  },
  // The first test of a file also waits for the compilation of its modules.
  test: { include: ["tests/**/*.test.ts"], testTimeout: 30_000 },
});
