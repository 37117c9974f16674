import { assert, double, property } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { calibrate, type CalibrationPoint } from '../../../src/core/search/calibration.ts';

const table: CalibrationPoint[] = [
  [0.2, 0],
  [0.4, 0.1],
  [0.6, 0.7],
];

describe('calibrate', () => {
  it.each([
    [0.2, 0],
    [0.3, 0.05],
    [0.4, 0.1],
    [0.5, 0.4],
    [0.6, 0.7],
    [0.8, 0.85],
    [1, 1],
    [1.2, 1],
    [-1, 0],
    [0.1, 0],
  ])('a cosine of %d is a probability of %d', (cosine, probability) => {
    expect(calibrate(cosine, table)).toBeCloseTo(probability, 10);
  });

  it('never gives less for more, and stays within 0 and 1', () => {
    const cosines = double({ min: -1.5, max: 1.5, noNaN: true });
    assert(
      property(cosines, cosines, (a, b) => {
        const [low, high] = [Math.min(a, b), Math.max(a, b)].map(cosine => calibrate(cosine, table));
        expect(low).toBeLessThanOrEqual(high ?? Number.NaN);
        expect(low).toBeGreaterThanOrEqual(0);
        expect(high).toBeLessThanOrEqual(1);
      }),
    );
  });

  it.each([
    [0.7, 0.7],
    [-0.2, 0],
    [1.1, 1],
    [Number.NaN, 0],
  ])('without a table, %d counts as %d', (cosine, probability) => {
    expect(calibrate(cosine, undefined)).toBe(probability);
    if (Number.isNaN(cosine)) expect(calibrate(cosine, table)).toBe(0);
  });
});
