import { and, asc, desc, eq, gt, gte, lt, lte, or, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import { addedUp, DailyCounter, DAY_MS, dayOf, FreshCounts } from '../../platform/database/daily-counter.ts';
import type { Database } from '../../platform/database/database.ts';
import { SingleFlight } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Principal, Use } from './caller.ts';
import { apiKeys, keyUse } from './schema.ts';

export type { Use } from './caller.ts';

/** Thirteen months, so that the current month can be compared with that of last year. */
const KEPT_DAYS = 400;
/** How long a process uses the counts it has read from others. */
const FRESH_MS = 2_000;
/** Older counts are refreshed in the background, so that calls of a busy key never wait. */
const AHEAD_MS = 1_000;

export type UseCount = Readonly<Record<Use, number>>;
const SINGULAR: Readonly<Record<Use, string>> = { calls: 'call', searches: 'search' };
const NONE: UseCount = { calls: 0, searches: 0 };

/** The state of a quota after a request, for the headers. */
export interface QuotaState {
  readonly use: Use;
  readonly limit: number;
  readonly remaining: number;
  /** Seconds in the whole month, and until the next one starts, rounded up. */
  readonly monthSec: number;
  readonly resetSec: number;
}

/** Thrown as `quota_exceeded`; carries the state for the headers. */
export class QuotaExceeded extends SwitchboardError {
  readonly state: QuotaState;

  constructor(state: QuotaState, resetsAt: string) {
    const uses = state.limit === 1 ? SINGULAR[state.use] : state.use;
    super(
      'quota_exceeded',
      `This key has used up its monthly quota of ${state.limit} ${uses}. It resets at ${resetsAt}. Ask the operator to raise it.`,
      {
        retryAfterSec: state.resetSec,
        members: { quota: { use: state.use, limit: state.limit, resets_at: resetsAt } },
      },
    );
    this.state = state;
  }
}

export interface UseFilter {
  readonly keyId?: string | undefined;
  readonly tenant?: string | undefined;
  /** Dates such as `2026-11-21` (UTC), inclusive. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** Only rows after this one. */
  readonly after?: { readonly day: string; readonly keyId: string } | undefined;
  readonly limit: number;
}

/** The usage of one key on one day, for an operator. */
export interface UseRecord extends UseCount {
  readonly day: string;
  readonly key_id: string;
  /** Null for the environment's key, which has no row in the database. */
  readonly name: string | null;
  readonly tenant: string | null;
}

interface Row extends UseCount {
  readonly keyId: string;
  readonly day: string;
}

/** The known usage of a key with a quota. */
interface Known {
  readonly month: Month;
  /** This month's counts: those last read from the database, and those counted here since. */
  used: UseCount;
  readAtMs: number;
}

interface KeyUseParts {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  /** True if other processes count into the same database. */
  readonly shared: boolean;
}

/**
 * Counts the usage of each key and enforces monthly quotas.
 *
 * Counts of other processes are refreshed after two seconds. Until then each process allows as many requests
 * as it believes are left. A quota can therefore be exceeded by the requests of three seconds (two, plus the
 * second in which counts are written), or longer while the database accepts no writes.
 */
export class KeyUse {
  readonly #parts: KeyUseParts;
  readonly #counter: DailyCounter<Row>;
  readonly #known = new Map<string, Known>();
  readonly #reading = new SingleFlight<void>();
  readonly #fresh: FreshCounts<{ readonly keyId: string } & Record<Use, number>>;

