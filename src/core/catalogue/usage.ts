import { gte, sql } from 'drizzle-orm';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { excluded, serverUsage } from '../schema.ts';

const DAY_MS = 86_400_000;
const HALF_LIFE_DAYS = 30;
/** A day older than this weighs less than 1 %. */
const HORIZON_DAYS = 200;
/** What one tenant's decayed calls to one server count for at most, so that nobody can buy rank. */
const TENANT_CAP = 50;
/** The capped, decayed sum at which popularity reaches 1. */
const FULL_POPULARITY = 5_000;
const FLUSH_INTERVAL_MS = 1_000;
const BATCH_ROWS = 100;

interface Counter {
  readonly serverId: string;
  readonly tenantId: string;
  readonly day: string;
  successes: number;
  failures: number;
}

/**
 * Counts proxied calls and turns them into popularity (DESIGN §4): successful calls, halved every 30 days, capped per
 * tenant, on a log scale. Counts are written once a second, so a kill loses at most the last second of them.
 */
export class Usage {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #log: Log;
  /** server -> tenant -> day -> successful calls. */
  readonly #successes = new Map<string, Map<string, Map<string, number>>>();
  #day = { number: -1, date: '' };
  #pending = new Map<string, Counter>();
  #flushing: Promise<void> = Promise.resolve();
  readonly #timer: NodeJS.Timeout;

  private constructor(db: Database, clock: Clock, log: Log) {
    this.#db = db;
    this.#clock = clock;
    this.#log = log;
    this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL_MS).unref();
  }

  static async load(db: Database, clock: Clock, log: Log): Promise<Usage> {
    const usage = new Usage(db, clock, log);
    const horizon = new Date(clock.now() - HORIZON_DAYS * DAY_MS).toISOString().slice(0, 10);
    for (const row of await db.select().from(serverUsage).where(gte(serverUsage.day, horizon))) {
      usage.#count(row.serverId, row.tenantId, row.day, row.successes);
    }
    return usage;
  }

  /** Notes how a proxied call ended. Never throws and never waits. */
  record(outcome: { serverId: string; tenantId: string; ok: boolean }): void {
    const { serverId, tenantId, ok } = outcome;
    const day = this.#today();
    // Neither of the first two holds a space.
    const key = `${day} ${serverId} ${tenantId}`;
    const counter = this.#pending.get(key) ?? { serverId, tenantId, day, successes: 0, failures: 0 };
    if (ok) counter.successes++;
    else counter.failures++;
    this.#pending.set(key, counter);
    if (ok) this.#count(serverId, tenantId, day, 1);
  }

  /** Today's date (UTC). */
  #today(): string {
    const number = Math.floor(this.#clock.now() / DAY_MS);
    if (number !== this.#day.number)
      this.#day = { number, date: new Date(number * DAY_MS).toISOString().slice(0, 10) };
    return this.#day.date;
  }

  /** 0 (never used) to 1. */
  popularity(serverId: string): number {
    const tenants = this.#successes.get(serverId);
    if (!tenants) return 0;
    const now = this.#clock.now();
    let sum = 0;
    for (const days of tenants.values()) {
      let calls = 0;
      for (const [day, count] of days)
        calls += count * 0.5 ** ((now - Date.parse(day)) / DAY_MS / HALF_LIFE_DAYS);
      sum += Math.min(calls, TENANT_CAP);
    }
    return Math.min(1, Math.log1p(sum) / Math.log1p(FULL_POPULARITY));
  }

  /** Writes what has been counted; after a failed write the counts are kept for the next one. */
  flush(): Promise<void> {
    this.#flushing = this.#flushing.then(async () => {
      if (this.#pending.size === 0) return;
      const batch = this.#pending;
      this.#pending = new Map();
      try {
        await this.#write([...batch.values()]);
      } catch (error) {
        this.#log.warn({ err: error, rows: batch.size }, 'usage not written, will try again');
        for (const [key, counter] of batch) {
          const newer = this.#pending.get(key);
          this.#pending.set(key, {
            ...counter,
            successes: counter.successes + (newer?.successes ?? 0),
            failures: counter.failures + (newer?.failures ?? 0),
          });
        }
      }
    });
    return this.#flushing;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  async #write(counters: readonly Counter[]): Promise<void> {
    await this.#db.transaction(async tx => {
      for (let at = 0; at < counters.length; at += BATCH_ROWS) {
        await tx
          .insert(serverUsage)
          .values(counters.slice(at, at + BATCH_ROWS))
          .onConflictDoUpdate({
            target: [serverUsage.serverId, serverUsage.tenantId, serverUsage.day],
            set: {
              successes: sql`${serverUsage.successes} + ${excluded('successes')}`,
              failures: sql`${serverUsage.failures} + ${excluded('failures')}`,
            },
          });
      }
    });
  }

  #count(serverId: string, tenantId: string, day: string, calls: number): void {
    const tenants = this.#successes.get(serverId) ?? new Map<string, Map<string, number>>();
    const days = tenants.get(tenantId) ?? new Map<string, number>();
    days.set(day, (days.get(day) ?? 0) + calls);
    tenants.set(tenantId, days);
    this.#successes.set(serverId, tenants);
  }
}
