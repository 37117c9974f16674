import { eq } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { apiKeys, tenants } from '../../src/core/access/schema.ts';
import type { OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import { settableClock } from '../core/search/support.ts';
import { listed, startRegistry, type RegistryServer } from '../support/registry.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let upstream: V2Server;
let registry: RegistryServer;
let database: OpenDatabase;
let sb: RunningSwitchboard;
let admin: { id: string; key: string };

beforeAll(async () => {
  upstream = await startV2Server();
  registry = await startRegistry([listed('com.example/tides'), listed('com.example/bees')]);
  database = await openTestDatabase();
  sb = await startTestSwitchboard({
    env: { SWITCHBOARD_RATE_LIMIT: 'admin=5000/60' },
    catalogue: [{ id: 'v2', remote_url: upstream.url }],
    database: () => Promise.resolve(database),
  });
  admin = await newAdmin();
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await registry[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const newAdmin = async (on = sb): Promise<{ id: string; key: string }> =>
  (await on.admin.request('POST', '/keys', { name: 'ops', scopes: ['admin'] })).json;
const get = (path: string, key = admin.key) => sb.get(`/v1/admin${path}`, { 'x-api-key': key });
const post = (path: string, body: unknown = '', key = admin.key, headers: Record<string, string> = {}) =>
  sb.post(`/v1/admin${path}`, body, { 'x-api-key': key, ...headers });
const newest = async () => (await get('/audit?limit=1')).json.audit[0];
const keys = async () => (await get('/keys')).json.keys.map(({ last_used_at: _moves, ...rest }: any) => rest);
const TEXT = { 'content-type': 'text/plain' };
const line = (id: string) =>
  JSON.stringify({ id, name: id, description: 'A server.', remote_url: `https://${id}.example/mcp` });

describe('every change [admin.audit]', () => {
  it('is in the audit log with who made it; what was refused is not', async () => {
    const made = (await post('/keys', { name: 'made', tenant: 'acme', scopes: ['search'] })).json;
    const changes: [event: string, tenant: string, details: object, change: () => Promise<any>][] = [
      [
        'key_created',
        'acme',
        { scopes: 'proxy' },
        () => post('/keys', { name: 'x', tenant: 'acme', scopes: ['proxy'] }),
      ],
      [
        'key_changed',
        'acme',
        { key: made.id, calls: 5 },
        () => post(`/keys/${made.id}`, { monthly_quota: { calls: 5 } }),
      ],
      [
        'key_rotated',
        'acme',
        { key: made.id, overlap_sec: 60 },
        () => post(`/keys/${made.id}/rotate`, { overlap_sec: 60 }),
      ],
      ['key_revoked', 'acme', { key: made.id }, () => post(`/keys/${made.id}/revoke`)],
      ['tenant_changed', 'acme', { changed: 'name' }, () => post('/tenants/acme', { name: 'Acme' })],
      [
        'catalogue_imported',
        'local',
        { imported: 1, replace: false },
        () => post('/catalogue/import', line('imported'), admin.key, TEXT),
      ],
      [
        'catalogue_synced',
        'local',
        { registry: registry.url, synced: 2 },
        () => post('/catalogue/sync', { url: registry.url }),
      ],
      ['server_tools_read', 'local', { server: 'v2' }, () => post('/catalogue/v2/tools')],
      ['catalogue_probed', 'local', { visited: 1, ok: 1 }, () => post('/catalogue/probe', { ids: ['v2'] })],
      ['server_deactivated', 'local', { server: 'imported' }, () => post('/catalogue/imported/deactivate')],
      ['server_reactivated', 'local', { server: 'imported' }, () => post('/catalogue/imported/activate')],
    ];
    for (const [event, tenant, details, change] of changes) {
      const answer = await change();
      expect(answer.status, event).toBe(200);
      expect(await newest()).toMatchObject({
        event,
        tenant,
        outcome: 'ok',
        key_id: admin.id,
        request_id: answer.headers.get('x-request-id') ?? expect.stringMatching(/^req_/),
        ip: '127.0.0.1',
        details,
      });
    }
    const { id: last } = await newest();
    for (const [path, body] of [
      ['/keys', { name: 'x', scopes: ['admin'], tenant: 'acme' }],
      ['/keys/none/revoke', ''],
      [`/keys/${made.id}/revoke`, ''],
      [`/keys/${made.id}/rotate`, { overlap_sec: 0 }],
      [`/keys/${made.id}`, {}],
      ['/tenants/none', { name: 'x' }],
      ['/catalogue/none/deactivate', ''],
      ['/catalogue/sync', { url: 'http://127.0.0.1:1' }],
    ] as const)
      await post(path, body);
    expect((await newest()).id).toBe(last);
  });
});

describe('an admin key of a tenant other than local, as an older version could make one [admin.scope]', () => {
  it('administers nothing, neither its own tenant nor another', async () => {
    const foreign = await newAdmin();
    await database.db.insert(tenants).values({ id: 'globex' }).onConflictDoNothing();
    await database.db.update(apiKeys).set({ tenantId: 'globex' }).where(eq(apiKeys.id, foreign.id));
    const before = await keys();
    const { id: last } = await newest();
    for (const path of [
      '/keys',
      '/tenants',
      '/tenants/globex',
      '/catalogue/v2',
      '/usage',
      '/audit?tenant=globex',
    ])
      expect(await get(path, foreign.key), path).toMatchObject({
        status: 403,
        json: { code: 'insufficient_scope' },
      });
    for (const [path, body, headers] of [
      ['/keys', { name: 'x' }],
      ['/keys', { name: 'x', tenant: 'globex' }],
      [`/keys/${admin.id}`, { name: 'x' }],
      [`/keys/${admin.id}/rotate`, { overlap_sec: 0 }],
      [`/keys/${admin.id}/revoke`, ''],
      [`/keys/${foreign.id}`, { monthly_quota: { calls: null } }],
      ['/tenants/globex', { name: 'x' }],
      ['/catalogue/import', line('smuggled'), TEXT],
      ['/catalogue/sync', { url: registry.url }],
      ['/catalogue/v2/tools', ''],
      ['/catalogue/v2/deactivate', ''],
    ] as const) {
      const answer = await post(path, body, foreign.key, headers ?? {});
      expect(answer, path).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
    }
    expect(await keys()).toEqual(before);
    expect((await get(`/audit?after=${last}`)).json.audit).toMatchObject([
      { event: 'request_refused', key_id: foreign.id },
    ]);
    expect((await get('/catalogue/smuggled')).status).toBe(404);
  });

  it('is over at once when it is revoked', async () => {
    const other = await newAdmin();
    expect((await get('/keys', other.key)).status).toBe(200);
    expect((await post(`/keys/${other.id}/revoke`, '', other.key)).status).toBe(200);
    expect(await get('/keys', other.key)).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
  });
});

describe('a sync [admin.catalogue]', () => {
  it('tells who accepts lines what was listed, and what is wrong before it begins as any other request', async () => {
    const lines = await post('/catalogue/sync', { url: registry.url, full: true }, admin.key, {
      accept: 'application/x-ndjson',
    });
    expect(lines).toMatchObject({ status: 200 });
    expect(lines.headers.get('content-type')).toBe('application/x-ndjson');
    const told = lines.text
      .trim()
      .split('\n')
      .map(one => JSON.parse(one));
    expect(told).toContainEqual({ listed: 2 });
    expect(told.at(-1)).toMatchObject({ result: { mode: 'full', received: 2, synced: 2 } });
    const wrong = await post('/catalogue/sync', { url: 'x' }, admin.key, { accept: 'application/x-ndjson' });
    expect(wrong).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
  });

  it.each([
    ['application/json, application/X-NDJSON; q=0.5, */*', 'application/x-ndjson'],
    ['*/*', 'application/json; charset=utf-8'],
    ['application/x-ndjson;q=0, application/json', 'application/json; charset=utf-8'],
  ])('with Accept: %s responds with %s', async (accept, type) => {
    const answer = await post('/catalogue/sync', { url: registry.url }, admin.key, { accept });
    expect(answer).toMatchObject({ status: 200 });
    expect(answer.headers.get('content-type')).toBe(type);
  });

  it('that would end too much is refused, and is so in the audit log', async () => {
    await post('/catalogue/sync', { url: registry.url, full: true });
    const all = registry.entries;
    registry.entries = all.slice(0, 1);
    const answer = await post('/catalogue/sync', { url: registry.url, full: true });
    registry.entries = all;
    expect(answer).toMatchObject({ status: 200, json: { refused: expect.stringContaining('1 of the 2') } });
    expect(await newest()).toMatchObject({ event: 'catalogue_synced', outcome: 'refused' });
    expect((await get('/catalogue/com.example_bees')).json).toMatchObject({ active: true });
  });

  it('of a registry that fails is 502, and changes nothing', async () => {
    registry.fault = response => void response.writeHead(500).end('no');
    const answer = await post('/catalogue/sync', { url: registry.url });
    registry.fault = undefined;
    expect(answer).toMatchObject({ status: 502, json: { code: 'upstream_http_error' } });
  });
});

describe('the budget of an admin key [admin.scope]', () => {
  it('is one for all operations, and past it is 429 with Retry-After', async () => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'admin=3/60' } });
    const { key } = await newAdmin(limited);
    const headers = { 'x-api-key': key };
    for (const path of ['/keys', '/tenants', '/usage'])
      expect((await limited.get(`/v1/admin${path}`, headers)).status).toBe(200);
    const refused = await limited.post('/v1/admin/catalogue/import', line('x'), { ...headers, ...TEXT });
    expect(refused).toMatchObject({ status: 429, json: { code: 'rate_limited' } });
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  });
});

