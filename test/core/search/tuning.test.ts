import { describe, expect, it } from 'vitest';
import { meanOf, valueOf, type LinearTest } from '../../../src/core/search/tuning.ts';

const test: LinearTest = { bias: -1, semantic: 2, keyword: 0.1, request: [0, 1] };
const plain = Float32Array.of(1, 0);
const asking = Float32Array.of(0, 1);
const talking = Float32Array.of(0, -1);

describe('valueOf', () => {
  it('adds up the best evidence of any server and what the request is', () => {
    expect(valueOf({ semantic: 0.2, keyword: 4, vector: plain }, test)).toBeCloseTo(-0.2);
    expect(valueOf({ semantic: 0.2, keyword: 6, vector: plain }, test)).toBeCloseTo(0);
    expect(valueOf({ semantic: 0, keyword: 0, vector: asking }, test)).toBeCloseTo(0);
    expect(valueOf({ semantic: 0.9, keyword: 9, vector: talking }, test)).toBeCloseTo(0.7);
  });
});

describe('meanOf', () => {
  it('is the mean of the sentences of a request', () => {
    expect(meanOf([asking, talking])).toEqual(Float32Array.of(0, 0));
    expect(meanOf([asking, plain])).toEqual(Float32Array.of(0.5, 0.5));
    expect(meanOf([plain])).toEqual(plain);
  });
});
