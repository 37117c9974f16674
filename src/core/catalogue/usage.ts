import { gte, lt, sql } from 'drizzle-orm';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import { addedUp, DailyCounter, DAY_MS, dayOf, FreshCounts } from '../../platform/database/daily-counter.ts';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { serverUsage } from './schema.ts';

/** A day older than this weighs less than 1 %, so it is ignored and deleted. */
const HORIZON_DAYS = 200;
/** The number of past days that other processes may still write to, because clocks differ. */
const RECENT_DAYS = 1;
const READ_INTERVAL_MS = 2 * 60_000;

interface Row extends UseCounts {
  readonly serverId: string;
  readonly tenantId: string;
  readonly day: string;
}

/** Calls that are not counted yet. */
type Calls = Pick<Row, 'serverId' | 'tenantId'> & Record<'successes' | 'failures', number>;

interface UsageOptions {
  readonly db: Database;
  readonly clock: Clock;
  readonly log: Log;
  /** True if other processes count into the same database. */
  readonly shared?: boolean;
}

/**
 * Counts the usage of servers by tenant and day, and returns the resulting signals (`UseTally`). Counts of this process take
 * effect immediately.
 *
 * Counts of other processes for today and yesterday are read every two minutes: the part counted here is subtracted. This
 * assumes that clocks differ by less than a day and that a failed write did not happen (if a connection is lost just after
 * the commit, one second counts twice, within the caps). If a clock was wrong for a while, that day's counts weigh more or
 * less, also within the caps.
 */
export class Usage {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #shared: boolean;
  readonly #tally: UseTally;
  readonly #counter: DailyCounter<Row>;
  readonly #fresh: FreshCounts<Calls>;
  /** Rows of recent days as last read or written: this much of them is in the tally. Only if the database is shared. */
  #known = new Map<string, UseCounts>();
  #readAtMs: number;

