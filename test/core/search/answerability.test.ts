import { describe, expect, it } from 'vitest';
import { isAnswerable, type Answerability } from '../../../src/core/search/ranking.ts';

const table: Answerability = { bias: -1, semantic: 2, keyword: 0.1, request: [0, 1] };
const found = (semantic: number, keyword: number) => ({ serverId: 's', semantic, keyword, tools: [] });
const plain = Float32Array.of(1, 0);
const asking = Float32Array.of(0, 1);
const talking = Float32Array.of(0, -1);

describe('isAnswerable', () => {
  it('adds up the best evidence of any server and what the request is', () => {
    expect(isAnswerable({ candidates: [found(0.2, 4)], vectors: [plain] }, table)).toBe(false);
    expect(isAnswerable({ candidates: [found(0.2, 4), found(0.5, 0)], vectors: [plain] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.2, 6)], vectors: [plain] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [], vectors: [asking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.9, 9)], vectors: [talking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.5, 9)], vectors: [talking] }, table)).toBe(false);
  });

  it('takes the mean over the sentences of a request', () => {
    expect(isAnswerable({ candidates: [found(0.5, 0)], vectors: [asking, talking] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [found(0.4, 0)], vectors: [asking, talking] }, table)).toBe(false);
  });

  it('judges nothing that it cannot: without vectors, or without a table', () => {
    expect(isAnswerable({ candidates: [], vectors: [] }, table)).toBe(true);
    expect(isAnswerable({ candidates: [], vectors: [talking] }, undefined)).toBe(true);
  });
});
