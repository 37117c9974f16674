import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { CallOutcome, Verdict } from '../../../src/core/feedback-types.ts';
import { queryLog as queries, searchOutcomes as table } from '../../../src/core/search/schema.ts';
import { QueryLog } from '../../../src/core/search/query-log.ts';
import { SearchOutcomes } from '../../../src/core/search/feedback.ts';
import type { Database, OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { newId } from '../../../src/platform/ids.ts';
import { recordingLog, settableClock } from './support.ts';

const DAY_MS = 86_400_000;
let database: OpenDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());
afterEach(async () => {
  vi.useRealTimers();
  await database.db.delete(table);
  await database.db.delete(queries);
});

const stored = () => database.db.select().from(table);

function start(db: Database = database.db) {
  const { log, messages } = recordingLog();
  const clock = settableClock();
  const queryLog = new QueryLog({ db, clock, log });
  const told: unknown[] = [];
  const outcomes = new SearchOutcomes({
    db,
    clock,
    log,
    queryLog,
    onVerdicts: (serverId, tenantId, verdicts) => void told.push([serverId, tenantId, verdicts]),
  });
  return {
    queryLog,
    outcomes,
    clock,
    messages,
    told,
    /** A search of the tenant, whose answer had these servers. Its row is only buffered. */
    search(serverIds = ['a', 'b'], tenantId = 'local') {
      const id = newId('qry');
      const [latencyMs, cacheHit] = [1, false];
      queryLog.record({ id, tenantId, keyId: 'key', query: 'x', serverIds, latencyMs, cacheHit });
      return id;
    },
    call(queryLogId: string, outcome: CallOutcome, serverId = 'a', tool?: string, tenantId = 'local') {
      outcomes.recordCall({ queryLogId, tenantId, serverId, tool, outcome });
    },
    say: (queryLogId: string, outcome: Verdict, serverId = 'a', tool?: string, tenantId = 'local') =>
      outcomes.recordFeedback({ tenantId }, { queryLogId, serverId, tool, outcome }),
    async [Symbol.asyncDispose]() {
      await outcomes.close();
      await queryLog.close();
    },
  };
}

/** A database that takes nothing while `down`. */
function failing() {
  const state = { down: false };
  const db = new Proxy(database.db, {
    get(target, name, receiver) {
      if (state.down && (name === 'insert' || name === 'transaction' || name === 'select'))
        throw new Error('the database is down');
      return Reflect.get(target, name, receiver) as unknown;
    },
  });
  return { db, state };
}

describe('a call that names a search', () => {
  it('is recorded with it, by server and tool; the last one wins', async () => {
    await using at = start();
    const id = at.search();
    at.call(id, 'failure', 'a', 'send');
    at.call(id, 'success', 'a', 'send');
    at.call(id, 'listed', 'a');
    at.call(id, 'failure', 'b', 'read');
    await at.outcomes.flush();
    at.call(id, 'inconclusive', 'b', 'read');
    await at.outcomes.flush();
    const rows = (await stored()).map(
      ({ serverId, tool, source, outcome }) => `${serverId} ${tool} ${source} ${outcome}`,
    );
    expect(rows.sort()).toEqual(['a  call listed', 'a send call success', 'b read call inconclusive']);
    expect(at.told).toEqual([]);
  });

  it('is written a second later, without being told', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    await using at = start();
    at.call(at.search(), 'success');
    vi.advanceTimersByTime(1_000);
    await expect.poll(stored).toHaveLength(1);
  });

  it("is not noted with another tenant's search, even where both name it, nor for a server it had not", async () => {
    await using at = start();
    const id = at.search();
    at.call(id, 'success', 'a', 'send', 'local');
    at.call(id, 'failure', 'a', 'send', 'thief');
    at.call(id, 'success', 'elsewhere');
    await at.outcomes.flush();
    expect(await stored()).toMatchObject([{ tenantId: 'local', outcome: 'success' }]);
  });

  it('is not recorded for an invalid, unknown or expired id', async () => {
    await using at = start();
    const old = at.search();
    await at.queryLog.flush();
    at.clock.time += 30 * DAY_MS + 1;
    for (const id of ['', 'nonsense', 'qry_\0', newId('qry'), old]) at.call(id, 'success');
    await at.outcomes.flush();
    at.clock.time += 10_000;
    await at.outcomes.flush();
    at.search();
    await at.outcomes.flush();
    expect(await stored()).toEqual([]);
  });

  it('waits some seconds for a search that another process has yet to write', async () => {
    await using at = start();
    await using other = start();
    const id = other.search();
    at.call(id, 'success');
    await at.outcomes.flush();
    expect(await stored()).toEqual([]);
    await other.queryLog.flush();
    await at.outcomes.flush();
    expect(await stored()).toMatchObject([{ queryLogId: id, outcome: 'success' }]);
  });

  it('takes a tool name that Postgres cannot store, and 250 at once', async () => {
    await using at = start();
    const id = at.search();
    at.call(id, 'success', 'a', 'nul \0 and half \ud800');
    for (let tool = 0; tool < 250; tool++) at.call(id, 'success', 'a', `t${tool}`);
    await at.outcomes.flush();
    expect(await stored()).toHaveLength(251);
  });
});

