import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { sql } from 'drizzle-orm';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { ConfigError, readConfig } from '../../../src/config/index.ts';
import { generateApiKey } from '../../../src/core/access/key-text.ts';
import { apiKeys, tenants } from '../../../src/core/access/schema.ts';
import { embeddings } from '../../../src/core/search/schema.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { settings } from '../../../src/platform/database/settings.ts';
import {
  isDatabaseUnavailable,
  isUniqueViolation,
  rows,
  whyFailed,
  type Database,
  type OpenDatabase,
} from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import type { PostgresLimits } from '../../../src/platform/database/postgres-limits.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { startSwitchboard } from '../../../src/app.ts';
import { POSTGRES_PASSWORD, startPostgres } from '../../support/postgres-server.ts';
import { createDatabase, type TestDatabase } from '../../support/postgres.ts';
import { eventually } from '../../support/processes.ts';
import { recordingLog } from '../../core/search/support.ts';
import { scrape, sumOf } from '../../support/scrape.ts';
import { startTestSwitchboard } from '../../support/switchboard.ts';

const withoutPostgres = inject('postgresUrl') === undefined;

async function openOnPostgres(): Promise<OpenDatabase> {
  const database = await createDatabase();
  const opened = await openPostgres(database.url);
  return { ...opened, close: () => opened.close().then(() => database[Symbol.asyncDispose]()) };
}

