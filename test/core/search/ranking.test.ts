import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import { calibrate, correctForTextCount, type CalibrationPoint } from '../../../src/core/search/tuning.ts';
import {
  boostByUse,
  fuse,
  MAX_USE_EFFECT,
  withBestOfEach,
  broughtForward,
  type FusedServer,
} from '../../../src/core/search/fusion.ts';
import { pinFirst } from '../../../src/core/search/names.ts';
import type { Candidate } from '../../../src/core/search/index/search-index.ts';
import { excessOf } from '../../../src/core/search/index/vectors.ts';

const evidence = {
  semantic: fc.double({ min: -1, max: 1, noNaN: true }),
  keyword: fc.double({ min: 0, max: 60, noNaN: true }),
};
const candidate: fc.Arbitrary<Candidate> = fc.record({
  serverId: fc.stringMatching(/^[a-z]{1,6}$/),
  texts: fc.nat({ max: 9 }).map(more => 1 + more),
  direct: fc.double({ min: 0, max: 1, noNaN: true }),
  excess: fc.double({ min: 0, max: 1, noNaN: true }),
  ...evidence,
  tools: fc.array(fc.record(evidence), { maxLength: 5 }).map(tools => ({
    semantic: tools.map(({ semantic }) => semantic),
    keyword: tools.map(({ keyword }) => keyword),
  })),
});
const candidates = fc.uniqueArray(candidate, { selector: ({ serverId }) => serverId, maxLength: 20 });
const unused = () => UNUSED;
const popular = (popularity: number) => ({ ...UNUSED, popularity });
const anySignals = fc.record({
  popularity: fc.double({ min: 0, max: 1, noNaN: true }),
  success: fc.double({ min: 0, max: 1, noNaN: true }),
  novelty: fc.double({ min: 0, max: 1, noNaN: true }),
  approval: fc.double({ min: -1, max: 1, noNaN: true }),
});
const at = (serverId: string, semantic: number, keyword: number): Candidate => ({
  serverId,
  texts: 1,
  semantic,
  direct: 0,
  excess: 0,
  keyword,
  tools: { semantic: [], keyword: [] },
});
/** With the tools in their order. */
const whole = (ranking: readonly FusedServer[]) =>
  ranking.map(({ rankTools, ...server }) => ({ ...server, ...rankTools() }));

