import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { once } from 'node:events';
import { sql } from 'drizzle-orm';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { generateApiKey } from '../../../src/core/access/key-text.ts';
import type { Clock } from '../../../src/platform/time.ts';
import { rows, type OpenDatabase } from '../../../src/platform/database/database.ts';
import { openTestDatabase } from '../../support/database.ts';
import { DATABASES, startIdentity } from '../../support/identity.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../../support/switchboard.ts';

class SetClock implements Clock {
  #aheadMs = 0;
  now = () => Date.now() + this.#aheadMs;
  advance = (ms: number) => void (this.#aheadMs += ms);
}

const KEKS = `k1:${randomBytes(32).toString('base64')}`;

const clock = new SetClock();
let database: OpenDatabase;
let sb: RunningSwitchboard;
beforeAll(async () => {
  database = await openTestDatabase();
  sb = await startOn(database);
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await database.close();
});

/** Another process on the same database, as far as one can be had here: it shares nothing else. */
const startOn = (storage: OpenDatabase, env: Record<string, string> = {}) =>
  startTestSwitchboard({
    clock,
    env: { SWITCHBOARD_KEKS: KEKS, ...env },
    database: () => Promise.resolve({ ...storage, close: () => Promise.resolve() }),
  });

const newKey = async (more: object = {}, at = sb) => {
  const { status, json } = await at.admin.request('POST', '/keys', {
    name: 'test',
    scopes: ['search'],
    ...more,
  });
  expect(status, JSON.stringify(json)).toBe(200);
  return json as { id: string; key: string };
};
const searchWith = (key: string, headers: Record<string, string> = {}, at = sb) =>
  at.post('/v1/search', { query: 'x' }, { 'x-api-key': key, ...headers });
const statusOf = async (key: string, at = sb) => (await searchWith(key, {}, at)).status;

/** How many statements on keys the database gets meanwhile. */
async function queriesOnKeys(during: () => Promise<unknown>): Promise<number> {
  const client = (database.db as unknown as { $client: { query(text: string): unknown } }).$client;
  const query = vi.spyOn(client, 'query');
  await during();
  const count = query.mock.calls.filter(([text]) => text.includes('api_keys')).length;
  query.mockRestore();
  return count;
}

const wrongChecksumOf = (key: string) => key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');

describe('an API key', () => {
  it('1: is required', async () => {
    expect(await statusOf('')).toBe(401);
  });

  it('2: with a wrong checksum is refused without a look into the database', async () => {
    const { key } = await newKey();
    const wrong = wrongChecksumOf(key);
    const queries = await queriesOnKeys(async () => {
      for (const tried of [wrong, 'nonsense', '', `${key}x`]) expect(await statusOf(tried)).toBe(401);
    });
    expect(queries).toBe(0);
    // The counter counts: an unknown key of the right form is asked for.
    expect(await queriesOnKeys(() => statusOf(generateApiKey().key))).toBe(1);
  });

  it('3: revoked is refused on the next request, and by another process within two seconds', async () => {
    const { id, key } = await newKey();
    await using elsewhere = await startOn(database);
    expect([await statusOf(key), await statusOf(key, elsewhere)]).toEqual([200, 200]);
    await sb.admin.request('POST', `/keys/${id}/revoke`);
    expect(await statusOf(key)).toBe(401);
    clock.advance(2_000);
    expect(await statusOf(key, elsewhere)).toBe(401);
  });

  it('4: is refused once it has expired', async () => {
    const { key } = await newKey({ expires_at: new Date(clock.now() + 60_000).toISOString() });
    expect(await statusOf(key)).toBe(200);
    clock.advance(60_000);
    expect(await statusOf(key)).toBe(401);
  });

  it('5: is read from X-API-Key alone; /mcp also takes it as a Bearer token', async () => {
    const { key } = await newKey();
    for (const headers of [
      { authorization: `Bearer ${key}` },
      { cookie: `X-API-Key=${key}; api_key=${key}` },
      { 'x-api-keys': key },
    ])
      expect((await searchWith('', headers)).status).toBe(401);
    const inQuery = await sb.post(
      `/v1/search?api_key=${key}&x-api-key=${key}`,
      { query: 'x' },
      { 'x-api-key': '' },
    );
    expect(inQuery.status).toBe(401);
    const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const asBearer = (token: string) =>
      sb.post('/mcp', list, { 'x-api-key': '', authorization: `Bearer ${token}` });
    expect((await asBearer(key)).status).toBe(200);
    expect((await asBearer(wrongChecksumOf(key))).status).toBe(401);
  });

  it('6: is refused when it is sent twice', async () => {
    const { key } = await newKey();
    const { statusCode } = await request(`${sb.url}/v1/search`, {
      method: 'POST',
      headers: ['x-api-key', key, 'x-api-key', key, 'content-type', 'application/json'],
      body: '{"query":"x"}',
    });
    expect(statusCode).toBe(401);
  });

  it.each([
    ['a carriage return in it', 'abc\rdef'],
    ['a line break in it', 'abc\ndef'],
    ['a header smuggled in', 'abc\r\n def'],
    ['NUL', 'abc\0def'],
    ['UTF-8', 'schlüssel'],
    ['a lone byte of Latin-1', Buffer.from('ff', 'hex').toString('latin1')],
    ['nothing but spaces', '   '],
  ])('7: with %s is 400 or 401, and the server lives on', async (_what, value) => {
    expect([400, 401]).toContain(await rawStatusWith(value));
    expect((await sb.get('/healthz')).status).toBe(200);
  });

  it('8: without the scope is 403 on each class of endpoint', async () => {
    const { key } = await newKey({ scopes: ['admin'] });
    const other = await newKey({ scopes: ['search'] });
    const calls = [
      ['/v1/search', { query: 'x' }, key],
      ['/v1/mcp/call', { server_id: 'filler', method: 'tools/list' }, other.key],
      ['/v1/mcp/tools/list', { server_id: 'filler' }, other.key],
      ['/v1/identity/sessions', { user_id: 'u', provider: 'google' }, other.key],
      ['/v1/identity/revoke', { user_id: 'u' }, other.key],
    ] as const;
    for (const [path, body, with_] of calls) {
      const { status, json } = await sb.post(path, body, { 'x-api-key': with_ });
      expect([path, status, json.code]).toEqual([path, 403, 'insufficient_scope']);
    }
  });

  it('9: gets the same 401 whatever is wrong with it', async () => {
    const revoked = await newKey();
    await sb.admin.request('POST', `/keys/${revoked.id}/revoke`);
    const expired = await newKey({ expires_at: new Date(clock.now() + 1_000).toISOString() });
    clock.advance(1_000);
    const answers = [];
    for (const key of [
      '',
      'nonsense',
      wrongChecksumOf(revoked.key),
      generateApiKey().key,
      revoked.key,
      expired.key,
    ]) {
      const { status, json } = await searchWith(key);
      const { request_id: _id, ...rest } = json;
      answers.push(JSON.stringify({ status, ...rest }));
    }
    expect(new Set(answers).size).toBe(1);
  });

  it('10: works beside its successor for the overlap, and then ends', async () => {
    const old = await newKey({ name: 'ide' });
    const { json: fresh } = await sb.admin.request('POST', `/keys/${old.id}/rotate`, { overlap_sec: 3600 });
    expect(fresh).toMatchObject({ name: 'ide', tenant: 'local', scopes: ['search'], expires_at: null });
    expect(fresh.key).not.toBe(old.key);
    expect([await statusOf(old.key), await statusOf(fresh.key)]).toEqual([200, 200]);
    clock.advance(3_600_000);
    expect([await statusOf(old.key), await statusOf(fresh.key)]).toEqual([401, 200]);
  });

  it('10: without an overlap ends at once; it never lives longer than it would have', async () => {
    const old = await newKey();
    expect(await statusOf(old.key)).toBe(200);
    const { json: fresh } = await sb.admin.request('POST', `/keys/${old.id}/rotate`, { overlap_sec: 0 });
    expect([await statusOf(old.key), await statusOf(fresh.key)]).toEqual([401, 200]);
    expect((await sb.admin.request('POST', `/keys/${old.id}/rotate`, { overlap_sec: 0 })).status).toBe(400);

    const end = new Date(clock.now() + 60_000).toISOString();
    const limited = await newKey({ expires_at: end });
    const rotated = await sb.admin.request('POST', `/keys/${limited.id}/rotate`, { overlap_sec: 3600 });
    expect(rotated.json).toMatchObject({ expires_at: end, replaces: { id: limited.id, expires_at: end } });
  });
});

/** Sends the bytes of a header as they are, which fetch refuses to do. */
async function rawStatusWith(value: string): Promise<number> {
  const { hostname, port } = new URL(sb.url);
  const socket = connect(Number(port), hostname);
  const head = `GET /v1/identity/connections?user_id=u HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n`;
  socket.end(Buffer.from(`${head}X-API-Key: ${value}\r\n\r\n`, 'latin1'));
  let answer = '';
  socket.on('data', (chunk: Buffer) => (answer += chunk.toString('latin1')));
  await once(socket, 'close');
  return Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1]);
}

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  it.skipIf(skipped)('11: a dump of the database holds no key, token or verifier in clear', async () => {
    await using identity = await startIdentity({ database: kind });
    const { json: made } = await identity.admin.request('POST', '/keys', { name: 'a', user_id: 'alice' });
    const { json: pending } = await identity.createSession('bob');
    const tokens = await identity.connect('alice');
    const refreshed = await identity.refresh(tokens.refresh_token, { 'idempotency-key': 'again' });
    const { json: link } = await identity.post('/v1/identity/manage', { user_id: 'alice' });
    const url = new URL(pending.auth_url);
    const secrets = [
      made.key,
      identity.key,
      identity.otherKey,
      pending.session_id,
      url.searchParams.get('state'),
      url.searchParams.get('nonce'),
      tokens.sessionId,
      tokens.access_token,
      tokens.refresh_token,
      refreshed.json.access_token,
      refreshed.json.refresh_token,
      link.url.split('/').at(-1),
      identity.idp.clientSecret,
      ...identity.idp.secretsSeen,
    ];
    expect(secrets.length).toBeGreaterThan(16);

    const tables = await rows<{ name: string }>(
      identity.db,
      sql`select table_name as name from information_schema.tables where table_schema = 'public'`,
    );
    let dump = '';
    for (const { name } of tables) {
      const dumped = await rows<{ row: string }>(
        identity.db,
        sql`select t::text as row from ${sql.identifier(name)} t`,
      );
      dump += dumped.map(({ row }) => row).join('\n');
    }
    expect(dump).toContain('alice');
    for (const secret of secrets) {
      expect(dump).not.toContain(secret);
      expect(dump).not.toContain(Buffer.from(String(secret)).toString('hex'));
    }
  });
});