/** What is encrypted in one database must have one key, whatever the data folder. */
const KEKS = { SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32).toString('base64')}` };

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

describe.each([
  { driver: 'PGlite', open: () => openTestDatabase(), skipped: false },
  { driver: 'Postgres', open: openOnPostgres, skipped: withoutPostgres },
])('$driver', ({ driver, open, skipped }) => {
  describe.skipIf(skipped)('a lock', () => {
    it('is held by one at a time, independently of other locks, and by the next once released', async () => {
      await using opened = new AsyncDisposableStack();
      const database = await open();
      opened.defer(() => database.close());
      const first = await database.hold(1);
      expect(first?.lost.aborted).toBe(false);
      expect(await database.hold(1)).toBeUndefined();
      await using other = await database.hold(2);
      expect(other).toBeDefined();
      await first?.[Symbol.asyncDispose]();
      await using second = await database.hold(1);
      expect(second).toBeDefined();
    });
  });

  describe.skipIf(skipped || driver === 'PGlite')('a lock on a server', () => {
    it('is lost with its connection, and its holder is notified', async () => {
      await using opened = new AsyncDisposableStack();
      const database = await open();
      opened.defer(() => database.close());
      await using hold = await database.hold(1);
      const lost = once(hold?.lost ?? new AbortController().signal, 'abort');
      await rows(
        database.db,
        sql`select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'
        and database = (select oid from pg_database where datname = current_database())`,
      );
      await lost;
      expect(isDatabaseUnavailable(hold?.lost.reason)).toBe(true);
      // It is told before the server has let go of its locks.
      await using next = await vi.waitFor(
        async () => (await database.hold(1)) ?? Promise.reject(new Error('still held')),
        { timeout: 30_000 },
      );
      expect(next.lost.aborted).toBe(false);
    });
  });

  describe.skipIf(skipped)('gives back what was written', () => {
    let database: OpenDatabase;
    let db: Database;
    beforeAll(async () => void ({ db } = database = await open()));
    afterAll(() => database.close());

    it('as jsonb, without a second encoding', async () => {
      const server = {
        id: 'a',
        name: 'A',
        description: 'Ä "quoted" \\ 🐘',
        remoteUrl: 'https://a.example/mcp',
        auth: { kind: 'none' } as const,
        categories: ['x', '{"y"}'],
        tools: [{ name: 't', description: 'd', input_schema: { type: 'object' } }],
        origin: 'operator' as const,
        active: true,
      };
      await db.insert(servers).values(server);
      expect((await db.select().from(servers))[0]).toMatchObject(server);
      expect(
        await rows(
          db,
          sql`select jsonb_typeof(auth) auth, jsonb_typeof(categories) categories, tools->0->>'name' tool from servers`,
        ),
      ).toEqual([{ auth: 'object', categories: 'array', tool: 't' }]);
    });

    it('as text[], bytea and timestamptz', async () => {
      const key = {
        id: 'key_a',
        tenantId: 'local',
        name: 'n',
        hash: Uint8Array.from({ length: 256 }, (_, at) => at),
        scopes: ['search', 'a,b', '"', '\\', 'NULL', ''] as never,
        expiresAt: new Date('2027-01-02T03:04:05.678Z'),
      };
      await db.insert(tenants).values({ id: 'local' });
      await db.insert(apiKeys).values(key);
      expect((await db.select().from(apiKeys))[0]).toMatchObject({ ...key, revokedAt: null });

      const vector = { embedder: 'e', textHash: new Uint8Array(32), vector: new Uint8Array(388).fill(200) };
      await db.insert(embeddings).values(vector);
      expect(await db.select().from(embeddings)).toEqual([vector]);
    });

    it('as raw rows of the same shape on every driver', async () => {
      const [row] = await rows(
        db,
        sql`select 1::int4 int4, 2::int8 int8, count(*) count, 9007199254740993::int8 huge, 1.5::float8 float8,
          1.50::numeric "numeric", true bool, null::text nothing, 't' "text", '\\x0102'::bytea bytea,
          array['a,b', '"', '']::text[] texts, '{"a":[1]}'::jsonb jsonb, '"s"'::jsonb string,
          '2026-01-02T03:04:05.678+02:00'::timestamptz "timestamptz", '2026-01-02'::date "date",
          '1 day 2 hours'::interval "interval"`,
      );
      expect(row).toEqual({
        int4: 1,
        int8: 2,
        count: 1,
        huge: 9007199254740993n,
        float8: 1.5,
        numeric: '1.50',
        bool: true,
        nothing: null,
        text: 't',
        bytea: new Uint8Array([1, 2]),
        texts: ['a,b', '"', ''],
        jsonb: { a: [1] },
        string: 's',
        timestamptz: '2026-01-02 01:04:05.678+00',
        date: '2026-01-02',
        interval: '1 day 02:00:00',
      });
      // A view into Node's shared pool could be neither transferred nor read as wider numbers.
      expect(row?.['bytea']).toMatchObject({ byteOffset: 0, buffer: { byteLength: 2 } });
    });

    it('from the same raw parameters on every driver', async () => {
      expect(
        await rows(
          db,
          sql`select ${new Date(0)}::timestamptz at, ${new Uint8Array([7])}::bytea bytes, ${5n}::int8 big,
            ${sql.param({ a: 1 })}::jsonb object, ${'{"a":1}'}::jsonb json, ${sql.param(['a', 'b"'])}::text[] texts`,
        ),
      ).toEqual([
        {
          at: '1970-01-01 00:00:00+00',
          bytes: new Uint8Array([7]),
          big: 5,
          object: { a: 1 },
          json: { a: 1 },
          texts: ['a', 'b"'],
        },
      ]);
    });
  });

  describe.skipIf(skipped)('rows', () => {
    it('gives a plain array, in a transaction too, and rolls back with it', async () => {
      const { db, close } = await open();
      const failed = db.transaction(async tx => {
        const inserted = await rows(tx, sql`insert into settings values ('a', 'b') returning key, value`);
        expect(inserted).toStrictEqual([{ key: 'a', value: 'b' }]);
        throw new Error('undone');
      });
      await expect(failed).rejects.toThrow('undone');
      expect(await rows(db, sql`select * from settings`)).toStrictEqual([]);
      await close();
    });
  });

  describe.skipIf(skipped)('isUniqueViolation', () => {
    it('knows a second row with one key from every other refusal', async () => {
      const { db, close } = await open();
      const insert = () => db.insert(settings).values({ key: 'k', value: 'v' });
      await insert();
      const twice = await failure(insert());
      expect(isUniqueViolation(twice)).toBe(true);
      expect(isDatabaseUnavailable(twice)).toBe(false);
      expect(
        isUniqueViolation(
          await failure(db.transaction(tx => tx.insert(settings).values({ key: 'k', value: 'w' }))),
        ),
      ).toBe(true);
      expect(isUniqueViolation(await failure(db.execute(sql`select 1/0`)))).toBe(false);
      await close();
    });
  });
});

describe.skipIf(withoutPostgres)('openPostgres', () => {
  let database: TestDatabase;
  beforeAll(async () => void (database = await createDatabase()));
  afterAll(() => database[Symbol.asyncDispose]());

  it('applies the migrations once when ten processes start at the same time', async () => {
    const opened = await Promise.all(Array.from({ length: 10 }, () => openPostgres(database.url)));
    const [first] = opened;
    const applied = await rows<{ hash: string }>(
      first?.db as Database,
      sql`select hash from drizzle.__drizzle_migrations`,
    );
    expect(applied.length).toBeGreaterThan(0);
    expect(new Set(applied.map(({ hash }) => hash)).size).toBe(applied.length);
    await Promise.all(opened.map(({ close }) => close()));
  });

  it('runs no more statements at a time than it may', async () => {
    const { db, close } = await openPostgres(database.url, { poolSize: 2 });
    const pids = await Promise.all(
      Array.from({ length: 12 }, () => rows(db, sql`select pg_backend_pid() pid, pg_sleep(0.01)`)),
    );
    expect(new Set(pids.map(([row]) => row?.['pid'])).size).toBe(2);
    await close();
  });

  it('keeps its own session settings: UTC, time-outs, its name', async () => {
    const settingsOf = async (limits: Partial<PostgresLimits>) => {
      const { db, close } = await openPostgres(database.url, limits);
      const found = await rows(
        db,
        sql`select current_setting('TimeZone') zone, current_setting('statement_timeout') statement,
          current_setting('idle_in_transaction_session_timeout') idle, current_setting('application_name') name`,
      );
      await close();
      return found;
    };
    expect(await settingsOf({})).toEqual([
      { zone: 'UTC', statement: '15s', idle: '1min', name: 'switchboard' },
    ]);
    expect(await settingsOf({ statementTimeoutMs: 700, idleInTransactionTimeoutMs: 0 })).toMatchObject([
      { statement: '700ms', idle: '0' },
    ]);
  });

  it('loses no connection to a transaction that the server ended because nothing happened in it', async () => {
    const { db, close } = await openPostgres(database.url, { poolSize: 1, idleInTransactionTimeoutMs: 50 });
    const idle = db.transaction(async tx => {
      const [row] = await rows<{ pid: number }>(tx, sql`select pg_backend_pid() pid`);
      const watcher = await openPostgres(database.url);
      const ended = () =>
        rows(watcher.db, sql`select 1 from pg_stat_activity where pid = ${row?.pid ?? 0}`).then(
          ({ length }) => length === 0,
        );
      while (!(await ended()));
      await watcher.close();
      await rows(tx, sql`select 1`);
    });
    expect(await failure(idle)).toBeInstanceOf(Error);
    expect(await rows(db, sql`select 1 one`)).toEqual([{ one: 1 }]);
    await close();
  });
});

const AWAY = 'database unreachable';
const DATABASE = { part: 'database' };
const NO_KEY = generateApiKey().key;

describe.skipIf(withoutPostgres)('an outage of Postgres', () => {
  it.each(['SIGINT', 'SIGKILL'] as const)(
    'makes calls fail as unavailable after %s, and work again once it is back',
    async signal => {
      await using server = await startPostgres({ fsync: false });
      await using database = await server.createDatabase();
      const { log, messages } = recordingLog('info');
      const { db, trouble, close } = await openPostgres(database.url, {}, log);
      const alive = () => rows(db, sql`select 1 one`);
      const begin = () => db.transaction(tx => rows(tx, sql`select 1 one`));
      await Promise.all(Array.from({ length: 10 }, alive));

      const underWay = Array.from({ length: 5 }, () => failure(rows(db, sql`select pg_sleep(60)`)));
      // Queries on one pool start in order, so the sleeping ones have connections by now.
      await alive();
      await server.stop(signal);
      expect((await Promise.all(underWay)).map(isDatabaseUnavailable)).toEqual(Array(5).fill(true));
      for (const call of [alive, begin, alive]) {
        const error = await failure(call());
        expect(error).toBeInstanceOf(Error);
        expect(isDatabaseUnavailable(error)).toBe(true);
        expect(whyFailed(error)).toEqual({ reason: 'database unavailable' });
      }
      expect([trouble?.(), messages()]).toEqual(['database unavailable', [AWAY]]);

      await server.start();
      expect(await begin()).toEqual([{ one: 1 }]);
      expect([trouble?.(), messages()]).toEqual([undefined, [AWAY, 'database connection recovered']]);
      expect(await Promise.all(Array.from({ length: 20 }, alive))).toEqual(
        Array.from({ length: 20 }, () => [{ one: 1 }]),
      );
      await close();
      expect(isDatabaseUnavailable(await failure(alive()))).toBe(true);
    },
  );

  it('is named by /readyz and the metrics, and logged with the code of what failed for it', async () => {
    await using server = await startPostgres({ fsync: false });
    await using database = await server.createDatabase();
    await using sb = await startTestSwitchboard({ env: KEKS, database: () => openPostgres(database.url) });
    const state = async () => {
      const { status, json } = await sb.get('/readyz');
      return {
        status,
        degraded: json.degraded,
        gauge: sumOf(await scrape(sb.url), 'switchboard_degraded', DATABASE),
      };
    };
    const withKey = () => sb.post('/v1/search', { query: 'weather' }, { 'x-api-key': NO_KEY });
    expect((await withKey()).status).toBe(401);
    expect(await state()).toEqual({ status: 200, degraded: [], gauge: 0 });
    await server.stop('SIGINT');
    const { status, headers } = await withKey();
    expect(status).toBe(503);
    expect(await state()).toEqual({ status: 200, degraded: ['database unavailable'], gauge: 1 });
    const id = headers.get('x-request-id') ?? 'none';
    const line = sb
      .logged()
      .split('\n')
      .find(one => one.includes(id) && one.includes('"msg":"request"'));
    expect(JSON.parse(line ?? '{}')).toMatchObject({ status: 503, code: 'unavailable' });
    await server.start();
    expect((await withKey()).status).toBe(401);
    expect(await state()).toEqual({ status: 200, degraded: [], gauge: 0 });
  });

  it('is not confused with another server that refuses a connection', async () => {
    const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    const failed = new TypeError('fetch failed', { cause: refused });
    expect(isDatabaseUnavailable(failed)).toBe(false);
    expect(whyFailed(failed)).toEqual({ err: failed });
  });
});

describe.skipIf(withoutPostgres)('Switchboard on Postgres', () => {
  it('loads its catalogue, searches, makes a key, and finds all of it again after a restart', async () => {
    await using database = await createDatabase();
    const start = () =>
      startTestSwitchboard({ catalogue, env: KEKS, database: () => openPostgres(database.url) });
    const catalogue = [
      {
        id: 'weather',
        description: 'Get the weather forecast for a city.',
        remote_url: 'https://w.example/mcp',
      },
      { id: 'ledger', description: 'Send invoices to customers.', remote_url: 'https://l.example/mcp' },
    ];
    const search = { query: 'weather forecast', limit: 1 };
    let key: string;
    {
      await using sb = await start();
      const made = await sb.admin.request('POST', '/keys', { name: 'test', scopes: ['search'] });
      ({ key } = made.json);
      const { status, json } = await sb.post('/v1/search', search, { 'x-api-key': key });
      expect(status).toBe(200);
      expect(json.servers[0]).toMatchObject({ id: 'weather' });
    }
    await using again = await start();
    expect((await again.post('/v1/search', search, { 'x-api-key': key })).status).toBe(200);
  });

  it.each([
    ['nothing listens', (url: URL) => (url.port = '1'), /^DATABASE_URL: cannot connect: .*ECONNREFUSED/],
    [
      'the password is wrong',
      (url: URL) => (url.password = 'wrong'),
      /cannot connect: password authentication/,
    ],
    [
      'a file it names is missing',
      (url: URL) => (url.search = '?sslmode=verify-full&sslrootcert=/none/ca.crt'),
      /cannot connect: ENOENT.*\/none\/ca\.crt/,
    ],
    ['there is no such database', (url: URL) => (url.pathname = '/none'), /cannot connect: database "none"/],
  ])('does not start when %s, and says so in one line without the password', async (_why, spoil, message) => {
    const url = new URL(`${inject('postgresUrl')}/postgres`);
    spoil(url);
    await using start = startOn(url.href);
    const error = await failure(start.running);
    expect(error).toBeInstanceOf(ConfigError);
    const text = (error as Error).message;
    expect(text).toMatch(message);
    expect(text).not.toMatch(new RegExp(`${POSTGRES_PASSWORD}|wrong|\\n`));
  });

  it('says so when a pooler lets it sign in and then does not answer', async () => {
    await using pooler = await startSilentPooler();
    await using start = startOn(pooler.url, { DATABASE_CONNECT_TIMEOUT_MS: '3000' });
    const error = await failure(start.running);
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toBe(
      'DATABASE_URL: cannot connect: signed in, but no answer within 3000 ms',
    );
  });

  it('stops at once while it waits for an answer', async () => {
    await using pooler = await startSilentPooler();
    await using start = startOn(pooler.url, { DATABASE_CONNECT_TIMEOUT_MS: '600000' });
    await pooler.asked;
    start.stop(new Error('stopped'));
    await expect(start.running).rejects.toThrow('stopped');
  });

  it('stops at once while another process migrates', async () => {
    await using database = await createDatabase();
    const migrating = new Client(database.url);
    await migrating.connect();
    await migrating.query('select pg_advisory_lock($1)', [0x5b_0a_4d]);
    await using start = startOn(database.url);
    await eventually('it waits', async () => {
      const { rowCount } =
        await migrating.query(`select from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = current_database())`);
      return rowCount === 1;
    });
    start.stop(new Error('stopped'));
    await expect(start.running).rejects.toThrow('stopped');
    // Only now: the start must not have waited for it.
    await migrating.end();
  });

  it('says that it was stopped when a query fails after that', async () => {
    await using database = await createDatabase();
    await (await openPostgres(database.url)).close();
    const changing = new Client(database.url);
    await changing.connect();
    await changing.query('begin; lock table servers');
    await using start = startOn(database.url, { DATABASE_STATEMENT_TIMEOUT_MS: '600000' });
    const waiting = `from pg_locks where relation = 'servers'::regclass and not granted`;
    await eventually('it waits', async () => (await changing.query(`select ${waiting}`)).rowCount === 1);
    start.stop(new Error('stopped'));
    await changing.query(`select pg_terminate_backend(pid) ${waiting}`);
    await expect(start.running).rejects.toThrow('stopped');
    await changing.end();
  });
});

/** Starts Switchboard on a database, with a data folder of its own. */
function startOn(url: string, env: Record<string, string> = {}) {
  const dataDir = mkdtempSync(path.join(tmpdir(), 'sb-'));
  const config = readConfig({
    PORT: '0',
    SWITCHBOARD_DATA_DIR: dataDir,
    DATABASE_URL: url,
    ...KEKS,
    LOG_LEVEL: 'silent',
    ...env,
  });
  const stopping = new AbortController();
  const running = startSwitchboard(config, { signal: stopping.signal });
  running.catch(() => {});
  return {
    running,
    stop: (reason: Error) => stopping.abort(reason),
    [Symbol.asyncDispose]: () => rm(dataDir, { recursive: true }),
  };
}

/** A server that speaks as much of Postgres's protocol as a pooler does which has no connection to Postgres. */
async function startSilentPooler() {
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  const signedIn = Buffer.from('R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I', 'latin1');
  const server = createServer(socket => {
    socket
      .on('error', () => {})
      .once('data', () => {
        socket.once('data', () => resolve()).write(signedIn);
      });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `postgres://someone@127.0.0.1:${(server.address() as AddressInfo).port}/any`,
    asked,
    [Symbol.asyncDispose]: async () => void server.close(),
  };
}