describe('fuse', () => {
  it('gives every candidate once, with scores 0 to 1 that do not increase', () => {
    fc.assert(
      fc.property(candidates, fc.double({ min: -1, max: 2 }), (found, popularity) => {
        const ranking = fuse(found, () => popular(popularity));
        expect(ranking.map(({ serverId }) => serverId).sort()).toEqual(
          found.map(({ serverId }) => serverId).sort(),
        );
        let previous = 1;
        for (const server of ranking) {
          for (const score of [server.finalScore, server.semantic, server.popularity]) {
            expect(score).toBeGreaterThanOrEqual(0);
            expect(score).toBeLessThanOrEqual(1);
          }
          expect(server.finalScore).toBeLessThanOrEqual(previous);
          previous = server.finalScore;
        }
      }),
    );
  });

  it('does not depend on the order of the candidates', () => {
    fc.assert(
      fc.property(candidates, found => {
        expect(whole(fuse(found.toReversed(), unused))).toEqual(whole(fuse(found, unused)));
      }),
    );
  });

  it('never places a server lower for more evidence of either kind', () => {
    fc.assert(
      fc.property(candidates, fc.nat(), fc.double({ min: 0, max: 1, noNaN: true }), (found, pick, more) => {
        const chosen = found[pick % Math.max(1, found.length)];
        if (!chosen) return;
        const place = (list: readonly Candidate[]) =>
          fuse(list, unused).findIndex(({ serverId }) => serverId === chosen.serverId);
        const better = {
          ...chosen,
          semantic: Math.min(1, chosen.semantic + more),
          keyword: chosen.keyword + more * 10,
        };
        const raised = found.map(one => (one === chosen ? better : one));
        // Dividing by another maximum rounds differently: a tie may break the other way.
        const before = fuse(found, unused);
        const tied = before.filter(
          one => Math.abs(one.finalScore - (before[place(found)]?.finalScore ?? 0)) < 1e-9,
        );
        if (tied.length === 1) expect(place(raised)).toBeLessThanOrEqual(place(found));
      }),
    );
  });

  it('lets use part only servers that are within its bound of each other', () => {
    fc.assert(
      fc.property(candidates, fc.func(anySignals), (found, use) => {
        const relevance = new Map(fuse(found, unused).map(one => [one.serverId, one.finalScore]));
        const ids = fuse(found, use).map(({ serverId }) => serverId);
        for (const [place, id] of ids.entries()) {
          for (const lower of ids.slice(place + 1)) {
            const [own = 0, others = 0] = [relevance.get(id), relevance.get(lower)];
            expect(own * (1 + MAX_USE_EFFECT) + 1e-12).toBeGreaterThanOrEqual(others);
          }
        }
      }),
    );
  });

  it('breaks a tie by popularity, else by id, and lifts nothing that has no relevance', () => {
    const tie = [at('b', 0.5, 3), at('a', 0.5, 3), at('none', -0.2, 0)];
    const order = (loved: string) =>
      fuse(tie, id => popular(id === loved ? 1 : 0)).map(({ serverId }) => serverId);
    expect(order('')).toEqual(['a', 'b', 'none']);
    expect(order('b')).toEqual(['b', 'a', 'none']);
    expect(order('none')).toEqual(['a', 'b', 'none']);
  });

  it('orders tools by their own evidence', () => {
    const tools = { semantic: [0.1, 0.6, 0.3, 0.1], keyword: [0, 4, 1, 0] };
    expect(whole(fuse([{ ...at('a', 0.6, 4), tools }], unused))[0]?.toolOrder).toEqual([1, 2, 0, 3]);
  });

  it('takes half of what one example has above the others off the cosine, and shows it as it is', () => {
    const lone = { ...at('a', 0.6, 0), excess: 0.3 };
    const ranking = fuse([lone, at('b', 0.5, 0)], unused);
    expect(ranking.map(({ serverId }) => serverId)).toEqual(['b', 'a']);
    expect(ranking[1]).toMatchObject({
      semantic: 0.6,
      parts: { meaning: expect.closeTo((0.5 * 0.45) / 0.5, 9) },
    });
  });

  it('works with keywords only, and with nothing at all', () => {
    expect(fuse([at('b', 0, 1), at('a', 0, 2)], unused).map(({ serverId }) => serverId)).toEqual(['a', 'b']);
    expect(fuse([at('b', 0, 0)], unused)[0]?.finalScore).toBe(0);
    expect(fuse([], unused)).toEqual([]);
  });
});

describe('excessOf', () => {
  it('is 0 without examples, and for examples that are all alike', () => {
    expect(excessOf(0.6, Float32Array.of())).toBe(0);
    expect(excessOf(0.5, Float32Array.of(0.5, 0.5, 0.5))).toBe(0);
  });

  it('compares the best cosine with the mean of the five best examples', () => {
    expect(excessOf(0.75, Float32Array.of(0, 0.25, 0.75, 0.5, 0.5, 0.5))).toBe(0.25);
    expect(excessOf(0.75, Float32Array.of(0.25, 0.75))).toBe(0.25);
  });

  it('counts another text that is the best as one of the five', () => {
    expect(excessOf(1, Float32Array.of(0.5, 0.5, 0.5, 0.5, 0.25))).toBeCloseTo(0.4, 9);
    expect(excessOf(1, Float32Array.of(0.5))).toBe(0.25);
  });
});

describe('correctForTextCount', () => {
  it('leaves the cosine of a single text, and takes more from the best of more texts', () => {
    expect(correctForTextCount(0.4, 1, 0.08)).toBe(0.4);
    expect(correctForTextCount(0.4, 20, 0)).toBe(0.4);
    const by = [2, 5, 20, 200].map(texts => correctForTextCount(0.4, texts, 0.08));
    expect(by).toEqual(by.toSorted((a, b) => b - a));
    // e ** 4 texts: the square root of the logarithm is 2.
    expect(correctForTextCount(0.4, Math.exp(4), 0.08)).toBeCloseTo(0.24, 10);
  });
});

