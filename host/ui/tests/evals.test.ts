import { describe, expect, it } from "vitest";
import { resultIdsOf } from "../src/model/evals";

describe("the results of an eval set", () => {
  const ids = ["dice_throws_2_1790000005", "dice_throws_2_1790000004.5", "dice_throws_1790000003.25", "other_throws_1790000002", "dice_throws_1790000001"];

  it("leave out those of another set whose name begins with its name", () => {
    expect(resultIdsOf(ids, "dice", "throws")).toEqual(["dice_throws_1790000003.25", "dice_throws_1790000001"]);
    expect(resultIdsOf(ids, "dice", "throws_2")).toEqual(["dice_throws_2_1790000005", "dice_throws_2_1790000004.5"]);
  });

  it("are found where the id has _ for characters of the app", () => {
    expect(resultIdsOf(["a_b___throws_1790000001"], "a b/ü", "throws")).toEqual(["a_b___throws_1790000001"]);
  });

  it("are found where the id has only the beginning of the app", () => {
    const id = `${"a".repeat(80)}_throws_1790000001`;
    expect(resultIdsOf([id], "a".repeat(100), "throws")).toEqual([id]);
  });
});
