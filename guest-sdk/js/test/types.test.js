// The types of the package.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import * as sdk from "../src/index.js";

const source = (path) => readFileSync(new URL(`../src/${path}`, import.meta.url), "utf8");

test("every value that the package exports is declared in one of the files that its types consist of", () => {
  const files = [...source("index.d.ts").matchAll(/^export \* from "\.\/(types\/\w+)\.js";$/gm)].map(([, path]) => `${path}.d.ts`);
  const declared = files.flatMap((path) => [...source(path).matchAll(/^export (?:function|const|class) (\w+)/gm)].map(([, name]) => name));
  assert.deepEqual(declared.sort(), Object.keys(sdk).sort());
});

const USAGE = `
import { agent, callback, component, content, llmAgent, liveModel, model, plugin, s, textOf, tool, toolset, toolUse } from "hatchery-guest";
import type { Event, Tool } from "hatchery-guest";
import { MockHost, answer, collect } from "hatchery-guest/testing";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
const same = <A, B>(_: Same<A, B>) => {};

const roll = tool({
  name: "roll",
  parameters: s.object({ sides: s.integer().default(6), unit: s.oneOf(["a", "b"]), names: s.array(s.object({ last: s.string() })), to: s.number().optional() }),
  run({ sides, unit, names, to }, ctx) {
    same<[typeof sides, typeof unit, typeof names, typeof to], [number, "a" | "b", { last: string }[], number | undefined]>(true);
    ctx.state.set("sides", sides);
    return { sides };
  },
});
const later = tool({ name: "later", parameters: { type: "object", properties: { x: {} } }, run: async ({ x }) => String(x) });
const polite = callback({ name: "polite", hook: "beforeModel", run: (request) => void request.systemInstructions.push("Be polite.") });
const check = callback({ name: "check", hook: "onToolError", run: (call, error, ctx) => ({ tool: call.tool, code: error.code, depth: ctx.info.depth }) });
const log = plugin({ name: "log", onEvent: (event) => void event.author, async afterRun(ctx) { ctx.log.info("over"); } });
const poet = agent({
  name: "poet",
  async *run(ctx) {
    yield "one";
    for (const response of ctx.stream("More?")) yield { content: response.content, partial: response.partial };
    yield* ctx.subAgent("helper");
  },
});
const echo = model({ name: "echo", *run(request) { yield textOf(request.contents.at(-1)); yield { finishReason: "STOP", content: content("x") }; } });
const parrot = liveModel({ name: "parrot", async *run(_, connection) { for await (const asked of connection) if ("content" in asked) yield textOf(asked.content); } });
const clerk = llmAgent({
  name: "clerk", instruction: (ctx) => ctx.info.user, tools: [roll, toolUse(roll, { args: { n: 1 } }), "other/tool"],
  outputSchema: s.object({ x: s.string() }), beforeModel: [polite], config: { temperature: 0.5 },
});
export default component({
  agents: [clerk, poet], tools: [roll, later], callbacks: [polite, check], plugins: [log], models: [echo], liveModels: [parrot],
  toolsets: [toolset({ name: "all", tools: (ctx) => (ctx.state.get("on") ? [roll, later] : []) })],
});

// @ts-expect-error the default is a number
s.integer().default("six");
// @ts-expect-error an unknown option
tool({ name: "x", params: s.object({}), run: () => 1 });
// @ts-expect-error an unknown option
llmAgent({ name: "x", instructions: "x" });
// @ts-expect-error an unknown hook
callback({ name: "x", hook: "before_tool", run() {} });

const host = new MockHost({ tools: [roll, later], apps: { clerk: ({ message }) => [textOf(message)] }, http: () => Response.json({}) });
const ctx = host.context();
const rolled = roll.call({ unit: "a", names: [] }, ctx);
same<typeof rolled, { sides: number }>(true);
// @ts-expect-error a choice that does not exist
roll.run({ sides: 1, unit: "c", names: [], to: 1 });
const waited = later.run({}, ctx);
same<typeof waited, Promise<string>>(true);
const tools: Tool[] = [roll, later];
const events: (string | Event)[] = await collect(poet.run(ctx));
const complete = await answer(echo, { contents: [content("Hi", "user")] }, ctx);
interface Money { amount: number }
const money: Money = { amount: 1 };
ctx.state.set("money", money);
ctx.callTool("pay", { ...money });
console.log(tools, events, complete, log.hooks);
`;

const root = new URL("../../..", import.meta.url);
const template = new URL("host/cli/templates/ts/", root);
const compiler = fileURLToPath(new URL("host/ui/node_modules/typescript/bin/tsc", root));
const skip = !existsSync(compiler) && "needs TypeScript: run `npm ci` in host/ui";

test("usual code in TypeScript has the right types, in the settings of new projects", { skip }, () => {
  const guide = readFileSync(new URL("docs/components.md", root), "utf8");
  const examples = [...guide.matchAll(/^```ts\n([^]*?)^```/gm)].map(([, code]) => code);
  const templates = ["agent", "callback", "tool"].map((kind) => readFileSync(new URL(`${kind}/index.ts`, template), "utf8"));
  const settings = JSON.parse(readFileSync(new URL("tsconfig.json", template), "utf8"));
  settings.compilerOptions.types = [];
  // Beside the package, so that the modules find it by its name.
  const folder = mkdtempSync(join(fileURLToPath(new URL("..", import.meta.url)), ".types-"));
  try {
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(settings));
    for (const [index, code] of [USAGE, ...examples, ...templates].entries()) writeFileSync(join(folder, `${index}.ts`), code);
    const { stdout } = spawnSync(process.execPath, [compiler, "-p", folder], { encoding: "utf8" });
    assert.equal(stdout, "");
    assert.ok(examples.length, "the guide has an example in TypeScript");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
