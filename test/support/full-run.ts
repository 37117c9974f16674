import { inject } from 'vitest';

/** True in `npm run test:full`, which runs every case on both databases, and the long ones. */
export const isFullRun = process.env['SWITCHBOARD_TEST_FULL'] === '1';

/**
 * Returns the databases that a suite runs on: Postgres, and in the full run PGlite too, which stands in where no Postgres is installed.
 * The locks and the types of both are tested in every run (`core/identity/tokens.test.ts`, `platform/database/database.test.ts`).
 */
export function databasesOfRun<Kind extends { readonly name: 'PGlite' | 'Postgres' }>(
  all: readonly Kind[],
): Kind[] {
  const hasPostgres = inject('postgresUrl') !== undefined;
  return all.filter(({ name }) => isFullRun || (name === 'Postgres') === hasPostgres);
}
