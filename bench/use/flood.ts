import { MAX_USE_EFFECT } from '../../src/core/search/ranking.ts';
import { UseTally } from '../../src/core/catalogue/use-tally.ts';
import { Usage } from '../../src/core/catalogue/usage.ts';
import { openDatabase } from '../../src/platform/database/database.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { openWorld, pick, queriesFor, shippedEntries, type Found } from './world.ts';
import { randomFrom } from '../random.ts';

/** As many as an answer can have. */
const DEPTH = 50;
const HONEST_TENANTS = 5;
/** The share of words that queries leave out of a description: few words, so that many servers fit about as well. */
const VAGUENESS = 0.75;

/** What one tenant can bring about with so many calls: its signals, counted one by one as calls are. */
async function floodedBy(calls: number) {
  const database = await openDatabase();
  const clock = { now: () => 20_778 * 86_400_000 };
  const usage = await Usage.load({ db: database.db, clock, log: createLog('error') });
  const startedAt = performance.now();
  for (let call = 0; call < calls; call++) usage.record({ serverId: 's', tenantId: 'flood', ok: true });
  const microsecondsPerCall = ((performance.now() - startedAt) * 1_000) / calls;
  usage.recordVerdicts('s', 'flood', { helpful: calls, unhelpful: 0 });
  const signals = usage.signals('s');
  await usage.close();
  await database.close();
  return { signals, microsecondsPerCall };
}

/**
 * The worst that the same tenant can do to a server: as many calls that fail, and as many bad verdicts; where so many other
 * tenants have made ten good calls each.
 */
function attackedBy(calls: number, honestTenants: number) {
  const tally = new UseTally(0);
  tally.add('s', 'flood', 0, { failures: calls, unhelpful: calls });
  for (let tenant = 0; tenant < honestTenants; tenant++) tally.add('s', `t${tenant}`, 0, { successes: 10 });
  return tally.signals('s', 0);
}

/**
 * One tenant makes so many successful calls of a server, and says of each that it helped, while nobody uses any other; then it
 * also does all it can against every other. Looked at: every query, and every pair of servers of its first fifty, the lower one being
 * flooded. A server's score does not depend on the use of others, so that three searches a query show all pairs.
 */
export async function flood({ calls, queries }: { calls: number; queries: number }) {
  const entries = await shippedEntries();
  await using world = await openWorld(entries);
  const random = randomFrom(1);
  const asked = entries.map(entry => ({
    target: entry.id,
    query: pick(queriesFor(entry, random, VAGUENESS), random),
  }));
  asked.sort((a, b) => (a.query < b.query ? -1 : 1));
  asked.length = Math.min(asked.length, queries);
  const { signals, microsecondsPerCall } = await floodedBy(calls);
  const attacked = attackedBy(calls, 0);
  const attackedButUsed = attackedBy(calls, HONEST_TENANTS);
  const pairs: Judged[] = [];
  let targetsFirst = 0;
  for (const { query, target } of asked) {
    const plain = await world.search(query, undefined, DEPTH);
    const scores = {
      flooded: byId(await world.search(query, () => signals, DEPTH)),
      attacked: byId(await world.search(query, () => attacked, DEPTH)),
      attackedButUsed: byId(await world.search(query, () => attackedButUsed, DEPTH)),
    };
    if (plain[0]?.id === target) targetsFirst++;
    for (const [at, upper] of plain.entries())
      for (const lower of plain.slice(at + 1))
        pairs.push({ ...judge(upper, lower, scores), isOfTarget: at === 0 && upper.id === target });
  }
  const clear = pairs.filter(pair => pair.isClear);
  const near = pairs.filter(pair => !pair.isClear);
  const share = (is: (pair: Judged) => boolean) => near.filter(is).length / near.length;
  return {
    queries: asked.length,
    servers: entries.length,
    flood_calls: calls,
    flooded_popularity: signals.popularity,
    count_us_per_call: microsecondsPerCall,
    pairs_clearly_apart: clear.length,
    violations: clear.filter(pair => pair.isLost || pair.isLostAttacked).length,
    pairs_near: near.length,
    near_moved_by_flood_share: share(pair => pair.isLost),
    near_moved_by_flood_and_attack_share: share(pair => pair.isLostAttacked),
    [`the_same_where_${HONEST_TENANTS}_tenants_use_the_other_share`]: share(pair => pair.isLostUsed),
    targets_first_without_use: targetsFirst,
    floods_that_take_a_targets_place: pairs.filter(pair => pair.isOfTarget && pair.isLost).length,
    of_these_clearly_less_relevant: clear.filter(pair => pair.isOfTarget && pair.isLost).length,
  };
}

type Scores = Readonly<Record<'flooded' | 'attacked' | 'attackedButUsed', ReadonlyMap<string, number>>>;

/** What a flood of the lower one of two servers does to their order. */
interface Verdict {
  /** The upper one is more relevant by more than use can make up for. */
  readonly isClear: boolean;
  readonly isLost: boolean;
  /** … where the upper one is attacked besides. */
  readonly isLostAttacked: boolean;
  /** … and used by others. */
  readonly isLostUsed: boolean;
}
interface Judged extends Verdict {
  /** The upper one is what the query was made from, and came first. */
  readonly isOfTarget: boolean;
}

function judge(upper: Found, lower: Found, { flooded, attacked, attackedButUsed }: Scores): Verdict {
  const lifted = flooded.get(lower.id) ?? 0;
  return {
    isClear: upper.score > lower.score * (1 + MAX_USE_EFFECT),
    isLost: lifted > upper.score,
    isLostAttacked: lifted > (attacked.get(upper.id) ?? 0),
    isLostUsed: lifted > (attackedButUsed.get(upper.id) ?? 0),
  };
}

const byId = (found: readonly Found[]) => new Map(found.map(({ id, score }) => [id, score]));
