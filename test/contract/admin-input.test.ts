import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exchange, startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
let key: string;
beforeAll(async () => {
  sb = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'admin=5000/60' } });
  key = (await sb.admin.request('POST', '/keys', { name: 'ops', scopes: ['admin'] })).json.key;
});
afterAll(() => sb[Symbol.asyncDispose]());

const ask = (method: string, path: string, body?: string, type = 'application/json') =>
  exchange(`${sb.url}/v1/admin${path}`, {
    method,
    headers: { 'x-api-key': key, ...(body === undefined ? {} : { 'content-type': type }) },
    ...(body === undefined ? {} : { body }),
  });
const get = (path: string) => ask('GET', path);
const post = (path: string, body: unknown) => ask('POST', path, JSON.stringify(body));

/** Paths that take JSON, with a body that is well formed. */
const JSON_BODIES: readonly (readonly [path: string, body: object])[] = [
  ['/keys', { name: 'x' }],
  ['/keys/none', { name: 'x' }],
  ['/keys/none/rotate', { overlap_sec: 0 }],
  ['/tenants/local', { name: 'x' }],
  ['/catalogue/sync', { url: 'https://registry.example' }],
];

describe('a body that cannot be taken [admin.input]', () => {
  it.each(JSON_BODIES)('POST %s is refused for its form, its fields and its size', async (path, body) => {
    const refused = async (status: number, code: string, text: string, type?: string) => {
      const answer = await ask('POST', path, text, type);
      expect(answer, text.slice(0, 50)).toMatchObject({ status, json: { status, code } });
      expect(answer.headers.get('content-type')).toMatch(/^application\/problem\+json/);
      return String(answer.json.detail);
    };
    await refused(400, 'invalid_json', '{"name":');
    await refused(400, 'invalid_json', '');
    await refused(400, 'invalid_request', '[]');
    const unknown = await refused(400, 'invalid_request', JSON.stringify({ ...body, tenat: 'x' }));
    expect(unknown).toContain('Unknown field "tenat"');
    await refused(413, 'payload_too_large', JSON.stringify({ ...body, name: 'x'.repeat(1_100_000) }));
    await refused(400, 'invalid_json', `{"name":${'['.repeat(300)}${']'.repeat(300)}}`);
    await refused(415, 'unsupported_media_type', JSON.stringify(body), 'text/plain');
  });

  it.each([
    ['/keys', { name: 'a\0b' }],
    ['/keys', { name: 'two\nlines' }],
    ['/keys', { name: 'half \ud800 a pair' }],
    ['/keys', { name: 'x', user_id: 'a\0b' }],
    ['/keys', { name: 'x', tenant: 'A b' }],
    ['/keys', { name: 'x', scopes: [] }],
    ['/keys', { name: 'x', scopes: ['__proto__'] }],
    ['/keys', { name: 'x', expires_at: '2020-01-01T00:00:00Z' }],
    ['/keys', { name: 'x', expires_at: '9999-12-31T23:59:59-23:59' }],
    ['/keys', { name: 'x', monthly_quota: { calls: 1.5 } }],
    ['/keys', { name: 'x', monthly_quota: { calls: 2_147_483_648 } }],
    ['/keys/none/rotate', { overlap_sec: 1e9 }],
    ['/tenants/local', { return_urls: ['https://app.example/a\0b'] }],
    ['/connections/revoke', { server_id: 'a\0b' }],
    ['/tenants/local', { return_urls: ['https://app.example/\ud800'] }],
    ['/catalogue/sync', { url: 'https://user:secret@registry.example' }],
    ['/catalogue/sync', { url: 'file:///etc/passwd' }],
  ])('POST %s %j is 400', async (path, body) => {
    expect(await post(path, body)).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
  });

  it.each([
    '/audit?key_id=%00',
    '/audit?event=a%00b',
    '/audit?from=0000-01-01T00:00:00Z',
    '/audit?to=9999-12-31T23:59:59-23:59',
    '/audit?limit=1&limit=2',
    '/audit?cursor=9999999999999999',
    '/usage?key_id=%00',
    '/usage?from=0000-01-01',
    '/usage?cursor=0000-01-01~k',
    '/usage?tenant=%27%20or%201=1',
    '/usage?__proto__=x',
    '/tenants/%00',
    '/tenants/%ff',
  ])('GET %s is 400', async path => {
    expect(await get(path)).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
  });

  it.each(['/keys/%00/revoke', '/catalogue/%00/deactivate', '/catalogue/%00/tools'])(
    'POST %s is 400',
    async path => {
      expect(await ask('POST', path)).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
    },
  );
});

describe('a method that a path does not take [admin.input]', () => {
  it.each([
    ['/keys', 'GET, HEAD, POST'],
    ['/keys/x', 'POST'],
    ['/keys/x/rotate', 'POST'],
    ['/keys/x/revoke', 'POST'],
    ['/tenants', 'GET, HEAD'],
    ['/tenants/local', 'GET, HEAD, POST'],
    ['/catalogue', 'GET, HEAD'],
    ['/catalogue/import', 'POST, GET, HEAD, PUT'],
    ['/catalogue/sync', 'POST, GET, HEAD, PUT'],
    ['/catalogue/filler', 'GET, HEAD, PUT'],
    ['/catalogue/filler/tools', 'POST'],
    ['/catalogue/filler/deactivate', 'POST'],
    ['/usage', 'GET, HEAD'],
    ['/audit', 'GET, HEAD'],
  ])('%s names those it does: %s', async (path, allowed) => {
    const others = ['PUT', 'PATCH', 'DELETE', 'GET'].filter(method => !allowed.includes(method));
    for (const method of others) {
      const answer = await ask(method, path);
      expect(answer).toMatchObject({ status: 405, json: { code: 'method_not_allowed' } });
      expect(answer.headers.get('allow')).toBe(allowed);
    }
    expect((await ask('GET', `${path}/`)).status).toBe(404);
  });
});

describe('servers called as the paths beside them [admin.catalogue]', () => {
  it.each(['import', 'sync'])('%s is shown, read and taken out of use like any other', async id => {
    const entry = { id, name: id, description: 'A server.', remote_url: `https://${id}.example/mcp` };
    const line = JSON.stringify(entry);
    expect((await ask('POST', '/catalogue/import', line, 'text/plain')).json).toMatchObject({ imported: 1 });
    expect(await get(`/catalogue/${id}`)).toMatchObject({ status: 200, json: { id, active: true } });
    expect((await sb.admin.request('GET', `/catalogue/${id}`)).json).toMatchObject({ id });
    expect((await ask('HEAD', `/catalogue/${id}`)).status).toBe(200);
    expect((await ask('POST', `/catalogue/${id}/deactivate`)).json).toMatchObject({ id, active: false });
  });
});
