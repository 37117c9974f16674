import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry, ServerHead } from '../../../src/core/catalogue/entry.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { HealthStore } from '../../../src/core/health/store.ts';
import { HealthSweep, type StatusChange } from '../../../src/core/health/sweep.ts';
import { createProxy, type McpProxy } from '../../../src/core/proxy/proxy.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { settings } from '../../../src/platform/database/settings.ts';
import { SwitchboardError } from '../../../src/errors.ts';
import { LOCKS } from '../../../src/core/locks.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { startChangeable, type Changeable } from '../../support/upstreams/changeable.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

let database: OpenDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());

let nowMs: number;
let stack: AsyncDisposableStack;
let up: Changeable;
let other: Changeable;
let catalogue: Catalogue;
let proxy: McpProxy;
let store: HealthStore;
let sweep: HealthSweep;
let onStatusChange: (change: StatusChange) => Promise<void>;
let onRefused: (server: ServerHead, refusal: { readonly status: number }) => Promise<unknown>;
beforeEach(async () => {
  nowMs = Date.UTC(2026, 10, 1);
  onStatusChange = () => Promise.resolve();
  onRefused = () => Promise.resolve();
  stack = new AsyncDisposableStack();
  up = stack.use(await startChangeable());
  other = stack.use(await startChangeable());
  await database.db.delete(servers);
  await database.db.delete(settings);
  catalogue = await Catalogue.load(database.db);
  store = await HealthStore.load(database.db);
  catalogue.onReinstated(ids => store.forgetFailures(ids));
  const never = () => {
    throw new Error('an inspection needs no credential');
  };
  proxy = createProxy({
    catalogue,
    credentials: { forCall: never, renewAfterRefusal: never },
    sealing: { seal: never, open: never },
    guard: new Guard({ allowPrivateNetwork: true, connectTimeoutMs: 5_000 }),
    log: createLog('silent'),
  });
  start();
});
afterEach(async () => {
  await sweep.close();
  await proxy.close();
  await stack.disposeAsync();
});

function start({ everyMs = DAY, inspect = proxy.inspect } = {}) {
  const { db, hold } = database;
  sweep = new HealthSweep({
    catalogue,
    store,
    db,
    hold,
    log: createLog('silent'),
    clock: { now: () => nowMs },
    metrics: new Metrics(),
    inspect,
    pauseMs: 0,
    everyMs,
    onStatusChange: (_tx, change) => onStatusChange(change),
    onRefused: (server, refusal) => onRefused(server, refusal),
  });
}
const entry = (id: string, remote_url: string): Entry => ({ id, name: id, description: id, remote_url });
/** As many entries of the server, at addresses of their own. */
const many = (letter: string, { url }: Changeable, count: number) =>
  Array.from({ length: count }, (_, at) => entry(`${letter}${at}`, `${url}?${letter}${at}`));
/** As many servers, of hosts of their own. */
const hosts = (count: number) =>
  Promise.all(Array.from({ length: count }, async () => stack.use(await startChangeable())));
const each = (letter: string, ups: readonly Changeable[]) =>
  ups.map(({ url }, at) => entry(`${letter}${at}`, url));
const turn = (ups: readonly Changeable[], conduct: Changeable['conduct']) =>
  ups.forEach(one => (one.conduct = conduct));
const put = (...entries: readonly Entry[]) => catalogue.put(entries, { origin: 'operator' });
const healthOf = (id: string) => store.of(catalogue.get(id)!);
const sweepDaily = async (days: number) => {
  for (let day = 0; day < days; day++) {
    nowMs += DAY;
    await sweep.sweep();
  }
};
/** Begins a sweep that goes on until `other`, which says nothing, is paused; resolves when so many servers have been visited. */
async function under(way: number) {
  other.conduct = 'silent';
  const reached = Promise.withResolvers<void>();
  const round = sweep.sweep({ onProgress: ({ done }) => done === way && reached.resolve() });
  round.catch(() => {});
  await Promise.all([reached.promise, other.inbox.firstOf('server/discover')]);
  return { round };
}

