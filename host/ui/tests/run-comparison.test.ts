import { expect, test } from "vitest";
import type { Part } from "../src/api/types";
import { alignSteps, stepsOfRun } from "../src/model/run-comparison";
import { buildRuns } from "../src/model/runs";
import { noActions } from "./events";

function run(...steps: [author: string, part: Part][]) {
  const events = steps.map(([author, part], index) => ({
    id: String(index),
    invocationId: "r",
    author,
    timestamp: index,
    actions: noActions,
    content: { parts: [part] },
  }));
  const [built] = buildRuns(events);
  if (!built) throw new Error("there is no run");
  return built;
}
const text = (author: string, text: string): [string, Part] => [author, { text }];
const call = (name: string, args: Record<string, number>): [string, Part] => ["dice", { functionCall: { name, args } }];

test("equal steps of both runs are aligned, with whether their contents are equal", () => {
  const one = run(text("user", "Roll"), call("roll_die", { sides: 6 }), text("dice", "You rolled 4."));
  const other = run(text("user", "Roll"), call("roll_die", { sides: 6 }), call("check_prime", { number: 4 }), text("dice", "You rolled 2."));
  const pairs = alignSteps(stepsOfRun(one), stepsOfRun(other));
  expect(pairs.map(({ one, other, isEqual }) => [one?.identity, other?.identity, isEqual])).toEqual([
    ["message user ", "message user ", true],
    ["call dice roll_die", "call dice roll_die", true],
    [undefined, "call dice check_prime", false],
    ["text dice ", "text dice ", false],
  ]);
});

test("steps that only one run has keep their order", () => {
  const one = run(text("user", "Roll"), call("a", {}), call("b", {}));
  const other = run(text("user", "Roll"), call("c", {}));
  const pairs = alignSteps(stepsOfRun(one), stepsOfRun(other));
  expect(pairs.map(({ one, other }) => [one?.title, other?.title])).toEqual([["", ""], ["a", undefined], ["b", undefined], [undefined, "c"]]);
  expect(alignSteps([], [])).toEqual([]);
});
