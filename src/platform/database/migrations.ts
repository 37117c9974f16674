import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { sql, type SQL } from 'drizzle-orm';

export const MIGRATIONS = fileURLToPath(new URL('../../../drizzle', import.meta.url));

/** Reports which migrations were applied. They have the names of their files in `drizzle/`. */
export interface Migrated {
  /** Newly applied migrations, oldest first. */
  readonly applied: readonly string[];
  /** The newest migration of this version. */
  readonly latest: string;
  /** The number of migrations applied by a later version. */
  readonly unknown: number;
}

/** The migrations of a database. */
export interface MigrationState {
  /** The number of this version's migrations that are applied. */
  readonly applied: number;
  /** This version's pending migrations, oldest first. */
  readonly missing: readonly string[];
  readonly latest: string;
  readonly unknown: number;
}

interface Entry {
  readonly tag: string;
  /** Milliseconds since 1970; the database records this for an applied migration. */
  readonly when: number;
}

/** `rows` of `database.ts`, bound to one database. */
type Query = <Row extends Record<string, unknown>>(statement: SQL) => Promise<Row[]>;

export async function migrationState(query: Query): Promise<MigrationState> {
  const journal = JSON.parse(await readFile(`${MIGRATIONS}/meta/_journal.json`, 'utf8')) as {
    readonly entries: readonly Entry[];
  };
  const known = new Set(journal.entries.map(({ when }) => when));
  const applied = new Set(await appliedAt(query));
  const missing = journal.entries.filter(({ when }) => !applied.has(when)).map(({ tag }) => tag);
  return {
    applied: journal.entries.length - missing.length,
    missing,
    latest: journal.entries.at(-1)?.tag ?? '',
    unknown: [...applied].filter(when => !known.has(when)).length,
  };
}

/**
 * Applies pending migrations. The caller must ensure that nobody else migrates meanwhile.
 * @throws Error for a database of another branch: one that lacks a migration older than its newest
 */
export async function migrated(query: Query, migrate: () => Promise<void>): Promise<Migrated> {
  const before = await migrationState(query);
  await migrate();
  const after = before.missing.length === 0 ? before : await migrationState(query);
  if (after.missing.length > 0)
    throw new Error(
      `The database has later migrations but lacks ${after.missing.join(', ')}, so another branch of Switchboard has changed it. Use that branch or a new database.`,
    );
  return { applied: before.missing, latest: after.latest, unknown: after.unknown };
}

async function appliedAt(query: Query): Promise<number[]> {
  const [table] = await query<{ there: boolean }>(
    sql`select to_regclass('drizzle.__drizzle_migrations') is not null there`,
  );
  if (table?.there !== true) return [];
  const found = await query<{ created_at: number }>(sql`select created_at from drizzle.__drizzle_migrations`);
  return found.map(({ created_at }) => created_at);
}
