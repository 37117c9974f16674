import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeVector,
  encodedLength,
  encodeVector,
  quantize,
  VectorStore,
} from '../../../../src/core/search/index/vectors.ts';

const dot = (a: Float32Array, b: Float32Array) =>
  a.reduce((sum, component, i) => sum + component * (b[i] ?? 0), 0);

/** mulberry32: random enough, and the same numbers every time. */
function randomUnitVectors(count: number, dimensions: number, seed = 1): Float32Array[] {
  let state = seed;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: count }, () =>
    unit(Float32Array.from({ length: dimensions }, () => random() + random() + random() - 1.5)),
  );
}

function unit(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length === 0 ? vector : vector.map(component => component / length);
}

const component = fc.float({ min: -1, max: 1, noNaN: true });
const vectorOf = (dimensions: number) =>
  fc.array(component, { minLength: dimensions, maxLength: dimensions }).map(v => unit(Float32Array.from(v)));

describe('VectorStore.scan', () => {
  it('gives the cosine of every row within .01', () => {
    const vectors = randomUnitVectors(300, 384);
    const store = new VectorStore(384);
    for (const [row, vector] of vectors.entries()) store.set(row, vector);
    for (const query of [...randomUnitVectors(5, 384, 2), ...vectors.slice(0, 5)]) {
      const cosines = store.scan(query);
      expect(cosines).toHaveLength(300);
      for (const [row, vector] of vectors.entries()) {
        expect(Math.abs((cosines[row] ?? 9) - dot(query, vector))).toBeLessThan(0.01);
      }
    }
  });

  it('is exact for what was quantized before', () => {
    fc.assert(
      fc.property(vectorOf(32), vectorOf(32), (vector, query) => {
        const store = new VectorStore(32);
        const [row, other] = [quantize(vector), quantize(query)];
        store.set(0, row);
        const exact =
          row.values.reduce((sum, value, i) => sum + value * (other.values[i] ?? 0), 0) *
          row.scale *
          other.scale;
        expect(store.scan(other)[0]).toBeCloseTo(exact, 6);
        expect(store.scan(query)).toEqual(store.scan(other));
      }),
    );
  });

  it('keeps every row when it grows, up to 100,000', () => {
    const store = new VectorStore(16);
    const vectors = randomUnitVectors(100_000, 16);
    for (const [row, vector] of vectors.entries()) store.set(row, vector);
    for (const row of [0, 1023, 1024, 65_535, 99_999]) {
      const query = vectors[row] ?? new Float32Array(16);
      const cosines = store.scan(query);
      expect(cosines).toHaveLength(100_000);
      expect(cosines[row]).toBeGreaterThan(0.98);
    }
  });

  it('agrees with a plain map of rows, whatever order they are set in', () => {
    const writes = fc.array(fc.tuple(fc.nat({ max: 3_000 }), vectorOf(16)), { maxLength: 20 });
    fc.assert(
      fc.property(writes, vectorOf(16), (sets, query) => {
        const store = new VectorStore(16);
        const rows = new Map<number, Float32Array>();
        for (const [row, vector] of sets) {
          store.set(row, vector);
          rows.set(row, vector);
        }
        expect(store.size).toBe(Math.max(-1, ...rows.keys()) + 1);
        for (const [row, cosine] of store.scan(query).entries()) {
          const vector = rows.get(row);
          if (vector) expect(Math.abs(cosine - dot(vector, query))).toBeLessThan(0.02);
          else expect(cosine).toBe(0);
        }
      }),
      { numRuns: 30 },
    );
  });

  it('returns a copy that later scans leave alone', () => {
    const [a, b] = randomUnitVectors(2, 16);
    if (!a || !b) throw new Error('no vectors');
    const store = new VectorStore(16);
    store.set(0, a);
    const first = store.scan(a);
    const before = [...first];
    store.scan(b);
    expect([...first]).toEqual(before);
  });

  it('is empty when nothing was set', () => {
    expect(new VectorStore(16).scan(new Float32Array(16))).toHaveLength(0);
  });
});

describe('VectorStore refuses', () => {
  it('dimensions that are no multiple of 16', () => {
    for (const dimensions of [0, 8, 383, -16, 16.5])
      expect(() => new VectorStore(dimensions)).toThrow(RangeError);
  });

  it('vectors of other dimensions and impossible rows', () => {
    const store = new VectorStore(16);
    expect(() => store.set(0, new Float32Array(32))).toThrow('The vector has 32 dimensions, not 16');
    expect(() => store.scan(new Float32Array(15))).toThrow(RangeError);
    for (const row of [-1, 0.5, Number.NaN, 2 ** 40])
      expect(() => store.set(row, new Float32Array(16))).toThrow(RangeError);
    expect(store.size).toBe(0);
  });
});

describe('quantize', () => {
  it('is off by at most half a step a component', () => {
    fc.assert(
      fc.property(vectorOf(48), vector => {
        const { values, scale } = quantize(vector);
        for (const [i, exact] of vector.entries()) {
          expect(Math.abs((values[i] ?? 999) * scale - exact)).toBeLessThanOrEqual(scale * 0.5001);
        }
      }),
    );
  });

  it('gives the zero vector scale 0', () => {
    expect(quantize(new Float32Array(16))).toEqual({ values: new Int8Array(16), scale: 0 });
  });

  it('refuses components that are not finite', () => {
    expect(() => quantize(Float32Array.of(1, Number.NaN))).toThrow(RangeError);
    expect(() => quantize(Float32Array.of(Infinity))).toThrow(RangeError);
  });
});

describe('encodeVector', () => {
  it('comes back from decodeVector unchanged, also out of a pooled buffer', () => {
    fc.assert(
      fc.property(vectorOf(384), vector => {
        const quantized = quantize(vector);
        const bytes = encodeVector(quantized);
        expect(bytes).toHaveLength(encodedLength(384));
        expect(decodeVector(bytes)).toEqual(quantized);
        expect(decodeVector(Buffer.concat([Buffer.from('xyz'), bytes]).subarray(3))).toEqual(quantized);
      }),
      { numRuns: 20 },
    );
  });

  it('refuses bytes that cannot be a vector', () => {
    expect(() => decodeVector(new Uint8Array(4))).toThrow(RangeError);
    expect(() => decodeVector(new Uint8Array(20).fill(0xff))).toThrow(RangeError);
  });
});
