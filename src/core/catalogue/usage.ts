import { gte, lt, sql } from 'drizzle-orm';
import { monotonicMs, type Clock } from '../../platform/clock.ts';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { excluded } from '../../platform/database/columns.ts';
import { serverUsage } from './schema.ts';
import { WriteBehind } from '../../platform/database/write-behind.ts';
import { HALF_LIFE_DAYS, NO_USE, UseTally, type UseCounts, type UseSignals } from './use-tally.ts';

const DAY_MS = 86_400_000;
/** A day older than this weighs less than 1 %: it is not read, and deleted. */
const HORIZON_DAYS = 200;
/** Days before today that other processes may still write to, as clocks differ. */
const RECENT_DAYS = 1;
const READ_INTERVAL_MS = 2 * 60_000;

interface Counter extends UseCounts {
  readonly serverId: string;
  readonly tenantId: string;
  /** A date, `2026-11-21` (UTC). */
  readonly day: string;
}

interface UsageOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  /** Whether other processes count into the same database. */
  readonly shared?: boolean;
}

/**
 * Counts the use of servers, a row per server, tenant and day, and says what it comes to (`UseTally`). A count is seen here at
 * once; it is written within a second (`WriteBehind`).
 *
 * Processes add to each other's rows. What others have added to the rows of today and yesterday is read every two minutes: of
 * each such row it is known how much of it has been counted here, and the rest is. Assumed: processes' clocks are less than a
 * day apart, and a write that failed has not happened (where a connection is lost just after the commit, one second counts twice, within
 * the caps). A date that was wrong for a while makes that day's counts weigh more or less, within the caps too.
 */
export class Usage {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #shared: boolean;
  readonly #tally: UseTally;
  /** Today's: to write a date takes longer than all the rest of counting. */
  #date = { day: Number.NaN, text: '' };
  readonly #pending: WriteBehind<Counter>;
  /** Rows of recent days as they were when last read or written: so much of them is in the tally. Only where shared. */
  #known = new Map<string, UseCounts>();
  #readAtMs: number;

