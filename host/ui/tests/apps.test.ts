import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { stubPage } from "./page";

beforeEach(stubPage);
afterEach(() => vi.unstubAllGlobals());

it("lists the agents of an app with the names of their tools", async () => {
  const tools = ["roll_die", "check_prime"].map((name) => ({ functionDeclarations: [{ name, description: "" }] }));
  const agent = { description: "Rolls.", instruction: "", kind: "llm", model: "m" };
  const agents = { dice: { ...agent, name: "dice", tools, sub_agents: ["helper"] }, helper: { ...agent, name: "helper", tools: [], sub_agents: [] } };
  const dice = { name: "dice", rootAgentName: "dice", description: "Rolls.", language: "wasm", isComputerUse: false };
  vi.stubGlobal("fetch", async () => Response.json({ apps: [{ ...dice, agents }] }));
  const described = { description: "Rolls.", kind: "llm", model: "m" };
  const { listApps } = await import("../src/api/host");
  expect(await listApps()).toEqual([
    {
      ...dice,
      agents: [
        { ...described, name: "dice", subAgents: ["helper"], tools: ["roll_die", "check_prime"] },
        { ...described, name: "helper", subAgents: [], tools: [] },
      ],
    },
  ]);
});
