import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { request } from 'undici';
import { generateApiKey } from '../../src/core/access/key-text.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
beforeAll(async () => void (sb = await startTestSwitchboard()));
afterAll(() => sb[Symbol.asyncDispose]());

const ENDPOINTS = [
  ['POST', '/v1/search'],
  ['POST', '/v1/search/feedback'],
  ['POST', '/v1/mcp/call'],
  ['POST', '/v1/mcp/tools/call'],
  ['POST', '/v1/mcp/tools/list'],
  ['POST', '/v1/identity/sessions'],
  ['GET', '/v1/identity/sessions/ses_x'],
  ['POST', '/v1/identity/token'],
  ['POST', '/v1/identity/refresh'],
  ['POST', '/v1/identity/revoke'],
  ['GET', '/v1/identity/connections'],
  ['POST', '/v1/identity/manage'],
  ['GET', '/v0.1/servers'],
  ['GET', '/v0.1/servers/a%2Fb/versions'],
  ['GET', '/v0.1/servers/a%2Fb/versions/latest'],
] as const;

const asMethod = (method: 'GET' | 'POST', path: string, headers: Record<string, string>) =>
  method === 'GET' ? sb.get(path, headers) : sb.post(path, {}, headers);
const newKey = async (scopes: string[]) =>
  (await sb.admin.request('POST', '/keys', { name: 'test', scopes })).json;

describe('401', () => {
  it.each(ENDPOINTS)(
    '%s %s without a key [access.key.required] [identity.needs-key] [versioning.path]',
    async (method, path) => {
      const answer = await asMethod(method, path, { 'x-api-key': '' });
      expect(answer.status).toBe(401);
      expect(answer.json).toMatchObject({ code: 'unauthorized', status: 401 });
      const ways = path.startsWith('/v0.1/')
        ? 'X-API-Key, or as Authorization: Bearer'
        : "X-API-Key (a Bearer token is read as a user's identity token here)";
      expect(answer.json.detail).toBe(
        `Send a valid API key in the header ${ways}. \`switchboard keys create\` creates one.`,
      );
      expect(answer.headers.get('www-authenticate')).toBe(
        'Bearer realm="switchboard", error="invalid_token"',
      );
    },
  );

  it('is the same response for every wrong key [access.key.invalid]', async () => {
    const { key, id } = await newKey(['search']);
    const revoked = await newKey(['search']);
    await sb.admin.request('POST', `/keys/${revoked.id}/revoke`);
    const wrongChecksum = key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
    const bodies = new Set<string>();
    for (const wrong of [
      '',
      'nonsense',
      generateApiKey().key,
      wrongChecksum,
      revoked.key,
      `${id}`,
      `${key} `.repeat(10).trim(),
    ]) {
      const answer = await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': wrong });
      expect(answer.status).toBe(401);
      const { request_id: _id, ...rest } = answer.json;
      bodies.add(JSON.stringify(rest));
    }
    expect(bodies.size).toBe(1);
    expect((await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': key })).status).toBe(200);
  });

  it('a repeated key header is invalid [access.key.invalid]', async () => {
    const { statusCode } = await request(`${sb.url}/v1/search`, {
      method: 'POST',
      headers: ['x-api-key', sb.key, 'x-api-key', sb.key, 'content-type', 'application/json'],
      body: '{"query":"x"}',
    });
    expect(statusCode).toBe(401);
  });

  it('a key elsewhere than in the header does not count [access.bearer-is-not-a-key]', async () => {
    const elsewhere = { 'x-api-key': '', authorization: `Bearer ${sb.key}`, cookie: `X-API-Key=${sb.key}` };
    expect(
      (await sb.post(`/v1/search?api_key=${sb.key}&x-api-key=${sb.key}`, { query: 'x' }, elsewhere)).status,
    ).toBe(401);
  });

  it('comes before routing, method and body [access.before-routing]', async () => {
    expect((await sb.get('/v1/no/such/path', { 'x-api-key': '' })).status).toBe(401);
    expect((await sb.get('/v1/search', { 'x-api-key': '' })).status).toBe(401);
    expect((await sb.post('/v1/search', '{broken', { 'x-api-key': '' })).status).toBe(401);
    expect((await sb.get('/v1/no/such/path')).status).toBe(404);
  });

  it('on the generic call is a JSON-RPC error too', async () => {
    const { status, json } = await sb.post(
      '/v1/mcp/call',
      { server_id: 'x', method: 'y', id: 7 },
      { 'x-api-key': '' },
    );
    expect(status).toBe(401);
    expect(json).toMatchObject({
      jsonrpc: '2.0',
      id: null,
      error: { code: -32000, data: { reason: 'unauthorized' } },
      code: 'unauthorized',
    });
  });
});

describe('403', () => {
  it('a key without the scope learns which one it lacks', async () => {
    const { key } = await newKey(['proxy']);
    const { status, json } = await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': key });
    expect(status).toBe(403);
    expect(json).toMatchObject({
      code: 'insufficient_scope',
      detail: 'This API key lacks the scope "search". Use a key that has it.',
    });
  });
});

describe('429', () => {
  it.each([
    ['search', 'POST', '/v1/search', { query: 'x' }],
    ['proxy', 'POST', '/v1/mcp/call', { server_id: 'nope', method: 'tools/list' }],
    ['proxy', 'POST', '/v1/mcp/tools/call', { server_id: 'nope', name: 't' }],
    ['proxy', 'POST', '/v1/mcp/tools/list', { server_id: 'nope' }],
    ['refresh', 'POST', '/v1/identity/refresh', {}],
    ['revoke', 'POST', '/v1/identity/revoke', {}],
  ] as const)(
    '%s limit on %s %s, with the standard headers [access.rate-limit]',
    async (limit, _method, path, body) => {
      await using limited = await startTestSwitchboard({
        env: { SWITCHBOARD_RATE_LIMIT: `${limit}=2/600` },
      });
      const first = await limited.post(path, body);
      expect(first.headers.get('ratelimit-policy')).toBe(`"${limit}";q=2;w=600`);
      expect(first.headers.get('ratelimit')).toMatch(new RegExp(`^"${limit}";r=1;t=\\d+$`));
      await limited.post(path, body);
      const third = await limited.post(path, body);
      expect(third.status).toBe(429);
      expect(Number(third.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(third.headers.get('ratelimit')).toMatch(new RegExp(`^"${limit}";r=0;t=\\d+$`));
      expect(third.json).toMatchObject({ code: 'rate_limited', status: 429 });
      expect(third.json.detail).toMatch(/may make 2 \w+ requests per 600 s\. Try again in \d+ s\./);
    },
  );

  it('is per key: another key is not affected', async () => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'search=1/600' } });
    const other = (await limited.admin.request('POST', '/keys', { name: 'other', scopes: ['search'] })).json
      .key;
    await limited.post('/v1/search', { query: 'x' });
    expect((await limited.post('/v1/search', { query: 'x' })).status).toBe(429);
    expect((await limited.post('/v1/search', { query: 'x' }, { 'x-api-key': other })).status).toBe(200);
  });
});

