import { openAsBlob } from 'node:fs';
import { inject } from 'vitest';
import { openDatabase, type MigratedDatabase } from '../../src/platform/database/database.ts';

/** Opens an embedded database in memory with all tables and no rows (see `global-pglite.ts`). */
export const openTestDatabase = async (): Promise<MigratedDatabase> =>
  openDatabase(undefined, await openAsBlob(inject('pgliteTemplate')));
