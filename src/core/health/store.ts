import { gte, sql } from 'drizzle-orm';
import { z } from 'zod';
import type { Database } from '../../platform/database/database.ts';
import { excluded } from '../../platform/database/columns.ts';
import { readJsonSetting, writeJsonSetting } from '../../platform/database/settings.ts';
import type { Health, KnownHealth } from '../catalogue/health.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import { serverHealth as table } from '../catalogue/schema.ts';

/** Health of a server at one address: a server that has moved starts over. */
export interface LocatedHealth {
  readonly serverId: string;
  readonly remoteUrl: string;
  readonly health: Health;
}

/** A row has the time at which its transaction started, and may become visible this much later. */
const OVERLAP_MS = 60_000;
const BATCH_ROWS = 50;

/** Health of all servers: in memory, backed by the database, and shared with other processes through it. */
export class HealthStore implements KnownHealth {
  readonly #db: Database;
  readonly #known = new Map<string, LocatedHealth>();
  #newest: Date | undefined;
  #epoch = 0;

  private constructor(db: Database) {
    this.#db = db;
  }

  static async load(db: Database): Promise<HealthStore> {
    const store = new HealthStore(db);
    await store.reload();
    return store;
  }

  /** Returns undefined for a server that was not checked at its current address. */
  of({ id, remoteUrl }: Pick<ServerHead, 'id' | 'remoteUrl'>): Health | undefined {
    const known = this.#known.get(id);
    return known?.remoteUrl === remoteUrl ? known.health : undefined;
  }

  /** Changes whenever a server becomes dead or stops being dead. */
  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Stores the health of servers. A failure is stored only if it continues the stored count: otherwise something newer, such
   * as an import, came in between. Resolves to what was stored.
   */
  async save(found: readonly LocatedHealth[]): Promise<readonly LocatedHealth[]> {
    const stored = new Set<string>();
    for (let at = 0; at < found.length; at += BATCH_ROWS) {
      const written = await this.#db
        .insert(table)
        .values(found.slice(at, at + BATCH_ROWS).map(toRow))
        .onConflictDoUpdate({ target: table.serverId, set: OVERWRITE, setWhere: FOLLOWS })
        .returning({ id: table.serverId });
      for (const { id } of written) stored.add(id);
    }
    const saved = found.filter(({ serverId }) => stored.has(serverId));
    for (const one of saved) this.#set(one);
    return saved;
  }

  /** Clears the failures of servers that an import has reactivated; the database has already cleared them. */
  forgetFailures(serverIds: readonly string[]): void {
    for (const id of serverIds) {
      const known = this.#known.get(id);
      if (!known) continue;
      const { deadSinceMs: _forgotten, ...health } = known.health;
      this.#set({ ...known, health: { ...health, failures: 0 } });
    }
  }

  /** Reads what other processes have stored recently. */
  catchUp(): Promise<void> {
    return this.#read(this.#newest && new Date(this.#newest.getTime() - OVERLAP_MS));
  }

  /** Reads all stored rows. */
  reload(): Promise<void> {
    return this.#read(undefined);
  }

  async #read(since: Date | undefined): Promise<void> {
    const rows = await this.#db
      .select()
      .from(table)
      .where(since && gte(table.writtenAt, since));
    for (const row of rows) {
      this.#set(fromRow(row));
      if (!this.#newest || row.writtenAt > this.#newest) this.#newest = row.writtenAt;
    }
  }

  #set(one: LocatedHealth): void {
    const isDead = (located: LocatedHealth | undefined) => located?.health.deadSinceMs !== undefined;
    if (isDead(one) !== isDead(this.#known.get(one.serverId))) this.#epoch++;
    this.#known.set(one.serverId, one);
  }
}

const OVERWRITE = {
  remoteUrl: excluded('remote_url'),
  state: excluded('state'),
  latencyMs: excluded('latency_ms'),
  checkedAt: excluded('checked_at'),
  lastOkAt: excluded('last_ok_at'),
  failures: excluded('failures'),
  deadSince: excluded('dead_since'),
  writtenAt: sql`now()`,
};
const FOLLOWS = sql`${table.remoteUrl} <> ${excluded('remote_url')} or ${excluded('failures')} in (0, ${table.failures} + 1)`;

const instantOf = (ms: number | undefined): Date | null => (ms === undefined ? null : new Date(ms));

const toRow = ({ serverId, remoteUrl, health }: LocatedHealth) => ({
  serverId,
  remoteUrl,
  state: health.state,
  latencyMs: health.latencyMs ?? null,
  checkedAt: new Date(health.checkedAtMs),
  lastOkAt: instantOf(health.lastOkAtMs),
  failures: health.failures,
  deadSince: instantOf(health.deadSinceMs),
});

const fromRow = (row: typeof table.$inferSelect): LocatedHealth => ({
  serverId: row.serverId,
  remoteUrl: row.remoteUrl,
  health: {
    state: row.state,
    ...(row.latencyMs === null ? {} : { latencyMs: row.latencyMs }),
    checkedAtMs: row.checkedAt.getTime(),
    ...(row.lastOkAt === null ? {} : { lastOkAtMs: row.lastOkAt.getTime() }),
    failures: row.failures,
    ...(row.deadSince === null ? {} : { deadSinceMs: row.deadSince.getTime() }),
  },
});

const SWEEP_KEY = 'probing';
const sweepSchema = z.object({ probedAtMs: z.number().optional() });

/** Returns when the last sweep of any process started; undefined before the first. */
export const readSweptAt = async (db: Database): Promise<number | undefined> =>
  (await readJsonSetting(db, SWEEP_KEY, sweepSchema))?.probedAtMs;

export const writeSweptAt = (db: Database, probedAtMs: number): Promise<void> =>
  writeJsonSetting(db, SWEEP_KEY, { probedAtMs });
