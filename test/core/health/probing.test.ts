import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Catalogue } from '../../../src/core/catalogue/catalogue.ts';
import type { Entry } from '../../../src/core/catalogue/entry.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { beginningAnew } from '../../../src/core/health/beginning-anew.ts';
import { HealthBoard } from '../../../src/core/health/health-board.ts';
import { Probing } from '../../../src/core/health/probing.ts';
import type { Turned } from '../../../src/core/health/rounds.ts';
import { servers } from '../../../src/core/catalogue/schema.ts';
import { settings } from '../../../src/platform/database/schema.ts';
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
let board: HealthBoard;
let probing: Probing;
let onTurned: (turned: Turned) => Promise<void>;
beforeEach(async () => {
  nowMs = Date.UTC(2026, 10, 1);
  onTurned = () => Promise.resolve();
  stack = new AsyncDisposableStack();
  up = stack.use(await startChangeable());
  other = stack.use(await startChangeable());
  await database.db.delete(servers);
  await database.db.delete(settings);
  catalogue = await Catalogue.load(database.db);
  board = await HealthBoard.load(database.db);
  const unindexed = () => Promise.resolve(() => Promise.resolve());
  await catalogue.attachIndex(beginningAnew(board, catalogue, unindexed));
  start();
});
afterEach(async () => {
  await probing.close();
  await stack.disposeAsync();
});

