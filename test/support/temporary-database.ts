import { randomUUID } from 'node:crypto';
import { Client } from 'pg';

export interface TestDatabase extends AsyncDisposable {
  readonly url: string;
}

/** A new, empty database on a server, given as its URL; whatever database that names is left alone. */
export async function createDatabaseOn(server: string): Promise<TestDatabase> {
  const name = `switchboard_${randomUUID().replaceAll('-', '')}`;
  const urlOf = (database: string) => Object.assign(new URL(server), { pathname: `/${database}` }).href;
  const administer = async (statement: string) => {
    const client = new Client({ connectionString: urlOf('postgres') });
    await client.connect();
    try {
      await client.query(statement);
    } finally {
      await client.end();
    }
  };
  await administer(`create database ${name}`);
  return {
    url: urlOf(name),
    [Symbol.asyncDispose]: () => administer(`drop database ${name} with (force)`),
  };
}
