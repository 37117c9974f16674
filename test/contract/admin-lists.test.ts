import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const GONE = 'http://127.0.0.1:1/mcp';

let database: OpenDatabase;
let sb: RunningSwitchboard;
beforeAll(async () => {
  database = await openTestDatabase();
  sb = await startTestSwitchboard({
    database: () => Promise.resolve(database),
    catalogue: [
      { id: 'keyed', remote_url: GONE, auth: { kind: 'credentials' } },
      { id: 'other', remote_url: `${GONE}/other`, auth: { kind: 'credentials' } },
      { id: 'open', remote_url: 'https://open.example/mcp', auth: { kind: 'none' } },
      {
        id: 'of-nobody',
        remote_url: 'https://n.example/mcp',
        auth: { kind: 'provider', provider: 'nobody' },
      },
      { id: 'of-acme', remote_url: 'https://far.example/mcp', auth: { kind: 'provider', provider: 'acme' } },
      { id: 'closed', remote_url: 'https://closed.example/mcp', auth: { kind: 'oauth' } },
    ],
    env: {
      SWITCHBOARD_RATE_LIMIT: 'off',
      SWITCHBOARD_OAUTH_CLIENTS: JSON.stringify({
        'https://apps.example': { client_id: 'of-settings', client_secret: 'never-shown' },
      }),
      SWITCHBOARD_PROVIDERS: JSON.stringify({
        acme: {
          issuer: 'https://acme.example',
          client_id: 'id',
          client_secret: 'never-shown-either',
          allowed_origins: ['https://near.example'],
        },
      }),
    },
  });
});
afterAll(() => sb[Symbol.asyncDispose]());

const get = async (path: string) => (await sb.get(`/v1/admin${path}`)).json;
const post = (path: string, body: unknown = {}) => sb.post(`/v1/admin${path}`, body);

/** Reads all pages. */
async function pagesOf(path: string, field: string): Promise<any[]> {
  const all: any[] = [];
  let cursor: string | null = '';
  for (let pages = 0; cursor !== null; pages++) {
    expect(pages).toBeLessThan(50);
    const more: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const answer: any = await get(`${path}${more}`);
    all.push(...answer[field]);
    cursor = answer.next_cursor;
  }
  return all;
}