describe('a refusal', () => {
  it('is examined while nobody knows how its server can be called, and cannot fail the sweep', async () => {
    const refused: string[] = [];
    onRefused = ({ id, remoteUrl }, { status }) => {
      refused.push(`${id} ${status}`);
      return id === 'a'
        ? catalogue.learnAccess(id, remoteUrl, { kind: 'oauth' })
        : Promise.reject(new Error('down'));
    };
    turn([up, other], 401);
    await put(
      entry('a', up.url),
      entry('b', other.url),
      { ...entry('c', `${other.url}?c`), auth: { kind: 'static_header' } },
      { ...entry('d', `${other.url}?d`), auth: { kind: 'none' } },
    );
    expect(await sweep.sweep()).toMatchObject({ visited: 4, needs_sign_in: 4 });
    expect(refused.toSorted()).toEqual(['a 401', 'b 401']);
    expect(await sweep.sweep()).toMatchObject({ visited: 4, needs_sign_in: 4 });
    expect(refused.slice(2)).toEqual(['b 401']);
    turn([other], 403);
    await sweep.sweep({ ids: ['b'] });
    expect(refused).toHaveLength(3);
  });
});

describe('a scheduled sweep', () => {
  it('checks the servers that were not checked lately, once per interval', async () => {
    await put(entry('a', up.url), entry('b', other.url));
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 2 });
    expect(await sweep.sweepIfDue()).toBeUndefined();
    nowMs += DAY - HOUR;
    await sweep.sweep({ ids: ['a'] });
    expect(await sweep.sweepIfDue()).toBeUndefined();
    nowMs += HOUR;
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 1 });
    expect(healthOf('b')?.checkedAtMs).toBe(nowMs);
  });

  it('goes on after a restart where the last one was', async () => {
    await put(entry('a', up.url));
    await sweep.sweepIfDue();
    start();
    nowMs += DAY - HOUR;
    expect(await sweep.sweepIfDue()).toBeUndefined();
    nowMs += HOUR;
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 1 });
  });

  it('is left to the process that is at one', async () => {
    await put(entry('a', up.url));
    const elsewhere = await database.hold(LOCKS.probing);
    expect(await sweep.sweepIfDue()).toBeUndefined();
    await elsewhere?.[Symbol.asyncDispose]();
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 1 });
  });

  it('takes place although the clock was ahead at the last one', async () => {
    await put(entry('a', up.url));
    nowMs += 1_000 * DAY;
    await sweep.sweepIfDue();
    nowMs -= 999 * DAY;
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 1 });
  });

  it('in which most hosts fail is thrown away, and repeated an hour later with those that failed', async () => {
    const bad = await hosts(11);
    await put(...many('a', up, 3), ...each('b', bad));
    await sweep.sweepIfDue();
    turn(bad, 404);
    nowMs += DAY;
    expect(await sweep.sweepIfDue()).toMatchObject({
      visited: 14,
      doubted: expect.stringMatching(/network/),
    });
    expect(healthOf('b0')).toMatchObject({ state: 'ok', failures: 0 });
    expect(sweep.degraded).toMatch(/network/);
    nowMs += HOUR - 1;
    expect(await sweep.sweepIfDue()).toBeUndefined();
    turn(bad, 'mcp');
    nowMs += 1;
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 11, ok: 11 });
    expect(sweep.degraded).toBeUndefined();
  });

  it('is not thrown away for the failures that a sweep cut short has left to it', async () => {
    const alive = await hosts(6);
    const failing = await hosts(10);
    turn(failing, 404);
    await put(...each('a', alive), ...each('b', failing));
    await sweep.sweep({ ids: alive.map((_up, at) => `a${at}`) });
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 10 });
    expect(sweep.degraded).toBeUndefined();
    expect(healthOf('b0')?.failures).toBe(1);
  });

  it('is not thrown away for ever where most servers of a small catalogue never worked', async () => {
    const bad = await hosts(9);
    turn(bad, 404);
    await put(entry('a', up.url), ...each('b', bad));
    expect(await sweep.sweepIfDue()).toMatchObject({ ok: 1, not_mcp: 9, doubted: expect.anything() });
    nowMs += HOUR;
    const report = await sweep.sweepIfDue();
    expect(report).toMatchObject({ visited: 9, not_mcp: 9 });
    expect(report).not.toHaveProperty('doubted');
  });

  it('is repeated an hour after one that failed', async () => {
    await put(entry('a', up.url));
    let fails = true;
    start({ inspect: (...args) => (fails ? Promise.reject(new Error('a bug')) : proxy.inspect(...args)) });
    expect(await sweep.sweepIfDue()).toBeUndefined();
    fails = false;
    nowMs += HOUR - 1;
    expect(await sweep.sweepIfDue()).toBeUndefined();
    nowMs += 1;
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 1 });
  });

  it('begins nothing once it is closed', async () => {
    await put(entry('a', up.url));
    await sweep.close();
    expect(await sweep.sweepIfDue()).toBeUndefined();
    expect(up.inbox.all).toEqual([]);
  });
});