function start() {
  const { db, hold } = database;
  probing = new Probing({
    catalogue,
    board,
    db,
    hold,
    log: createLog('silent'),
    clock: { now: () => nowMs },
    metrics: new Metrics(),
    guard: new Guard({ allowPrivateNetwork: true, connectTimeoutMs: 5_000 }),
    pauseMs: 0,
    onTurned: (_tx, turned) => onTurned(turned),
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
const healthOf = (id: string) => board.of(catalogue.get(id)!);
const scheduled = (everyMs = DAY) => probing.probeUnlessProbed(nowMs - everyMs / 2, everyMs);
const probeDaily = async (days: number) => {
  for (let day = 0; day < days; day++) {
    nowMs += DAY;
    await probing.probe();
  }
};
/** Begins a round that goes on until `other`, which says nothing, is paused; resolves when so many servers have been visited. */
async function under(way: number) {
  other.conduct = 'silent';
  const reached = Promise.withResolvers<void>();
  const round = probing.probe({ onProgress: ({ done }) => done === way && reached.resolve() });
  round.catch(() => {});
  await Promise.all([reached.promise, other.inbox.firstOf('server/discover')]);
  return { round };
}

describe('a round by schedule', () => {
  it('is of those that were not visited lately, and one at a time', async () => {
    await put(entry('a', up.url), entry('b', other.url));
    expect(await scheduled()).toMatchObject({ visited: 2 });
    expect(await scheduled()).toBeUndefined();
    nowMs += DAY - HOUR;
    await probing.probe({ ids: ['a'] });
    nowMs += HOUR;
    expect(await scheduled()).toMatchObject({ visited: 1 });
    expect(healthOf('b')?.checkedAtMs).toBe(nowMs);
  });

  it('is of those inactive for want of an answer once a day, however often the others are visited', async () => {
    await put(entry('a', up.url), entry('b', other.url));
    other.conduct = 'html';
    await probeDaily(33);
    expect(catalogue.get('b')).toMatchObject({ active: false, unanswered: true });
    const visited: unknown[] = [];
    for (let hours = 6; hours <= 48; hours += 6) {
      nowMs += 6 * HOUR;
      visited.push((await scheduled(6 * HOUR))?.visited);
    }
    expect(visited).toEqual([1, 1, 1, 2, 1, 1, 1, 2]);
  });

  it('of the rest, which mostly fails, is no fault of our own network where the others are alive', async () => {
    const [good, bad] = [await hosts(11), await hosts(10)];
    await put(...each('a', good), ...each('b', bad));
    await scheduled();
    turn(bad, 404);
    nowMs += DAY;
    await probing.probe({ ids: each('a', good).map(({ id }) => id) });
    const report = await scheduled();
    expect(report).toMatchObject({ visited: 10, not_mcp: 10 });
    expect(report).not.toHaveProperty('doubted');
    expect(healthOf('b3')).toMatchObject({ failures: 1 });
  });

  it('is not in doubt for ever where most servers of a small catalogue never worked', async () => {
    const bad = await hosts(9);
    turn(bad, 404);
    await put(entry('a', up.url), ...each('b', bad));
    expect(await scheduled()).toMatchObject({ ok: 1, not_mcp: 9, doubted: expect.anything() });
    nowMs += HOUR;
    const report = await scheduled();
    expect(report).toMatchObject({ visited: 9, not_mcp: 9 });
    expect(report).not.toHaveProperty('doubted');
  });

  it('in doubt is repeated with those whose failures were not noted', async () => {
    const bad = await hosts(11);
    await put(...many('a', up, 3), ...each('b', bad));
    await scheduled();
    turn(bad, 404);
    nowMs += DAY;
    expect(await scheduled()).toMatchObject({ visited: 14, doubted: expect.stringMatching(/own network/) });
    expect(await probing.probedAtMs()).toBe(nowMs - DAY);
    turn(bad, 'mcp');
    nowMs += HOUR;
    expect(await scheduled()).toMatchObject({ visited: 11, ok: 11 });
    expect(await probing.probedAtMs()).toBe(nowMs);
  });

  it('in doubt for three rounds and a day is believed, whatever was restarted', async () => {
    const bad = await hosts(10);
    await put(...each('b', bad));
    await scheduled();
    turn(bad, 404);
    for (let round = 0; round < 3; round++) {
      nowMs += DAY;
      expect(await scheduled()).toMatchObject({ doubted: expect.anything() });
      await probing.close();
      start();
    }
    expect(healthOf('b0')).toMatchObject({ state: 'ok', failures: 0 });
    nowMs += DAY;
    expect(await scheduled()).not.toHaveProperty('doubted');
    expect(healthOf('b0')).toMatchObject({ state: 'not_mcp', failures: 1 });
    expect(probing.degraded).toBeUndefined();
  });

  it('in doubt since a time that is still to come is no more in doubt than one that begins', async () => {
    const bad = await hosts(10);
    await put(...each('b', bad));
    await scheduled();
    turn(bad, 404);
    nowMs += 1_000 * DAY;
    expect(await scheduled()).toMatchObject({ doubted: expect.anything() });
    nowMs -= 1_000 * DAY;
    for (let round = 0; round < 3; round++) {
      nowMs += DAY;
      expect(await scheduled()).toMatchObject({ doubted: expect.anything() });
    }
    nowMs += DAY;
    expect(await scheduled()).not.toHaveProperty('doubted');
  });

  it('takes many servers of one host for one', async () => {
    await put(...many('a', up, 3), ...many('b', other, 20));
    await scheduled();
    other.conduct = 404;
    nowMs += DAY;
    expect(await scheduled()).not.toHaveProperty('doubted');
    expect(healthOf('b0')).toMatchObject({ failures: 1 });
  });

  it('takes place although the clock was ahead at the last one', async () => {
    await put(entry('a', up.url));
    nowMs += 1_000 * DAY;
    await scheduled();
    nowMs -= 999 * DAY;
    expect(await probing.probedAtMs()).toBeUndefined();
    expect(await scheduled()).toMatchObject({ visited: 1 });
    expect(await probing.probedAtMs()).toBe(nowMs);
  });

  it('with a clock far ahead makes nobody inactive that was not dead for long', async () => {
    await put(entry('a', up.url));
    up.conduct = 'html';
    await probeDaily(4);
    nowMs += 60 * DAY;
    expect(await scheduled()).toMatchObject({ not_mcp: 1, deactivated: 0 });
    await probeDaily(21);
    expect(catalogue.get('a')).toMatchObject({ active: true });
    await probeDaily(1);
    expect(catalogue.get('a')).toMatchObject({ active: false });
  });
});

describe('a round that is ended', () => {
  it('by a stop notes only what it found alive, and the next one visits the rest', async () => {
    await using broken = await startChangeable('html');
    await put(entry('up', up.url), entry('broken', broken.url), entry('slow', other.url));
    const { round } = await under(2);
    await probing.close();
    await expect(round).rejects.toThrow('stopping');
    expect(healthOf('up')).toMatchObject({ state: 'ok' });
    expect([healthOf('broken'), healthOf('slow')]).toEqual([undefined, undefined]);
    const again = await HealthBoard.load(database.db);
    expect(again.of(catalogue.get('up')!)).toMatchObject({ state: 'ok' });
    other.conduct = 'mcp';
    start();
    expect(await scheduled()).toMatchObject({ visited: 2, ok: 1, not_mcp: 1 });
  });

  it('again and again gets to everybody: what it got to comes last in the next one', async () => {
    const [bad, good] = [await hosts(5), await hosts(2)];
    turn(bad, 'html');
    await put(entry('slow', other.url), ...each('bad', bad), ...each('good', good));
    other.conduct = 'silent';
    for (let round = 0; round < 2; round++) {
      const ending = new AbortController();
      const onProgress = ({ done }: { done: number }) => done === 4 && ending.abort(new Error('enough'));
      await expect(probing.probe({ onProgress, signal: ending.signal })).rejects.toThrow('enough');
      await probing.close();
      start();
    }
    expect([healthOf('good0'), healthOf('good1')]).toMatchObject([{ state: 'ok' }, { state: 'ok' }]);
  });

  it('leaves the tools that it found, and does not wait for a write of the catalogue', async () => {
    up.tools = [{ name: 'x', description: 'X.', inputSchema: { type: 'object' } }];
    await put(entry('a', up.url), entry('b', `${up.url}?b`), entry('slow', other.url));
    const reached = Promise.withResolvers<void>();
    const writing = catalogue.reindex(() => reached.promise.then(() => () => Promise.resolve()));
    const { round } = await under(2);
    await probing.close();
    await expect(round).rejects.toThrow('stopping');
    reached.resolve();
    await writing;
    await catalogue.settled();
    expect(catalogue.get('a')?.tools).toEqual([]);
  });
});

it('an import of what was inactive for want of an answer forgets its failures, at once and only if it is stored', async () => {
  const entries = [entry('a', up.url)];
  await put(...entries);
  up.conduct = 'html';
  await probeDaily(33);
  const dead = healthOf('a');
  expect(dead).toMatchObject({ failures: 33 });
  const alongside = () => Promise.reject(new Error('no audit'));
  await expect(catalogue.put(entries, { origin: 'operator', alongside })).rejects.toThrow('no audit');
  expect(healthOf('a')).toEqual(dead);
  const { epoch } = board;
  await put(...entries);
  expect(healthOf('a')).toMatchObject({ state: 'not_mcp', failures: 0 });
  expect(healthOf('a')).not.toHaveProperty('deadSinceMs');
  expect(board.epoch).not.toBe(epoch);
});

describe('an import during a round', () => {
  /** A server that is inactive, visited again, and imported before the round ends. */
  async function imported(by: Pick<Catalogue, 'put'>, remoteUrl?: string) {
    await using dead = await startChangeable('html');
    await put(entry('dead', dead.url));
    await probeDaily(33);
    expect(catalogue.get('dead')).toMatchObject({ active: false, unanswered: true });
    await put(entry('slow', other.url));
    const { round } = await under(1);
    await by.put([entry('dead', remoteUrl ?? dead.url)], { origin: 'operator' });
    await other.pause();
    await round;
  }

  it('is not undone by what was found before it', async () => {
    await imported(catalogue);
    expect(catalogue.get('dead')).toMatchObject({ active: true });
    expect(healthOf('dead')).toMatchObject({ failures: 0 });
    expect((await HealthBoard.load(database.db)).of(catalogue.get('dead')!)).toMatchObject({ failures: 0 });
  });

  it('by another process is not either: the failure is the first', async () => {
    const by: Pick<Catalogue, 'put'> = {
      put: async (entries, options) => (await Catalogue.load(database.db)).put(entries, options),
    };
    await imported(by);
    const stored = await HealthBoard.load(database.db);
    expect(stored.of(catalogue.get('dead')!)).toMatchObject({ failures: 1 });
    expect(stored.of(catalogue.get('dead')!)).not.toHaveProperty('deadSinceMs');
    expect((await Catalogue.load(database.db)).get('dead')).toMatchObject({ active: true });
  });

  it('with another address leaves nothing known of it', async () => {
    await imported(catalogue, up.url);
    expect(catalogue.get('dead')).toMatchObject({ active: true, remoteUrl: up.url });
    expect(healthOf('dead')).toBeUndefined();
  });
});

it('a failure found before something newer is not written over it', async () => {
  await put(entry('a', up.url));
  const at = (failures: number) => ({
    serverId: 'a',
    remoteUrl: up.url,
    health: { state: 'not_mcp' as const, checkedAtMs: nowMs, failures },
  });
  for (const failures of [1, 2, 3]) expect(await board.write([at(failures)])).toHaveLength(1);
  expect(await board.write([at(3)])).toEqual([]);
  expect(await board.write([at(0)])).toHaveLength(1);
  expect(await board.write([at(4)])).toEqual([]);
  expect(healthOf('a')).toMatchObject({ failures: 0 });
  expect(await board.write([{ ...at(1), remoteUrl: other.url }])).toHaveLength(1);
});

it('a write that fails does not end a round', async () => {
  await put(entry('a', up.url), entry('b', other.url));
  other.conduct = 'html';
  await probeDaily(33);
  other.conduct = 'mcp';
  onTurned = () => Promise.reject(new Error('no database'));
  nowMs += DAY;
  expect(await probing.probe()).toMatchObject({ ok: 2, reactivated: 0 });
  expect(healthOf('b')).toMatchObject({ state: 'ok' });
  expect(catalogue.get('b')).toMatchObject({ active: false, unanswered: true });
  onTurned = () => Promise.resolve();
  expect(await probing.probe()).toMatchObject({ ok: 2, reactivated: 1 });
});

it('the board has another epoch as soon as a server dies or lives, and not else', async () => {
  await put(entry('a', up.url));
  up.conduct = 'html';
  await probeDaily(2);
  const before = board.epoch;
  const elsewhere = await HealthBoard.load(database.db);
  const theirs = elsewhere.epoch;
  await probeDaily(1);
  expect(board.epoch).not.toBe(before);
  await elsewhere.catchUp();
  expect(elsewhere.epoch).not.toBe(theirs);
  const dead = board.epoch;
  await probeDaily(2);
  expect(board.epoch).toBe(dead);
  up.conduct = 'mcp';
  await probeDaily(1);
  expect(board.epoch).not.toBe(dead);
});