describe('connections of all tenants', () => {
  beforeAll(async () => {
    await post('/keys', { name: 'app', tenant: 'app' });
    for (const [path, body] of [
      ['/v1/admin/connections', { server_id: 'keyed' }],
      ['/v1/admin/connections', { tenant: 'app', server_id: 'keyed' }],
      ['/v1/identity/connections', { user_id: 'ada', server_id: 'keyed' }],
      ['/v1/identity/connections', { user_id: 'ada', server_id: 'other' }],
      ['/v1/identity/connections', { user_id: 'bob', server_id: 'other' }],
    ] as const)
      expect((await sb.put(path, { ...body, values: { token: 'secret-token' } })).status).toBe(200);
  });

  it('are listed with their holders, the newest first, and without secrets [console.connections]', async () => {
    const { connections, next_cursor } = await get('/connections/all');
    expect(next_cursor).toBeNull();
    expect(connections.map((one: any) => [one.tenant, one.user, one.server_id])).toEqual([
      ['local', 'bob', 'other'],
      ['local', 'ada', 'other'],
      ['local', 'ada', 'keyed'],
      ['app', null, 'keyed'],
      ['local', null, 'keyed'],
    ]);
    expect(connections[0]).toMatchObject({ kind: 'credentials', status: 'active', last_used_at: null });
    expect(JSON.stringify(connections)).not.toContain('secret-token');
  });

  it.each([
    ['tenant=app', 1],
    ['user_id=ada', 2],
    ['tenant=app&user_id=ada', 0],
    ['server_id=other', 2],
    ['shared=yes', 2],
    ['shared=no', 3],
    ['kind=credentials', 5],
    ['kind=oauth', 0],
    ['kind=provider', 0],
    ['provider=acme', 0],
    ['status=rejected', 0],
    ['tenant=nobody', 0],
  ])('with %s are %i [console.connections]', async (query, count) => {
    expect((await get(`/connections/all?${query}`)).connections).toHaveLength(count);
  });

  it.each([
    'cursor=x',
    'cursor=2026-02-30T00:00:00.000000Z~con_x',
    'cursor=0000-01-01T00:00:00.000000Z~con_x',
    'cursor=2026-01-01T00:00:00.000000%2B23:59~con_x',
    'kind=any',
    'limit=0',
    'tenant=A',
    'user_id=%00',
  ])('%s is refused [console.connections]', async query => {
    expect((await sb.get(`/v1/admin/connections/all?${query}`)).status).toBe(400);
  });

  it('are given in pages, however many are made in one moment [console.scale]', async () => {
    await database.db.execute(sql`
      insert into users (id, tenant_id, external_id)
      select 'usr_' || lpad(n::text, 22, '0'), 'app', 'user-' || n from generate_series(1, 2000) n`);
    await database.db.execute(sql`
      insert into connections (id, tenant_id, user_id, provider, subject, scopes, status, has_refresh_token)
      select 'con_' || lpad(n::text, 22, '0'), 'app', 'usr_' || lpad(n::text, 22, '0'), 'acme', 's', '{}', 'needs_reauth', false
      from generate_series(1, 2000) n`);
    const all = await pagesOf('/connections/all?limit=300&provider=acme', 'connections');
    expect(new Set(all.map(one => one.id)).size).toBe(2000);
    expect(all).toHaveLength(2000);
    expect(all[0]).toMatchObject({
      kind: 'provider',
      provider: 'acme',
      server_id: null,
      status: 'needs_reauth',
    });
    await database.db.execute(sql`delete from connections where provider = 'acme'`);
  });

  it('end one by one, of any tenant, and at once [console.connections]', async () => {
    const [shared] = (await get('/connections/all?tenant=app')).connections;
    expect((await post(`/connections/${shared.id}/revoke`)).json).toEqual({ ended: true });
    expect((await post(`/connections/${shared.id}/revoke`)).json).toEqual({ ended: false });
    const [record] = (await get('/audit?event=connection_revoked')).audit;
    expect(record).toMatchObject({ tenant: 'app', outcome: 'ok' });
    const server = await get('/catalogue/keyed');
    expect(server.access.status).toBe('connected');
    const [own] = (await get('/connections/all?tenant=local&shared=yes')).connections;
    await post(`/connections/${own.id}/revoke`);
    expect((await get('/catalogue/keyed')).access.status).toBe('connect');
  });

  it('all end when a user is revoked [console.connections]', async () => {
    const { id } = (await post('/keys', { name: 'of ada', user_id: 'ada' })).json;
    const held = { connections: 2, identity_sessions: 0, pending_sign_ins: 0, keys: 1 };
    expect(await get('/users/holdings?user_id=ada')).toEqual(held);
    expect((await post('/users/revoke', { user_id: 'ada' })).json).toEqual({ revoked: true, ended: held });
    expect((await get('/connections/all?user_id=ada')).connections).toEqual([]);
    const { audit } = await get('/audit?user_id=ada&limit=2');
    expect(audit).toMatchObject([
      { event: 'user_revoked', user: expect.stringMatching(/^usr_/), user_id: 'ada', details: held },
      { event: 'key_revoked', user_id: 'ada', details: { key: id, with_user: true } },
    ]);
    expect((await get('/connections/all?user_id=bob')).connections).toHaveLength(1);
    expect((await get(`/keys?q=${id}`)).keys[0].revoked_at).not.toBeNull();
    const none = { connections: 0, identity_sessions: 0, pending_sign_ins: 0, keys: 0 };
    for (const user_id of ['ada', 'nobody'])
      expect(await get(`/users/holdings?user_id=${user_id}`)).toEqual(none);
    expect((await post('/users/revoke', { user_id: 'nobody' })).json).toEqual({ revoked: true, ended: none });
    for (const query of ['', '?user_id=', '?user_id=ada&tenant=none'])
      expect((await sb.get(`/v1/admin/users/holdings${query}`)).status).toBe(400);
    for (const body of [{}, { user_id: '' }, { user_id: 'ada', tenant: 'none' }])
      expect((await post('/users/revoke', body)).status).toBe(400);
  });
});

