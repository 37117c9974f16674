import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Database } from '../../platform/database/database.ts';
import { readSetting, writeSetting } from '../../platform/database/settings.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { Catalogue } from './catalogue.ts';
import { RESERVED_SERVER_ID } from './entry.ts';
import { readEntries, type ReadEntries, type ReadOptions } from './import-file.ts';

const SHIPPED_FILE = fileURLToPath(new URL('../../../catalogue/servers.jsonl', import.meta.url));

/** The initial catalogue is unusable. The message says why. */
export class CatalogueUnusable extends Error {
  override readonly name = 'CatalogueUnusable';
}

/** The setting with the hash of the last loaded file. */
const FINGERPRINT = 'shipped_catalogue_sha256';

/** The file that fills a new catalogue. */
export class InitialCatalogue {
  readonly file: string;
  readonly fingerprint: string;
  readonly #read: () => ReadEntries;
  #entries: ReadEntries | undefined;

  private constructor(file: string, text: string, options: ReadOptions) {
    this.file = file;
    this.fingerprint = createHash('sha256').update(text).digest('hex');
    this.#read = () => readEntries(text, options);
  }

  /**
   * @param file by default the shipped one
   * @throws CatalogueUnusable if it cannot be read
   */
  static async read(file = SHIPPED_FILE, options: ReadOptions): Promise<InitialCatalogue> {
    const text = await readFile(file, 'utf8').catch((error: unknown) => {
      throw new CatalogueUnusable(
        `${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`,
      );
    });
    return new InitialCatalogue(file, text, options);
  }

  /** Its entries. Reading those of the shipped file takes most of a second, the first time. */
  get entries(): ReadEntries {
    return (this.#entries ??= this.#read());
  }
}

interface CatalogueSource extends ReadOptions {
  readonly db: Database;
  readonly log: Log;
  /** Replaces the shipped file. */
  readonly file: string | undefined;
  /** The file, if it has been read already. */
  readonly initial?: Promise<InitialCatalogue> | undefined;
  /** True: keeps an already loaded catalogue, whatever `file` says. */
  readonly onlyFirst: boolean;
  /** True if other processes write to the same database. */
  readonly shared: boolean;
}

/**
 * Opens the catalogue. Loads the shipped file, or its replacement, unless it was the last one loaded, so that a second start
 * writes nothing. Operators' own entries stay unchanged; removed shipped entries become inactive. Processes that start
 * together on a new database may all write it: the same rows, in the same order.
 * @throws CatalogueUnusable if the file cannot be read or has no usable line
 */
export async function openCatalogue(source: CatalogueSource): Promise<Catalogue> {
  const { db, log, onlyFirst, shared } = source;
  // Read before the rows, so that everything another process wrote before setting it is found too.
  const known = await readSetting(db, FINGERPRINT);
  const catalogue = await Catalogue.load(db, log, { shared });
  await freeReservedId(catalogue, log);
  if (!(known && onlyFirst)) await load(catalogue, source, known);
  return catalogue;
}

/** Deactivates a server with the reserved id, which earlier versions accepted: calls would no longer reach it. */
async function freeReservedId(catalogue: Catalogue, log: Log): Promise<void> {
  const server = catalogue.get(RESERVED_SERVER_ID);
  if (!server?.active && !server?.unreachable) return;
  await catalogue.deactivate(server.id);
  log.warn(
    { id: server.id },
    'deactivated a server because its id is now reserved: import it under another id',
  );
}

async function load(catalogue: Catalogue, source: CatalogueSource, known: string | undefined): Promise<void> {
  const { db, log } = source;
  const initial = await (source.initial ?? InitialCatalogue.read(source.file, source));
  const { file, fingerprint } = initial;
  if (known === fingerprint) return;
  const { entries, problems, unknownFields } = initial.entries;
  for (const problem of problems.slice(0, 20)) log.warn({ file, ...problem }, 'skipped a catalogue line');
  if (unknownFields.length > 0) log.warn({ file, unknownFields }, 'ignored unknown catalogue fields');
  if (entries.length === 0) {
    throw new CatalogueUnusable(`${file} contains no usable entry: ${describe(problems[0])}`);
  }
  await catalogue.put(entries, { origin: 'shipped', replace: true });
  await writeSetting(db, FINGERPRINT, fingerprint);
  log.info({ file, servers: entries.length, skipped: problems.length }, 'loaded the catalogue');
}

const describe = (problem: { line: number; reason: string } | undefined) =>
  problem ? `line ${problem.line} ${problem.reason}` : 'it is empty';
