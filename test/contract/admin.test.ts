import { request } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exchange, startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
let admin: { id: string; key: string };
let plain: { id: string; key: string };

beforeAll(async () => {
  // Most of these tests ask more often than a key may by default.
  sb = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'admin=5000/60' } });
  admin = await onSocket(['admin']);
  plain = await onSocket(['search', 'proxy', 'identity']);
});
afterAll(() => sb[Symbol.asyncDispose]());

const onSocket = async (scopes: string[], more: object = {}) =>
  (await sb.admin.request('POST', '/keys', { name: 'test', scopes, ...more })).json;
const get = (path: string, key = admin.key) => sb.get(`/v1/admin${path}`, { 'x-api-key': key });
const post = (path: string, body: unknown = '', key = admin.key, headers: Record<string, string> = {}) =>
  sb.post(`/v1/admin${path}`, body, { 'x-api-key': key, ...headers });
const importLines = (lines: string | Uint8Array, { query = '', ...headers }: Record<string, string> = {}) =>
  post(`/catalogue/import${query}`, lines, admin.key, { 'content-type': 'application/x-ndjson', ...headers });
const line = (id: string, more: object = {}) =>
  JSON.stringify({
    id,
    name: id,
    description: 'A server.',
    remote_url: `https://${id}.example/mcp`,
    ...more,
  });

const OPERATIONS = [
  ['GET', '/keys'],
  ['POST', '/keys'],
  ['POST', '/keys/x'],
  ['POST', '/keys/x/rotate'],
  ['POST', '/keys/x/revoke'],
  ['GET', '/tenants'],
  ['GET', '/tenants/local'],
  ['POST', '/tenants/local'],
  ['POST', '/catalogue/import'],
  ['POST', '/catalogue/sync'],
  ['POST', '/catalogue/reindex'],
  ['GET', '/catalogue/filler'],
  ['POST', '/catalogue/filler/tools'],
  ['POST', '/catalogue/filler/deactivate'],
  ['GET', '/usage'],
  ['GET', '/audit'],
  ['GET', '/overview'],
  ['GET', '/setup'],
  ['GET', '/catalogue'],
  ['GET', '/connections/all'],
  ['POST', '/connections/x/revoke'],
  ['GET', '/users/holdings?user_id=x'],
  ['POST', '/users/revoke'],
  ['POST', '/search'],
  ['POST', '/call'],
] as const;

