import * as fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Caller } from '../../../src/core/access/caller.ts';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Access, Entry, ServerHead } from '../../../src/core/catalogue/entry.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { UNUSED } from '../../../src/core/catalogue/usage.ts';
import { firstWithEquals, orderByAccess, roundScore } from '../../../src/core/search/fusion.ts';
import { createEmbeddedIndex } from '../../../src/core/search/index/search-index-embedded.ts';
import { createSearch } from '../../../src/core/search/search.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { caller, controlledEmbedder, entry, settableClock, silent } from './support.ts';

type Status = Access['status'];
const STATUSES: readonly Status[] = ['open', 'connected', 'connect', 'unknown', 'setup_needed'];

interface Placed {
  readonly serverId: string;
  readonly finalScore: number;
  readonly access: Access;
  readonly isPinned?: true;
}

const placed: fc.Arbitrary<Placed> = fc.record({
  serverId: fc.uuid(),
  finalScore: fc.integer({ min: 0, max: 6 }).map(score => score / 1_000),
  access: fc.constantFrom(...STATUSES).map(status => ({ kind: 'unknown' as const, status })),
});
/** Servers that the query names, then others by score. */
const rankings = fc
  .tuple(fc.array(placed, { maxLength: 3 }), fc.array(placed, { maxLength: 30 }))
  .map(([named, others]) => {
    const ranked = others.toSorted((a, b) => b.finalScore - a.finalScore);
    const finalScore = ranked[0]?.finalScore ?? 0;
    return named.map((server): Placed => ({ ...server, finalScore, isPinned: true })).concat(ranked);
  });

describe('the order by access', () => {
  it('never moves a server past one of another score, nor a named one at all, and is stable', () => {
    fc.assert(
      fc.property(rankings, ranking => {
        const ordered = orderByAccess(ranking);
        expect(ordered.map(({ finalScore }) => finalScore)).toEqual(
          ranking.map(({ finalScore }) => finalScore),
        );
        const named = ranking.filter(({ isPinned }) => isPinned);
        expect(ordered.slice(0, named.length)).toEqual(named);
        const others = ordered.slice(named.length);
        for (const [at, server] of others.entries()) {
          const next = others[at + 1];
          if (next?.finalScore !== server.finalScore) continue;
          const [turn, after] = [server, next].map(({ access }) => {
            const position = STATUSES.indexOf(access.status);
            return position === 1 ? 0 : position;
          });
          expect(turn).toBeLessThanOrEqual(after!);
          if (turn === after) expect(ranking.indexOf(server)).toBeLessThan(ranking.indexOf(next));
        }
      }),
    );
  });

  it('takes the equals of the last server, but not those of a named one', () => {
    const at = (finalScore: number, isPinned?: true) => ({ finalScore, ...(isPinned && { isPinned }) });
    const ranking = [at(0.5, true), at(0.5), at(0.4999), at(0.4003), at(0.4)];
    expect([1, 2, 3, 4, 5, 9].map(limit => firstWithEquals(ranking, limit).length)).toEqual([
      1, 3, 3, 5, 5, 5,
    ]);
    expect(firstWithEquals([], 5)).toEqual([]);
  });

  it('counts scores as equal that show the same three decimals', () => {
    expect([0.78649, 0.78551, 0.7865, 0, 1].map(roundScore)).toEqual([0.786, 0.786, 0.787, 0, 1]);
  });
});

describe('a search', () => {
  let database: OpenDatabase;
  beforeAll(async () => void (database = await openTestDatabase()));
  afterAll(() => database.close());
  beforeEach(() => database.db.delete(servers));

  /** Statuses by server, for each tenant. */
  const statuses: Record<string, Record<string, Status>> = {};

  /** A search of these entries, and what it finds. */
  async function start(entries: readonly Entry[]) {
    const { db } = database;
    const clock = settableClock();
    const { embedder } = controlledEmbedder();
    const catalogue = await Catalogue.load(db);
    const index = await createEmbeddedIndex({ embedder, db, log: silent, clock });
    await catalogue.attachIndex(change => index.prepare(change));
    await catalogue.put(entries, { origin: 'operator' });
    const accessFor = ({ tenantId }: Pick<Caller, 'tenantId'>) =>
      Promise.resolve(({ id }: ServerHead) => ({
        kind: 'unknown' as const,
        status: statuses[tenantId]?.[id] ?? 'unknown',
      }));
    const search = createSearch({ catalogue, index, db, log: silent, clock, use: () => UNUSED, accessFor });
    return {
      [Symbol.asyncDispose]: () => search.close(),
      async find(query: string, { tenantId = 'local', limit = 10 } = {}) {
        const { servers: found, metadata } = await search.search({ ...caller, tenantId }, { query, limit });
        return { ids: found.map(({ id }) => id), scores: found.map(one => one.final_score), metadata };
      },
    };
  }
  const twin = (id: string): Entry => ({ ...entry(id, 'Forecasts rain.'), name: 'Weather' });
  const better = entry('better', 'Forecasts rain and rain: rain forecasts.', { rain: 'Forecasts rain.' });

  it('orders equal servers by the access of its caller, and shows none that another has asked the same', async () => {
    await using one = await start([twin('a'), twin('b'), twin('c'), twin('d'), twin('e'), better]);
    Object.assign(statuses, {
      here: {
        a: 'setup_needed',
        b: 'unknown',
        c: 'connect',
        d: 'connected',
        e: 'open',
        better: 'setup_needed',
      },
      there: { a: 'open', b: 'connect' },
    });
    const here = await one.find('forecasts of rain', { tenantId: 'here' });
    expect(here.ids).toEqual(['better', 'd', 'e', 'c', 'b', 'a']);
    expect(new Set(here.scores).size).toBe(2);
    const there = await one.find('forecasts of rain', { tenantId: 'there' });
    expect(there.ids).toEqual(['better', 'a', 'b', 'c', 'd', 'e']);
    expect(there.metadata.cache_hit).toBe(false);
    expect((await one.find('forecasts of rain', { tenantId: 'there' })).metadata.cache_hit).toBe(true);
  });

  it('keeps the accessible ones of equal servers within its limit', async () => {
    await using one = await start([twin('a'), twin('b'), twin('c'), better]);
    statuses['limit'] = { c: 'open', b: 'connect' };
    const ids = async (limit: number) => (await one.find('rain forecasts', { tenantId: 'limit', limit })).ids;
    expect(await ids(1)).toEqual(['better']);
    expect(await ids(2)).toEqual(['better', 'c']);
    expect(await ids(3)).toEqual(['better', 'c', 'b']);
  });

  it('leaves the server first that the query names, whatever its access', async () => {
    await using one = await start([{ ...twin('named'), name: 'Quixo' }, twin('a'), better]);
    statuses['names'] = { named: 'setup_needed', a: 'open', better: 'open' };
    for (const query of ['Quixo', 'named']) {
      const { ids } = await one.find(query, { tenantId: 'names' });
      expect(ids[0]).toBe('named');
    }
  });
});