describe('keys and tenants', () => {
  it('are given in pages and found by text [console.lists]', async () => {
    for (let n = 0; n < 7; n++) await post('/keys', { name: `paged_${n}%`, tenant: `tenant-${n % 3}` });
    const paged = await pagesOf('/keys?limit=3&q=PAGED_', 'keys');
    expect(paged.map(one => one.name)).toEqual([6, 5, 4, 3, 2, 1, 0].map(n => `paged_${n}%`));
    expect((await get('/keys?q=paged_3%25')).keys).toHaveLength(1);
    expect((await get('/keys?q=pagedx')).keys).toHaveLength(0);
    await post('/keys', { name: 'of a user', user_id: 'Grace@example.com' });
    expect((await get('/keys?q=grace@')).keys).toMatchObject([{ user: 'Grace@example.com' }]);
    expect((await get('/keys?tenant=tenant-1')).keys).toHaveLength(2);
    await post(`/keys/${paged[0].id}/revoke`);
    expect((await get('/keys?q=paged&state=ended')).keys).toHaveLength(1);
    expect((await get('/keys?q=paged&state=active')).keys).toHaveLength(6);
    expect((await get('/keys')).next_cursor).toBeNull();

    const tenants = await pagesOf('/tenants?limit=2', 'tenants');
    expect(tenants.map(one => one.id)).toEqual(['app', 'local', 'tenant-0', 'tenant-1', 'tenant-2']);
    expect((await get('/tenants?q=NANT-1')).tenants).toMatchObject([{ id: 'tenant-1' }]);
  });

  it.each([
    '/keys?cursor=x',
    '/keys?limit=0',
    '/keys?state=all',
    '/keys?q=',
    '/tenants?cursor=%20',
    '/tenants?limit=1001',
  ])('%s is refused [console.lists]', async path => {
    expect((await sb.get(`/v1/admin${path}`)).status).toBe(400);
  });
});

describe('the audit log', () => {
  it('is followed by asking for what is newer, and filtered by outcome [console.audit]', async () => {
    const [newest] = (await get('/audit?limit=1')).audit;
    expect((await get(`/audit?after=${newest.id}`)).audit).toEqual([]);
    await post('/tenants/local', { name: 'A name' });
    const { audit } = await get(`/audit?after=${newest.id}`);
    expect(audit).toMatchObject([{ event: 'tenant_changed', id: expect.any(Number) }]);
    expect(audit[0].id).toBeGreaterThan(newest.id);
    expect((await get('/audit?outcome=failed')).audit).toEqual([]);
    const revoked = (await get('/audit?event=user_revoked')).audit[0];
    expect((await get(`/audit?user=${revoked.user}&event=user_revoked`)).audit).toEqual([revoked]);
    for (const query of ['after=x', 'outcome=bad', 'user=ada', 'user_id=', 'key=a b'])
      expect((await sb.get(`/v1/admin/audit?${query}`)).status).toBe(400);
  });
});

describe('the audit log of a key', () => {
  it('is found by the key that acted or was acted on, with quota and user [console.audit]', async () => {
    const made = (
      await post('/keys', { name: 'x', tenant: 'app', user_id: 'eve', monthly_quota: { calls: 7 } })
    ).json;
    const next = (await post(`/keys/${made.id}/rotate`, { overlap_sec: 0 })).json;
    await post(`/keys/${next.id}`, { name: 'y' });
    await post(`/keys/${next.id}/revoke`);
    const eventsOf = async (query: string) =>
      (await get(`/audit?${query}`)).audit.map((one: any) => one.event);
    expect(await eventsOf(`key=${made.id}`)).toEqual(['key_rotated', 'key_created']);
    expect(await eventsOf(`key=${next.id}`)).toEqual(['key_revoked', 'key_changed', 'key_rotated']);
    expect(await eventsOf('user_id=eve')).toEqual([
      'key_revoked',
      'key_changed',
      'key_rotated',
      'key_created',
    ]);
    expect(await eventsOf('user_id=eve&tenant=local')).toEqual([]);
    expect((await get(`/audit?key=${made.id}&event=key_created`)).audit).toMatchObject([
      { tenant: 'app', user_id: 'eve', details: { key: made.id, scopes: 'search,proxy', calls: 7 } },
    ]);
    const admin = (await post('/keys', { name: 'acts', scopes: ['admin'] })).json;
    await sb.post('/v1/admin/keys', { name: 'made by it' }, { 'x-api-key': admin.key });
    expect(await eventsOf(`key=${admin.id}`)).toEqual(['key_created', 'key_created']);
    expect(await eventsOf(`key_id=${admin.id}`)).toEqual(['key_created']);
  });
});

