import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { KeyUse, QuotaExceeded } from '../../../src/core/access/quota.ts';
import { keyUse } from '../../../src/core/access/schema.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { settableClock } from '../search/support.ts';

const START = Date.parse('2026-11-21T12:00:00Z');
let database: OpenDatabase;
let clock: ReturnType<typeof settableClock>;
const opened: KeyUse[] = [];

beforeAll(async () => void (database = await openTestDatabase()));
beforeEach(() => void (clock = settableClock(START)));
afterEach(async () => {
  await Promise.all(opened.splice(0).map(one => one.close()));
  await database.db.delete(keyUse);
});
afterAll(() => database.close());

function open(shared = false): KeyUse {
  const use = new KeyUse({ db: database.db, clock, log: createLog('silent'), shared });
  opened.push(use);
  return use;
}
const key = (quota: object, keyId = 'k') => ({ keyId, quota });
const refusal = async (spend: () => unknown) => {
  try {
    await spend();
    return undefined;
  } catch (error) {
    return error;
  }
};

describe('a monthly quota', () => {
  it('lets exactly its number of calls pass, also of many at once, and names the start of the next month', async () => {
    const use = open();
    const spent = await Promise.allSettled(
      Array.from({ length: 30 }, async () => use.spend(key({ calls: 10 }), 'calls')),
    );
    expect(spent.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
    const error = (await refusal(() => use.spend(key({ calls: 10 }), 'calls'))) as QuotaExceeded;
    expect(error).toBeInstanceOf(QuotaExceeded);
    const resetSec = (Date.parse('2026-12-01T00:00:00Z') - START) / 1000;
    expect(error).toMatchObject({
      code: 'quota_exceeded',
      retryAfterSec: resetSec,
      state: { use: 'calls', limit: 10, remaining: 0, monthSec: 30 * 86_400, resetSec },
      members: { quota: { use: 'calls', limit: 10, resets_at: '2026-12-01T00:00:00.000Z' } },
    });
    expect(await use.thisMonth()).toEqual(new Map([['k', { calls: 10, searches: 0 }]]));
  });

  it('counts calls and searches apart, and a use without a limit is never refused', async () => {
    const use = open();
    await use.spend(key({ searches: 1 }), 'searches');
    expect(await refusal(() => use.spend(key({ searches: 1 }), 'searches'))).toBeInstanceOf(QuotaExceeded);
    for (let call = 0; call < 3; call++)
      expect(await use.spend(key({ searches: 1 }), 'calls')).toBeUndefined();
    expect(await use.thisMonth()).toEqual(new Map([['k', { calls: 3, searches: 1 }]]));
  });

  it('resets every month, and includes usage from before it was set', async () => {
    const use = open();
    for (let call = 0; call < 3; call++) await use.spend({ keyId: 'k' }, 'calls');
    expect(await refusal(() => use.spend(key({ calls: 3 }), 'calls'))).toBeInstanceOf(QuotaExceeded);
    expect(await use.spend(key({ calls: 4 }), 'calls')).toMatchObject({ remaining: 0 });
    clock.time = Date.parse('2026-12-01T00:00:00Z');
    expect(await use.spend(key({ calls: 4 }), 'calls')).toMatchObject({
      remaining: 3,
      monthSec: 31 * 86_400,
    });
  });

  it('counts all calls of a batch, or none of them', async () => {
    const use = open();
    expect(await use.spend(key({ calls: 5 }), 'calls', 3)).toMatchObject({ remaining: 2 });
    expect(await refusal(() => use.spend(key({ calls: 5 }), 'calls', 3))).toBeInstanceOf(QuotaExceeded);
    expect(await use.spend(key({ calls: 5 }), 'calls', 2)).toMatchObject({ remaining: 0 });
  });

  it('counts a key that came by rotation under the first of its line', async () => {
    const use = open();
    await use.spend({ keyId: 'first', quota: { calls: 2 } }, 'calls');
    await use.spend({ keyId: 'second', countedAs: 'first', quota: { calls: 2 } }, 'calls');
    expect(await refusal(() => use.spend({ keyId: 'first', quota: { calls: 2 } }, 'calls'))).toBeInstanceOf(
      QuotaExceeded,
    );
  });

  it('[quota.durable] written use is known to the next process, also after a kill', async () => {
    const killed = open();
    for (let call = 0; call < 5; call++) await killed.spend(key({ calls: 6 }), 'calls');
    await killed.flush();
    expect(await open().spend(key({ calls: 6 }), 'calls')).toMatchObject({ remaining: 0 });
  });

  it("[quota.shared] processes on one database know of each other's use within two seconds", async () => {
    const [a, b] = [open(true), open(true)];
    const limited = key({ calls: 10 });
    await Promise.all([a.spend(limited, 'calls'), b.spend(limited, 'calls')]);
    for (let call = 0; call < 7; call++) await a.spend(limited, 'calls');
    await a.flush();
    // Known to the other one only now.
    clock.time += 2_000;
    expect(await b.spend(limited, 'calls')).toMatchObject({ remaining: 0 });
    expect(await refusal(() => b.spend(limited, 'calls'))).toBeInstanceOf(QuotaExceeded);
    await b.flush();
    clock.time += 2_000;
    expect(await refusal(() => a.spend(limited, 'calls'))).toBeInstanceOf(QuotaExceeded);
    expect((await a.thisMonth()).get('k')).toEqual({ calls: 10, searches: 0 });
  });

  it('[quota.shared] use is read again ahead of time, so that no call of a key in steady use waits for the database', async () => {
    const [a, b] = [open(true), open(true)];
    const limited = key({ calls: 10 });
    await a.spend(limited, 'calls');
    for (let call = 0; call < 3; call++) await b.spend(limited, 'calls');
    await b.flush();
    clock.time += 1_000;
    // Answered by what was known before.
    expect(await a.spend(limited, 'calls')).toMatchObject({ remaining: 8 });
    await a.flush();
    expect(await a.spend(limited, 'calls')).toMatchObject({ remaining: 4 });
  });

  it('[quota.shared] counts nothing twice while counts are written and read in turn', async () => {
    const [a, b] = [open(true), open(true)];
    for (let round = 0; round < 10; round++) {
      await Promise.all([
        ...Array.from({ length: 5 }, () => a.spend(key({ calls: 1_000 }), 'calls')),
        ...Array.from({ length: 5 }, () => b.spend(key({ calls: 1_000 }), 'calls')),
        a.flush(),
      ]);
      clock.time += 2_500;
    }
    await b.flush();
    clock.time += 2_500;
    expect(await a.spend(key({ calls: 1_000 }), 'calls')).toMatchObject({ remaining: 899 });
  });
});

describe('the record of use', () => {
  it('is listed by day in pages, each row once', async () => {
    const use = open();
    for (let day = 0; day < 3; day++) {
      for (const keyId of ['a', 'B', 'c']) await use.spend({ keyId }, 'searches');
      clock.time += 86_400_000;
    }
    const seen: string[] = [];
    let after: { day: string; keyId: string } | undefined;
    for (let more = true; more;) {
      const { records, hasMore } = await use.list({ limit: 2, after });
      seen.push(...records.map(({ day, key_id }) => `${day} ${key_id}`));
      const last = records.at(-1);
      after = last && { day: last.day, keyId: last.key_id };
      more = hasMore;
    }
    expect(seen).toEqual(
      ['2026-11-23', '2026-11-22', '2026-11-21'].flatMap(day => ['B', 'a', 'c'].map(id => `${day} ${id}`)),
    );
    const one = await use.list({ limit: 10, keyId: 'a', from: '2026-11-22', to: '2026-11-22' });
    expect(one.records).toEqual([
      { day: '2026-11-22', key_id: 'a', name: null, tenant: null, calls: 0, searches: 1 },
    ]);
  });

  it('is deleted after 400 days', async () => {
    const use = open();
    await use.spend({ keyId: 'k' }, 'calls');
    await use.flush();
    clock.time += 399 * 86_400_000;
    expect(await use.purge()).toBe(0);
    clock.time += 2 * 86_400_000;
    expect(await use.purge()).toBe(1);
    expect(await database.db.select().from(keyUse)).toEqual([]);
  });
});
