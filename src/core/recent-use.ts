import { sql } from 'drizzle-orm';
import { rows, type Database } from '../platform/database/database.ts';
import { dayOf } from '../platform/database/daily-counter.ts';
import type { Clock } from '../platform/time.ts';
import { keyUse } from './access/schema.ts';
import { serverUsage } from './catalogue/schema.ts';

const DAY_MS = 86_400_000;
const DAYS = 30;
const TOP_DAYS = 7;
const TOP = 10;

interface UseOfDay {
  /** UTC. */
  readonly day: string;
  readonly calls: number;
  /** Calls that failed because of the server. */
  readonly failed: number;
  readonly searches: number;
}

interface UsedServer {
  readonly server_id: string;
  readonly calls: number;
  readonly failed: number;
}

/** The use of the last days, of all processes on the database. */
export class RecentUse {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #flush: () => Promise<void>;

  /** @param flush writes what this process has counted */
  constructor(db: Database, clock: Clock, flush: () => Promise<void>) {
    this.#db = db;
    this.#clock = clock;
    this.#flush = flush;
  }

  async read(): Promise<{ days: readonly UseOfDay[]; topServers: readonly UsedServer[] }> {
    await this.#flush();
    const [calls, searches, topServers] = await Promise.all([
      rows<{ day: string; calls: number; failed: number }>(
        this.#db,
        sql`select ${serverUsage.day}::text as day,
            sum(${serverUsage.successes} + ${serverUsage.failures})::int as calls, sum(${serverUsage.failures})::int as failed
          from ${serverUsage} where ${serverUsage.day} >= ${this.#daysAgo(DAYS - 1)} group by 1`,
      ),
      rows<{ day: string; searches: number }>(
        this.#db,
        sql`select ${keyUse.day}::text as day, sum(${keyUse.searches})::int as searches
          from ${keyUse} where ${keyUse.day} >= ${this.#daysAgo(DAYS - 1)} group by 1`,
      ),
      rows<{ server_id: string; calls: number; failed: number }>(
        this.#db,
        sql`select ${serverUsage.serverId} as server_id,
            sum(${serverUsage.successes} + ${serverUsage.failures})::int as calls, sum(${serverUsage.failures})::int as failed
          from ${serverUsage} where ${serverUsage.day} >= ${this.#daysAgo(TOP_DAYS - 1)}
          group by 1 having sum(${serverUsage.successes} + ${serverUsage.failures}) > 0
          order by 2 desc, 1 limit ${TOP}`,
      ),
    ]);
    const callsOn = new Map(calls.map(one => [one.day, one]));
    const searchesOn = new Map(searches.map(one => [one.day, one.searches]));
    const days = Array.from({ length: DAYS }, (_, at) => {
      const day = this.#daysAgo(DAYS - 1 - at);
      const { calls: count = 0, failed = 0 } = callsOn.get(day) ?? {};
      return { day, calls: count, failed, searches: searchesOn.get(day) ?? 0 };
    });
    return { days, topServers };
  }

  #daysAgo(days: number): string {
    return dayOf(this.#clock.now() - days * DAY_MS);
  }
}
