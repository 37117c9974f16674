import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { eq } from 'drizzle-orm';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { settings } from '../schema.ts';
import type { Catalogue } from './catalogue.ts';
import { readEntries, type ReadOptions } from './read-entries.ts';

const SHIPPED_FILE = fileURLToPath(new URL('../../../catalogue/servers.jsonl', import.meta.url));
/** The initial catalogue cannot be used; the message says why. */
export class CatalogueUnusable extends Error {
  override readonly name = 'CatalogueUnusable';
}

const FINGERPRINT = 'shipped_catalogue_sha256';

interface InitialCatalogue extends ReadOptions {
  readonly catalogue: Catalogue;
  readonly db: Database;
  readonly log: Log;
  /** A file that stands in for the shipped one. */
  readonly file: string | undefined;
  /** True: an installation that has loaded one keeps it, whatever `file` says. */
  readonly onlyFirst: boolean;
}

/**
 * Brings the shipped catalogue (or the file that replaces it) into the database when it is not the one loaded last, so
 * that a second start writes nothing. Operators' own entries are left alone; shipped ones that are gone become inactive.
 * @throws CatalogueUnusable when the file cannot be read or has no usable line.
 */
export async function loadInitialCatalogue(options: InitialCatalogue): Promise<void> {
  const { catalogue, db, log, file = SHIPPED_FILE, onlyFirst } = options;
  const [known] = await db.select().from(settings).where(eq(settings.key, FINGERPRINT));
  if (known && onlyFirst) return;
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new CatalogueUnusable(
      `${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  });
  const fingerprint = createHash('sha256').update(text).digest('hex');
  if (known?.value === fingerprint) return;
  const { entries, problems, unknownFields } = readEntries(text, options);
  for (const problem of problems.slice(0, 20)) log.warn({ file, ...problem }, 'catalogue line skipped');
  if (unknownFields.length > 0) log.warn({ file, unknownFields }, 'catalogue fields ignored');
  if (entries.length === 0) {
    throw new CatalogueUnusable(`${file} holds no usable entry: ${describe(problems[0])}`);
  }
  await catalogue.put(entries, { origin: 'shipped', replace: true });
  await db
    .insert(settings)
    .values({ key: FINGERPRINT, value: fingerprint })
    .onConflictDoUpdate({ target: settings.key, set: { value: fingerprint } });
  log.info({ file, servers: entries.length, skipped: problems.length }, 'catalogue loaded');
}

const describe = (problem: { line: number; reason: string } | undefined) =>
  problem ? `line ${problem.line} ${problem.reason}` : 'it is empty';