describe('the pace of a sweep', () => {
  const at = (host: string, id: number) => entry(`${host}${id}`, `https://${host}.example/${id}`);
  const turnOfLoop = () => new Promise(resolve => setImmediate(resolve));
  const timedOut = new SwitchboardError('upstream_timeout', 'No answer in time.');
  const answer = { latencyMs: 1, tools: [], hasEntered: true };

  it('checks every server once, four hosts at a time and one server of a host, and goes round the hosts', async () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const entries = names.flatMap((host, more) => Array.from({ length: more + 1 }, (_, id) => at(host, id)));
    await put(...entries);
    const busy: string[] = [];
    const done: string[] = [];
    let most = 0;
    const inspect: McpProxy['inspect'] = async ({ id, remoteUrl }) => {
      const { host } = new URL(remoteUrl);
      expect(busy).not.toContain(host);
      busy.push(host);
      most = Math.max(most, busy.length);
      await turnOfLoop();
      busy.splice(busy.indexOf(host), 1);
      done.push(id);
      return answer;
    };
    start({ inspect });
    await sweep.sweep();
    expect(done.toSorted()).toEqual(entries.map(({ id }) => id).toSorted());
    expect(most).toBe(4);
    expect(done.slice(0, 6).toSorted()).toEqual(['a0', 'b0', 'c0', 'd0', 'e0', 'f0']);
  });

  it('leaves the rest of a host to the next sweep after three time-outs in a row, and begins with it then', async () => {
    await put(...[0, 1, 2, 3, 4].map(id => at('bad', id)), at('good', 0));
    const asked: string[] = [];
    const inspect: McpProxy['inspect'] = ({ id }) => {
      asked.push(id);
      const isBad = id.startsWith('bad');
      return Promise.resolve(isBad ? { latencyMs: 1, error: timedOut, hasEntered: false } : answer);
    };
    start({ inspect });
    await sweep.sweep();
    expect(asked.toSorted()).toEqual(['bad0', 'bad1', 'bad2', 'good0']);
    asked.length = 0;
    nowMs += DAY;
    await sweep.sweep();
    expect(asked.filter(id => id.startsWith('bad'))).toEqual(['bad3', 'bad4', 'bad0']);
    asked.length = 0;
    await sweep.sweep({ ids: ['bad0', 'bad1', 'bad2', 'bad3', 'bad4'] });
    expect(asked).toHaveLength(5);
  });
});

describe('a sweep that is aborted', () => {
  it('records only what it found alive, and the next one checks the rest', async () => {
    await using broken = await startChangeable('html');
    await put(entry('up', up.url), entry('broken', broken.url), entry('slow', other.url));
    const { round } = await under(2);
    await sweep.close();
    await expect(round).rejects.toThrow('stopping');
    expect(healthOf('up')).toMatchObject({ state: 'ok' });
    expect([healthOf('broken'), healthOf('slow')]).toEqual([undefined, undefined]);
    const again = await HealthStore.load(database.db);
    expect(again.of(catalogue.get('up')!)).toMatchObject({ state: 'ok' });
    other.conduct = 'mcp';
    start();
    expect(await sweep.sweepIfDue()).toMatchObject({ visited: 2, ok: 1, not_mcp: 1 });
  });

  it('drops the tools it found, and does not wait for a write of the catalogue', async () => {
    up.tools = [{ name: 'x', description: 'X.', inputSchema: { type: 'object' } }];
    await put(entry('a', up.url), entry('b', `${up.url}?b`), entry('slow', other.url));
    const reached = Promise.withResolvers<void>();
    const writing = catalogue.reindex(() => reached.promise.then(() => () => Promise.resolve()));
    const { round } = await under(2);
    await sweep.close();
    await expect(round).rejects.toThrow('stopping');
    reached.resolve();
    await writing;
    await catalogue.settled();
    expect(catalogue.get('a')?.toolCount).toBe(0);
  });
});

