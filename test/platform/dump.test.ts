import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { mkdir, readFile, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { sql, type SQL } from 'drizzle-orm';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { ConfigError, readConfig } from '../../src/config/index.ts';
import { openVault } from '../../src/core/identity/vault/open.ts';
import { asideOfShared } from '../../src/platform/temp-path.ts';
import { openDatabase, rows, type Database } from '../../src/platform/database/database.ts';
import { countOf } from '../../src/platform/database/dump/tables.ts';
import { writeDump } from '../../src/platform/database/dump/write.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { openPostgres } from '../../src/platform/database/postgres.ts';
import { exportDatabase, importDatabase } from '../../src/cli/offline-database.ts';
import { createDatabase, type TestDatabase } from '../support/postgres.ts';
import { begin, temporaryFolder } from '../support/program.ts';

const newKey = () => `k1:${randomBytes(32).toString('base64')}`;
const KEKS = newKey();

const configOf = (dataDir: string, databaseUrl?: string, keks = KEKS) =>
  readConfig({
    SWITCHBOARD_DATA_DIR: dataDir,
    DATABASE_URL: databaseUrl,
    SWITCHBOARD_KEKS: keks,
    LOG_LEVEL: 'silent',
  });

const linesOf = async (file: string) =>
  gunzipSync(await readFile(file))
    .toString()
    .trimEnd()
    .split('\n');

/** Values that a way over text, JSON or numbers might change. */
const ODD_TEXT = `Ä "q" \\ 'x' {},[]\n\t\r\u2028\u0001 🐘 \\x41 null NULL`;
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

async function fillOddly(db: Database): Promise<void> {
  for (const statement of ODD) await db.execute(statement);
  const log = createLog('silent');
  await openVault({ db, log, config: configOf('/none').identity, dataDir: '/none' });
}

describe('an export and its import', () => {
  it('keep every value as it was, and go on counting where it was', async () => {
    await using folder = temporaryFolder();
    const [from, to, file] = ['from', 'to', 'all.gz'].map(name => path.join(folder.path, name)) as [
      string,
      string,
      string,
    ];
    await makeEmbedded(from, fillOddly);
    const heard: { done: number; of: number }[] = [];
    const exported = await exportDatabase(configOf(from), file, progress => void heard.push(progress));
    expect(exported).toMatchObject({ vaultKey: 'k1', keptIn: 'SWITCHBOARD_KEKS', others: 0 });
    expect(readdirSync(folder.path).sort()).toEqual(['all.gz', 'from']);
    const whole = { done: exported.rows, of: exported.rows };
    expect([heard.length > 5, heard.at(-1)]).toEqual([true, whole]);
    const imported = await importDatabase(configOf(to), file, progress => void heard.push(progress));
    expect(heard.at(-1)).toEqual(whole);
    expect([imported.rows, imported.header]).toEqual([exported.rows, exported.header]);

    const source = await openDatabase(from);
    const target = await openDatabase(to);
    expect(await contentOf(target.db)).toEqual(await contentOf(source.db));
    const next = await rows(
      target.db,
      sql`insert into audit_log (event, outcome) values ('e', 'o') returning id::text`,
    );
    expect(next).toEqual([{ id: '9007199254740994' }]);
    await Promise.all([source.close(), target.close()]);
  });
});

describe('results that are kept for a few minutes', () => {
  it('are no part of an export, and keep no import out of their database', async () => {
    await using folder = temporaryFolder();
    const [from, to] = ['from', 'to'].map(name => path.join(folder.path, name)) as [string, string];
    const keepOne = async (db: Database) => {
      await db.execute(sql`insert into kept_results values ('res_1', 't', 'k', '', 5, 5, now())`);
      await db.execute(sql`insert into kept_result_parts values ('res_1', 0, 'sealed', now())`);
    };
    await makeEmbedded(from, keepOne);
    const file = path.join(folder.path, 'all.gz');
    const { header } = await exportDatabase(configOf(from), file);
    expect(header.tables.map(({ name }) => name)).not.toContain('kept_results');
    expect((await linesOf(file)).join('\n')).not.toContain('res_1');
    await makeEmbedded(to, keepOne);
    await importDatabase(configOf(to), file);
  });
});

describe('what a killed export left behind', () => {
  it('is gone after the next one a day later, but not what another may still be writing', async () => {
    await using folder = temporaryFolder();
    const from = path.join(folder.path, 'from');
    await makeEmbedded(from, async () => {});
    const { pid: dead } = spawnSync(process.execPath, ['--version']);
    const random = '0123456789abcdef';
    const write = async (name: string, hoursAgo: number) => {
      const file = path.join(folder.path, name);
      await writeFile(file, 'half');
      const at = new Date(Date.now() - hoursAgo * 3_600_000);
      await utimes(file, at, at);
    };
    // In a container everybody has our number, and who writes in another seems to be dead.
    const fresh = [`all.gz.new-${dead}-${random}`, `all.gz.new-${process.pid}-${random}`];
    const old = [
      `all.gz.new-${process.ppid}-${random}`,
      `all.gz.new-${dead}`,
      `all.gz.new-${dead}-${random}x`,
      `b.gz.new-${dead}-${random}`,
    ];
    const left = [`all.gz.new-${dead}-f${random.slice(1)}`, `all.gz.new-${process.pid}-f${random.slice(1)}`];
    for (const name of fresh) await write(name, 23);
    for (const name of [...old, ...left]) await write(name, 25);
    await exportDatabase(configOf(from), path.join(folder.path, 'all.gz'));
    expect(readdirSync(folder.path).sort()).toEqual(['all.gz', 'from', ...fresh, ...old].sort());
  });

  it('is in nobody else’s way: two that write at once in containers have names of their own', async () => {
    await using folder = temporaryFolder();
    const target = path.join(folder.path, 'all.gz');
    expect(await asideOfShared(target)).not.toBe(await asideOfShared(target));
  });
});

async function makeEmbedded(dataDir: string, fill: (db: Database) => Promise<void>): Promise<void> {
  await mkdir(dataDir);
  const database = await openDatabase(dataDir);
  await fill(database.db);
  await database.close();
}

describe.skipIf(inject('postgresUrl') === undefined)('on Postgres', () => {
  const folder = temporaryFolder();
  let source: TestDatabase;
  let empty: TestDatabase;
  let file: string;
  let lines: string[];
  beforeAll(async () => {
    [source, empty] = await Promise.all([createDatabase(), createDatabase()]);
    const database = await openPostgres(source.url);
    await fillOddly(database.db);
    await database.close();
    file = path.join(folder.path, 'all.gz');
    await exportDatabase(configOf(folder.path, source.url), file);
    lines = await linesOf(file);
  });
  afterAll(async () => {
    await Promise.all([source[Symbol.asyncDispose](), empty[Symbol.asyncDispose]()]);
    await folder[Symbol.asyncDispose]();
  });

  const on = async <T>(database: TestDatabase, look: (db: Database) => Promise<T>): Promise<T> => {
    const opened = await openPostgres(database.url);
    try {
      return await look(opened.db);
    } finally {
      await opened.close();
    }
  };
  const refusal = async (bytes: string | Uint8Array, keks?: string) => {
    const spoilt = path.join(folder.path, 'spoilt.gz');
    await writeFile(spoilt, bytes);
    const error = await importDatabase(configOf(folder.path, empty.url, keks), spoilt).then(
      () => undefined,
      (reason: unknown) => reason as Error,
    );
    const left = (await on(empty, contentOf)) as [string, string[]][];
    expect(left.flatMap(([, found]) => found)).toEqual([]);
    return error;
  };
  const header = () => JSON.parse(lines[0] ?? '') as Record<string, any>;
  const zipped = (changed: readonly string[]) => gzipSync(`${changed.join('\n')}\n`);
  const at = (start: string) => lines.findIndex(line => line.startsWith(start));

  it('every value is as it was', async () => {
    await using target = await createDatabase();
    await importDatabase(configOf(folder.path, target.url), file);
    expect(await on(target, contentOf)).toEqual(await on(source, contentOf));
  });

  it('is of one moment, whatever others write meanwhile', async () => {
    await using target = await createDatabase();
    await importDatabase(configOf(folder.path, target.url), file);
    const again = path.join(folder.path, 'again.gz');
    const about = { version: 'v', migration: 'm' };
    const written = await on(target, db =>
      writeDump(db, again, about, async tx => {
        await countOf(tx, 'tenants');
        await on(target, other => other.execute(sql`delete from server_usage`));
      }),
    );
    expect(written.header.tables).toEqual(header()['tables']);
    expect(await linesOf(again)).toHaveLength(lines.length);
    expect(await on(target, db => countOf(db, 'server_usage'))).toBe(0);
  });

  it('a file that was cut anywhere changes nothing', async () => {
    const bytes = await readFile(file);
    for (const length of [0, 5, 40, Math.floor(bytes.length / 2), bytes.length - 9, bytes.length - 1])
      expect([length, (await refusal(bytes.subarray(0, length)))?.message]).toEqual([
        length,
        expect.stringMatching(/damaged or cut short|is no file that/),
      ]);
    for (const kept of [2, at('{"table":"server_usage"') + 700, lines.length - 1])
      expect((await refusal(zipped(lines.slice(0, kept))))?.message).toMatch(
        /cut short.*Nothing was imported/,
      );
    expect((await refusal(gzipSync(lines.join('\n'))))?.message).toMatch(/is cut short: its last line/);
  });

  it('a file that was changed changes nothing', async () => {
    const bytes = Buffer.from(await readFile(file));
    const middle = Math.floor(bytes.length / 2);
    bytes[middle] = (bytes[middle] ?? 0) ^ 0xff;
    expect((await refusal(bytes))?.message).toMatch(/damaged/);
    const usage = at('["s7"');
    expect((await refusal(zipped(lines.toSpliced(usage, 1))))?.message).toMatch(/is damaged: .*must be/);
    expect((await refusal(zipped(lines.toSpliced(usage, 0, lines[usage] ?? ''))))?.message).toMatch(
      /damaged/,
    );
    expect((await refusal(zipped([...lines, '[]'])))?.message).toMatch(/goes on after its end/);
    for (const row of [
      '["s7", "t", "no day", "1", "0", "0", "0"]',
      '["s7", "t"',
      '["s7"],["s8"]',
      lines[usage + 1],
    ]) {
      const { message } = (await refusal(zipped(lines.with(usage, row ?? '')))) as Error;
      expect(message).toMatch(/rows of server_usage are not as they must be \(.*\)\. Nothing was imported/);
      // Neither the statement nor the rows of it, which may hold anything.
      expect(message).not.toMatch(/insert into|"s9"/);
    }
  });

  it('a file of another form or version, or none at all, changes nothing', async () => {
    const with_ = (change: object) => zipped([JSON.stringify({ ...header(), ...change }), ...lines.slice(1)]);
    expect((await refusal(with_({ switchboard_export: 2 })))?.message).toMatch(/is no file that/);
    expect((await refusal(with_({ migration: '0001_identity', version: '0.0.9' })))?.message).toMatch(
      /was exported at 0001_identity \(version 0\.0\.9\), and this version's database is at .*Use the same version/,
    );
    expect((await refusal(with_({ tables: header()['tables'].slice(1) })))?.message).toMatch(
      /has other tables than this database: \["audit_log"/,
    );
    expect((await refusal('{"id":"a"}\n'))?.message).toMatch(/is no file that .*catalogue import/);
    const missing = importDatabase(configOf(folder.path, empty.url), path.join(folder.path, 'none'));
    await expect(missing).rejects.toThrow(/cannot be read: ENOENT/);
  });

  it('another key than that of its vault changes nothing, and is a wrong setting', async () => {
    const error = await refusal(await readFile(file), newKey());
    expect(error).toBeInstanceOf(ConfigError);
    expect(error?.message).toMatch(/^SWITCHBOARD_KEKS: .*"k1".*Nothing was imported\. Take the key along/);
  });

  it('an import that is killed half-way leaves nothing, and the next one does all', async () => {
    await using target = await createDatabase();
    const stop = new Client({ connectionString: target.url });
    await on(target, async db => {
      await db.execute(sql`create function wait() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock(1); return new; end $$`);
      await db.execute(sql`create trigger wait before insert on users for each row execute function wait()`);
    });
    await stop.connect();
    await stop.query('select pg_advisory_lock(1)');
    const env = { DATABASE_URL: target.url, SWITCHBOARD_KEKS: KEKS, SWITCHBOARD_DATA_DIR: folder.path };
    await using importing = begin(['import', file], env);
    const sessions = async (where: string) =>
      (await stop.query(`select from pg_stat_activity where datname = current_database() and ${where}`))
        .rowCount;
    const isWaiting = `wait_event = 'advisory'`;
    await vi.waitFor(async () => expect(await sessions(isWaiting)).toBe(1), { timeout: 60_000 });
    importing.kill('SIGKILL');
    await importing.finished;
    await stop.query('select pg_advisory_unlock(1)');
    const isOther = 'pid <> pg_backend_pid()';
    await vi.waitFor(async () => expect(await sessions(isOther)).toBe(0), { timeout: 60_000 });
    await stop.end();
    const left = (await on(target, contentOf)) as [string, string[]][];
    expect(left.flatMap(([, found]) => found)).toEqual([]);
    await on(target, db => db.execute(sql`drop function wait cascade`));
    await importDatabase(configOf(folder.path, target.url), file);
    expect(await on(target, contentOf)).toEqual(await on(source, contentOf));
  });

  it('a database that has something in it is left as it is', async () => {
    const before = await on(source, contentOf);
    await expect(importDatabase(configOf(folder.path, source.url), file)).rejects.toThrow(
      /^The database is not empty \(rows of .*server_usage: 1234.*nothing was imported/,
    );
    expect(await on(source, contentOf)).toEqual(before);
  });

  it('an export that fails leaves the file of before, and nothing beside it', async () => {
    const kept = await readFile(file);
    await using unmigrated = await createDatabase();
    await expect(exportDatabase(configOf(folder.path, unmigrated.url), file)).rejects.toThrow(
      /^The database lacks 0000_init, .*: run switchboard migrate first\.$/,
    );
    const failing = on(source, db =>
      writeDump(db, file, { version: 'v', migration: 'm' }, () => Promise.reject(new Error('half-way'))),
    );
    await expect(failing).rejects.toThrow('half-way');
    expect(await readFile(file)).toEqual(kept);
    const nowhere = exportDatabase(configOf(folder.path, source.url), path.join(folder.path, 'no', 'x.gz'));
    await expect(nowhere).rejects.toThrow(/x\.gz cannot be written: ENOENT/);
    expect(readdirSync(folder.path).filter(name => name.includes('.new-'))).toEqual([]);
  });
});