describe('wrong keys from one address', () => {
  const from = (ip: string) => ({ 'x-forwarded-for': ip });

  it('12: the 61st in a minute is 429 without a query; a good key is unaffected, from there or from elsewhere', async () => {
    await using guarded = await startOn(database, { SWITCHBOARD_TRUST_PROXY: '1' });
    const good = await newKey({}, guarded);
    const tryOne = (key: string, ip: string) => searchWith(key, from(ip), guarded);
    for (let attempt = 0; attempt < 60; attempt++)
      expect((await tryOne(generateApiKey().key, '192.0.2.1')).status).toBe(401);

    const refused = await tryOne(generateApiKey().key, '192.0.2.1');
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(refused.json).toMatchObject({ code: 'rate_limited' });
    // The ids that exist have been read by now; for two seconds nothing more is asked of the database.
    const queries = await queriesOnKeys(async () => {
      for (const key of [generateApiKey().key, generateApiKey().key, 'nonsense', ''])
        expect((await tryOne(key, '192.0.2.1')).status).toBe(429);
    });
    expect(queries).toBe(0);

    // Not in the process's cache either: it has never been used.
    expect((await tryOne(good.key, '192.0.2.1')).status).toBe(200);
    expect((await tryOne(good.key, '192.0.2.2')).status).toBe(200);
    expect((await tryOne((await newKey({}, guarded)).key, '192.0.2.1')).status).toBe(200);
    expect((await tryOne(guarded.key, '192.0.2.1')).status).toBe(200);
    expect((await tryOne(generateApiKey().key, '192.0.2.2')).status).toBe(401);
  });

  it('12: a flood of them costs the database one query in two seconds', async () => {
    await using guarded = await startOn(database, { SWITCHBOARD_TRUST_PROXY: '1' });
    const flood = (count: number) =>
      Promise.all(
        Array.from({ length: count }, () => searchWith(generateApiKey().key, from('192.0.2.9'), guarded)),
      );
    await flood(60);
    for (let second = 0; second < 3; second++) {
      clock.advance(2_000);
      expect(await queriesOnKeys(() => flood(50))).toBeLessThanOrEqual(1);
    }
  });

  it('12: the addresses of one IPv6 network count as one', async () => {
    await using guarded = await startOn(database, { SWITCHBOARD_TRUST_PROXY: '1' });
    for (let host = 1; host <= 60; host++)
      await searchWith('nonsense', from(`2001:db8:0:1::${host}`), guarded);
    expect((await searchWith('nonsense', from('2001:db8:0:1:ffff::1'), guarded)).status).toBe(429);
    expect((await searchWith('nonsense', from('2001:db8:0:2::1'), guarded)).status).toBe(401);
  });
});
