import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  HALF_LIFE_DAYS,
  UNUSED,
  UseTally,
  type UseCounts,
  type UseSignals,
} from '../../../src/core/catalogue/usage.ts';
import { boostByUse } from '../../../src/core/search/fusion.ts';

const TODAY = 20_000;

/** What use comes to, given as [tenant, counts, day?] … */
type Use = readonly [tenant: string, counts: Partial<UseCounts>, day?: number];
function signalsOf(uses: readonly Use[], today = TODAY): UseSignals {
  const tally = new UseTally(TODAY);
  for (const [tenant, counts, day = TODAY] of uses) tally.add('s', tenant, day, counts);
  tally.ageSome(today);
  return tally.signals('s', today);
}
const tenants = (count: number, counts: Partial<UseCounts>): Use[] =>
  Array.from({ length: count }, (_, at) => [`t${at}`, counts]);
/** The score of a server of full relevance. */
const scoreOf = (uses: readonly Use[], today?: number) => boostByUse(1, signalsOf(uses, today));

const counts = fc.record({
  successes: fc.nat({ max: 2_000_000 }),
  failures: fc.nat({ max: 2_000_000 }),
  helpful: fc.nat({ max: 1_000 }),
  unhelpful: fc.nat({ max: 1_000 }),
});
const day = fc.integer({ min: TODAY - 300, max: TODAY });
const anyUse: fc.Arbitrary<Use> = fc.tuple(fc.stringMatching(/^[a-d]$/), counts, day);

describe('UseTally', () => {
  it('knows nothing of a server that nobody has used', () => {
    expect(signalsOf([])).toEqual(UNUSED);
  });

  it('keeps every signal in its range, whatever was counted and whenever it is asked', () => {
    fc.assert(
      fc.property(fc.array(anyUse, { maxLength: 30 }), fc.integer({ min: -500, max: 500 }), (uses, later) => {
        const { popularity, success, novelty, approval } = signalsOf(uses, TODAY + later);
        for (const value of [popularity, success, novelty]) {
          expect(value).toBeGreaterThanOrEqual(0);
          expect(value).toBeLessThanOrEqual(1);
        }
        expect(Math.abs(approval)).toBeLessThanOrEqual(1);
      }),
    );
  });

  it('gives the same for equal evidence, in whatever order and portions it came', () => {
    fc.assert(
      fc.property(fc.array(anyUse, { maxLength: 20 }), uses => {
        const halves = uses.flatMap(([tenant, all, on = TODAY]): Use[] => {
          const half = Object.fromEntries(Object.entries(all).map(([name, n]) => [name, n / 2]));
          return [
            [tenant, half, on],
            [tenant, half, on],
          ];
        });
        const [one, other] = [signalsOf(uses), signalsOf(halves.toReversed())];
        for (const name of ['popularity', 'success', 'novelty', 'approval'] as const)
          expect(other[name]).toBeCloseTo(one[name], 9);
      }),
    );
  });

  it('gives the same when it is asked in between, and after days went by', () => {
    fc.assert(
      fc.property(fc.array(anyUse, { maxLength: 20 }), fc.nat({ max: 60 }), (uses, days) => {
        const tally = new UseTally(TODAY);
        for (const [tenant, added, on = TODAY] of uses) {
          tally.add('s', tenant, on, added);
          tally.signals('s', TODAY);
        }
        const asked = tally.signals('s', TODAY + days);
        const fresh = signalsOf(uses, TODAY + days);
        // A tenant of next to nothing is forgotten when the day changes, here on the way and there not.
        for (const name of ['popularity', 'success', 'novelty', 'approval'] as const)
          expect(asked[name]).toBeCloseTo(fresh[name], 2);
      }),
    );
  });
});

describe('popularity', () => {
  it('counts successes only', () => {
    expect(signalsOf([['t', { failures: 1_000, helpful: 9, unhelpful: 9 }]]).popularity).toBe(0);
    expect(signalsOf([['t', { successes: 1 }]]).popularity).toBeGreaterThan(0);
  });

  it('is 1 with a hundred tenants, and about a third with one, however much it calls', () => {
    expect(signalsOf(tenants(100, { successes: 50 })).popularity).toBe(1);
    expect(signalsOf([['flood', { successes: 1_000_000 }]]).popularity).toBeCloseTo(0.35, 2);
    expect(signalsOf([['flood', { successes: 50 }]]).popularity).toBeCloseTo(0.35, 2);
  });

  it('is not for sale: six tenants with one call each beat a million calls of one', () => {
    const few = signalsOf(tenants(6, { successes: 1 })).popularity;
    expect(few).toBeGreaterThan(signalsOf([['flood', { successes: 1_000_000 }]]).popularity);
  });

  it('fades: what was called half a life ago is worth half as many calls', () => {
    const then = signalsOf([['t', { successes: 40 }]], TODAY + HALF_LIFE_DAYS);
    expect(then.popularity).toBeCloseTo(signalsOf([['t', { successes: 20 }]]).popularity, 12);
  });

  it('never falls with a success more', () => {
    fc.assert(
      fc.property(fc.array(anyUse, { maxLength: 10 }), fc.constantFrom('a', 'z'), (uses, tenant) => {
        const after = signalsOf([...uses, [tenant, { successes: 1 }]]).popularity;
        expect(after + 1e-12).toBeGreaterThanOrEqual(signalsOf(uses).popularity);
      }),
    );
  });
});

