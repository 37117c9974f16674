import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ApiKeys } from '../../../src/core/access/api-keys.ts';
import { generateApiKey, idOfApiKey } from '../../../src/core/access/key-text.ts';
import { Audit } from '../../../src/core/access/audit.ts';
import { apiKeys } from '../../../src/core/access/schema.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import type { Clock } from '../../../src/platform/time.ts';

let database: OpenDatabase;
let now = Date.parse('2026-11-21T12:00:00Z');
const environmentKey = 'an-environment-key-of-32-characters!';

beforeAll(async () => void (database = await openTestDatabase()));
afterAll(() => database.close());

const open = (
  { db } = database,
  key: string | undefined = environmentKey,
  clock: Clock = { now: () => now },
) => {
  const log = createLog('silent');
  return new ApiKeys({ db, clock, log, audit: new Audit(db, log), environmentKey: key });
};

describe('the form of a key', () => {
  it('carries its id and a checksum', () => {
    const { id, key } = generateApiKey();
    expect(key).toMatch(/^sbk_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{38}$/);
    expect(idOfApiKey(key)).toBe(id);
  });

  it('with one character changed fails its checksum', () => {
    const { key } = generateApiKey();
    const flipped = key.slice(0, 30) + (key[30] === 'a' ? 'b' : 'a') + key.slice(31);
    expect(idOfApiKey(flipped)).toBeUndefined();
  });
});

describe('authenticate', () => {
  it('gives the tenant and the scopes of a key, and of the key from the environment', async () => {
    const keys = open();
    const { key, id } = await keys.create({ name: 'test', scopes: ['search'] });
    expect(await keys.authenticate(key)).toEqual({
      tenantId: 'local',
      keyId: id,
      scopes: new Set(['search']),
    });
    expect(await keys.authenticate(environmentKey)).toMatchObject({
      tenantId: 'local',
      keyId: 'environment',
    });
    await keys.close();
  });

  it('answers an absent, malformed, unknown, expired and revoked key in one way', async () => {
    const keys = open();
    const expired = await keys.create({ name: 'expired', scopes: ['search'], expiresAt: new Date(now - 1) });
    const revoked = await keys.create({ name: 'revoked', scopes: ['search'] });
    await keys.revoke(revoked.id);
    const texts = new Set<string>();
    for (const key of [
      undefined,
      '',
      'sbk_live_x',
      generateApiKey().key,
      expired.key,
      revoked.key,
      `${environmentKey}x`,
    ]) {
      const error = await (async () => keys.authenticate(key))().then(
        () => undefined,
        (thrown: Error) => thrown,
      );
      expect(error).toMatchObject({ code: 'unauthorized' });
      texts.add(error?.message ?? '');
    }
    expect(texts.size).toBe(1);
  });

  it('refuses a revoked key on the very next request, even one read while it was being revoked', async () => {
    const keys = open();
    const { key, id } = await keys.create({ name: 'soon gone', scopes: ['search'] });
    await Promise.allSettled([keys.authenticate(key), keys.revoke(id), keys.authenticate(key)]);
    await expect(async () => keys.authenticate(key)).rejects.toMatchObject({ code: 'unauthorized' });
    await keys.close();
  });

  it('refuses a key that another process revoked two seconds ago, although the clock was set back', async () => {
    const time = { wall: now, monotonic: 1 };
    const clock = { now: () => time.wall, monotonic: () => time.monotonic };
    const [one, other] = [open(database, undefined, clock), open(database, undefined, clock)];
    const { id, key } = await one.create({ name: 'test', scopes: ['search'] });
    await other.authenticate(key);
    time.wall -= 3_600_000;
    await one.revoke(id);
    time.monotonic += 2_001;
    await expect(async () => other.authenticate(key)).rejects.toMatchObject({ code: 'unauthorized' });
    await Promise.all([one.close(), other.close()]);
  });

  it('refuses a key once its time has come, cached or not', async () => {
    const keys = open();
    const { key } = await keys.create({ name: 'short', scopes: ['search'], expiresAt: new Date(now + 1000) });
    await keys.authenticate(key);
    now += 1000;
    await expect(async () => keys.authenticate(key)).rejects.toMatchObject({ code: 'unauthorized' });
    await keys.close();
  });
});

describe('storage', () => {
  it('contains no key in plain text', async () => {
    const keys = open();
    const { key } = await keys.create({ name: 'secret', scopes: ['search'] });
    const secret = key.slice(-38, -6);
    expect(JSON.stringify(await database.db.select().from(apiKeys))).not.toContain(secret);
    expect(JSON.stringify(await keys.list())).not.toContain(secret);
  });

  it('makes a first key once', async () => {
    const fresh = await openTestDatabase();
    const keys = open(fresh);
    expect(await keys.createFirst()).toMatch(/^sbk_live_/);
    expect(await keys.createFirst()).toBeUndefined();
    await fresh.close();
  });
});