  private constructor({ db, clock, log, shared = false }: UsageOptions) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
    this.#shared = shared;
    this.#tally = new UseTally(this.#today());
    this.#readAtMs = monotonicMs(clock);
    this.#pending = new WriteBehind<Counter>({
      clock,
      log,
      what: 'usage',
      keyOf,
      merge: (earlier, later) => ({ ...later, ...sumOf(earlier, later) }),
      writeBatch: counters => this.#writeBatch(counters),
      onWritten: counters => {
        const calls = counters.reduce((sum, { successes, failures }) => sum + successes + failures, 0);
        log.debug({ rows: counters.length, calls }, 'usage written');
      },
      purge: () => this.purge(),
      onTick: () => this.#tick(),
    });
  }

  static async load(options: UsageOptions): Promise<Usage> {
    const usage = new Usage(options);
    try {
      await usage.#readOld();
      await usage.#readRecent();
      return usage;
    } catch (error) {
      usage.#pending.stop();
      throw error;
    }
  }

  /** Counts a call; `ok` is false only for a failure that is the server's own fault. Never throws and never waits. */
  record({ serverId, tenantId, ok }: { serverId: string; tenantId: string; ok: boolean }): void {
    this.#count(serverId, tenantId, ok ? { successes: 1 } : { failures: 1 });
  }

  /** Counts verdicts, or takes some back (negative numbers). Never throws and never waits. */
  recordVerdicts(
    serverId: string,
    tenantId: string,
    verdicts: Pick<UseCounts, 'helpful' | 'unhelpful'>,
  ): void {
    this.#count(serverId, tenantId, verdicts);
  }

  /** O(1). */
  signals(serverId: string): UseSignals {
    return this.#tally.signals(serverId, this.#today());
  }

  /** Writes what has been counted; what could not be written is kept for the next time. */
  flush(): Promise<void> {
    return this.#pending.flush();
  }

  /** Writes what has been counted here, and reads what has been counted elsewhere. Never rejects. */
  refresh(): Promise<void> {
    return this.#pending.afterFlush(() =>
      this.#readRecent().catch((error: unknown) => this.#log.warn(whyFailed(error), 'usage not read')),
    );
  }

  /** Deletes what weighs next to nothing. Resolves to the number of rows deleted. */
  purge(): Promise<number> {
    return purgeWhere(this.#db, serverUsage, lt(serverUsage.day, dateOf(this.#today() - HORIZON_DAYS)));
  }

  close(): Promise<void> {
    return this.#pending.close();
  }

  #tick(): void {
    this.#tally.ageSome(this.#today());
    const nowMs = monotonicMs(this.#clock);
    if (!this.#shared || nowMs - this.#readAtMs < READ_INTERVAL_MS) return;
    this.#readAtMs = nowMs;
    void this.refresh();
  }

  #count(serverId: string, tenantId: string, counts: Partial<UseCounts>): void {
    const today = this.#today();
    this.#tally.add(serverId, tenantId, today, counts);
    if (this.#date.day !== today) this.#date = { day: today, text: dateOf(today) };
    this.#pending.put({ serverId, tenantId, day: this.#date.text, ...NO_USE, ...counts });
  }

  async #writeBatch(counters: readonly Counter[]): Promise<void> {
    // In one order everywhere: processes that write the same rows in different orders would lock each other out.
    const batch = counters.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    const added = (name: keyof UseCounts) => sql`${serverUsage[name]} + ${excluded(name)}`;
    await this.#db
      .insert(serverUsage)
      .values(batch)
      .onConflictDoUpdate({
        target: [serverUsage.serverId, serverUsage.tenantId, serverUsage.day],
        set: {
          successes: added('successes'),
          failures: added('failures'),
          helpful: added('helpful'),
          unhelpful: added('unhelpful'),
        },
      });
    if (this.#shared) for (const counter of batch) this.#know(counter);
  }

  #know(counter: Counter): void {
    const key = keyOf(counter);
    this.#known.set(key, sumOf(this.#known.get(key) ?? NO_USE, counter));
  }

  /** Days that nobody writes to any more, faded and added up by the database: a row per server and tenant. */
  async #readOld(): Promise<void> {
    const today = this.#today();
    const faded = (name: keyof UseCounts) =>
      sql`sum(${serverUsage[name]} * power(0.5::float8, (${dateOf(today)}::date - ${serverUsage.day})::float8 / ${HALF_LIFE_DAYS}::float8))`;
    const found = await rows<Record<keyof UseCounts, number> & { server_id: string; tenant_id: string }>(
      this.#db,
      sql`select server_id, tenant_id, ${faded('successes')} as successes, ${faded('failures')} as failures,
          ${faded('helpful')} as helpful, ${faded('unhelpful')} as unhelpful
        from ${serverUsage}
        where ${gte(serverUsage.day, dateOf(today - HORIZON_DAYS))} and ${lt(serverUsage.day, dateOf(today - RECENT_DAYS))}
        group by 1, 2`,
    );
    for (const { server_id, tenant_id, ...counts } of found)
      this.#tally.add(server_id, tenant_id, today, counts);
  }

  async #readRecent(): Promise<void> {
    const today = this.#today();
    const found = await this.#db
      .select()
      .from(serverUsage)
      .where(gte(serverUsage.day, dateOf(today - RECENT_DAYS)));
    const known = new Map<string, UseCounts>();
    for (const row of found) {
      const key = keyOf(row);
      known.set(key, row);
      // A day that is still to come, by some wrong clock, must not weigh more than today.
      const day = Math.min(today, Date.parse(row.day) / DAY_MS);
      this.#tally.add(row.serverId, row.tenantId, day, differenceOf(row, this.#known.get(key) ?? NO_USE));
    }
    if (this.#shared) this.#known = known;
  }

  /** Whole days since the epoch (UTC). */
  #today(): number {
    return Math.floor(this.#clock.now() / DAY_MS);
  }
}

const dateOf = (day: number): string => new Date(day * DAY_MS).toISOString().slice(0, 10);

/** Neither of the first two holds a space. */
const keyOf = ({ day, serverId, tenantId }: Omit<Counter, keyof UseCounts>): string =>
  `${day} ${serverId} ${tenantId}`;

const sumOf = (a: UseCounts, b: UseCounts): UseCounts => ({
  successes: a.successes + b.successes,
  failures: a.failures + b.failures,
  helpful: a.helpful + b.helpful,
  unhelpful: a.unhelpful + b.unhelpful,
});

const differenceOf = (a: UseCounts, b: UseCounts): UseCounts => ({
  successes: a.successes - b.successes,
  failures: a.failures - b.failures,
  helpful: a.helpful - b.helpful,
  unhelpful: a.unhelpful - b.unhelpful,
});
