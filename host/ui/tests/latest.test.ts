import { describe, expect, it } from "vitest";
import { Latest } from "../src/model/latest";

describe("concurrent requests", () => {
  it("keep only the response to the latest one, in whatever order the responses arrive", async () => {
    const requests = new Latest();
    const shown: string[] = [];
    const answers: (() => void)[] = [];
    const load = async (place: string) => {
      const isLast = requests.begin();
      await new Promise<void>((answer) => answers.push(answer));
      if (isLast()) shown.push(place);
    };
    const loads = [load("first"), load("second")];
    answers.reverse().forEach((answer) => answer());
    await Promise.all(loads);
    expect(shown).toEqual(["second"]);
  });

  it("are dropped when their answers are no longer needed", () => {
    const requests = new Latest();
    const isLast = requests.begin();
    requests.end();
    expect([isLast(), requests.begin()()]).toEqual([false, true]);
  });

  it("are counted separately for each instance", () => {
    const [one, other] = [new Latest(), new Latest()];
    const isLast = one.begin();
    other.begin();
    expect(isLast()).toBe(true);
  });
});