describe('pinFirst', () => {
  it('puts the chosen before all others, as relevant as the best, and leaves the rest', () => {
    const ranking = fuse([at('a', 0.9, 9), at('b', 0.5, 3), at('c', 0.2, 1)], unused);
    const found = pinFirst(ranking, serverId => serverId === 'c');
    expect(found.map(({ serverId }) => serverId)).toEqual(['c', 'a', 'b']);
    expect(found.map(({ finalScore }) => finalScore)).toEqual([
      ranking[0]?.finalScore,
      ranking[0]?.finalScore,
      ranking[1]?.finalScore,
    ]);
    expect(pinFirst(ranking, () => false)).toBe(ranking);
  });
});

describe('reductions', () => {
  it('keep every server in descending order and lower only some', () => {
    fc.assert(
      fc.property(candidates, fc.nat(20), (found, length) => {
        const ranking = fuse(found, unused);
        const old = new Set(found.map(({ serverId }) => serverId).slice(0, length));
        const lowered = fuse(found, unused, { reductionOf: id => (old.has(id) ? 0.8 : 1) });
        const before = new Map(ranking.map(server => [server.serverId, server.finalScore]));
        expect(lowered.map(({ serverId }) => serverId).toSorted()).toEqual([...before.keys()].toSorted());
        let previous = 1;
        for (const { serverId, finalScore } of lowered) {
          expect(finalScore).toBeCloseTo((before.get(serverId) ?? 0) * (old.has(serverId) ? 0.8 : 1));
          expect(finalScore).toBeLessThanOrEqual(previous);
          previous = finalScore;
        }
      }),
    );
  });
});

