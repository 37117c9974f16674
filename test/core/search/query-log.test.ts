import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { queryLog as table } from '../../../src/core/search/schema.ts';
import { QueryLog } from '../../../src/core/search/query-log.ts';
import type { Database, OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { recordingLog, settableClock } from './support.ts';

const DAY_MS = 86_400_000;
let database: OpenDatabase;
beforeAll(async () => {
  database = await openTestDatabase();
});
afterAll(() => database.close());
beforeEach(async () => {
  await database.db.delete(table);
});

const row = (id: number | string) => ({
  id: `qry_${id}`,
  tenantId: 'local',
  keyId: 'key',
  query: 'weather',
  serverIds: ['a', 'b'],
  latencyMs: 3,
  cacheHit: false,
});
const stored = () => database.db.select().from(table);

function start(db: Database = database.db) {
  const { log, messages } = recordingLog();
  const clock = settableClock();
  return { queryLog: new QueryLog({ db, clock, log }), clock, messages };
}

/** A database whose inserts fail while `down`. */
function failing() {
  const state = { down: true };
  const db = new Proxy(database.db, {
    get(target, name, receiver) {
      if (name === 'insert' && state.down) throw new Error('the database is down');
      return Reflect.get(target, name, receiver) as unknown;
    },
  });
  return { db, state };
}

describe('QueryLog', () => {
  it('writes every row by close, with the time of the search', async () => {
    const { queryLog, clock } = start();
    queryLog.record(row(1));
    await queryLog.close();
    expect(await stored()).toEqual([{ ...row(1), createdAt: new Date(clock.time) }]);
  });

  it('writes without being told once 100 rows are there', async () => {
    const { queryLog } = start();
    for (let at = 0; at < 100; at++) queryLog.record(row(at));
    // The write under way is the one flush waits for.
    await queryLog.flush();
    expect(await stored()).toHaveLength(100);
    await queryLog.close();
  });

  it('keeps rows while the database is down and writes them, each once, when it is back', async () => {
    const { db, state } = failing();
    const { queryLog, messages } = start(db);
    for (let at = 0; at < 250; at++) queryLog.record(row(at));
    await queryLog.flush();
    expect(await stored()).toHaveLength(0);
    expect(messages()).toContain('query log not written: will try again');
    state.down = false;
    await queryLog.close();
    expect(await stored()).toHaveLength(250);
  });

  it('drops the oldest rows beyond 10,000, with one warning', async () => {
    const { db, state } = failing();
    const { queryLog, messages } = start(db);
    for (let at = 0; at < 10_050; at++) queryLog.record(row(at));
    await queryLog.flush();
    expect(messages().filter(message => message?.startsWith('query log full'))).toHaveLength(1);
    state.down = false;
    await queryLog.close();
    const [oldest] = await database.db
      .select({ id: table.id })
      .from(table)
      .where(sql`id = 'qry_49'`);
    expect(oldest).toBeUndefined();
    expect(await stored()).toHaveLength(10_000);
  });
});

describe('QueryLog.record', () => {
  it('a query that Postgres cannot store does not block others', async () => {
    const { queryLog } = start();
    queryLog.record({ ...row(1), query: 'nul \0 and half \ud800' });
    queryLog.record(row(2));
    await queryLog.close();
    expect((await stored()).map(({ query }) => query).sort()).toEqual([
      'nul \ufffd and half \ufffd',
      'weather',
    ]);
  });
});

describe('QueryLog.purge', () => {
  it('deletes what is older than the days given, in batches, and nothing else', async () => {
    const { queryLog, clock } = start();
    const now = clock.time;
    clock.time = now - 31 * DAY_MS;
    for (let at = 0; at < 1_200; at++) queryLog.record(row(`old${at}`));
    await queryLog.flush();
    clock.time = now - 29 * DAY_MS;
    queryLog.record(row('young'));
    await queryLog.close();
    clock.time = now;
    expect(await queryLog.purge()).toBe(1_200);
    expect((await stored()).map(({ id }) => id)).toEqual(['qry_young']);
    expect(await queryLog.purge(7)).toBe(1);
  });
});
