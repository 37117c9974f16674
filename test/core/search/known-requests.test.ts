import { describe, expect, it } from 'vitest';
import { KnownRequests, nearest } from '../../../src/core/search/known-requests.ts';

const DIMENSIONS = 16;
/** A unit vector at an angle to the first axis, in the plane of that and another. */
function at(degrees: number, axis = 1): Float32Array {
  const vector = new Float32Array(DIMENSIONS);
  vector[0] = Math.cos((degrees * Math.PI) / 180);
  vector[axis] = Math.sin((degrees * Math.PI) / 180);
  return vector;
}

const start = (questions: readonly Float32Array[], others: readonly Float32Array[]) =>
  new KnownRequests(KnownRequests.encode([...questions, ...others]), {
    dimensions: DIMENSIONS,
    questions: questions.length,
  });

describe('KnownRequests', () => {
  it('says how near a request of any length is to either kind', () => {
    const known = start([at(0), at(0, 2)], [at(60), at(60), at(60)]);
    const { question, other } = known.nearness(at(0).map(value => 3 * value));
    expect(question).toBeCloseTo(1, 1);
    expect(other).toBeCloseTo(0.5, 1);
  });

  it('knows nothing near where there is none of a kind', () => {
    expect(start([], [at(0)]).nearness(at(0))).toMatchObject({ question: 0 });
    expect(start([], []).nearness(at(0))).toEqual({ question: 0, other: 0 });
  });

  it('refuses what is no file of vectors', () => {
    const bytes = KnownRequests.encode([at(0)]);
    expect(() => new KnownRequests(bytes.subarray(1), { dimensions: DIMENSIONS, questions: 1 })).toThrow(
      RangeError,
    );
  });
});

describe('nearest', () => {
  it('is the mean of the five largest, in any order, or of all', () => {
    expect(nearest(Float32Array.of(0, 0.5, 0.1, 0.4, 0.3, 0.2, -1))).toBeCloseTo(0.3);
    expect(nearest(Float32Array.of(0.2, 0.4))).toBeCloseTo(0.3);
    expect(nearest(new Float32Array())).toBe(0);
  });
});
