import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { nthLargest } from '../../../../src/core/search/index/indexed-catalogue.ts';

it('is what sorting gives, ties and all', () => {
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fc.double({ noNaN: true }), fc.integer({ min: -3, max: 3 }))),
      fc.integer({ min: 1, max: 12 }),
      (values, n) => {
        const before = [...values];
        const sorted = Float64Array.from(values).sort();
        // Zero has one value here, whatever its sign.
        expect(nthLargest(values, n) + 0).toBe((sorted[sorted.length - n] ?? -Infinity) + 0);
        expect(values).toEqual(before);
      },
    ),
  );
});
