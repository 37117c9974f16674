import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { startPostgres } from '../support/postgres-server.ts';
import { createDatabase, type TestDatabase } from '../support/postgres.ts';
import { run, serve, temporaryFolder } from '../support/program.ts';

const TAGS = (
  JSON.parse(readFileSync('drizzle/meta/_journal.json', 'utf8')) as { entries: { tag: string }[] }
).entries.map(({ tag }) => tag);
const LATEST = TAGS.at(-1);
const CATALOGUE = path.resolve('test/support/one-server.jsonl');

describe('migrate on the embedded database', () => {
  it('makes one, says what was applied, then that nothing is to do', async () => {
    await using folder = temporaryFolder();
    const data = path.join(folder.path, 'data');
    const env = { SWITCHBOARD_DATA_DIR: data };
    const first = await run(['migrate', '--json'], env);
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(first.stdout)).toEqual({ applied: TAGS, latest: LATEST, unknown: 0 });
    // Nothing was started: no key of a vault, no socket left.
    expect(readdirSync(data)).toEqual(['pglite']);
    expect(await run(['migrate'], env)).toEqual({
      code: 0,
      stdout: `Up to date at ${LATEST}. Nothing to apply.\n`,
      stderr: '',
    });
  });

  it('is refused beside a server, which goes on', async () => {
    await using folder = temporaryFolder();
    const env = { SWITCHBOARD_DATA_DIR: folder.path, SWITCHBOARD_CATALOGUE: CATALOGUE };
    await using program = await serve(env);
    const { code, stdout, stderr } = await run(['migrate'], env);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`A server is running on ${folder.path}. It applied its migrations`);
    await program.ready();
    await program.stop();
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('migrate on Postgres', () => {
  const SWITCHBOARD_KEKS = `k1:${randomBytes(32).toString('base64')}`;
  let database: TestDatabase;
  beforeAll(async () => void (database = await createDatabase()));
  afterAll(() => database[Symbol.asyncDispose]());

  const query = async (statement: string) => {
    const client = new Client({ connectionString: database.url });
    await client.connect();
    const { rows } = await client.query<Record<string, unknown>>(statement);
    await client.end();
    return rows;
  };

  it('ten at once on an empty database apply each migration once, and touch no data folder', async () => {
    await using folder = temporaryFolder();
    const data = path.join(folder.path, 'data');
    const env = { SWITCHBOARD_DATA_DIR: data, DATABASE_URL: database.url, SWITCHBOARD_KEKS };
    const all = await Promise.all(Array.from({ length: 10 }, () => run(['migrate', '--json'], env)));
    expect(all.map(({ code, stderr }) => [code, stderr])).toEqual(all.map(() => [0, '']));
    const reports = all.map(({ stdout }) => JSON.parse(stdout));
    expect(reports.filter(({ applied }) => applied.length > 0)).toEqual([
      { applied: TAGS, latest: LATEST, unknown: 0 },
    ]);
    const [row] = await query(
      'select count(*)::int count, count(distinct hash)::int hashes from drizzle.__drizzle_migrations',
    );
    expect(row).toEqual({ count: TAGS.length, hashes: TAGS.length });
    expect(existsSync(data)).toBe(false);
  });

  it('runs beside servers, and leaves alone what a later version applied', async () => {
    await using folder = temporaryFolder();
    const env = {
      SWITCHBOARD_DATA_DIR: folder.path,
      SWITCHBOARD_CATALOGUE: CATALOGUE,
      DATABASE_URL: database.url,
      SWITCHBOARD_KEKS,
    };
    await using program = await serve(env);
    await query(
      `insert into drizzle.__drizzle_migrations (hash, created_at) values ('later', 4102444800000)`,
    );
    expect(await run(['migrate'], env)).toEqual({
      code: 0,
      stdout: `Up to date at ${LATEST}. Nothing to apply. A later version has applied 1 more, which were left unchanged.\n`,
      stderr: '',
    });
    await program.ready();
    await program.stop();
  });

  it('ends with 2 and one line where database unreachable', async () => {
    await using folder = temporaryFolder();
    await using server = await startPostgres({ fsync: false });
    const env = { SWITCHBOARD_DATA_DIR: folder.path, DATABASE_URL: server.url('postgres'), SWITCHBOARD_KEKS };
    await server.stop();
    const { code, stderr } = await run(['migrate', '--json'], env);
    expect(code).toBe(2);
    expect(JSON.parse(stderr).error).toEqual({
      code: 'invalid_settings',
      detail: expect.stringMatching(/^DATABASE_URL: cannot connect: .*ECONNREFUSED/),
    });
  });
});