it('an import of a deactivated server forgets its failures, at once and only if it is stored', async () => {
  const entries = [entry('a', up.url)];
  await put(...entries);
  up.conduct = 'html';
  await sweepDaily(33);
  const dead = healthOf('a');
  expect(dead).toMatchObject({ failures: 33 });
  const inSameTransaction = () => Promise.reject(new Error('no audit'));
  await expect(catalogue.put(entries, { origin: 'operator', inSameTransaction })).rejects.toThrow('no audit');
  expect(healthOf('a')).toEqual(dead);
  const { epoch } = store;
  await put(...entries);
  expect(healthOf('a')).toMatchObject({ state: 'not_mcp', failures: 0 });
  expect(healthOf('a')).not.toHaveProperty('deadSinceMs');
  expect(store.epoch).not.toBe(epoch);
});

describe('an import during a sweep', () => {
  /** A server that is inactive, visited again, and imported before the sweep ends. */
  async function imported(by: Pick<Catalogue, 'put'>, remoteUrl?: string) {
    await using dead = await startChangeable('html');
    await put(entry('dead', dead.url));
    await sweepDaily(33);
    expect(catalogue.get('dead')).toMatchObject({ active: false, unreachable: true });
    await put(entry('slow', other.url));
    const { round } = await under(1);
    await by.put([entry('dead', remoteUrl ?? dead.url)], { origin: 'operator' });
    await other.pause();
    await round;
  }

  it('is not undone by a failure found before it', async () => {
    await imported(catalogue);
    expect(catalogue.get('dead')).toMatchObject({ active: true });
    expect(healthOf('dead')).toMatchObject({ failures: 0 });
    expect((await HealthStore.load(database.db)).of(catalogue.get('dead')!)).toMatchObject({ failures: 0 });
  });

  it('by another process makes the failure the first one', async () => {
    const by: Pick<Catalogue, 'put'> = {
      put: async (entries, options) => (await Catalogue.load(database.db)).put(entries, options),
    };
    await imported(by);
    const stored = await HealthStore.load(database.db);
    expect(stored.of(catalogue.get('dead')!)).toMatchObject({ failures: 1 });
    expect(stored.of(catalogue.get('dead')!)).not.toHaveProperty('deadSinceMs');
    expect((await Catalogue.load(database.db)).get('dead')).toMatchObject({ active: true });
  });

  it('with another address forgets the health of the old one', async () => {
    await imported(catalogue, up.url);
    expect(catalogue.get('dead')).toMatchObject({ active: true, remoteUrl: up.url });
    expect(healthOf('dead')).toBeUndefined();
  });
});

it('an outdated failure is not stored over something newer', async () => {
  await put(entry('a', up.url));
  const at = (failures: number) => ({
    serverId: 'a',
    remoteUrl: up.url,
    health: { state: 'not_mcp' as const, checkedAtMs: nowMs, failures },
  });
  for (const failures of [1, 2, 3]) expect(await store.save([at(failures)])).toHaveLength(1);
  expect(await store.save([at(3)])).toEqual([]);
  expect(await store.save([at(0)])).toHaveLength(1);
  expect(await store.save([at(4)])).toEqual([]);
  expect(healthOf('a')).toMatchObject({ failures: 0 });
  expect(await store.save([{ ...at(1), remoteUrl: other.url }])).toHaveLength(1);
});

it('a write that fails does not end a sweep', async () => {
  await put(entry('a', up.url), entry('b', other.url));
  other.conduct = 'html';
  await sweepDaily(33);
  other.conduct = 'mcp';
  onStatusChange = () => Promise.reject(new Error('no database'));
  nowMs += DAY;
  expect(await sweep.sweep()).toMatchObject({ ok: 2, reactivated: 0 });
  expect(healthOf('b')).toMatchObject({ state: 'ok' });
  expect(catalogue.get('b')).toMatchObject({ active: false, unreachable: true });
  onStatusChange = () => Promise.resolve();
  expect(await sweep.sweep()).toMatchObject({ ok: 2, reactivated: 1 });
});

it('the epoch changes when a server becomes dead or stops being dead, and only then', async () => {
  await put(entry('a', up.url));
  up.conduct = 'html';
  await sweepDaily(2);
  const before = store.epoch;
  const elsewhere = await HealthStore.load(database.db);
  const theirs = elsewhere.epoch;
  await sweepDaily(1);
  expect(store.epoch).not.toBe(before);
  await elsewhere.catchUp();
  expect(elsewhere.epoch).not.toBe(theirs);
  const dead = store.epoch;
  await sweepDaily(2);
  expect(store.epoch).toBe(dead);
  up.conduct = 'mcp';
  await sweepDaily(1);
  expect(store.epoch).not.toBe(dead);
});
