import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UNUSED } from '../../../src/core/catalogue/use-tally.ts';
import { MAX_USE_EFFECT, withUse } from '../../../src/core/search/usage-boost.ts';

const anything = fc.record({
  popularity: fc.double(),
  success: fc.double(),
  novelty: fc.double(),
  approval: fc.double(),
});
const relevance = fc.double({ min: 0, max: 1, noNaN: true });
const BEST = { popularity: 1, success: 1, novelty: 1, approval: 1 };
const WORST = { popularity: 0, success: 0, novelty: 0, approval: -1 };

describe('withUse', () => {
  it('changes relevance by no more than its bound, whatever the signals are', () => {
    fc.assert(
      fc.property(relevance, anything, (relevant, signals) => {
        const score = withUse(relevant, signals);
        expect(score).toBeLessThanOrEqual(relevant + 1e-12);
        expect(score * (1 + MAX_USE_EFFECT) + 1e-12).toBeGreaterThanOrEqual(relevant);
      }),
    );
  });

  it('never lifts a server over one that is more relevant by more than the bound', () => {
    fc.assert(
      fc.property(relevance, anything, anything, (relevant, loved, hated) => {
        const less = relevant / (1 + MAX_USE_EFFECT) - 1e-9;
        fc.pre(less >= 0);
        expect(withUse(less, loved)).toBeLessThan(withUse(relevant, hated));
      }),
    );
  });

  it('reaches the bound, and lifts nothing that is not relevant at all', () => {
    expect(withUse(1, BEST) / withUse(1, WORST)).toBeCloseTo(1 + MAX_USE_EFFECT, 12);
    expect(withUse(0, BEST)).toBe(0);
  });

  it('keeps the order of relevance among servers of equal use', () => {
    fc.assert(
      fc.property(relevance, relevance, anything, (one, other, signals) => {
        fc.pre(one > other + 1e-9);
        expect(withUse(one, signals)).toBeGreaterThan(withUse(other, signals));
      }),
    );
  });

  it('rises with each of the signals', () => {
    for (const name of ['popularity', 'success', 'novelty', 'approval'] as const) {
      const low = { ...UNUSED, [name]: 0.2 };
      expect(withUse(0.5, { ...low, [name]: 0.3 })).toBeGreaterThan(withUse(0.5, low));
    }
  });

  it('is a few percent at most', () => {
    expect(MAX_USE_EFFECT).toBeLessThanOrEqual(0.05);
  });
});