describe('success', () => {
  it('begins at what is taken for granted, and a few calls say little', () => {
    const { success } = signalsOf([['t', { failures: 1 }]]);
    expect(success).toBeLessThan(UNUSED.success);
    expect(success).toBeGreaterThan(UNUSED.success - 0.1);
  });

  it("approaches the tenants' rate", () => {
    expect(signalsOf(tenants(50, { successes: 30, failures: 10 })).success).toBeCloseTo(0.75, 2);
  });

  it('holds no more of one tenant against a server than of any other', () => {
    const honest = tenants(20, { successes: 20 });
    const attacked = signalsOf([...honest, ['enemy', { failures: 1_000_000 }]]);
    expect(attacked.success).toBeGreaterThan(0.9);
  });

  it('is forgiven: after a year a server that failed is as good as unknown', () => {
    const later = signalsOf(tenants(5, { failures: 50 }), TODAY + 365);
    expect(later.success).toBeCloseTo(UNUSED.success, 1);
    expect(later.novelty).toBeGreaterThan(0.9);
  });
});

describe('approval', () => {
  it('follows verdicts, each tenant as three of them at most, and forgets what is taken back', () => {
    expect(signalsOf([['t', { helpful: 1 }]]).approval).toBeCloseTo(1 / 6, 9);
    expect(signalsOf([['t', { unhelpful: 100_000 }]]).approval).toBeCloseTo(-3 / 8, 9);
    const takenBack: Use[] = [
      ['t', { helpful: 1 }],
      ['t', { helpful: -1, unhelpful: 1 }],
    ];
    expect(signalsOf(takenBack).approval).toBeCloseTo(-1 / 6, 9);
  });
});

describe('a server among equals', () => {
  it('is never below an untried one once its calls succeed', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1_000_000 }),
        fc.integer({ min: 1, max: 150 }),
        (calls, users) => {
          expect(scoreOf(tenants(users, { successes: calls }))).toBeGreaterThan(scoreOf([]));
        },
      ),
    );
  });

  it('that fails is below the untried, and that below the one that works', () => {
    for (const users of [1, 3, 30]) {
      expect(scoreOf(tenants(users, { failures: 5 }))).toBeLessThan(scoreOf([]));
      expect(scoreOf(tenants(users, { successes: 5 }))).toBeGreaterThan(scoreOf([]));
    }
  });

  it('is nearer to an established one while it is new than it would be without that', () => {
    const established = signalsOf(tenants(100, { successes: 50, failures: 2 }));
    const bonus = boostByUse(1, UNUSED) - boostByUse(1, { ...UNUSED, novelty: 0 });
    const gap = boostByUse(1, established) - boostByUse(1, { ...UNUSED, novelty: 0 });
    expect(bonus / gap).toBeGreaterThan(0.45);
  });
});

describe('a new day', () => {
  it('goes through servers of many tenants a part at a time, and brings all to where they should be', () => {
    const tally = new UseTally(TODAY);
    const ids = Array.from({ length: 12 }, (_, at) => `s${at}`);
    for (const id of ids)
      for (let tenant = 0; tenant < 2_000; tenant++)
        tally.add(id, `t${tenant}`, TODAY, { successes: 1, failures: 1 });
    const before = tally.signals('s0', TODAY);
    const later = TODAY + 60;
    const aged = () => ids.filter(id => tally.signals(id, later).novelty > before.novelty * 2).length;
    expect(aged()).toBe(0);
    tally.ageSome(later);
    expect(aged()).toBe(5);
    for (let round = 0; round < 3; round++) tally.ageSome(later);
    expect(aged()).toBe(12);
    const fresh = signalsOf(tenants(2_000, { successes: 1, failures: 1 }), later + 1);
    tally.ageSome(later + 1);
    expect(tally.signals('s0', later + 1).success).toBeCloseTo(fresh.success, 2);
  });
});

describe('the clock', () => {
  it('set back makes things younger again, and calls of a wrong date count up to the cap', () => {
    const uses: Use[] = [['t', { successes: 40 }]];
    const tally = new UseTally(TODAY);
    for (const [tenant, added] of uses) tally.add('s', tenant, TODAY, added);
    const before = tally.signals('s', TODAY);
    tally.signals('s', TODAY + 30);
    expect(tally.signals('s', TODAY)).toEqual(before);
    tally.add('s', 'lost-in-time', TODAY + 3_650, { successes: 1, failures: 1 });
    const after = tally.signals('s', TODAY);
    expect(after.popularity).toBeLessThanOrEqual(signalsOf(tenants(2, { successes: 50 })).popularity);
    expect(after.success).toBeGreaterThan(0.7);
  });
});