  constructor(parts: KeyUseParts) {
    this.#parts = parts;
    const { db, clock, log } = parts;
    this.#counter = new DailyCounter<Row>({
      db,
      clock,
      log,
      what: 'use of keys',
      table: keyUse,
      keptDays: KEPT_DAYS,
      keyOf: row => row.keyId,
      sum: (earlier, later) => ({ ...later, ...sumOf(earlier, later) }),
      write: rows =>
        db
          .insert(keyUse)
          .values(rows)
          .onConflictDoUpdate({
            target: [keyUse.keyId, keyUse.day],
            set: addedUp([keyUse.calls, keyUse.searches]),
          }),
      onTick: () => this.#fresh.handOn(),
    });
    this.#fresh = new FreshCounts((uses, day) => this.#counter.add({ ...uses, day: dayOf(day * DAY_MS) }));
  }

  /**
   * Counts one or more uses. Returns undefined for a key without a quota.
   * @throws QuotaExceeded if fewer are left this month; none is counted then
   */
  spend(
    { keyId, countedAs = keyId, quota }: Pick<Principal, 'keyId' | 'countedAs' | 'quota'>,
    use: Use,
    times = 1,
  ): QuotaState | Promise<QuotaState> | undefined {
    const limit = quota?.[use];
    if (limit === undefined) {
      this.#count(countedAs, use, times);
      return undefined;
    }
    const known = this.#freshly(countedAs);
    const spendOf = (found: Known) => this.#spendOf(found, { countedAs, limit, use, times });
    return known instanceof Promise ? known.then(spendOf) : spendOf(known);
  }

  /** @throws QuotaExceeded */
  #spendOf(
    { month, used }: Known,
    { countedAs, limit, use, times }: { countedAs: string; limit: number; use: Use; times: number },
  ): QuotaState {
    const now = this.#parts.clock.now();
    const state = (total: number): QuotaState => ({
      use,
      limit,
      remaining: Math.max(0, limit - total),
      monthSec: (month.endMs - month.startMs) / 1000,
      resetSec: Math.max(1, Math.ceil((month.endMs - now) / 1000)),
    });
    if (used[use] + times > limit) {
      this.#parts.metrics?.events.rateLimited(`${use}-per-month`);
      throw new QuotaExceeded(state(used[use]), new Date(month.endMs).toISOString());
    }
    this.#count(countedAs, use, times);
    return state(used[use] + times);
  }

  /** Returns the usage of each key this month; keys without usage are absent. */
  async thisMonth(): Promise<ReadonlyMap<string, UseCount>> {
    await this.flush();
    return this.#read(monthOf(this.#parts.clock.now()));
  }

  /** Lists usage by key and day: newest day first, then by key. */
  async list({ keyId, tenant, from, to, after, limit }: UseFilter): Promise<{
    readonly records: readonly UseRecord[];
    readonly hasMore: boolean;
  }> {
    await this.flush();
    // Byte order, whatever the database's collation, as used by `>`.
    const key = sql`${keyUse.keyId} collate "C"`;
    const found = await this.#parts.db
      .select({
        day: keyUse.day,
        key_id: keyUse.keyId,
        name: apiKeys.name,
        tenant: apiKeys.tenantId,
        calls: keyUse.calls,
        searches: keyUse.searches,
      })
      .from(keyUse)
      .leftJoin(apiKeys, eq(apiKeys.id, keyUse.keyId))
      .where(
        and(
          keyId === undefined ? undefined : eq(keyUse.keyId, keyId),
          tenant === undefined ? undefined : eq(apiKeys.tenantId, tenant),
          from === undefined ? undefined : gte(keyUse.day, from),
          to === undefined ? undefined : lte(keyUse.day, to),
          after && or(lt(keyUse.day, after.day), and(eq(keyUse.day, after.day), gt(key, after.keyId))),
        ),
      )
      .orderBy(desc(keyUse.day), asc(key))
      // One extra row shows whether there are more.
      .limit(limit + 1);
    return { records: found.slice(0, limit), hasMore: found.length > limit };
  }

  /** Writes the pending counts; failed writes are retried with the next ones. */
  flush(): Promise<void> {
    this.#fresh.handOn();
    return this.#counter.flush();
  }

  /** Deletes expired rows. Resolves to their number. */
  purge(): Promise<number> {
    return this.#counter.purge();
  }

  close(): Promise<void> {
    this.#fresh.handOn();
    return this.#counter.close();
  }

  #count(keyId: string, use: Use, times: number): void {
    const now = this.#parts.clock.now();
    const fresh = this.#fresh.of(keyId, Math.floor(now / DAY_MS), () => ({ keyId, calls: 0, searches: 0 }));
    fresh[use] += times;
    const known = this.#known.get(keyId);
    if (known && now < known.month.endMs) known.used = sumOf(known.used, { ...NONE, [use]: times });
  }

  /** Returns the known usage of a key with a quota, refreshed if it is too old. If the database is down, it stays unchanged. */
  #freshly(keyId: string): Known | Promise<Known> {
    const { clock, shared } = this.#parts;
    const found = this.#current(keyId);
    const ageMs = found ? monotonicMs(clock) - found.readAtMs : Infinity;
    if (found && (!shared || ageMs < AHEAD_MS)) return found;
    const reading = this.#reading.run(keyId, () => this.#readAgain(keyId));
    if (found && ageMs < FRESH_MS) {
      // This can fail only at the turn of the month; the next call then reads again.
      reading.catch(() => {});
      return found;
    }
    return reading.then(() => this.#current(keyId) ?? this.#freshly(keyId));
  }

  async #readAgain(keyId: string): Promise<void> {
    const { clock, log } = this.#parts;
    try {
      await this.#counter.read(async () => {
        const month = monthOf(clock.now());
        const readAtMs = monotonicMs(clock);
        const stored = (await this.#read(month, keyId)).get(keyId) ?? NONE;
        this.#known.set(keyId, { month, used: sumOf(stored, this.#unwritten(keyId, month)), readAtMs });
      });
    } catch (error) {
      const found = this.#current(keyId);
      if (!found) throw error;
      log.warn({ err: error }, 'failed to read key usage; will retry');
      found.readAtMs = monotonicMs(clock);
    }
  }

  #current(keyId: string): Known | undefined {
    const known = this.#known.get(keyId);
    const now = this.#parts.clock.now();
    return known && now >= known.month.startMs && now < known.month.endMs ? known : undefined;
  }

  #unwritten(keyId: string, { startMs }: Month): UseCount {
    this.#fresh.handOn();
    let sum = NONE;
    for (let at = startMs; at <= this.#parts.clock.now(); at += DAY_MS)
      sum = sumOf(sum, this.#counter.unwritten(dayOf(at), keyId) ?? NONE);
    return sum;
  }

  async #read(month: Month, keyId?: string): Promise<Map<string, UseCount>> {
    const total = (name: Use) => sql<number>`sum(${keyUse[name]})::float8`;
    const inMonth = and(gte(keyUse.day, dayOf(month.startMs)), lt(keyUse.day, dayOf(month.endMs)));
    const found = await this.#parts.db
      .select({ keyId: keyUse.keyId, calls: total('calls'), searches: total('searches') })
      .from(keyUse)
      .where(keyId === undefined ? inMonth : and(inMonth, eq(keyUse.keyId, keyId)))
      .groupBy(keyUse.keyId);
    return new Map(found.map(({ keyId: id, calls, searches }) => [id, { calls, searches }]));
  }
}

const sumOf = (a: UseCount, b: UseCount): UseCount => ({
  calls: a.calls + b.calls,
  searches: a.searches + b.searches,
});

/** A calendar month (UTC), in milliseconds since the epoch; `endMs` is exclusive. */
interface Month {
  readonly startMs: number;
  readonly endMs: number;
}

let current: Month = { startMs: 0, endMs: 0 };

/** Returns the month of a time. Caches the last result. */
function monthOf(timeMs: number): Month {
  if (timeMs >= current.startMs && timeMs < current.endMs) return current;
  const date = new Date(timeMs);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  current = { startMs: Date.UTC(year, month, 1), endMs: Date.UTC(year, month + 1, 1) };
  return current;
}
