import { inject } from 'vitest';
import { createDatabaseOn, type TestDatabase } from './temporary-database.ts';

export type { TestDatabase } from './temporary-database.ts';

/** A new, empty database on the server of this test run (see `global-postgres.ts`), or on another. */
export async function createDatabase(server = inject('postgresUrl')): Promise<TestDatabase> {
  if (server === undefined)
    throw new Error('no Postgres: skip this test where inject("postgresUrl") is undefined');
  return createDatabaseOn(server);
}