describe('what belongs to no class of endpoint', () => {
  const BUCKET = 600;
  const rpc = (method: string, params?: object, id: object = { id: 1 }) =>
    JSON.stringify({ jsonrpc: '2.0', ...id, method, params });
  const call = (name: unknown, args?: unknown) => rpc('tools/call', { name, arguments: args });
  const post = (body: string, headers: Record<string, string> = {}) => ({
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json', ...headers },
  });

  interface Sent {
    readonly method?: string;
    readonly body?: string;
    readonly headers?: Record<string, string>;
  }

  /** Makes a key, and spends of it what has no class, but for so much. */
  async function keyWithLeft(left: number, scopes = ['search', 'proxy']) {
    const { key } = await newKey(scopes);
    const send = async (path: string, init: Sent) => {
      const answer = await fetch(sb.url + path, { ...init, headers: { ...init.headers, 'x-api-key': key } });
      return { status: answer.status, text: await answer.text(), headers: answer.headers };
    };
    const nothing = async () => (await send('/v1/nothing', {})).status;
    for (let at = left; at < BUCKET; at += 50)
      await Promise.all(Array.from({ length: Math.min(50, BUCKET - at) }, nothing));
    return send;
  }

  it.each<[what: string, path: string, init: Sent, status: number, scopes?: string[]]>([
    ['a wrong path', '/v1/nothing', {}, 404],
    ['a message to /mcp that calls no tool', '/mcp', post(rpc('ping')), 200],
    ['a refused message to /mcp', '/mcp', post('[]'), 400],
    ['a message to /mcp of another type', '/mcp', post('{}', { 'content-type': 'text/plain' }), 415],
    ['a message to /mcp with a bad deadline', '/mcp', post('{}', { 'switchboard-timeout-ms': '7' }), 400],
    ['another HTTP method at /mcp', '/mcp', { method: 'PUT' }, 405],
    ['tools/list with bad params', '/mcp', post(rpc('tools/list', { cursor: 7 })), 200],
    ['a call of no tool', '/mcp', post(rpc('tools/call', {})), 200],
    ['a call of an unknown tool', '/mcp', post(call('nope', {})), 200],
    ['a call of a tool named oddly', '/mcp', post(call('__proto__', {})), 200],
    ['a call with arguments that are none', '/mcp', post(call('call_remote_tool', 'x')), 200],
    ['a call as a notification', '/mcp', post(rpc('tools/call', { name: 'search_servers' }, {})), 202],
    [
      'a call of a tool in an unknown revision',
      '/mcp',
      post(call('search_servers', {}), { 'mcp-protocol-version': '1999-01-01' }),
      400,
    ],
    ['a call without the scope', '/mcp', post(call('call_remote_tool', {})), 200, ['search']],
    ['a wrong path below a server', '/mcp/filler/b', { method: 'POST' }, 404],
    ['another HTTP method at a server', '/mcp/filler', { method: 'PUT' }, 405],
    ['a server without the scope', '/mcp/filler', post(rpc('ping')), 403, ['search']],
  ])('%s is bounded per key, and counts once', async (_what, path, init, status, scopes) => {
    const send = await keyWithLeft(2, scopes);
    const statuses = [await send(path, init), await send(path, init), await send(path, init)];
    expect(statuses.map(answer => answer.status)).toEqual([status, status, 429]);
    expect(Number(statuses[2]?.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await sb.post('/mcp', rpc('ping'))).status).toBe(200);
  });

  it('holds no call of a tool: that spends its class alone', async () => {
    const send = await keyWithLeft(1);
    for (const body of [call('search_servers', { query: 'x' }), call('call_remote_tool', {})])
      expect((await send('/mcp', post(body))).status).toBe(200);
    expect((await send('/mcp', post(rpc('ping')))).status).toBe(200);
    expect((await send('/mcp', post(rpc('ping')))).status).toBe(429);
  });
});
