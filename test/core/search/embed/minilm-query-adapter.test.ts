import { describe, expect, it } from 'vitest';
import { QueryAdapter } from '../../../../src/core/search/embed/minilm/embedder.ts';

const unit = (...values: number[]) => {
  const length = Math.hypot(...values);
  return Float32Array.from(values, value => value / length);
};

/** Turns the first axis halfway towards the second, and leaves the others. */
const delta = new Float32Array(16 * 16);
delta[16] = 1;
const adapter = new QueryAdapter(delta, 16);
const axis = (at: number) => Float32Array.from({ length: 16 }, (_, i) => Number(i === at));

describe('QueryAdapter', () => {
  it('maps a vector and makes it a unit vector', () => {
    const half = Math.SQRT1_2;
    expect([...adapter.apply(axis(0))].map(value => Number(value.toFixed(6)))).toEqual(
      [half, half, ...Array<number>(14).fill(0)].map(value => Number(value.toFixed(6))),
    );
    expect(adapter.apply(axis(3))).toEqual(axis(3));
    expect(adapter.lengthOf(axis(0))).toBeCloseTo(Math.SQRT2, 6);
  });

  it('is the identity where nothing was learned, and leaves the zero vector', () => {
    const identity = new QueryAdapter(new Float32Array(16 * 16), 16);
    const vector = unit(...Array.from({ length: 16 }, (_, i) => i - 7.5));
    for (const [i, value] of identity.apply(vector).entries()) expect(value).toBeCloseTo(vector[i] ?? 2, 6);
    expect(identity.apply(new Float32Array(16))).toEqual(new Float32Array(16));
  });

  it('survives being stored, within the error of 8 bits', () => {
    const learned = new QueryAdapter(
      Float32Array.from({ length: 256 }, (_, i) => Math.sin(i) / 10),
      16,
    );
    const read = QueryAdapter.decode(learned.encode(), 16);
    const vector = unit(...Array.from({ length: 16 }, (_, i) => Math.cos(i)));
    for (const [i, value] of read.apply(vector).entries()) {
      expect(value).toBeCloseTo(learned.apply(vector)[i] ?? 2, 2);
    }
  });

  it('refuses bytes and numbers of another size', () => {
    expect(() => QueryAdapter.decode(new Uint8Array(319), 16)).toThrow('not an adapter of 16 dimensions');
    expect(() => new QueryAdapter(new Float32Array(15), 4)).toThrow('not a matrix of 4 by 4');
  });
});