describe('the turn of the month [quota.refused]', () => {
  it('lets a key begin anew, and leaves the old month in the record of use', async () => {
    const clock = settableClock(Date.parse('2026-11-30T23:59:50Z'));
    await using later = await startTestSwitchboard({ clock });
    const limited = (
      await later.admin.request('POST', '/keys', { name: 'x', monthly_quota: { searches: 1 } })
    ).json;
    const search = () => later.post('/v1/search', { query: 'x' }, { 'x-api-key': limited.key });
    expect((await search()).status).toBe(200);
    const refused = await search();
    expect(refused).toMatchObject({
      status: 429,
      json: { quota: { resets_at: '2026-12-01T00:00:00.000Z' } },
    });
    expect(refused.headers.get('retry-after')).toBe('10');
    clock.time += 10_000;
    const first = await search();
    expect(first.status).toBe(200);
    expect(first.headers.get('ratelimit')).toContain(`"searches-per-month";r=0;t=${31 * 86_400}`);
    expect((await search()).status).toBe(429);
    const { json } = await later.admin.request('GET', `/usage?key_id=${limited.id}`);
    expect(json.usage.map(({ day, searches }: any) => [day, searches])).toEqual([
      ['2026-12-01', 1],
      ['2026-11-30', 1],
    ]);
  });
});
