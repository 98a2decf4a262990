import { expect, test } from "vitest";
import type { Prices } from "../src/api/types";
import { costOf, formatMoney, sumCosts } from "../src/model/prices";

const prices: Prices = {
  currency: "EUR",
  models: { cheap: { input: 1, output: 4 }, cached: { input: 2, cachedInput: 0.5, output: 8 } },
};

test("the cost of tokens is computed from the prices of a million", () => {
  expect(costOf(prices, "cheap", { input: 500_000, output: 250_000 })).toBe(1.5);
  expect(costOf(prices, "cached", { input: 1_000_000, cached: 400_000, output: 0 })).toBeCloseTo(1.4);
  expect(costOf(prices, "cheap", { input: 1_000_000, cached: 400_000, output: 0 })).toBe(1);
});

test("a model without a price has no cost", () => {
  expect(costOf(prices, "other", { input: 1, output: 1 })).toBeUndefined();
  expect(costOf(undefined, "cheap", { input: 1, output: 1 })).toBeUndefined();
  expect(sumCosts([undefined])).toBeUndefined();
  expect(sumCosts([1, undefined, 2])).toEqual({ cost: 3, isPartial: true });
  expect(sumCosts([1, 2])).toEqual({ cost: 3, isPartial: false });
});

test("small amounts have more digits", () => {
  expect([12.345, 0.0123, 0, 1234].map((amount) => formatMoney(amount, "EUR"))).toEqual(["€12.35", "€0.0123", "€0.00", "€1,234.00"]);
});