  private constructor({ db, clock, log, shared = false }: UsageOptions) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
    this.#shared = shared;
    this.#tally = new UseTally(this.#today());
    this.#fresh = new FreshCounts(({ serverId, tenantId, successes, failures }, day) =>
      this.#count(serverId, tenantId, { successes, failures }, day),
    );
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

  /** Counts a call; `ok` is false only for a failure caused by the server. Never throws and never waits. */
  record({ serverId, tenantId, ok }: { serverId: string; tenantId: string; ok: boolean }): void {
    const create = () => ({ serverId, tenantId, successes: 0, failures: 0 });
    const calls = this.#fresh.of(keyOf({ serverId, tenantId }), this.#today(), create);
    if (ok) calls.successes++;
    else calls.failures++;
  }

  /** Counts feedback, or takes it back (negative numbers). Never throws and never waits. */
  recordVerdicts(
    serverId: string,
    tenantId: string,
    verdicts: Pick<UseCounts, 'helpful' | 'unhelpful'>,
  ): void {
    this.#count(serverId, tenantId, verdicts, this.#today());
  }

  /** O(1), but for calls since the last time. */
  signals(serverId: string): UseSignals {
    this.#fresh.handOn();
    return this.#tally.signals(serverId, this.#today());
  }

  /** Writes the pending counts; failed writes are retried with the next ones. */
  flush(): Promise<void> {
    this.#fresh.handOn();
    return this.#counter.flush();
  }

  /** Writes local counts and reads those of other processes. Never rejects. */
  async refresh(): Promise<void> {
    this.#fresh.handOn();
    await this.#counter
      .read(() => this.#readRecent())
      .catch((error: unknown) => this.#log.warn(whyFailed(error), 'failed to read usage'));
  }

  /** Deletes rows with negligible weight. Resolves to their number. */
  purge(): Promise<number> {
    return this.#counter.purge();
  }

  close(): Promise<void> {
    this.#fresh.handOn();
    return this.#counter.close();
  }

  #tick(): void {
    this.#fresh.handOn();
    this.#tally.ageSome(this.#today());
    const nowMs = monotonicMs(this.#clock);
    if (!this.#shared || nowMs - this.#readAtMs < READ_INTERVAL_MS) return;
    this.#readAtMs = nowMs;
    void this.refresh();
  }

  #count(serverId: string, tenantId: string, counts: Partial<UseCounts>, day: number): void {
    this.#tally.add(serverId, tenantId, day, counts);
    this.#counter.add({ serverId, tenantId, day: dayOf(day * DAY_MS), ...NO_USE, ...counts });
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

  /** Reads the days that no process writes to any more, decayed and summed by the database: a row per server and tenant. */
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
      // A future day, from a wrong clock, must not weigh more than today.
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

/** Neither the day, which comes first, nor a server's id contains a space. */
const keyOf = ({ serverId, tenantId }: Pick<Row, 'serverId' | 'tenantId'>): string =>
  `${serverId} ${tenantId}`;
const rowKey = (row: Row): string => `${row.day} ${keyOf(row)}`;

/** Adds counts, or subtracts them with the sign -1. */
const added = (a: UseCounts, b: UseCounts, sign: 1 | -1 = 1): UseCounts => ({
  successes: a.successes + sign * b.successes,
  failures: a.failures + sign * b.failures,
  helpful: a.helpful + sign * b.helpful,
  unhelpful: a.unhelpful + sign * b.unhelpful,
});

/** The weight of a day's calls halves after this many days. */
export const HALF_LIFE_DAYS = 30;

/** The number of successful calls (decayed) with which a tenant counts in full. */
const CALLS_OF_A_FULL_TENANT = 50;
/** The number of full tenants with which the popularity of a server reaches 1. */
const TENANTS_OF_FULL_POPULARITY = 100;
/** The steepness of popularity near zero: the first full tenant gives about a third of it. */
const POPULARITY_STEEPNESS = 10;

/** The success rate assumed of a server that was never called. */
const PRIOR_SUCCESS = 0.8;
/** The assumed success rate weighs as much as this many calls. */
const PRIOR_CALLS = 10;
/**
 * One tenant's calls count at most as this many (decayed), in their own proportion of successes: never more than the assumed rate.
 */
const EVIDENCE_PER_TENANT = 10;

/** One tenant's feedback counts at most this many times. */
const VERDICTS_PER_TENANT = 3;

/** The number of neutral votes that every server is assumed to have. */
const PRIOR_VERDICTS = 5;

/** A tenant whose calls and feedback together weigh less is dropped. */
const NEGLIGIBLE = 0.01;

/** A lookup recalculates the sum itself for at most this many tenants. */
const FEW_TENANTS = 20;
const TENANTS_AT_A_TIME = 10_000;

/** Counts of one tenant's usage of a server on one day; fractions for decayed days. */
export interface UseCounts {
  /** Calls that succeeded. */
  readonly successes: number;
  /** Calls that failed because of the server. */
  readonly failures: number;
  /** Feedback `helpful` from `POST /v1/search/feedback`. */
  readonly helpful: number;
  /** Feedback `not_helpful`. */
  readonly unhelpful: number;
}
const NO_USE: UseCounts = { successes: 0, failures: 0, helpful: 0, unhelpful: 0 };

/** Signals from the usage of one server; equal evidence gives equal signals. */
export interface UseSignals {
  /** 0 (never used successfully) to 1: how many tenants use it, and how much. */
  readonly popularity: number;
  /** 0 to 1: the expected success rate, `PRIOR_SUCCESS` if nothing is known. */
  readonly success: number;
  /** 1 (never tried) towards 0: how little is known. */
  readonly novelty: number;
  /** -1 (negative feedback) to 1 (positive feedback), 0 without feedback. */
  readonly approval: number;
}
/** The signals of an unused server. */
export const UNUSED: UseSignals = { popularity: 0, success: PRIOR_SUCCESS, novelty: 1, approval: 0 };

/** One tenant's capped share in the signals of one server. */
interface Share {
  /** 0 to 1: how much the tenant counts as a user. */
  readonly reach: number;
  readonly good: number;
  readonly bad: number;
  readonly helpful: number;
  readonly unhelpful: number;
}
type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

interface ServerTally {
  /** Usage by tenant, weighted relative to a call of the reference day. */
  readonly tenants: Map<string, Mutable<UseCounts>>;
  /** The sum of the tenants' shares on `day`. */
  sum: Mutable<Share>;
  day: number;
  /** The signals of the sum; undefined after it changed. */
  signals: UseSignals | undefined;
}

const NO_SHARE: Share = { reach: 0, good: 0, bad: 0, helpful: 0, unhelpful: 0 };

/**
 * Tallies the usage of each server in memory. Days are whole days since the epoch (UTC); the weight of a day's usage halves
 * every `HALF_LIFE_DAYS`. Every tenant counts only up to a cap in each signal: a flood of one tenant's calls weighs less than
 * a few tenants' ordinary usage.
 *
 * Weights are relative to one reference day, so that ageing multiplies all of a tenant's counts alike: counting and lookups
 * are O(1). When the day changes, the tenants of each server are summed again once: at its next lookup if there are few,
 * otherwise by `ageSome`. Until then the server keeps its signals of the day before.
 */
export class UseTally {
  readonly #servers = new Map<string, ServerTally>();
  readonly #referenceDay: number;
  /** The day to which every server has been aged. */
  #agedDay: number | undefined;

  constructor(referenceDay: number) {
    this.#referenceDay = referenceDay;
  }

  /** Adds counts of a day; they may be negative when feedback is taken back. */
  add(serverId: string, tenantId: string, day: number, counts: Partial<UseCounts>): void {
    let server = this.#servers.get(serverId);
    if (!server) {
      server = { tenants: new Map(), sum: { ...NO_SHARE }, day, signals: undefined };
      this.#servers.set(serverId, server);
    }
    const known = server.tenants.get(tenantId) ?? { ...NO_USE };
    const scale = this.#scaleOn(server.day);
    const before = shareOf(known, scale);
    const weight = 2 ** ((day - this.#referenceDay) / HALF_LIFE_DAYS);
    for (const name of ['successes', 'failures', 'helpful', 'unhelpful'] as const)
      known[name] += (counts[name] ?? 0) * weight;
    server.tenants.set(tenantId, known);
    addTo(server.sum, before, -1);
    addTo(server.sum, shareOf(known, scale), 1);
    server.signals = undefined;
  }

  signals(serverId: string, today: number): UseSignals {
    const server = this.#servers.get(serverId);
    if (!server) return UNUSED;
    if (server.day !== today && server.tenants.size <= FEW_TENANTS) this.#age(serverId, server, today);
    server.signals ??= signalsOf(server.sum);
    return server.signals;
  }

  /** Decays usage when the day changes, a few milliseconds of work at a time. Call it periodically. */
  ageSome(today: number): void {
    if (this.#agedDay === today) return;
    let left = TENANTS_AT_A_TIME;
    for (const [serverId, server] of this.#servers) {
      if (server.day === today) continue;
      left -= server.tenants.size;
      this.#age(serverId, server, today);
      if (left <= 0) return;
    }
    this.#agedDay = today;
  }

  /** Recalculates the sum, which also clears rounding errors. If a clock was set back, counts become younger again. */
  #age(serverId: string, server: ServerTally, today: number): void {
    const scale = this.#scaleOn(today);
    const sum = { ...NO_SHARE };
    for (const [tenantId, counts] of server.tenants) {
      const weight = counts.successes + counts.failures + counts.helpful + counts.unhelpful;
      if (weight * scale < NEGLIGIBLE) server.tenants.delete(tenantId);
      else addTo(sum, shareOf(counts, scale), 1);
    }
    Object.assign(server, { sum, day: today, signals: undefined });
    if (server.tenants.size === 0) this.#servers.delete(serverId);
  }

  /** Returns the weight of a call of the reference day on another day. */
  #scaleOn(day: number): number {
    return 2 ** ((this.#referenceDay - day) / HALF_LIFE_DAYS);
  }
}

function shareOf(counts: UseCounts, scale: number): Share {
  const successes = Math.max(0, counts.successes * scale);
  const failures = Math.max(0, counts.failures * scale);
  const helpful = Math.max(0, counts.helpful * scale);
  const unhelpful = Math.max(0, counts.unhelpful * scale);
  const kept = capped(successes + failures, EVIDENCE_PER_TENANT);
  const keptVerdicts = capped(helpful + unhelpful, VERDICTS_PER_TENANT);
  return {
    reach: Math.min(1, Math.log1p(successes) / Math.log1p(CALLS_OF_A_FULL_TENANT)),
    good: successes * kept,
    bad: failures * kept,
    helpful: helpful * keptVerdicts,
    unhelpful: unhelpful * keptVerdicts,
  };
}

/** Returns the part of an amount that is within the cap. */
const capped = (amount: number, cap: number): number => (amount > cap ? cap / amount : 1);

function addTo(sum: Mutable<Share>, share: Share, sign: 1 | -1): void {
  sum.reach += sign * share.reach;
  sum.good += sign * share.good;
  sum.bad += sign * share.bad;
  sum.helpful += sign * share.helpful;
  sum.unhelpful += sign * share.unhelpful;
}

/** Computes the posterior mean of a Beta prior, whose weight in the evidence is the novelty. */
function signalsOf(sum: Share): UseSignals {
  // Rounding can leave sums slightly below 0.
  const reach = Math.max(0, sum.reach);
  const good = Math.max(0, sum.good);
  const bad = Math.max(0, sum.bad);
  const helpful = Math.max(0, sum.helpful);
  const unhelpful = Math.max(0, sum.unhelpful);
  const evidence = PRIOR_CALLS + good + bad;
  return {
    popularity: Math.min(
      1,
      Math.log1p(POPULARITY_STEEPNESS * reach) /
        Math.log1p(POPULARITY_STEEPNESS * TENANTS_OF_FULL_POPULARITY),
    ),
    success: (PRIOR_CALLS * PRIOR_SUCCESS + good) / evidence,
    novelty: PRIOR_CALLS / evidence,
    approval: (helpful - unhelpful) / (PRIOR_VERDICTS + helpful + unhelpful),
  };
}
