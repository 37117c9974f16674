import { describe, expect, it } from 'vitest';
import { valueOf, type LinearTest } from '../../../src/core/search/tuning.ts';

const test: LinearTest = { bias: -1, semantic: 2, keyword: 0.1, request: [0, 1] };
const found = (semantic: number, keyword: number) => ({ serverId: 's', semantic, keyword, tools: [] });
const plain = Float32Array.of(1, 0);
const asking = Float32Array.of(0, 1);
const talking = Float32Array.of(0, -1);

describe('valueOf', () => {
  it('adds up the best evidence of any server and what the request is', () => {
    expect(valueOf({ candidates: [found(0.2, 4)], vectors: [plain] }, test)).toBeCloseTo(-0.2);
    expect(valueOf({ candidates: [found(0.2, 4), found(0.5, 0)], vectors: [plain] }, test)).toBeCloseTo(0.4);
    expect(valueOf({ candidates: [found(0.2, 6)], vectors: [plain] }, test)).toBeCloseTo(0);
    expect(valueOf({ candidates: [], vectors: [asking] }, test)).toBeCloseTo(0);
    expect(valueOf({ candidates: [found(0.9, 9)], vectors: [talking] }, test)).toBeCloseTo(0.7);
    expect(valueOf({ candidates: [found(0.5, 9)], vectors: [talking] }, test)).toBeCloseTo(-0.1);
  });

  it('takes the mean over the sentences of a request', () => {
    expect(valueOf({ candidates: [found(0.5, 0)], vectors: [asking, talking] }, test)).toBeCloseTo(0);
    expect(valueOf({ candidates: [found(0.4, 0)], vectors: [asking, talking] }, test)).toBeCloseTo(-0.2);
  });

  it('is not known without vectors, or without a test', () => {
    expect(valueOf({ candidates: [], vectors: [] }, test)).toBeUndefined();
    expect(valueOf({ candidates: [], vectors: [talking] }, undefined)).toBeUndefined();
  });
});
