import { dumpDatabase, migrateDatabase, restoreFile, type Transferred } from './offline-database.ts';
import type { DatabaseCommand } from './command.ts';

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

const dump: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  options: { force: { type: 'boolean', help: 'Replaces the file where it exists.' } },
  help: 'Writes the whole embedded database to a file, as SQL. The key of the vault is not in it. (For Postgres: `pg_dump`.)',
  async run({ config, io, args: [file = ''], options }) {
    const done = await dumpDatabase(config, file, { mayReplace: options['force'] === true });
    if (done.vaultKey !== undefined) io.complain(keyAdvice(done.vaultKey, done.keptIn));
    return { json: reportOf(done), text: `Wrote the database to ${file}.` };
  },
};

const restore: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  help: 'Makes a new database from a file that `database dump` or `pg_dump` wrote, all or nothing.',
  async run({ config, args: [file = ''] }) {
    const done = await restoreFile(config, file);
    const key = done.vaultKey === undefined ? '' : ` ${keyUse(done.vaultKey, done.keptIn)}`;
    return { json: reportOf(done), text: `Restored the database from ${file}.${key}` };
  },
};

const keyUse = (id: string, keptIn: string) =>
  `The key ${id} of ${keptIn} opens its vault${
    keptIn === 'SWITCHBOARD_KEKS' ? ': start the server with the same SWITCHBOARD_KEKS, always.' : '.'
  }`;

const keyAdvice = (id: string, keptIn: string) =>
  `The key of the vault, ${id}, is not in the file: ${
    keptIn === 'SWITCHBOARD_KEKS'
      ? 'where it goes to needs the same SWITCHBOARD_KEKS.'
      : `take it along from ${keptIn}, as SWITCHBOARD_KEKS.`
  }`;

const reportOf = ({ file, vaultKey }: Transferred) => ({ file, vault_key: vaultKey ?? null });

export const databaseCommands = { migrate, 'database dump': dump, 'database restore': restore };
