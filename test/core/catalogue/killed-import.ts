/**
 * Replaces the catalogue in a data folder, or is killed on the way: `killed-import.ts FOLDER VERSION [STATEMENT]`, the last
 * being the write statement of the transaction before which the process kills itself.
 */
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import { openDatabase } from '../../../src/platform/database/database.ts';

const [folder = '', version = '', statement] = process.argv.slice(2);

/** The second of three is too large for one row, and the third is another server in each version. */
const entryOf = (id: string, tools: number) => ({
  id,
  name: `${id} ${version}`,
  description: `The ${version} ${id}.`,
  remote_url: `https://${id}.example/mcp`,
  tools: Array.from({ length: tools }, (_, at) => ({
    name: `t${at}`,
    description: `${version} ${'x'.repeat(900)}`,
    input_schema: { type: 'object' },
  })),
});

await using opened = new AsyncDisposableStack();
const database = await openDatabase(folder);
opened.defer(() => database.close());
const { db } = database;
let written = 0;
if (statement !== undefined) {
  const { transaction } = db;
  db.transaction = (work, config) =>
    transaction.call(
      db,
      tx => {
        for (const name of ['insert', 'update', 'delete'] as const) {
          const original = tx[name].bind(tx);
          const counting = (table: Parameters<typeof original>[0]) => {
            if (++written === Number(statement)) process.kill(process.pid, 'SIGKILL');
            return original(table);
          };
          Object.assign(tx, { [name]: counting });
        }
        return work(tx);
      },
      config,
    ) as ReturnType<typeof work>;
}
const catalogue = await Catalogue.load(db);
await catalogue.put([entryOf('a', 1), entryOf('b', 120), entryOf(`only-${version}`, 1)], {
  origin: 'operator',
  replace: true,
});
