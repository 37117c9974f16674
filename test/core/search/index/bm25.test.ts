import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Bm25 } from '../../../../src/core/search/index/bm25.ts';

const PARAMETERS = { k1: 1.2, b: 0.75 };

const logOdds = (all: number, holding: number) => Math.log(1 + (all - holding + 0.5) / (holding + 0.5));

/** BM25 as it stands in the book, over all documents. */
function naiveScores(
  documents: ReadonlyMap<number, readonly string[]>,
  query: readonly string[],
): Map<number, number> {
  const meanLength = [...documents.values()].reduce((sum, terms) => sum + terms.length, 0) / documents.size;
  const scores = new Map<number, number>();
  for (const [row, terms] of documents) {
    let score = 0;
    for (const term of query) {
      const holding = [...documents.values()].filter(other => other.includes(term)).length;
      const idf = logOdds(documents.size, holding) / logOdds(documents.size, 1);
      const count = Math.min(255, terms.filter(other => other === term).length);
      const lengthNorm = 1 - PARAMETERS.b + (PARAMETERS.b * terms.length) / meanLength;
      if (count > 0) score += (idf * count * (PARAMETERS.k1 + 1)) / (count + PARAMETERS.k1 * lengthNorm);
    }
    scores.set(row, score);
  }
  return scores;
}

const term = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'constructor', '__proto__');
const step = fc.record({
  row: fc.nat({ max: 12 }),
  terms: fc.option(fc.array(term, { maxLength: 8 }), { nil: undefined }),
});

describe('Bm25', () => {
  it('scores as the definition does, after any additions, removals and re-additions', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), fc.array(term, { maxLength: 5 }), (steps, query) => {
        const index = new Bm25(PARAMETERS);
        const documents = new Map<number, readonly string[]>();
        for (const { row, terms } of steps) {
          index.remove(row);
          documents.delete(row);
          if (!terms) continue;
          index.add(row, terms);
          documents.set(row, terms);
        }
        const scores = index.scores(query);
        expect(index.size).toBe(documents.size);
        const expected = naiveScores(documents, query);
        for (const [row, score] of scores.entries()) expect(score).toBeCloseTo(expected.get(row) ?? 0, 4);
        for (const [row, score] of expected) expect(scores[row]).toBeCloseTo(score, 4);
      }),
    );
  });

  it('counts a term up to 255 times and no further', () => {
    const index = new Bm25(PARAMETERS);
    index.add(
      0,
      Array.from({ length: 5000 }, () => 'a'),
    );
    index.add(1, ['b']);
    expect(index.scores(['a'])[0]).toBeGreaterThan(0);
    expect(index.scores(['a'])[1]).toBe(0);
  });

  it('refuses a row that is taken or cannot be packed', () => {
    const index = new Bm25(PARAMETERS);
    index.add(3, ['a']);
    for (const row of [3, -1, 0.5, 2 ** 24]) expect(() => index.add(row, ['a'])).toThrow(RangeError);
  });
});
