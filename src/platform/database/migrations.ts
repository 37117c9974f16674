import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { sql, type SQL } from 'drizzle-orm';

export const MIGRATIONS = fileURLToPath(new URL('../../../drizzle', import.meta.url));

/** Reports which migrations were applied. They are named as their files in `drizzle/` are. */
export interface Migrated {
  /** Migrations applied now, oldest first. */
  readonly applied: readonly string[];
  /** The newest migration of this version. */
  readonly latest: string;
  /** Counts migrations that this version does not know: a later version applied them. */
  readonly unknown: number;
}

/** Tells which migrations a database has. */
export interface MigrationState {
  /** Counts this version's migrations that are applied. */
  readonly applied: number;
  /** This version's migrations that are not applied, oldest first. */
  readonly missing: readonly string[];
  readonly latest: string;
  readonly unknown: number;
}

interface Entry {
  readonly tag: string;
  /** Milliseconds since 1970; what the database keeps of an applied migration. */
  readonly when: number;
}

/** `rows` of `database.ts` on one database. */
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
 * Applies the migrations that are missing. The caller must see to it that nobody else migrates meanwhile.
 * @throws Error for a database of another line of versions: one that lacks a migration older than one that it has
 */
export async function migrated(query: Query, migrate: () => Promise<void>): Promise<Migrated> {
  const before = await migrationState(query);
  await migrate();
  const after = before.missing.length === 0 ? before : await migrationState(query);
  if (after.missing.length > 0)
    throw new Error(
      `The database has later migrations, but lacks ${after.missing.join(', ')}: another line of versions has changed it. Use that, or a new database.`,
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
