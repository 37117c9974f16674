import { NO_USE, UNUSED, UseTally } from '../../src/core/catalogue/use-tally.ts';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import {
  mean,
  openWorld,
  pick,
  queriesFor,
  shippedEntries,
  thinned,
  type UseOf,
  type World,
} from './world.ts';
import { randomFrom } from '../random.ts';

/** So many tenants, the first busier than the last. */
const TENANTS = 40;
/** How often a user tries another fitting server than the first one shown, of curiosity. */
const CURIOSITY = 0.2;
const WEEK_DAYS = 7;

/** Two servers that fit the same requests. */
interface Pair {
  readonly ids: readonly [string, string];
  readonly queries: readonly string[];
}

interface Simulation {
  readonly world: World;
  readonly pairs: readonly Pair[];
  readonly tally: UseTally;
  readonly useOf: UseOf;
  readonly weeks: number;
  readonly searchesPerDay: number;
  /** How often calls of a server succeed, 0 to 1. */
  readonly rateOf: (serverId: string) => number;
}

interface Seen {
  readonly week: number;
  readonly pair: Pair;
  /** Places in the answer, from 1; `Infinity` where it is not shown. */
  readonly places: readonly [number, number];
  readonly called: string;
  readonly succeeded: boolean;
}

/**
 * Weeks of users, each of some tenant: they ask for what one of the pairs is for, call the first fitting server shown (now and then
 * the second), and the other one if the call fails. What is counted is what the product counts.
 */
async function live(simulation: Simulation): Promise<Seen[]> {
  const { world, pairs, tally, useOf, weeks, searchesPerDay, rateOf } = simulation;
  const random = randomFrom(7);
  const seen: Seen[] = [];
  const call = (serverId: string, tenantId: string) => {
    const succeeded = random() < rateOf(serverId);
    tally.add(serverId, tenantId, world.day, { ...NO_USE, [succeeded ? 'successes' : 'failures']: 1 });
    return succeeded;
  };
  const firstDay = world.day;
  for (; world.day < firstDay + weeks * WEEK_DAYS; world.day++) {
    tally.ageSome(world.day);
    for (let search = 0; search < searchesPerDay; search++) {
      const pair = pick(pairs, random);
      const tenantId = `t${Math.floor(TENANTS * random() ** 2)}`;
      const found = await world.search(pick(pair.queries, random), useOf);
      const [a, b] = pair.ids.map(id => placeOf(found, id)) as [number, number];
      const isCurious = random() < CURIOSITY;
      const [first, second] = a < b ? pair.ids : [pair.ids[1], pair.ids[0]];
      if (Math.min(a, b) === Infinity) continue;
      const called = isCurious && Math.max(a, b) < Infinity ? second : first;
      const succeeded = call(called, tenantId);
      if (!succeeded && Math.max(a, b) < Infinity) call(called === first ? second : first, tenantId);
      seen.push({
        week: Math.floor((world.day - firstDay) / WEEK_DAYS),
        pair,
        places: [a, b],
        called,
        succeeded,
      });
    }
  }
  world.day = firstDay;
  return seen;
}

function placeOf(found: readonly { id: string }[], id: string): number {
  const at = found.findIndex(one => one.id === id);
  return at < 0 ? Infinity : at + 1;
}

/** Servers with enough tools to be asked for in several ways. */
async function chosen(count: number) {
  const entries = await shippedEntries();
  const rich = entries.filter(({ tools = [] }) => tools.length >= 4);
  const step = rich.length / Math.min(count, rich.length);
  return { entries, picked: rich.filter((_entry, at) => Math.floor(at % step) === 0).slice(0, count) };
}

const underId = (entry: Entry, id: string): Entry => ({ ...entry, id });

interface Size {
  readonly pairs: number;
  readonly weeks: number;
  readonly searches: number;
}

