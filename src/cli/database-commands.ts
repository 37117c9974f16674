import { exportDatabase, importDatabase, migrateDatabase, type Transferred } from './offline-database.ts';
import type { DatabaseCommand } from './command.ts';
import { workProgress, type Io } from './terminal.ts';

const migrate: DatabaseCommand = {
  on: 'database',
  args: [],
  help: 'Applies the migrations that the database lacks, as a start would, and ends. Says which, or that it is up to date.',
  async run({ config }) {
    const { applied, latest, unknown } = await migrateDatabase(config);
    const done =
      applied.length === 0
        ? `Up to date, at ${latest}: nothing to apply.`
        : `Applied ${applied.join(', ')}: up to date.`;
    const newer =
      unknown === 0 ? '' : ` A later version has applied ${unknown} more, which this one leaves alone.`;
    return { json: { applied, latest, unknown }, text: `${done}${newer}` };
  },
};

const exportAll: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  help: 'Writes the whole database to a file, to move it. The key of the vault is not in it.',
  async run({ config, io, args: [file = ''] }) {
    const done = await showing(io, 'rows written', onRows => exportDatabase(config, file, onRows));
    if (done.others > 0)
      io.complain(
        `${done.others} connections of other processes are open to this database: what they write from now on is not in the file. To move, stop the servers first.`,
      );
    if (done.vaultKey !== undefined) io.complain(keyAdvice(done.vaultKey, done.keptIn));
    return { json: reportOf(done), text: `Exported ${amountOf(done)} to ${file}.` };
  },
};

const importAll: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  help: 'Fills a new database from a file that `export` wrote, all or nothing. (For servers: `catalogue import`.)',
  async run({ config, io, args: [file = ''] }) {
    const done = await showing(io, 'rows stored', onRows => importDatabase(config, file, onRows));
    const key =
      done.vaultKey === undefined ? '' : ` The key ${done.vaultKey} of ${done.keptIn} opens its vault.`;
    return { json: reportOf(done), text: `Imported ${amountOf(done)} from ${file}.${key}` };
  },
};

/** A bar on a terminal, and nothing elsewhere: who waits for the end of a script reads its last line. */
async function showing<T>(
  io: Io,
  what: string,
  work: (onRows: ReturnType<typeof workProgress>['show'] | undefined) => Promise<T>,
): Promise<T> {
  const progress = workProgress(io, { what });
  try {
    return await work(io.status && progress.show);
  } finally {
    progress.end();
  }
}

const keyAdvice = (id: string, keptIn: string) =>
  `The key of the vault, ${id}, is not in the file: ${
    keptIn === 'SWITCHBOARD_KEKS'
      ? 'where it goes to needs the same SWITCHBOARD_KEKS.'
      : `take it along from ${keptIn}, as SWITCHBOARD_KEKS.`
  }`;

const amountOf = ({ header, rows }: Transferred) => `${header.tables.length} tables with ${rows} rows`;

const reportOf = ({ file, header, rows, vaultKey }: Transferred) => ({
  file,
  version: header.version,
  migration: header.migration,
  rows,
  tables: Object.fromEntries(header.tables.map(table => [table.name, table.rows])),
  vault_key: vaultKey ?? null,
});

export const databaseCommands = { migrate, export: exportAll, import: importAll };
