import { setImmediate } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest';
import { UNUSED, Usage } from '../../../src/core/catalogue/usage.ts';
import { serverUsage } from '../../../src/core/catalogue/schema.ts';
import type { Database, OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { createDatabase } from '../../support/postgres.ts';
import { recordingLog, settableClock, silent } from '../search/support.ts';

const DAY_MS = 86_400_000;
let database: OpenDatabase;
beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());
afterEach(async () => {
  vi.useRealTimers();
  await database.db.delete(serverUsage);
});

async function start({
  db = database.db,
  clock = settableClock(),
  log = silent,
  shared = false,
}: { db?: Database; clock?: ReturnType<typeof settableClock>; log?: typeof silent; shared?: boolean } = {}) {
  const usage = await Usage.load({ db, clock, log, shared });
  return { usage, clock, [Symbol.asyncDispose]: () => usage.close() };
}

const use = (usage: Usage, serverId: string, tenantId: string, calls: number, ok = true) => {
  for (let i = 0; i < calls; i++) usage.record({ serverId, tenantId, ok });
};
const rowsOf = (serverId: string) =>
  database.db.select().from(serverUsage).where(eq(serverUsage.serverId, serverId));

describe('a count', () => {
  it('is seen at once, and a server nobody used has the signals of one', async () => {
    await using at = await start();
    use(at.usage, 'a', 't', 3);
    expect(at.usage.signals('a').popularity).toBeGreaterThan(0);
    expect(at.usage.signals('never')).toEqual(UNUSED);
  });

  it('is written a second later, without being told', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    await using at = await start();
    use(at.usage, 'a', 't', 3);
    vi.advanceTimersByTime(999);
    expect(await rowsOf('a')).toEqual([]);
    vi.advanceTimersByTime(1);
    await expect.poll(() => rowsOf('a')).toMatchObject([{ successes: 3, failures: 0 }]);
  });

  it('goes to the day it was made on, and the day before fades', async () => {
    await using at = await start();
    at.clock.time = Date.parse('2026-11-20T23:59:59.999Z');
    use(at.usage, 'a', 't', 2);
    const before = at.usage.signals('a');
    at.clock.time += 1;
    expect(at.usage.signals('a').popularity).toBeLessThan(before.popularity);
    use(at.usage, 'a', 't', 1, false);
    await at.usage.flush();
    const rows = (await rowsOf('a')).sort((x, y) => (x.day < y.day ? -1 : 1));
    expect(rows).toMatchObject([
      { day: '2026-11-20', successes: 2, failures: 0 },
      { day: '2026-11-21', successes: 0, failures: 1 },
    ]);
  });

  it('survives a clock that is set forward and back, within the caps', async () => {
    await using at = await start();
    use(at.usage, 'a', 't', 5);
    const before = at.usage.signals('a');
    at.clock.time += 400 * DAY_MS;
    use(at.usage, 'a', 'u', 5);
    at.clock.time -= 400 * DAY_MS;
    const after = at.usage.signals('a');
    expect(after.popularity).toBeGreaterThanOrEqual(before.popularity);
    expect(after.popularity).toBeLessThan(0.5);
    await at.usage.flush();
    await using restarted = await start({ clock: at.clock });
    // What is dated in the future weighs as much as today, no more.
    expect(restarted.usage.signals('a').popularity).toBeLessThanOrEqual(after.popularity);
  });

  it('of verdicts is kept beside those of calls', async () => {
    await using at = await start();
    at.usage.recordVerdicts('a', 't', { helpful: 1, unhelpful: 0 });
    use(at.usage, 'a', 't', 1);
    at.usage.recordVerdicts('a', 't', { helpful: -1, unhelpful: 1 });
    await at.usage.flush();
    expect(await rowsOf('a')).toMatchObject([{ successes: 1, helpful: 0, unhelpful: 1 }]);
    expect(at.usage.signals('a').approval).toBeLessThan(0);
  });
});

