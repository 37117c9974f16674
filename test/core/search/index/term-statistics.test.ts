import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Bm25, BM25 } from '../../../../src/core/search/index/bm25.ts';
import { Evidence } from '../../../../src/core/search/index/evidence/evidence.ts';
import { termsOf, TermStatistics, wordsOf } from '../../../../src/core/search/index/term-statistics.ts';

type Documents = readonly (readonly string[])[];

const VOCABULARY = Array.from({ length: 400 }, (_, at) => `term${at}`);
const term = fc.constantFrom(...VOCABULARY);
const documents = fc.array(fc.array(term, { maxLength: 12 }), { minLength: 2, maxLength: 5 });
const change = fc.record({ id: fc.nat({ max: 9 }), documents: fc.option(documents, { nil: undefined }) });

const statisticsOf = (servers: Iterable<Documents>): TermStatistics => {
  const statistics = new TermStatistics();
  for (const one of servers) statistics.add(wordsOf(one));
  return statistics;
};

/** Everything that scores are computed from. */
const contentOf = (statistics: TermStatistics) => ({
  weighed: statistics.weigh(VOCABULARY),
  frequencies: VOCABULARY.map(one => statistics.frequencyOf(one)),
});

describe('TermStatistics', () => {
  it('are the same after any changes as if they had been made of the servers that are left', () => {
    fc.assert(
      fc.property(fc.array(change, { maxLength: 60 }), changes => {
        const servers = new Map<number, Documents>();
        const statistics = new TermStatistics();
        for (const { id, documents: now } of changes) {
          const difference = new TermStatistics();
          const old = servers.get(id);
          if (old) difference.subtract(wordsOf(old));
          if (now) difference.add(wordsOf(now));
          statistics.merge(difference);
          if (now) servers.set(id, now);
          else servers.delete(id);
        }
        expect(contentOf(statistics)).toEqual(contentOf(statisticsOf(servers.values())));
      }),
    );
  });

  it('give the scores of Bm25, to the last bit', () => {
    fc.assert(
      fc.property(fc.array(documents, { minLength: 1, maxLength: 8 }), fc.array(term), (servers, asked) => {
        const query = [...new Set(asked)];
        const [whole, parts] = [new Bm25(BM25), new Bm25(BM25)];
        let row = 0;
        const rows = servers.map((one, at) => {
          whole.add(at, one[0] ?? []);
          return one.slice(1).map(words => {
            parts.add(row, words);
            return row++;
          });
        });
        const weighed = statisticsOf(servers).weigh(query);
        const [ofWhole, ofParts] = [whole.scores(query), parts.scores(query)];
        for (const [at, one] of servers.entries()) {
          const evidence = Evidence.of({ whole: one[0] ?? [], parts: one.slice(1) }, [], 16);
          const scores = evidence.keywords(weighed);
          expect(scores.whole).toBe(ofWhole[at]);
          expect([...scores.parts]).toEqual(rows[at]?.map(own => ofParts[own]));
        }
      }),
    );
  });

  it('take 12 bytes for each slot, and drop terms that nothing has any more', () => {
    const statistics = new TermStatistics();
    for (let round = 0; round < 200; round++) {
      const words = wordsOf([[], Array.from({ length: 40 }, (_, at) => `passing ${round} ${at}`)]);
      statistics.add(words);
      statistics.subtract(words);
    }
    expect(statistics.bytes).toBeLessThanOrEqual(128 * 12);
  });
});

describe('wordsOf', () => {
  it('counts a term up to 255 times, like Bm25', () => {
    const many = Array.from({ length: 1_000 }, () => 'a');
    const [most, more] = [wordsOf([many, many]), wordsOf([many, many.slice(0, 255)])];
    expect([...most.subarray(0, 4)]).toEqual([...more.subarray(0, 4)]);
    expect(termsOf(most)).toEqual(termsOf(more));
  });
});
