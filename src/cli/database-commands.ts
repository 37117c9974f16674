import type { Transferred } from './offline-database.ts';
import type { DatabaseCommand } from './command.ts';

/** Loads the databases only for these commands: they take longer to load than most commands to run. */
const offline = () => import('./offline-database.ts');

const migrate: DatabaseCommand = {
  on: 'database',
  args: [],
  help: 'Applies pending database migrations without starting the server, and lists them.',
  async run({ config }) {
    const { migrateDatabase } = await offline();
    const { applied, latest, unknown } = await migrateDatabase(config);
    const done =
      applied.length === 0
        ? `Up to date at ${latest}. Nothing to apply.`
        : `Applied ${applied.join(', ')}. The database is up to date.`;
    const newer =
      unknown === 0 ? '' : ` A later version has applied ${unknown} more, which were left unchanged.`;
    return { json: { applied, latest, unknown }, text: `${done}${newer}` };
  },
};

const dump: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  options: { force: { type: 'boolean', help: 'Overwrites an existing file.' } },
  help: 'Writes the embedded database to a file, as SQL, without the vault key. (For Postgres, use `pg_dump`.)',
  async run({ config, io, args: [file = ''], options }) {
    const { dumpDatabase } = await offline();
    const done = await dumpDatabase(config, file, { mayReplace: options['force'] === true });
    if (done.vaultKey !== undefined) io.complain(keyAdvice(done.vaultKey, done.keptIn));
    return { json: reportOf(done), text: `Wrote the database to ${file}.` };
  },
};

const restore: DatabaseCommand = {
  on: 'database',
  args: ['FILE'],
  help: 'Creates a new database from a dump made with `database dump` or `pg_dump`, all or nothing.',
  async run({ config, args: [file = ''] }) {
    const { restoreFile } = await offline();
    const done = await restoreFile(config, file);
    const key = done.vaultKey === undefined ? '' : ` ${keyUse(done.vaultKey, done.keptIn)}`;
    return { json: reportOf(done), text: `Restored the database from ${file}.${key}` };
  },
};

const keyUse = (id: string, keptIn: string) =>
  `The vault opens with the key ${id} from ${keptIn}${
    keptIn === 'SWITCHBOARD_KEKS' ? ': always start the server with the same SWITCHBOARD_KEKS.' : '.'
  }`;

const keyAdvice = (id: string, keptIn: string) =>
  `The file does not contain the vault key ${id}: ${
    keptIn === 'SWITCHBOARD_KEKS'
      ? 'the new installation needs the same SWITCHBOARD_KEKS.'
      : `copy it from ${keptIn} and set it as SWITCHBOARD_KEKS.`
  }`;

const reportOf = ({ file, vaultKey }: Transferred) => ({ file, vault_key: vaultKey ?? null });

export const databaseCommands = { migrate, 'database dump': dump, 'database restore': restore };