describe('what is set up', () => {
  it('shows clients, providers and what is missing, and no secret [console.setup]', async () => {
    await database.db.execute(sql`
      insert into oauth_clients (id, issuer, redirect_uri, client_id, sealed)
      values ('cli_1', 'https://self.example', ${`${sb.url}/oauth/return/1`}, 'registered', 'sealed-secret')`);
    const setup = await get('/setup');
    expect(setup).toMatchObject({
      public_url: sb.url,
      client_metadata_url: null,
      return_url: `${sb.url}/oauth/return`,
      providers_missing: [{ name: 'nobody', count: 1, servers: ['of-nobody'] }],
      origins_missing: [{ provider: 'acme', origin: 'https://far.example', count: 1, servers: ['of-acme'] }],
      oauth_needed: [],
      settings: { oauth_clients: 'SWITCHBOARD_OAUTH_CLIENTS' },
    });
    expect(setup.oauth_clients).toMatchObject([
      {
        issuer: 'https://apps.example',
        source: 'setting',
        client_id: 'of-settings',
        redirect_uri: expect.stringMatching(new RegExp(`^${sb.url}/oauth/return/[\\w-]{16}$`)),
      },
      { issuer: 'https://self.example', source: 'registered', client_id: 'registered' },
    ]);
    expect(setup.providers).toMatchObject([
      { name: 'google', is_configured: false, servers: 0 },
      { name: 'acme', is_configured: true, servers: 1, redirect_uri: `${sb.url}/oauth/callback/acme` },
    ]);
    expect(JSON.stringify(setup)).not.toMatch(/never-shown|sealed-secret/);
  });

  it('shows the form of a server that takes a key [console.setup]', async () => {
    expect(await get('/connections/form?server_id=keyed')).toMatchObject({
      name: 'keyed',
      host: '127.0.0.1:1',
      key_url: null,
      fields: [{ name: 'token', is_required: true, is_secret: true }],
    });
    expect((await sb.get('/v1/admin/connections/form?server_id=open')).status).toBe(400);
    expect((await sb.get('/v1/admin/connections/form?server_id=none')).status).toBe(404);
    expect((await sb.get('/v1/admin/connections/form')).status).toBe(400);
  });
});

describe('the overview', () => {
  it('says how the installation is doing and what needs attention [console.overview]', async () => {
    const before = await get('/overview');
    expect(before).toMatchObject({
      version: expect.any(String),
      status: 'ready',
      degraded: [],
      servers: { active: 6, inactive: 0, tools: 0, by_status: { unvisited: 6, ok: 0 } },
    });
    expect(before.days).toHaveLength(30);
    expect(before.setup.map((one: any) => [one.kind, one.count, one.ids])).toEqual([
      ['provider_missing', 1, ['nobody']],
      ['provider_origin_missing', 1, ['of-acme']],
    ]);

    await sb.post('/v1/search', { query: 'keyed' });
    await sb.post('/v1/mcp/tools/call', { server_id: 'keyed', name: 'x', arguments: {} });
    await sb.post('/v1/admin/catalogue/open/deactivate', '');
    const after = await get('/overview');
    expect(after.traffic.since).toBe(before.traffic.since);
    expect(after.traffic.searches.count - before.traffic.searches.count).toBe(1);
    expect(after.traffic.searches.p95_ms).toEqual(expect.any(Number));
    expect(after.traffic.searches.buckets.at(-1)).toEqual({
      le_ms: null,
      count: after.traffic.searches.count,
    });
    expect(after.servers).toMatchObject({ active: 5, inactive: 1 });
    expect(after.days.at(-1).searches - before.days.at(-1).searches).toBe(1);
  });
});
