import type { TestProject } from 'vitest/node';
import { findPostgres, startPostgres } from './postgres-server.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server of this test run, without a database (see `createDatabase`); undefined where none is installed. */
    postgresUrl: string | undefined;
  }
}

/** One Postgres for the whole test run. Without one installed its tests are skipped, unless the environment requires it. */
export default async function setup(project: TestProject): Promise<(() => PromiseLike<void>) | undefined> {
  if (findPostgres() === undefined) {
    const missing = 'no Postgres server is installed (apt-get install postgresql)';
    if (process.env['SWITCHBOARD_TEST_REQUIRE_POSTGRES'] === '1') throw new Error(missing);
    console.warn(`The tests on Postgres are skipped: ${missing}.`);
    project.provide('postgresUrl', undefined);
    return undefined;
  }
  const server = await startPostgres({ fsync: false });
  project.provide('postgresUrl', server.url('').replace(/\/$/, ''));
  return () => server[Symbol.asyncDispose]();
}
