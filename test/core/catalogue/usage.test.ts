import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Usage } from '../../../src/core/catalogue/usage.ts';
import { openDatabase, type OpenDatabase } from '../../../src/infra/database.ts';
import { createLog } from '../../../src/infra/log.ts';

const DAY_MS = 86_400_000;
const log = createLog('silent');
let database: OpenDatabase;
let now = Date.parse('2026-11-21T00:00:00Z');
const clock = { now: () => now };

beforeAll(async () => void (database = await openDatabase()));
afterAll(() => database.close());

const use = (usage: Usage, serverId: string, tenantId: string, calls: number, ok = true) => {
  for (let i = 0; i < calls; i++) usage.record({ serverId, tenantId, ok });
};

describe('popularity', () => {
  it('is 0 until used, counts successes only, and stays within 0 and 1', async () => {
    await using usage = await disposable();
    use(usage.it, 'failing', 't1', 100, false);
    expect(usage.it.popularity('never')).toBe(0);
    expect(usage.it.popularity('failing')).toBe(0);
    for (let tenant = 0; tenant < 200; tenant++) use(usage.it, 'loved', `t${tenant}`, 60);
    expect(usage.it.popularity('loved')).toBe(1);
  });

  it('cannot be bought by one tenant: its calls count up to a cap', async () => {
    await using usage = await disposable();
    use(usage.it, 'flooded', 'one', 5_000);
    for (let tenant = 0; tenant < 3; tenant++) use(usage.it, 'liked', `t${tenant}`, 40);
    expect(usage.it.popularity('liked')).toBeGreaterThan(usage.it.popularity('flooded'));
  });

  it('fades: thirty days halve what counts', async () => {
    await using usage = await disposable();
    use(usage.it, 'fading', 't1', 40);
    const fresh = usage.it.popularity('fading');
    now += 30 * DAY_MS;
    expect(usage.it.popularity('fading')).toBeCloseTo((fresh * Math.log1p(20)) / Math.log1p(40), 6);
  });

  it('survives a restart once flushed', async () => {
    const first = await Usage.load(database.db, clock, log);
    use(first, 'durable', 't1', 3);
    await first.flush();
    use(first, 'durable', 't1', 2);
    await first.close();
    const second = await Usage.load(database.db, clock, log);
    expect(second.popularity('durable')).toBeCloseTo(first.popularity('durable'), 9);
    await second.close();
  });
});

describe('a failing database', () => {
  it('loses no count: they are written once it is back', async () => {
    const own = await openDatabase();
    let down = true;
    const db = new Proxy(own.db, {
      get: (target, property, receiver) => {
        if (property === 'transaction' && down) return () => Promise.reject(new Error('down'));
        const value: unknown = Reflect.get(target, property, receiver);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const usage = await Usage.load(db, clock, log);
    use(usage, 'a', 't', 2);
    await usage.flush();
    use(usage, 'a', 't', 1);
    down = false;
    await usage.close();
    const after = await Usage.load(own.db, clock, log);
    expect(after.popularity('a')).toBeCloseTo(usage.popularity('a'), 9);
    await after.close();
    await own.close();
  });
});

async function disposable() {
  const usage = await Usage.load(database.db, clock, log);
  return { it: usage, [Symbol.asyncDispose]: () => usage.close() };
}
