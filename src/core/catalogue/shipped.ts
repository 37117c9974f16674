import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { eq } from 'drizzle-orm';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { settings } from '../../platform/database/schema.ts';
import { Catalogue } from './catalogue.ts';
import { RESERVED_SERVER_ID } from './entry.ts';
import { readEntries, type ReadOptions } from './import-file.ts';

const SHIPPED_FILE = fileURLToPath(new URL('../../../catalogue/servers.jsonl', import.meta.url));

/** The initial catalogue cannot be used; the message says why. */
export class CatalogueUnusable extends Error {
  override readonly name = 'CatalogueUnusable';
}

/** The setting that marks which file was brought in last. */
const FINGERPRINT = 'shipped_catalogue_sha256';

interface CatalogueSource extends ReadOptions {
  readonly db: Database;
  readonly log: Log;
  /** A file that stands in for the shipped one. */
  readonly file: string | undefined;
  /** True: an installation that has loaded one keeps it, whatever `file` says. */
  readonly onlyFirst: boolean;
  /** Whether other processes write to the same database. */
  readonly shared: boolean;
}

/**
 * The catalogue as the database has it, after the shipped one (or the file that replaces it) was brought in when it is not
 * the one brought in last, so that a second start writes nothing. Operators' own entries are left alone; shipped ones that
 * are gone become inactive. Processes that start together on a new database may all write it: the same rows, in one order.
 * @throws CatalogueUnusable when the file cannot be read or has no usable line.
 */
export async function openCatalogue(source: CatalogueSource): Promise<Catalogue> {
  const { db, log, onlyFirst, shared } = source;
  // Before the rows: whoever finds the mark of another process then also finds all that was written before it.
  const [known] = await db.select().from(settings).where(eq(settings.key, FINGERPRINT));
  const catalogue = await Catalogue.load(db, log, { shared });
  await freeReservedId(catalogue, log);
  if (!(known && onlyFirst)) await bringIn(catalogue, source, known?.value);
  return catalogue;
}

/** A version from before it was reserved took entries of this id: calls to it would not be calls to that server any more. */
async function freeReservedId(catalogue: Catalogue, log: Log): Promise<void> {
  const server = catalogue.get(RESERVED_SERVER_ID);
  if (!server?.active && !server?.unreachable) return;
  await catalogue.deactivate(server.id);
  log.warn({ id: server.id }, 'server deactivated: its id is reserved now, import it under another one');
}

async function bringIn(
  catalogue: Catalogue,
  source: CatalogueSource,
  known: string | undefined,
): Promise<void> {
  const { db, log, file = SHIPPED_FILE } = source;
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new CatalogueUnusable(
      `${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
    );
  });
  const fingerprint = createHash('sha256').update(text).digest('hex');
  if (known === fingerprint) return;
  const { entries, problems, unknownFields } = readEntries(text, source);
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