describe('a verdict', () => {
  it('on a search whose row is still buffered, and on one that is stored', async () => {
    await using at = start();
    const id = at.search();
    await at.say(id, 'helpful');
    await at.outcomes.flush();
    await at.say(id, 'not_helpful', 'b', 'send');
    await at.say(id, 'irrelevant', 'b');
    await at.outcomes.flush();
    const rows = (await stored()).map(
      ({ serverId, tool, source, outcome }) => `${serverId} ${tool} ${source} ${outcome}`,
    );
    expect(rows.sort()).toEqual([
      'a  feedback helpful',
      'b  feedback irrelevant',
      'b send feedback not_helpful',
    ]);
    expect(at.told).toEqual([
      ['a', 'local', { helpful: 1, unhelpful: 0 }],
      ['b', 'local', { helpful: 0, unhelpful: 1 }],
    ]);
  });

  it('that comes again does not count again, and another one takes its place', async () => {
    await using at = start();
    const id = at.search();
    for (const outcome of ['helpful', 'helpful', 'not_helpful', 'irrelevant', 'helpful'] as const) {
      await at.say(id, outcome);
      await at.say(id, outcome);
      await at.outcomes.flush();
    }
    expect(await stored()).toHaveLength(1);
    expect(at.told).toEqual([
      ['a', 'local', { helpful: 1, unhelpful: 0 }],
      ['a', 'local', { helpful: -1, unhelpful: 1 }],
      ['a', 'local', { helpful: 0, unhelpful: -1 }],
      ['a', 'local', { helpful: 1, unhelpful: 0 }],
    ]);
  });

  it('is refused for an invalid, unknown, foreign or expired id', async () => {
    await using at = start();
    const mine = at.search();
    const buffered = at.say(mine, 'helpful', 'a', undefined, 'thief');
    await expect(buffered).rejects.toMatchObject({ code: 'query_not_found' });
    await at.queryLog.flush();
    for (const refused of [
      at.say('nonsense', 'helpful'),
      at.say('qry_\0', 'helpful'),
      at.say(newId('qry'), 'helpful'),
      at.say(mine, 'helpful', 'a', undefined, 'thief'),
    ])
      await expect(refused).rejects.toMatchObject({
        code: 'query_not_found',
        detail: expect.stringMatching(
          /^None of your searches in the last 30 days has this query_log_id\. Send /,
        ),
      });
    at.clock.time += 30 * DAY_MS;
    await at.say(mine, 'helpful');
    at.clock.time += 1;
    await expect(at.say(mine, 'helpful')).rejects.toMatchObject({ code: 'query_not_found' });
  });

  it('is refused for a server that the search did not return, and lists those it did', async () => {
    await using at = start();
    await expect(at.say(at.search(), 'helpful', 'c')).rejects.toMatchObject({
      code: 'invalid_request',
      detail: 'server_id: that search did not return this server. It returned: a, b.',
    });
    await expect(at.say(at.search([]), 'helpful', 'c')).rejects.toMatchObject({
      detail: 'server_id: that search did not return this server or any other.',
    });
  });
});

describe('a failing database', () => {
  it('loses no outcome: the last of each is written once it is back', async () => {
    const { db, state } = failing();
    await using at = start(db);
    const id = at.search();
    await at.say(id, 'helpful');
    at.call(id, 'failure');
    state.down = true;
    await at.outcomes.flush();
    expect(at.messages()).toContain('search outcomes not written: will try again');
    at.call(id, 'success');
    await at.outcomes.flush();
    state.down = false;
    await at.outcomes.flush();
    const rows = (await stored()).map(({ source, outcome }) => `${source} ${outcome}`);
    expect(rows.sort()).toEqual(['call success', 'feedback helpful']);
    expect(at.told).toEqual([['a', 'local', { helpful: 1, unhelpful: 0 }]]);
  });

  it('costs no memory without bound: of over 10,000 the oldest are dropped, with one warning', async () => {
    const { db, state } = failing();
    await using at = start(db);
    const id = at.search();
    await at.queryLog.flush();
    state.down = true;
    for (let tool = 0; tool < 10_050; tool++) at.call(id, 'success', 'a', `t${tool}`);
    await at.outcomes.flush();
    at.call(id, 'success', 'a', 'last');
    expect(at.messages().filter(text => text?.startsWith('search outcomes full'))).toHaveLength(1);
    state.down = false;
    await at.outcomes.flush();
    const tools = new Set((await stored()).map(({ tool }) => tool));
    expect(tools.size).toBe(10_000);
    expect([tools.has('last'), tools.has('t50'), tools.has('t51')]).toEqual([true, false, true]);
  });
});

describe('SearchOutcomes.purge', () => {
  it('deletes what is older than 30 days, and nothing else', async () => {
    await using at = start();
    const id = at.search();
    for (let tool = 0; tool < 1_100; tool++) at.call(id, 'success', 'a', `t${tool}`);
    await at.outcomes.flush();
    at.clock.time += 29 * DAY_MS;
    at.call(id, 'success', 'b');
    await at.outcomes.flush();
    at.clock.time += 2 * DAY_MS;
    expect(await at.outcomes.purge()).toBe(1_100);
    expect(await stored()).toMatchObject([{ serverId: 'b' }]);
  });
});

it("a tool's name that no index takes is refused in a verdict, not noted of a call, and in nobody's way", async () => {
  await using one = start();
  const id = one.search();
  const endless = Array.from({ length: 500 }, (_, at) => String.fromCodePoint(0x4e00 + at * 37)).join('');
  await expect(one.say(id, 'helpful', 'a', endless)).rejects.toThrow('tool: must have at most 512 bytes');
  one.call(id, 'success', 'a', endless);
  one.call(id, 'success', 'a', 'x'.repeat(512));
  one.call(id, 'success', 'b', 'fine');
  await one.outcomes.flush();
  expect((await stored()).map(({ tool }) => tool.length).toSorted((a, b) => a - b)).toEqual([4, 512]);
});
