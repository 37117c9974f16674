import { gte, lt, sql } from 'drizzle-orm';
import { monotonicMs, type Clock } from '../../platform/clock.ts';
import { addedUp, DailyCounter, DAY_MS, dayOf } from '../../platform/database/daily-counter.ts';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { serverUsage } from './schema.ts';
import { HALF_LIFE_DAYS, NO_USE, UseTally, type UseCounts, type UseSignals } from './use-tally.ts';

/** A day older than this weighs less than 1 %: it is not read, and deleted. */
const HORIZON_DAYS = 200;
/** Days before today that other processes may still write to, as clocks differ. */
const RECENT_DAYS = 1;
const READ_INTERVAL_MS = 2 * 60_000;

interface Row extends UseCounts {
  readonly serverId: string;
  readonly tenantId: string;
  readonly day: string;
}

interface UsageOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  /** True when other processes count into the same database. */
  readonly shared?: boolean;
}

/**
 * Counts the use of servers by tenant and day, and returns the signals it gives (`UseTally`). A count is seen here at once.
 *
 * Counts of other processes in the rows of today and yesterday are read every two minutes: of each such row it is known how
 * much has been counted here, and the rest is added. Assumed: processes' clocks are less than a day apart, and a write that failed
 * has not happened (where a connection is lost just after the commit, one second counts twice, within the caps). A date that was
 * wrong for a while makes that day's counts weigh more or less, within the caps too.
 */
export class Usage {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #shared: boolean;
  readonly #tally: UseTally;
  readonly #counter: DailyCounter<Row>;
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
    this.#counter = new DailyCounter<Row>({
      db,
      clock,
      log,
      what: 'usage',
      table: serverUsage,
      keptDays: HORIZON_DAYS,
      keyOf,
      sum: (earlier, later) => ({ ...later, ...added(earlier, later) }),
      write: batch => this.#write(batch),
      onWritten: all => {
        const calls = all.reduce((sum, { successes, failures }) => sum + successes + failures, 0);
        log.debug({ rows: all.length, calls }, 'usage written');
      },
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
      usage.#counter.stop();
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
    return this.#counter.flush();
  }

  /** Writes what has been counted here, and reads what has been counted elsewhere. Never rejects. */
  async refresh(): Promise<void> {
    await this.#counter
      .read(() => this.#readRecent())
      .catch((error: unknown) => this.#log.warn(whyFailed(error), 'usage not read'));
  }

  /** Deletes rows that weigh next to nothing. Resolves to their number. */
  purge(): Promise<number> {
    return this.#counter.purge();
  }

  close(): Promise<void> {
    return this.#counter.close();
  }

  #tick(): void {
    this.#tally.ageSome(this.#today());
    const nowMs = monotonicMs(this.#clock);
    if (!this.#shared || nowMs - this.#readAtMs < READ_INTERVAL_MS) return;
    this.#readAtMs = nowMs;
    void this.refresh();
  }

  #count(serverId: string, tenantId: string, counts: Partial<UseCounts>): void {
    this.#tally.add(serverId, tenantId, this.#today(), counts);
    this.#counter.add({ serverId, tenantId, day: dayOf(this.#clock.now()), ...NO_USE, ...counts });
  }

  async #write(batch: Row[]): Promise<void> {
    const { successes, failures, helpful, unhelpful } = serverUsage;
    await this.#db
      .insert(serverUsage)
      .values(batch)
      .onConflictDoUpdate({
        target: [serverUsage.serverId, serverUsage.tenantId, serverUsage.day],
        set: addedUp([successes, failures, helpful, unhelpful]),
      });
    if (!this.#shared) return;
    for (const row of batch) {
      const key = rowKey(row);
      this.#known.set(key, added(this.#known.get(key) ?? NO_USE, row));
    }
  }

  /** Reads the days that nobody writes to any more, faded and added up by the database: a row per server and tenant. */
  async #readOld(): Promise<void> {
    const today = this.#today();
    const faded = (name: keyof UseCounts) =>
      sql`sum(${serverUsage[name]} * power(0.5::float8, (${dayOf(DAY_MS * today)}::date - ${serverUsage.day})::float8 / ${HALF_LIFE_DAYS}::float8))`;
    const found = await rows<Record<keyof UseCounts, number> & { server_id: string; tenant_id: string }>(
      this.#db,
      sql`select server_id, tenant_id, ${faded('successes')} as successes, ${faded('failures')} as failures,
          ${faded('helpful')} as helpful, ${faded('unhelpful')} as unhelpful
        from ${serverUsage}
        where ${gte(serverUsage.day, dayOf(DAY_MS * (today - HORIZON_DAYS)))} and ${lt(serverUsage.day, dayOf(DAY_MS * (today - RECENT_DAYS)))}
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
      .where(gte(serverUsage.day, dayOf(DAY_MS * (today - RECENT_DAYS))));
    const known = new Map<string, UseCounts>();
    for (const row of found) {
      const key = rowKey(row);
      known.set(key, row);
      // A day that is still to come, by some wrong clock, must not weigh more than today.
      const day = Math.min(today, Date.parse(row.day) / DAY_MS);
      this.#tally.add(row.serverId, row.tenantId, day, added(row, this.#known.get(key) ?? NO_USE, -1));
    }
    if (this.#shared) this.#known = known;
  }

  /** Whole days since the epoch (UTC). */
  #today(): number {
    return Math.floor(this.#clock.now() / DAY_MS);
  }
}

/** Neither the day, which comes first, nor a server's id holds a space. */
const keyOf = ({ serverId, tenantId }: Pick<Row, 'serverId' | 'tenantId'>): string =>
  `${serverId} ${tenantId}`;
const rowKey = (row: Row): string => `${row.day} ${keyOf(row)}`;

/** Adds counts, or takes them away with the sign -1. */
const added = (a: UseCounts, b: UseCounts, sign: 1 | -1 = 1): UseCounts => ({
  successes: a.successes + sign * b.successes,
  failures: a.failures + sign * b.failures,
  helpful: a.helpful + sign * b.helpful,
  unhelpful: a.unhelpful + sign * b.unhelpful,
});
