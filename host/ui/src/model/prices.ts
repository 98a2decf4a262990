// The cost of tokens at the prices that the operator has configured.

import type { Prices } from "../api/types";

/** The number of tokens that a price is for. */
const UNIT = 1_000_000;

export interface Tokens {
  input: number;
  output: number;
  /** The tokens of `input` that the provider had cached. */
  cached?: number;
}

/** Returns the cost of tokens; `undefined` if the model has no price. */
export function costOf(prices: Prices | undefined, model: string, { input, output, cached = 0 }: Tokens): number | undefined {
  const price = prices?.models[model];
  if (!price) return undefined;
  const paidInput = (input - cached) * price.input + cached * (price.cachedInput ?? price.input);
  return (paidInput + output * price.output) / UNIT;
}

export interface CostSum {
  cost: number;
  /** Whether a model was used that has no price. */
  isPartial: boolean;
}

/** Returns the cost of several models; `undefined` if none of them has a price. */
export function sumCosts(costs: readonly (number | undefined)[]): CostSum | undefined {
  const known = costs.filter((cost) => cost !== undefined);
  if (known.length === 0) return undefined;
  return { cost: known.reduce((sum, cost) => sum + cost, 0), isPartial: known.length < costs.length };
}

/** Formats an amount, with more digits if it is small. */
export function formatMoney(amount: number, currency: string): string {
  const digits = amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2;
  return amount.toLocaleString("en-US", { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: digits });
}
