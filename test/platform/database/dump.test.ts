import { execFile, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { mkdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { sql, type SQL } from 'drizzle-orm';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { ConfigError, readConfig } from '../../../src/config/index.ts';
import { openVault } from '../../../src/core/identity/vault/open.ts';
import { writeWhole } from '../../../src/platform/database/temp-path.ts';
import { openDatabase, rows, type Database } from '../../../src/platform/database/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { dumpDatabase, restoreFile } from '../../../src/cli/offline-database.ts';
import { createDatabase } from '../../support/postgres.ts';
import { findPostgres } from '../../support/postgres-server.ts';
import { makeDataDir } from '../../support/data-dir.ts';
import { begin, temporaryFolder } from '../../support/program.ts';

const newKey = () => `k1:${randomBytes(32).toString('base64')}`;
const KEKS = newKey();

const configOf = (dataDir: string, databaseUrl?: string, keks = KEKS) =>
  readConfig({
    SWITCHBOARD_DATA_DIR: dataDir,
    DATABASE_URL: databaseUrl,
    SWITCHBOARD_KEKS: keks,
    LOG_LEVEL: 'silent',
  });

/** Values that a way over text, JSON or numbers might change. */
const ODD_TEXT = `Ä "q" \\ 'x' {},[]\n\t\r\u2028\u0001 🐘 \\x41 null NULL;\n\\unrestrict a\n-- PostgreSQL database dump complete\n`;
const ODD: readonly SQL[] = [
  sql`insert into tenants values ('t', '2026-01-02 03:04:05.678901+00', ${ODD_TEXT}, 'page', array['', 'a,b', 'NULL', '"', '\\', ${ODD_TEXT}])`,
  sql`insert into tenants values ('far', '294276-12-31 23:59:59.999999+00', null, 'direct', '{}'), ('long ago', '0044-03-15 12:00:00+00 BC', '', 'direct', '{}')`,
  sql`insert into users (id, tenant_id, external_id, created_at) values ('u', 't', ${ODD_TEXT}, 'infinity')`,
  sql`insert into audit_log (id, event, outcome, meta) values (9007199254740993, 'e', 'o', '{"a": 1.10, "b": 12345678901234567890, "c": "\\u2028\\"", "d": null}')`,
  sql`select setval('audit_log_id_seq', 9007199254740993)`,
  sql`insert into embeddings values ('e', ${new Uint8Array(256).map((_, at) => at)}, ''), ('f', '', ${new Uint8Array(300_000).fill(255)})`,
  sql`insert into query_log (id, tenant_id, key_id, query, server_ids, latency_ms, cache_hit) values ('a', 't', 'k', ${ODD_TEXT}, '[]', 1e-307, true), ('b', 't', 'k', '', '["x"]', 0.1::float8 + 0.2::float8, false), ('c', 't', 'k', '', 'null', 'NaN', false)`,
  sql`insert into server_usage (server_id, tenant_id, day, successes) select 's' || n, 't', date '2026-01-01' + n, n from generate_series(1, 1234) n`,
  sql`insert into token_families values ('fam', 't', 'u', now(), now(), null, null)`,
  sql`insert into refresh_tokens (hash, family_id, epoch, expires_at) values (sha256('x'), 'fam', 1, now())`,
];

async function fillOddly(db: Database): Promise<void> {
  for (const statement of ODD) await db.execute(statement);
  const log = createLog('silent');
  await openVault({ db, log, config: configOf('/none').identity, dataDir: '/none' });
}

/** Every row of every table as text; those of one table in no order. */
async function contentOf(db: Database): Promise<unknown[]> {
  const tables = await rows<{ name: string }>(
    db,
    sql`select relname name from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1`,
  );
  const found = [];
  for (const { name } of tables) {
    const lines = await rows<{ row: string }>(db, sql`select t::text as row from ${sql.identifier(name)} t`);
    found.push([name, lines.map(({ row }) => row).sort()]);
  }
  return found;
}

interface Openable {
  readonly db: Database;
  close(): Promise<void>;
}
async function on<T>(opening: Promise<Openable>, look: (db: Database) => Promise<T>): Promise<T> {
  const { db, close } = await opening;
  try {
    return await look(db);
  } finally {
    await close();
  }
}

const folder = temporaryFolder();
const at = (name: string) => path.join(folder.path, name);
const source = at('source');
const file = at('all.sql');
let content: unknown[];

beforeAll(async () => {
  await makeDataDir(source);
  await on(openDatabase(source), async db => {
    await fillOddly(db);
    await db.execute(sql`insert into kept_results values ('res_1', 't', 'k', '', 5, 5, now())`);
  });
  expect(await dumpDatabase(configOf(source), file)).toEqual({
    file,
    vaultKey: 'k1',
    keptIn: 'SWITCHBOARD_KEKS',
  });
  content = await on(openDatabase(source), async db => {
    await db.execute(sql`delete from kept_results`);
    return contentOf(db);
  });
});
afterAll(() => folder[Symbol.asyncDispose]());

async function refusal(text: string | Uint8Array, keks?: string, databaseUrl?: string) {
  await writeFile(at('spoilt.sql'), text);
  const restoring = restoreFile(configOf(at('never'), databaseUrl, keks), at('spoilt.sql'));
  const error = await restoring.then(
    () => undefined,
    (reason: unknown) => reason as Error,
  );
  expect(readdirSync(folder.path).filter(one => one.includes('.new-'))).toEqual([]);
  return error;
}

describe('a dump of the embedded database', () => {
  it('restores every value except stored results, and continues its sequences', async () => {
    await restoreFile(configOf(at('target')), file);
    await on(openDatabase(at('target')), async db => {
      expect(await contentOf(db)).toEqual(content);
      const next = await rows(
        db,
        sql`insert into audit_log (event, outcome) values ('e', 'o') returning id::text`,
      );
      expect(next).toEqual([{ id: '9007199254740994' }]);
    });
    expect(await readFile(file, 'utf8')).not.toContain('res_1');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  it('goes into no folder that has a database', async () => {
    await expect(restoreFile(configOf(source), file)).rejects.toThrow(/already contains a database/);
    expect(await on(openDatabase(source), contentOf)).toEqual(content);
  });

  it('is refused where it was cut, or is something else', async () => {
    const bytes = await readFile(file);
    for (const length of [0, 40, Math.floor(bytes.length / 2), bytes.length - 60])
      expect([length, (await refusal(bytes.subarray(0, length)))?.message]).toEqual([
        length,
        expect.stringMatching(/is truncated|is not a plain SQL dump/),
      ]);
    expect((await refusal('{"id":"a"}\n'))?.message).toMatch(/is not a plain SQL dump/);
    await expect(restoreFile(configOf(at('never')), at('none'))).rejects.toThrow(/cannot be read: ENOENT/);
  });

  it('leaves nothing behind where its statements fail', async () => {
    const spoilt = (await readFile(file, 'utf8')).replace('INTO public.server_usage', 'INTO public.nothing');
    expect((await refusal(spoilt))?.message).toMatch(/cannot be restored: .*nothing.* Nothing was restored/);
    expect(readdirSync(at('never'))).toEqual([]);
  });

  it('is made by no older version than the database is of', async () => {
    await on(openDatabase(at('target')), db =>
      db.execute(sql`insert into drizzle.__drizzle_migrations (hash, created_at) values ('later', 1)`),
    );
    await expect(dumpDatabase(configOf(at('target')), at('newer.sql'))).rejects.toThrow(/later version/);
  });

  it('replaces a file only where it may', async () => {
    await writeFile(at('mine.sql'), 'mine');
    await expect(dumpDatabase(configOf(source), at('mine.sql'))).rejects.toThrow(/already exists.*--force/);
    expect(await readFile(at('mine.sql'), 'utf8')).toBe('mine');
    await dumpDatabase(configOf(source), at('mine.sql'), { mayReplace: true });
    expect(await readFile(at('mine.sql'), 'utf8')).toBe(await readFile(file, 'utf8'));
  });

  it('needs the key of its vault, and says where to put it', async () => {
    const restoring = restoreFile(readConfig({ SWITCHBOARD_DATA_DIR: at('keyless') }), file);
    await expect(restoring).rejects.toThrow(
      `The dump needs the vault key \`k1\`. Set SWITCHBOARD_KEKS to it, or copy vault.key into ${at('keyless')}.`,
    );
  });

  it('that fails leaves the file of before, and nothing beside it', async () => {
    const nowhere = dumpDatabase(configOf(source), at('no/x.sql'));
    await expect(nowhere).rejects.toThrow(/x\.sql cannot be written: ENOENT/);
    await mkdir(at('taken.sql/x'), { recursive: true });
    const onFolder = dumpDatabase(configOf(source), at('taken.sql'), { mayReplace: true });
    await expect(onFolder).rejects.toThrow(/cannot be written/);
    await expect(dumpDatabase(configOf(at('empty')), at('x.sql'))).rejects.toThrow(/There is no database/);
    expect(readdirSync(folder.path).filter(name => name.includes('.new-'))).toEqual([]);
  });
});

describe('what a killed write left behind', () => {
  it('is gone after the next one a day later, but not what another may still be writing', async () => {
    await using mine = temporaryFolder();
    const { pid: dead } = spawnSync(process.execPath, ['--version']);
    const random = '0123456789abcdef';
    const write = async (name: string, hoursAgo: number) => {
      const half = path.join(mine.path, name);
      await writeFile(half, 'half');
      const when = new Date(Date.now() - hoursAgo * 3_600_000);
      await utimes(half, when, when);
    };
    // In a container everybody has our number, and who writes in another seems to be dead.
    const fresh = [`all.sql.new-${dead}-${random}`, `all.sql.new-${process.pid}-${random}`];
    const old = [
      `all.sql.new-${process.ppid}-${random}`,
      `all.sql.new-${dead}`,
      `all.sql.new-${dead}-${random}x`,
      `b.sql.new-${dead}-${random}`,
    ];
    const left = [
      `all.sql.new-${dead}-f${random.slice(1)}`,
      `all.sql.new-${process.pid}-f${random.slice(1)}`,
    ];
    for (const name of fresh) await write(name, 23);
    for (const name of [...old, ...left]) await write(name, 25);
    const whole = path.join(mine.path, 'all.sql');
    await Promise.all([writeWhole(whole, 'whole'), writeWhole(whole, 'whole')]);
    expect(readdirSync(mine.path).sort()).toEqual(['all.sql', ...fresh, ...old].sort());
  });
});

describe.skipIf(inject('postgresUrl') === undefined)('on Postgres', () => {
  it('a dump of the embedded database restores every value, and one by pg_dump leads back', async () => {
    await using target = await createDatabase();
    await restoreFile(configOf(at('here'), target.url), file);
    expect(await on(openPostgres(target.url), contentOf)).toEqual(content);
    const back = at('back.sql');
    const advised = await dumpDatabase(configOf(at('here'), target.url), back).catch(
      (error: unknown) => error as Error,
    );
    const [, options = ''] = /pg_dump (.*) -d "\$DATABASE_URL"/.exec((advised as Error).message) ?? [];
    await promisify(execFile)(path.join(findPostgres() ?? '', 'pg_dump'), [
      ...options.split(' '),
      '-d',
      target.url,
      '-f',
      back,
    ]);
    await restoreFile(configOf(at('returned')), back);
    expect(await on(openDatabase(at('returned')), contentOf)).toEqual(content);
  });

  it('a non-empty database stays unchanged', async () => {
    await using target = await createDatabase();
    await on(openPostgres(target.url), fillOddly);
    const before = await on(openPostgres(target.url), contentOf);
    await expect(restoreFile(configOf(at('here'), target.url), file)).rejects.toThrow(
      /^The database already has tables/,
    );
    expect(await on(openPostgres(target.url), contentOf)).toEqual(before);
  });

  it('a refused restore leaves the database empty', async () => {
    await using target = await createDatabase();
    const bytes = await readFile(file);
    const wrongKey = await refusal(bytes, newKey(), target.url);
    expect(wrongKey).toBeInstanceOf(ConfigError);
    expect(wrongKey?.message).toMatch(/vault key `k1`.*SWITCHBOARD_KEKS.*Nothing was restored/);
    const spoilt = bytes.toString().replace('INTO public.server_usage', 'INTO public.nothing');
    expect((await refusal(spoilt, KEKS, target.url))?.message).toMatch(/cannot be restored/);
    const foreign = `--\n-- PostgreSQL database dump\n--\ncreate table t (x int);\n--\n-- PostgreSQL database dump complete\n--\n`;
    expect((await refusal(foreign, KEKS, target.url))?.message).toMatch(
      /does not contain a Switchboard database/,
    );
    await restoreFile(configOf(at('here'), target.url), file);
  });

  it('a restore that is killed half-way leaves nothing, and the next one does all', async () => {
    await using target = await createDatabase();
    const stop = new Client({ connectionString: target.url });
    stop.on('error', () => {});
    await stop.connect();
    await stop.query(`create function wait() returns event_trigger language plpgsql as
      $$ begin perform pg_advisory_xact_lock(1); end $$`);
    await stop.query(`create event trigger half_way on ddl_command_end when tag in ('CREATE INDEX')
      execute function wait()`);
    await stop.query('select pg_advisory_lock(1)');
    const env = { DATABASE_URL: target.url, SWITCHBOARD_KEKS: KEKS, SWITCHBOARD_DATA_DIR: folder.path };
    await using restoring = begin(['database', 'restore', file], env);
    const sessions = async (where: string) =>
      (await stop.query(`select from pg_stat_activity where datname = current_database() and ${where}`))
        .rowCount;
    await vi.waitFor(async () => expect(await sessions(`wait_event = 'advisory'`)).toBe(1), {
      timeout: 60_000,
    });
    restoring.kill('SIGKILL');
    await restoring.finished;
    await stop.query('select pg_advisory_unlock(1)');
    await vi.waitFor(async () => expect(await sessions('pid <> pg_backend_pid()')).toBe(0), {
      timeout: 60_000,
    });
    await stop.query('drop event trigger half_way');
    await stop.query('drop function wait');
    await stop.end();
    await restoreFile(configOf(at('here'), target.url), file);
    expect(await on(openPostgres(target.url), contentOf)).toEqual(content);
  });
});