describe('who may administer', () => {
  it.each(OPERATIONS)(
    '%s %s needs a key, and one with the scope admin [admin.scope]',
    async (method, path) => {
      const ask = (key: string) => (method === 'GET' ? get(path, key) : post(path, {}, key));
      const keyless = await ask('');
      expect(keyless).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
      expect(keyless.headers.get('www-authenticate')).toBe(
        'Bearer realm="switchboard", error="invalid_token"',
      );
      const refused = await ask(plain.key);
      expect(refused).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
      expect(refused.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    },
  );

  it('only keys of the tenant local can be admin keys [admin.scope]', async () => {
    for (const answer of [
      await post('/keys', { name: 'x', tenant: 'acme', scopes: ['admin'] }),
      await sb.admin.request('POST', '/keys', { name: 'x', tenant: 'acme', scopes: ['admin'] }),
    ]) {
      expect(answer).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
      expect(answer.json.detail).toContain('scopes: admin covers the whole installation');
    }
    expect((await post('/keys', { name: 'x', user_id: 'ada', scopes: ['admin'] })).status).toBe(400);
  });

  it('an admin key does nothing else, and acts for no end user [admin.scope]', async () => {
    for (const [path, body] of [
      ['/v1/search', { query: 'x' }],
      ['/v1/mcp/tools/list', { server_id: 'filler' }],
      ['/v1/identity/sessions', { user_id: 'ada', provider: 'x' }],
      ['/v1/identity/revoke', { user_id: 'ada' }],
    ] as const) {
      expect((await sb.post(path, body, { 'x-api-key': admin.key })).status, path).toBe(403);
    }
    for (const path of [
      '/connections/link',
      '/console/link',
      '/console/end',
      '/vault/rewrap',
      '/signing-keys/rotate',
    ])
      expect((await post(path, {})).status, path).toBe(404);
  });

  it('no page of another origin reaches it: no CORS, and a foreign Origin is refused [admin.browsers]', async () => {
    const foreign = await sb.get('/v1/admin/keys', {
      'x-api-key': admin.key,
      origin: 'https://evil.example',
    });
    expect(foreign).toMatchObject({ status: 403, json: { code: 'host_not_allowed' } });
    const preflight = await exchange(`${sb.url}/v1/admin/keys`, {
      method: 'OPTIONS',
      headers: { 'access-control-request-method': 'POST', 'access-control-request-headers': 'x-api-key' },
    });
    expect(preflight.status).toBe(401);
    expect(preflight.headers.get('access-control-allow-origin')).toBeNull();
    const listed = await get('/keys');
    expect(listed.headers.get('cache-control')).toBe('no-store');
    expect(listed.headers.get('ratelimit-policy')).toBe('"admin";q=5000;w=60');
  });
});

describe('keys', () => {
  it('are made, listed, renamed, rotated and revoked, as on the control socket [admin.keys]', async () => {
    const made = await post('/keys', { name: 'made', tenant: 'acme', scopes: ['search'] });
    expect(made).toMatchObject({
      status: 200,
      json: { name: 'made', tenant: 'acme', monthly_quota: { calls: null, searches: null } },
    });
    const { id, key } = made.json;
    expect((await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': key })).status).toBe(200);
    expect((await post(`/keys/${id}`, { name: 'renamed' })).json.name).toBe('renamed');
    const rotated = (await post(`/keys/${id}/rotate`, { overlap_sec: 60 })).json;
    expect(rotated).toMatchObject({ name: 'renamed', replaces: { id } });
    expect(await post(`/keys/${rotated.id}/revoke`)).toMatchObject({
      status: 200,
      json: { id: rotated.id, revoked_at: expect.any(String) },
    });
    expect((await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': rotated.key })).status).toBe(401);

    const listed = await get('/keys');
    const onControl = await sb.admin.request('GET', '/keys');
    const sorted = (keys: any[]) => keys.map(({ last_used_at: _moves, ...rest }) => rest);
    expect(sorted(listed.json.keys)).toEqual(sorted(onControl.json.keys));
    expect(listed.text).not.toMatch(/sbk_live_/);
  });

  it('wrong input is refused in the same words on both [admin.same]', async () => {
    for (const [path, body] of [
      ['/keys', { name: '', scopes: ['all'] }],
      ['/keys', { name: 'x', monthly_quota: { calls: 0 } }],
      ['/keys', { name: 'x', monthly_quota: { tools: 1 } }],
      ['/keys/none', { name: 'x' }],
      ['/keys/none/rotate', { overlap_sec: -1 }],
      ['/keys/none/revoke', {}],
      ['/tenants/none', { name: 'x' }],
      ['/tenants/local', { mode: 'any' }],
      ['/catalogue/none/deactivate', {}],
    ] as const) {
      const { request_id: _rest, ...rest } = (await post(path, body)).json;
      const { request_id: _socket, ...socket } = (await sb.admin.request('POST', path, body)).json;
      expect(rest, path).toEqual(socket);
      expect(rest.status).toBeGreaterThanOrEqual(400);
    }
  });
});

describe('tenants', () => {
  it('are listed, shown and changed [admin.tenants]', async () => {
    await onSocket(['search'], { tenant: 'globex' });
    expect((await get('/tenants')).json.tenants.map(({ id }: any) => id)).toEqual(
      expect.arrayContaining(['globex', 'local']),
    );
    expect(await post('/tenants/globex', { name: 'Globex', mode: 'page' })).toMatchObject({ status: 200 });
    expect((await get('/tenants/globex')).json).toMatchObject({ name: 'Globex', mode: 'page' });
  });
});

describe('catalogue', () => {
  it('an import is read as it comes, reports bad lines and what it did [admin.catalogue]', async () => {
    const answer = await importLines(`${line('over-http')}\nnonsense\n`);
    expect(answer).toMatchObject({
      status: 200,
      json: { imported: 1, problems: [{ line: 2, reason: 'is not valid JSON' }] },
    });
    expect((await get('/catalogue/over-http')).json).toMatchObject({ active: true, origin: 'operator' });
    const packed = await importLines(gzipSync(line('packed')), { 'content-encoding': 'gzip' });
    expect(packed.json).toMatchObject({ imported: 1, problems: [] });
    expect((await post('/catalogue/over-http/deactivate')).json.active).toBe(false);
  });

  it('who accepts lines hears of the progress [admin.catalogue]', async () => {
    const { headers, ...answer } = await fetch(`${sb.url}/v1/admin/catalogue/import`, {
      method: 'POST',
      body: line('lines'),
      headers: { 'x-api-key': admin.key, 'content-type': 'text/plain', accept: 'application/x-ndjson' },
    }).then(async response => ({ headers: response.headers, text: await response.text() }));
    expect(headers.get('content-type')).toBe('application/x-ndjson');
    const lines = answer.text
      .trim()
      .split('\n')
      .map(one => JSON.parse(one));
    expect(lines.at(-1)).toMatchObject({ result: { imported: 1 } });
  });

  it('an import that cannot be taken is refused and changes nothing [admin.catalogue]', async () => {
    expect(await importLines('')).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
    expect(
      await importLines(line('form'), { 'content-type': 'application/x-www-form-urlencoded' }),
    ).toMatchObject({ status: 415, json: { code: 'unsupported_media_type' } });
    expect(await importLines('not gzip', { 'content-encoding': 'gzip' })).toMatchObject({ status: 400 });
    expect(await importLines(line('query'), { query: '?replace=perhaps' })).toMatchObject({ status: 400 });
    for (const id of ['form', 'query']) expect((await get(`/catalogue/${id}`)).status).toBe(404);
    expect((await importLines(line('after'))).status).toBe(200);
  });
});

describe('an import that is still being sent', () => {
  it('keeps others waiting, and changes nothing when it is cut short [admin.catalogue]', async () => {
    const begin = () => {
      const sent = request(`${sb.url}/v1/admin/catalogue/import`, {
        method: 'POST',
        headers: { 'x-api-key': admin.key, 'content-type': 'application/x-ndjson' },
      });
      sent.on('error', () => {});
      sent.write(`${line('half-sent')}\n`);
      return sent;
    };
    /** An import of nothing: refused for that, or for the other one. */
    const whileBusy = async (isBusy: boolean) => {
      for (;;) {
        const answer = await importLines('');
        expect([400, 503]).toContain(answer.status);
        if ((answer.status === 503) === isBusy) return answer;
      }
    };
    const cut = begin();
    const busy = await whileBusy(true);
    expect(busy.json).toMatchObject({ code: 'unavailable', retryable: true });
    expect(busy.headers.get('retry-after')).toBe('5');
    cut.destroy();
    await whileBusy(false);
    expect((await get('/catalogue/half-sent')).status).toBe(404);

    const whole = begin();
    const answered = new Promise<number | undefined>(resolve =>
      whole.once('response', ({ statusCode }) => resolve(statusCode)),
    );
    await whileBusy(true);
    whole.end(line('second-half'));
    expect(await answered).toBe(200);
    for (const id of ['half-sent', 'second-half'])
      expect((await get(`/catalogue/${id}`)).status, id).toBe(200);
  });
});

describe('audit', () => {
  it('names the key that acted, and the command line as operator; never a secret [admin.audit]', async () => {
    const { id, key } = (await post('/keys', { name: 'audited', scopes: ['search'] })).json;
    await post(`/keys/${id}/revoke`);
    await post(`/keys/${id}/revoke`);
    const byKey = (await get(`/audit?key_id=${admin.id}&limit=2`)).json;
    expect(byKey.audit).toMatchObject([
      { event: 'key_revoked', outcome: 'ok', key_id: admin.id, tenant: 'local', details: { key: id } },
      { event: 'key_created', details: { key: id, scopes: 'search' }, ip: expect.any(String) },
    ]);
    await onSocket(['search'], { tenant: 'initech' });
    const ofTenant = await get('/audit?tenant=initech&event=key_created');
    expect(ofTenant.json.audit).toMatchObject([{ key_id: 'operator', tenant: 'initech' }]);
    expect(ofTenant.text + JSON.stringify(byKey)).not.toContain(key.slice(-38));
  });

  it('is given in pages, the newest first [admin.pages]', async () => {
    const ids: number[] = [];
    let cursor: string | null = null;
    do {
      const { json }: any = await get(`/audit?limit=3${cursor === null ? '' : `&cursor=${cursor}`}`);
      expect(json.audit.length).toBeLessThanOrEqual(3);
      ids.push(...json.audit.map((one: any) => one.id));
      cursor = json.next_cursor;
    } while (cursor !== null);
    expect(ids).toEqual([...new Set(ids)].toSorted((a, b) => b - a));
    expect(ids.length).toBeGreaterThan(6);
    for (const wrong of ['limit=0', 'limit=1001', 'limit=x', 'cursor=x', 'from=yesterday', 'other=1'])
      expect((await get(`/audit?${wrong}`)).status, wrong).toBe(400);
  });
});
