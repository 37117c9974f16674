import { and, gte, inArray, lt, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/clock.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../../platform/telemetry/metrics.ts';
import { SingleFlight } from '../../platform/single-flight.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { excluded } from '../../platform/database/columns.ts';
import { keyUse } from './schema.ts';
import { WriteBehind } from '../../platform/database/write-behind.ts';
import { listUse, type UseFilter } from './use-report.ts';
import { dayOf, monthOf, type Month } from './months.ts';

const DAY_MS = 86_400_000;
/** Thirteen months: this one can be compared with the same of last year. */
const KEPT_DAYS = 400;
/** How long a process may go on with what it knows of others' counts. */
const FRESH_MS = 2_000;
/** From this age on they are read again while calls go on: of a key in steady use no call waits for that. */
const AHEAD_MS = 1_000;

/** What is counted: proxied calls, and searches. */
export type Use = 'calls' | 'searches';
export type UseCount = Readonly<Record<Use, number>>;
/** Undefined: no limit. */
export type Quota = Readonly<Partial<Record<Use, number>>>;

const NONE: UseCount = { calls: 0, searches: 0 };

/** Whose use it is: of a key's own, or of the first of its line of rotations. */
interface Counted {
  readonly keyId: string;
  readonly countedAs?: string | undefined;
  readonly quota?: Quota | undefined;
}

/** How a quota stands after a use, for the headers. */
export interface QuotaState {
  readonly use: Use;
  readonly limit: number;
  readonly remaining: number;
  /** Seconds of the whole month, and until the next one begins, rounded up. */
  readonly monthSec: number;
  readonly resetSec: number;
}

/** Thrown as `quota_exceeded`; carries the state for the headers. */
export class QuotaExceeded extends SwitchboardError {
  readonly state: QuotaState;

  constructor(state: QuotaState, resetsAt: string) {
    super(
      'quota_exceeded',
      `This key's monthly quota of ${state.use} (${state.limit}) is used up. It begins anew at ${resetsAt}; an operator can raise it.`,
      {
        retryAfterSec: state.resetSec,
        members: { quota: { use: state.use, limit: state.limit, resets_at: resetsAt } },
      },
    );
    this.state = state;
  }
}

interface Row extends UseCount {
  readonly keyId: string;
  /** A date, `2026-11-21` (UTC). */
  readonly day: string;
}

/** What is known of a key with a quota in the month under way. */
interface Known {
  readonly month: Month;
  /** In the database as read last, and what was written from here since. */
  stored: UseCount;
  /** Counted here and not in `stored` yet. */
  unwritten: UseCount;
  readAtMs: number;
}

interface KeyUseParts {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  /** Whether other processes count into the same database. */
  readonly shared: boolean;
}

/**
 * Counts what each key uses, a row per key and day (UTC), and holds keys to their monthly quotas. What is counted is written
 * within a second (`WriteBehind`), so a kill loses at most the last second of it.
 *
 * Processes on one database add to each other's rows. What others have counted is read again when it is over two seconds old;
 * until then each lets pass what it knows to be left. So a quota can be passed by what the other processes let pass within three
 * seconds (two, and the second in which counts are written), and longer only while the database takes no writes.
 */
export class KeyUse {
  readonly #parts: KeyUseParts;
  readonly #pending: WriteBehind<Row>;
  readonly #known = new Map<string, Known>();
  readonly #reading = new SingleFlight<void>();

  constructor(parts: KeyUseParts) {
    this.#parts = parts;
    this.#pending = new WriteBehind<Row>({
      clock: parts.clock,
      log: parts.log,
      what: 'use of keys',
      keyOf: ({ keyId, day }) => `${day} ${keyId}`,
      merge: (earlier, later) => ({ ...later, ...sumOf(earlier, later) }),
      writeBatch: rows => this.#writeBatch(rows),
      purge: () => this.purge(),
    });
  }

  /**
   * Counts one use, or several that came as one. Undefined for a key without a quota on it.
   * @throws QuotaExceeded when fewer are left in the month; then none is counted.
   */
  async spend(
    { keyId, countedAs = keyId, quota }: Counted,
    use: Use,
    times = 1,
  ): Promise<QuotaState | undefined> {
    const limit = quota?.[use];
    if (limit === undefined) {
      this.#count(countedAs, use, times);
      return undefined;
    }
    const known = await this.#freshly(countedAs);
    const now = this.#parts.clock.now();
    const { month } = known;
    const state = (used: number): QuotaState => ({
      use,
      limit,
      remaining: Math.max(0, limit - used),
      monthSec: (month.endMs - month.startMs) / 1000,
      resetSec: Math.max(1, Math.ceil((month.endMs - now) / 1000)),
    });
    const used = known.stored[use] + known.unwritten[use];
    if (used + times > limit) {
      this.#parts.metrics?.events.rateLimited(`${use}-per-month`);
      throw new QuotaExceeded(state(used), new Date(month.endMs).toISOString());
    }
    this.#count(countedAs, use, times);
    return state(used + times);
  }

  /** What has been used since the month began; of keys that have used nothing there is no entry. */
  async thisMonth(): Promise<ReadonlyMap<string, UseCount>> {
    await this.flush();
    return this.#read(monthOf(this.#parts.clock.now()));
  }

  /** Use by key and day, what was counted here until now among it. */
  async list(filter: UseFilter): ReturnType<typeof listUse> {
    await this.flush();
    return listUse(this.#parts.db, filter);
  }

  /** Writes what has been counted; what could not be written is kept for the next time. */
  flush(): Promise<void> {
    return this.#pending.flush();
  }

  /** Deletes what is past its time. Resolves to the number of rows deleted. */
  purge(): Promise<number> {
    const { db, clock } = this.#parts;
    return purgeWhere(db, keyUse, lt(keyUse.day, dayOf(clock.now() - KEPT_DAYS * DAY_MS)));
  }

  close(): Promise<void> {
    return this.#pending.close();
  }

  #count(keyId: string, use: Use, times: number): void {
    const now = this.#parts.clock.now();
    const more = { ...NONE, [use]: times };
    const known = this.#known.get(keyId);
    if (known && now < known.month.endMs) known.unwritten = sumOf(known.unwritten, more);
    this.#pending.put({ keyId, day: dayOf(now), ...more });
  }

  /** What is known of a key with a quota, read again where it is too old. A database that is down leaves it as it was. */
  async #freshly(keyId: string): Promise<Known> {
    const { clock, shared } = this.#parts;
    const found = this.#current(keyId);
    const ageMs = found ? monotonicMs(clock) - found.readAtMs : Infinity;
    if (found && (!shared || ageMs < AHEAD_MS)) return found;
    const reading = this.#reading.run(keyId, () => this.#readAgain(keyId));
    if (found && ageMs < FRESH_MS) {
      // At the turn of the month nothing is known: who then asks reads by itself.
      reading.catch(() => {});
      return found;
    }
    await reading;
    return this.#current(keyId) ?? this.#freshly(keyId);
  }

  async #readAgain(keyId: string): Promise<void> {
    try {
      await this.#refresh(keyId);
    } catch (error) {
      const found = this.#current(keyId);
      if (!found) throw error;
      this.#parts.log.warn({ err: error }, 'use of a key not read, will try again');
      found.readAtMs = monotonicMs(this.#parts.clock);
    }
  }

  #current(keyId: string): Known | undefined {
    const known = this.#known.get(keyId);
    const now = this.#parts.clock.now();
    return known && now >= known.month.startMs && now < known.month.endMs ? known : undefined;
  }

  /** Reads while nothing is being written: what is in the database then is known from what is not. */
  async #refresh(keyId: string): Promise<void> {
    let failure: unknown;
    await this.#pending.afterFlush(async () => {
      try {
        await this.#readKnown(keyId);
      } catch (error) {
        failure = error;
      }
    });
    if (failure !== undefined) throw failure;
  }

  async #readKnown(keyId: string): Promise<void> {
    const { clock } = this.#parts;
    const month = monthOf(clock.now());
    const readAtMs = monotonicMs(clock);
    const stored = (await this.#read(month, [keyId])).get(keyId) ?? NONE;
    // Nothing was written meanwhile: what is in the buffer by now is what is missing.
    this.#known.set(keyId, { month, stored, unwritten: this.#unwritten(keyId, month), readAtMs });
  }

  #unwritten(keyId: string, { startMs }: Month): UseCount {
    const { clock } = this.#parts;
    let sum = NONE;
    for (let at = startMs; at <= clock.now(); at += DAY_MS)
      sum = sumOf(sum, this.#pending.find(`${dayOf(at)} ${keyId}`) ?? NONE);
    return sum;
  }

  async #read(month: Month, keyIds?: readonly string[]): Promise<Map<string, UseCount>> {
    const total = (name: Use) => sql<number>`sum(${keyUse[name]})::float8`;
    const inMonth = and(gte(keyUse.day, dayOf(month.startMs)), lt(keyUse.day, dayOf(month.endMs)));
    const found = await this.#parts.db
      .select({ keyId: keyUse.keyId, calls: total('calls'), searches: total('searches') })
      .from(keyUse)
      .where(keyIds === undefined ? inMonth : and(inMonth, inArray(keyUse.keyId, [...keyIds])))
      .groupBy(keyUse.keyId);
    return new Map(found.map(({ keyId, calls, searches }) => [keyId, { calls, searches }]));
  }

  async #writeBatch(rows: readonly Row[]): Promise<void> {
    // In one order everywhere: processes that write the same rows in different orders would lock each other out.
    const batch = rows.toSorted((a, b) => (rowKey(a) < rowKey(b) ? -1 : 1));
    const added = (name: Use) => sql`${keyUse[name]} + ${excluded(name)}`;
    await this.#parts.db
      .insert(keyUse)
      .values(batch)
      .onConflictDoUpdate({
        target: [keyUse.keyId, keyUse.day],
        set: { calls: added('calls'), searches: added('searches') },
      });
    for (const row of batch) this.#written(row);
  }

  #written(row: Row): void {
    const known = this.#known.get(row.keyId);
    if (!known || row.day < dayOf(known.month.startMs) || row.day >= dayOf(known.month.endMs)) return;
    known.stored = sumOf(known.stored, row);
    known.unwritten = {
      calls: known.unwritten.calls - row.calls,
      searches: known.unwritten.searches - row.searches,
    };
  }
}

const rowKey = ({ keyId, day }: Row) => `${day} ${keyId}`;

const sumOf = (a: UseCount, b: UseCount): UseCount => ({
  calls: a.calls + b.calls,
  searches: a.searches + b.searches,
});