describe('calibrate', () => {
  const table: CalibrationPoint[] = [
    [0.2, 0],
    [0.4, 0.1],
    [0.6, 0.7],
  ];

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
    const cosines = fc.double({ min: -1.5, max: 1.5, noNaN: true });
    fc.assert(
      fc.property(cosines, cosines, (a, b) => {
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

describe('boostByUse', () => {
  const anything = fc.record({
    popularity: fc.double(),
    success: fc.double(),
    novelty: fc.double(),
    approval: fc.double(),
  });
  const relevance = fc.double({ min: 0, max: 1, noNaN: true });
  const BEST = { popularity: 1, success: 1, novelty: 1, approval: 1 };
  const WORST = { popularity: 0, success: 0, novelty: 0, approval: -1 };

  it('changes relevance by at most its limit, whatever the signals', () => {
    fc.assert(
      fc.property(relevance, anything, (relevant, signals) => {
        const score = boostByUse(relevant, signals);
        expect(score).toBeLessThanOrEqual(relevant + 1e-12);
        expect(score * (1 + MAX_USE_EFFECT) + 1e-12).toBeGreaterThanOrEqual(relevant);
      }),
    );
  });

  it('never lifts a server over one that is more relevant by more than the bound', () => {
    fc.assert(
      fc.property(relevance, anything, anything, (relevant, loved, hated) => {
        const less = relevant / (1 + MAX_USE_EFFECT) - 1e-9;
        fc.pre(less >= 0);
        expect(boostByUse(less, loved)).toBeLessThan(boostByUse(relevant, hated));
      }),
    );
  });

  it('reaches the bound, and lifts nothing that is not relevant at all', () => {
    expect(boostByUse(1, BEST) / boostByUse(1, WORST)).toBeCloseTo(1 + MAX_USE_EFFECT, 12);
    expect(boostByUse(0, BEST)).toBe(0);
  });

  it('keeps the order of relevance among servers of equal use', () => {
    fc.assert(
      fc.property(relevance, relevance, anything, (one, other, signals) => {
        fc.pre(one > other + 1e-9);
        expect(boostByUse(one, signals)).toBeGreaterThan(boostByUse(other, signals));
      }),
    );
  });

  it('rises with each of the signals', () => {
    for (const name of ['popularity', 'success', 'novelty', 'approval'] as const) {
      const low = { ...UNUSED, [name]: 0.2 };
      expect(boostByUse(0.5, { ...low, [name]: 0.3 })).toBeGreaterThan(boostByUse(0.5, low));
    }
  });

  it('is a few percent at most', () => {
    expect(MAX_USE_EFFECT).toBeLessThanOrEqual(0.05);
  });
});

describe('withBestOfEach', () => {
  const ranking = fuse(
    Array.from('abcdefgh', (id, place) => at(id, 0.9 - place / 10, 9 - place)),
    unused,
  );
  const best = (id: string) =>
    Array.from(fuse([at(id, 0.8, 8)], unused), one => ({ ...one, isPinned: true as const }));
  const ids = (servers: typeof ranking) => servers.map(({ serverId }) => serverId).join('');

  it('moves servers from behind to the end of the first five', () => {
    expect(ids([...withBestOfEach(ranking, best('g'))])).toBe('abcdgefh');
    expect(ids([...withBestOfEach(ranking, [...best('b'), ...best('g'), ...best('h')])])).toBe('abcghdef');
  });

  it('keeps those that are there already', () => {
    expect(ids([...withBestOfEach(ranking, [...best('e'), ...best('g')])])).toBe('abcegdfh');
    expect(withBestOfEach(ranking, [...best('c'), ...best('e')])).toEqual(ranking);
  });

  it('adds a server that only a clause has found', () => {
    expect(ids([...withBestOfEach(ranking.slice(0, 2), best('z'))])).toBe('abz');
    expect(withBestOfEach([], best('z'))).toEqual([]);
  });

  it('gives them the score of the server before them, and lower ones to what follows', () => {
    const moved = withBestOfEach(ranking, [...best('e'), ...best('g')]);
    const scores = moved.map(({ finalScore }) => finalScore);
    expect(scores).toEqual(scores.toSorted((one, other) => other - one));
    expect(scores[4]).toBe(scores[3]);
    expect(scores[5]).toBeLessThan(scores[4] ?? 0);
    expect(moved.some(server => server.isPinned)).toBe(false);
  });
});

describe('broughtForward', () => {
  const ranking = fuse(
    Array.from('abcdefgh', (id, place) => at(id, 0.9 - place / 10, 9 - place)),
    unused,
  );
  const searches = (names: string) =>
    fuse(
      Array.from(names, (id, place) => at(id, 0.9 - place / 10, 9)),
      unused,
    );
  const ids = (servers: readonly FusedServer[]) => servers.map(({ serverId }) => serverId).join('');
  const scoresOf = (servers: readonly FusedServer[]) => servers.map(({ finalScore }) => finalScore);

  it('lets two lead, as ranked before others, with the score of the best', () => {
    const led = broughtForward(ranking, searches('zge'), 'first');
    expect(ids(led)).toBe('egabcdfh');
    expect(scoresOf(led)).toEqual(scoresOf(led).toSorted((one, other) => other - one));
    expect(scoresOf(led).slice(0, 2)).toEqual([ranking[0]?.finalScore, ranking[0]?.finalScore]);
    expect(led[2]?.finalScore).toBeLessThan(led[1]?.finalScore ?? 0);
    expect(ids(broughtForward(ranking, searches('zy'), 'first'))).toBe('zyabcdefgh');
  });

  it('leaves nothing behind it that would lead for its name', () => {
    const named = ranking.map(one => ({ ...one, isPinned: true as const }));
    const moved = broughtForward(named, searches('z'), 'third');
    expect(moved.map(({ isPinned }) => isPinned === true)).toEqual([true, true, ...Array(7).fill(false)]);
  });

  it('has one among the first three', () => {
    const third = broughtForward(ranking, searches('zg'), 'third');
    expect(ids(third)).toBe('abgcdefh');
    expect(scoresOf(third)).toEqual(scoresOf(third).toSorted((one, other) => other - one));
    expect(broughtForward(ranking, searches('cz'), 'third')).toBe(ranking);
    expect(ids(broughtForward(ranking.slice(0, 1), searches('z'), 'third'))).toBe('az');
  });

  it('leaves the best servers for clauses among the first five', () => {
    const best = searches('h');
    expect(ids(withBestOfEach(broughtForward(ranking, searches('zy'), 'first'), best)).slice(0, 5)).toBe(
      'zyabh',
    );
    expect(ids(withBestOfEach(broughtForward(ranking, searches('z'), 'third'), best)).slice(0, 5)).toBe(
      'abzch',
    );
  });

  it('changes nothing without a place, without searches, and for requests that nothing serves', () => {
    expect(broughtForward(ranking, searches('z'), undefined)).toBe(ranking);
    expect(broughtForward(ranking, [], 'first')).toBe(ranking);
    expect(broughtForward([], searches('z'), 'first')).toEqual([]);
  });
});