/** Each picked server has a twin that says the same of itself; one of the two works, the other mostly fails. */
export async function twins({ pairs: count, weeks, searches }: Size) {
  const { entries, picked } = await chosen(count);
  const random = randomFrom(3);
  const pairs = picked.map((entry): Pair & { working: string } => {
    const ids = [entry.id, `${random() < 0.5 ? '0' : 'z'}-twin-${entry.id}`.slice(0, 128)] as const;
    return { ids, queries: queriesFor(entry, random), working: pick(ids, random) };
  });
  const copies = picked.map((entry, at) => underId(entry, pairs[at]?.ids[1] ?? ''));
  await using world = await openWorld([...entries, ...copies]);
  const working = new Set(pairs.map(pair => pair.working));
  const rateOf = (id: string) => (working.has(id) ? 0.95 : 0.3);
  const places = async (useOf: UseOf) => {
    const of: Record<'working' | 'failing', number[]> = { working: [], failing: [] };
    for (const { ids, queries } of pairs)
      for (const query of queries) {
        const found = await world.search(query, useOf, 50);
        for (const id of ids) {
          const place = placeOf(found, id);
          if (place < Infinity) of[working.has(id) ? 'working' : 'failing'].push(place);
        }
      }
    return { working: mean(of.working), failing: mean(of.failing) };
  };
  const run = async (isLearning: boolean) => {
    const tally = new UseTally(world.day);
    const useOf = isLearning ? (id: string) => tally.signals(id, world.day) : () => UNUSED;
    const seen = await live({ world, pairs, tally, useOf, weeks, searchesPerDay: searches, rateOf });
    world.day += weeks * WEEK_DAYS;
    tally.ageSome(world.day);
    const after = await places(useOf);
    world.day -= weeks * WEEK_DAYS;
    const byWeek = Array.from({ length: weeks }, (_, week) =>
      mean(seen.filter(one => one.week === week).map(({ succeeded }) => Number(succeeded))),
    );
    return { byWeek, after, calls: seen.length };
  };
  const before = await places(() => UNUSED);
  const [fixed, learning] = [await run(false), await run(true)];
  return { pairs: pairs.length, searches: learning.calls, before, fixed, learning };
}

/**
 * Each picked server has a rival that fits as well, in words of its own: of the texts of both, different words are left out. The
 * one has been used for four weeks, by most tenants, when the other comes in.
 */
export async function newcomers({ pairs: count, weeks, searches }: Size) {
  const { entries, picked } = await chosen(count);
  const random = randomFrom(5);
  const variant = (entry: Entry, id: string): Entry => ({
    ...entry,
    id,
    description: thinned(entry.description, 0.2, random),
    ...(entry.tools && {
      tools: entry.tools.map(tool => ({ ...tool, description: thinned(tool.description, 0.2, random) })),
    }),
  });
  const pairs = picked.map((entry): Pair => ({
    ids: [`old-${entry.id}`.slice(0, 128), `new-${entry.id}`.slice(0, 128)],
    queries: queriesFor(entry, random),
  }));
  const both = picked.flatMap((entry, at) => (pairs[at]?.ids ?? []).map(id => variant(entry, id)));
  const pickedIds = new Set(picked.map(({ id }) => id));
  await using world = await openWorld([...entries.filter(({ id }) => !pickedIds.has(id)), ...both]);
  const run = async (signalsOf: (tally: UseTally, id: string) => ReturnType<UseOf>) => {
    const tally = new UseTally(world.day);
    const history = randomFrom(11);
    for (const { ids } of pairs)
      for (let call = 0; call < 28 * 8; call++) {
        const tenantId = `t${Math.floor(TENANTS * history() ** 2)}`;
        const isGood = history() < 0.95;
        const day = world.day - 1 - Math.floor(history() * 28);
        tally.add(ids[0], tenantId, day, isGood ? { successes: 1 } : { failures: 1 });
      }
    const useOf = (id: string) => signalsOf(tally, id);
    const seen = await live({
      world,
      pairs,
      tally,
      useOf,
      weeks,
      searchesPerDay: searches,
      rateOf: () => 0.95,
    });
    return Array.from({ length: weeks }, (_, week) => {
      const all = seen.filter(one => one.week === week);
      const share = (is: (one: Seen) => boolean) => mean(all.map(one => Number(is(one))));
      return {
        week: week + 1,
        before_the_old: share(({ places: [old, fresh] }) => fresh < old),
        first: share(({ places: [, fresh] }) => fresh === 1),
        top_3: share(({ places: [, fresh] }) => fresh <= 3),
        called: share(({ called, pair }) => called === pair.ids[1]),
      };
    });
  };
  return {
    pairs: pairs.length,
    'without use': await run(() => UNUSED),
    'use, without the bonus': await run((tally, id) => ({ ...tally.signals(id, world.day), novelty: 0 })),
    'as built': await run((tally, id) => tally.signals(id, world.day)),
  };
}