describe('a restart', () => {
  it.each([0, 1, 2, 30, 190])('after %i days gives the same signals', async days => {
    const clock = settableClock();
    await using first = await start({ clock });
    for (let tenant = 0; tenant < 3; tenant++) {
      use(first.usage, 'durable', `t${tenant}`, 20);
      use(first.usage, 'durable', `t${tenant}`, 4, false);
    }
    first.usage.recordVerdicts('durable', 't1', { helpful: 2, unhelpful: 0 });
    clock.time += days * DAY_MS;
    use(first.usage, 'durable', 't1', 2);
    await first.usage.flush();
    await using second = await start({ clock });
    const [before, after] = [first.usage.signals('durable'), second.usage.signals('durable')];
    for (const name of ['popularity', 'success', 'novelty', 'approval'] as const)
      expect(after[name], name).toBeCloseTo(before[name], 9);
  });

  it('forgets, and deletes, what is over 200 days old', async () => {
    const clock = settableClock();
    await using first = await start({ clock });
    use(first.usage, 'old', 't', 20);
    await first.usage.flush();
    clock.time += 201 * DAY_MS;
    use(first.usage, 'old', 't', 1);
    await first.usage.flush();
    await using second = await start({ clock });
    expect(second.usage.signals('old').novelty).toBeCloseTo(10 / 11, 9);
    expect(await second.usage.purge()).toBe(1);
    expect(await rowsOf('old')).toMatchObject([{ successes: 1 }]);
  });
});

describe('a failing database', () => {
  it('loses no count and makes none twice: they are written once it is back', async () => {
    const state = { down: true };
    const db = new Proxy(database.db, {
      get(target, name, receiver) {
        if (name === 'insert' && state.down) throw new Error('the database is down');
        return Reflect.get(target, name, receiver) as unknown;
      },
    });
    const { log, messages } = recordingLog();
    await using at = await start({ db, log });
    for (let server = 0; server < 250; server++) use(at.usage, `many-${server}`, 't', 1);
    use(at.usage, 'a', 't', 2);
    await at.usage.flush();
    use(at.usage, 'a', 't', 1);
    expect(messages()).toContain('usage not written: will try again');
    state.down = false;
    await at.usage.flush();
    await at.usage.flush();
    expect(await rowsOf('a')).toMatchObject([{ successes: 3 }]);
    expect(await database.db.select().from(serverUsage)).toHaveLength(251);
  });
});

describe('processes that share a database', () => {
  async function expectShared(one: Database, other: Database) {
    const clock = settableClock();
    await using a = await start({ db: one, clock, shared: true });
    await using b = await start({ db: other, clock, shared: true });
    use(a.usage, 's', 't', 10);
    use(b.usage, 's', 't', 5, false);
    use(b.usage, 's', 'u', 7);
    await Promise.all([a.usage.refresh(), b.usage.refresh()]);
    for (let round = 0; round < 3; round++) {
      use(a.usage, 's', 't', 2);
      // Counted while it is read.
      const reading = a.usage.refresh();
      await setImmediate();
      use(a.usage, 's', 't', 1);
      await reading;
      await b.usage.refresh();
    }
    await a.usage.refresh();
    await b.usage.refresh();
    await using fresh = await start({ db: one, clock, shared: true });
    const expected = fresh.usage.signals('s');
    for (const { usage } of [a, b])
      for (const name of ['popularity', 'success', 'novelty', 'approval'] as const)
        expect(usage.signals('s')[name], name).toBeCloseTo(expected[name], 9);
    await using alone = await start({ db: one, clock, shared: false });
    expect(alone.usage.signals('s')).toEqual(expected);
    // t: 19 good, 5 bad, 10 of them counted; u: 7 good.
    expect(expected.novelty).toBeCloseTo(10 / 27, 9);
  }

  it('see what the others counted, each count once', () => expectShared(database.db, database.db));

  it.skipIf(inject('postgresUrl') === undefined)('… on Postgres, too', async () => {
    await using own = await createDatabase();
    await using opened = new AsyncDisposableStack();
    const open = async () => {
      const found = await openPostgres(own.url);
      opened.defer(() => found.close());
      return found.db;
    };
    await expectShared(await open(), await open());
  });

  it('read it every two minutes, by a clock that does not jump', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    const clock = settableClock();
    await using a = await start({ clock, shared: true });
    await using b = await start({ clock, shared: true });
    use(b.usage, 's', 't', 3);
    await b.usage.flush();
    vi.advanceTimersByTime(1_000);
    await a.usage.flush();
    expect(a.usage.signals('s')).toEqual(UNUSED);
    clock.time += 2 * 60_000;
    vi.advanceTimersByTime(1_000);
    await expect.poll(() => a.usage.signals('s').popularity).toBeGreaterThan(0);
  });
});
