import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fetchRaw } from '../support/raw-http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { listen, readBody, type Listening } from '../support/upstreams/http.ts';

/** Answers with what it received, and with headers that must not be passed on. */
const echo = () =>
  listen((request, response) => {
    void readBody(request).then(({ text }) => {
      response.writeHead(200, {
        'content-type': 'application/json',
        'cache-control': 'no-store',
        'mcp-protocol-version': '2025-11-25',
        'set-cookie': 'a=b',
        'www-authenticate': 'Bearer resource_metadata="https://evil.example"',
        'access-control-allow-origin': '*',
        'x-secret': 'inner',
        server: 'inner',
      });
      const { method, url, headers } = request;
      response.end(JSON.stringify({ method, url, headers, body: text }));
    });
  });

let upstream: Listening;
let sb: RunningSwitchboard;

beforeAll(async () => {
  upstream = await echo();
  sb = await startTestSwitchboard({
    catalogue: [
      { id: 'echo.a-b_c', remote_url: `${upstream.origin}/mcp?region=eu` },
      { id: 'gone', remote_url: `${upstream.origin}/gone` },
      { id: 'old', remote_url: `${upstream.origin}/sse`, transport: 'sse' },
    ],
  });
  await sb.admin.request('POST', '/catalogue/gone/deactivate');
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await upstream[Symbol.asyncDispose]();
});

const rpc = { jsonrpc: '2.0', id: 'x-7', method: 'tools/list' };
const send = (
  path: string,
  headers: Record<string, string | string[]> = {},
  body: string | Buffer = JSON.stringify(rpc),
) =>
  fetchRaw(sb.url, path, {
    method: 'POST',
    headers: { 'x-api-key': sb.key, 'content-type': 'application/json', ...headers },
    body,
  });

describe('what is passed on', () => {
  it('of the request: the body byte for byte, and only the protocol headers', async () => {
    const body = '{"jsonrpc" : "2.0","id":9007199254740993, "method":"x"}\n';
    const ofTheProtocol = {
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'x',
      'mcp-name': '=?base64?Z3LDvMOfZQ==?=',
      'mcp-param-region': 'eu',
      'last-event-id': '42',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      tracestate: 'a=b',
    };
    const { json, status } = await send(
      '/mcp/echo.a-b_c?caller=query',
      {
        ...ofTheProtocol,
        cookie: 'session=1',
        'x-forwarded-for': '203.0.113.9',
        'x-custom': 'y',
        referer: 'https://app.example',
        'proxy-authorization': 'Basic x',
      },
      body,
    );
    expect(status).toBe(200);
    expect(json).toMatchObject({ method: 'POST', url: '/mcp?region=eu', body });
    expect(json.headers).toEqual({
      host: new URL(upstream.origin).host,
      connection: 'keep-alive',
      'content-length': String(body.length),
      'accept-encoding': 'identity',
      'user-agent': 'switchboard',
      'content-type': 'application/json',
      ...ofTheProtocol,
    });
  });

  it('of the response: the protocol headers and our own', async () => {
    const { headers } = await send('/mcp/echo.a-b_c');
    const ours = ['x-request-id', 'ratelimit', 'ratelimit-policy', 'date', 'connection', 'keep-alive'];
    const safety = ['x-content-type-options', 'content-security-policy', 'strict-transport-security'];
    expect(
      Object.keys(headers)
        .filter(name => ![...ours, ...safety].includes(name))
        .toSorted(),
    ).toEqual(['cache-control', 'content-type', 'mcp-protocol-version', 'transfer-encoding']);
    expect(headers['ratelimit-policy']).toBe('"proxy";q=600;w=60');
  });

  it('a body that is no JSON, too: the server judges it', async () => {
    expect((await send('/mcp/echo.a-b_c', {}, '{"jsonrpc": broken')).json.body).toBe('{"jsonrpc": broken');
    expect((await send('/mcp/echo.a-b_c', { 'content-type': 'text/plain' }, '')).json.body).toBe('');
  });

  it('a compressed body as what it holds', async () => {
    const { json } = await send('/mcp/echo.a-b_c', { 'content-encoding': 'gzip' }, gzipSync('{"a":1}'));
    expect(json.body).toBe('{"a":1}');
    expect(json.headers['content-encoding']).toBeUndefined();
  });

  it('the key as a Bearer token serves clients that can send nothing else, and stays here', async () => {
    const { status, json } = await send('/mcp/echo.a-b_c', {
      'x-api-key': '',
      authorization: `Bearer ${sb.key}`,
    });
    expect(status).toBe(200);
    expect(JSON.stringify(json)).not.toContain(sb.key);
  });
});

const refused = (json: any, code: string) =>
  expect(json).toEqual({
    jsonrpc: '2.0',
    id: expect.toSatisfy(id => id === null || id === 'x-7'),
    error: {
      code: expect.any(Number),
      message: expect.any(String),
      data: expect.objectContaining({ origin: 'switchboard', reason: code }),
    },
  });

describe('what is refused here is a JSON-RPC error', () => {
  it.each([
    ['without a key', { 'x-api-key': '' }],
    ['with a wrong key', { 'x-api-key': 'wrong' }],
    ['with two keys', { 'x-api-key': ['a', 'b'] }],
    ['with a wrong Bearer', { 'x-api-key': '', authorization: 'Bearer wrong' }],
    ['with Basic', { 'x-api-key': '', authorization: 'Basic wrong' }],
  ])(
    '%s: 401 that names both ways to send a key, whatever the path, and no OAuth discovery',
    async (_what, headers) => {
      for (const path of ['/mcp/echo.a-b_c', '/mcp/unknown', '/mcp/a/b']) {
        const answer = await send(path, headers);
        expect(answer.status).toBe(401);
        refused(answer.json, 'unauthorized');
        expect(answer.json.error.message).toContain('X-API-Key, or as Authorization: Bearer.');
        expect(answer.headers['www-authenticate']).toBe('Bearer realm="switchboard", error="invalid_token"');
      }
    },
  );

  it.each([
    ['/mcp/unknown', 404, 'server_not_found'],
    ['/mcp/%65cho.a-b_c', 404, 'server_not_found'],
    ['/mcp/ECHO.a-b_c', 404, 'server_not_found'],
    ['/mcp/__proto__', 404, 'server_not_found'],
    ['/mcp/..%2fv1', 404, 'server_not_found'],
    ['/mcp/echo.a-b_c%00', 404, 'server_not_found'],
    ['/mcp/%', 404, 'server_not_found'],
    ['/mcp/echo.a-b_c/sub', 404, 'route_not_found'],
    ['/mcp/echo.a-b_c//', 404, 'route_not_found'],
    ['/mcp//echo.a-b_c', 404, 'route_not_found'],
    ['/mcp//', 404, 'route_not_found'],
    ['/mcp/../v1/search', 404, 'route_not_found'],
    ['/mcp/gone', 410, 'server_inactive'],
  ])('%s is %i %s, with the id of the request', async (path, status, code) => {
    const answer = await send(path);
    expect(answer.status).toBe(status);
    refused(answer.json, code);
    if (code !== 'route_not_found') expect(answer.json.id).toBe('x-7');
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
  });

  it.each(['/mcp/echo.a-b_c/', '/mcp/echo.a-b_c?', '/mcp/echo.a-b_c/?x=/../'])(
    '%s is the server',
    async path => {
      expect((await send(path)).status).toBe(200);
    },
  );

  it.each(['PUT', 'PATCH', 'HEAD', 'OPTIONS', 'QUERY'])('%s is 405 with Allow', async method => {
    const answer = await fetchRaw(sb.url, '/mcp/echo.a-b_c', { method, headers: { 'x-api-key': sb.key } });
    expect(answer.status).toBe(405);
    expect(answer.headers.allow).toBe('GET, POST, DELETE');
  });

  it('a foreign Host or Origin is 403', async () => {
    for (const headers of [
      { host: 'evil.example' },
      { origin: 'https://evil.example' },
      { origin: 'null' },
    ]) {
      const answer = await send('/mcp/echo.a-b_c', headers);
      expect(answer.status).toBe(403);
      refused(answer.json, 'host_not_allowed');
    }
    expect((await send('/mcp/echo.a-b_c', { origin: sb.url })).status).toBe(200);
  });

  it('a key without the scope is 403', async () => {
    const { json } = await sb.admin.request('POST', '/keys', { name: 'narrow', scopes: ['search'] });
    const answer = await send('/mcp/echo.a-b_c', { 'x-api-key': json.key });
    expect(answer.status).toBe(403);
    refused(answer.json, 'insufficient_scope');
    // Refused before its body was read.
    expect(answer.json.id).toBeNull();
  });

  it('a body over 4 MiB is 413, announced or not, and one of 4 MiB is passed on', async () => {
    const limit = 4 * 1024 * 1024;
    expect((await send('/mcp/echo.a-b_c', {}, Buffer.alloc(limit, 32))).status).toBe(200);
    const announced = await send('/mcp/echo.a-b_c', {}, Buffer.alloc(limit + 1, 32));
    expect(announced.status).toBe(413);
    refused(announced.json, 'payload_too_large');
    const chunked = await send(
      '/mcp/echo.a-b_c',
      { 'transfer-encoding': 'chunked' },
      Buffer.alloc(limit + 1, 32),
    );
    expect(chunked.status).toBe(413);
  });

  it('a body in an encoding that is not known is 415', async () => {
    const answer = await send('/mcp/echo.a-b_c', { 'content-encoding': 'x-snappy' });
    expect(answer.status).toBe(415);
    refused(answer.json, 'unsupported_media_type');
  });

  it('more headers than servers take is 400', async () => {
    const answer = await send('/mcp/echo.a-b_c', { 'mcp-param-long': 'x'.repeat(13_000) });
    expect(answer.status).toBe(400);
    refused(answer.json, 'invalid_request');
  });

  it('a server of the old transport is 502, which says what to use instead', async () => {
    const answer = await send('/mcp/old');
    expect(answer.status).toBe(502);
    refused(answer.json, 'upstream_protocol');
    expect(answer.json.error.message).toContain('/v1/mcp/call');
  });

  it('the budget of the key is that of all proxied calls', async () => {
    await using limited = await startTestSwitchboard({
      catalogue: [{ id: 'echo', remote_url: upstream.origin }],
      env: { SWITCHBOARD_RATE_LIMIT: 'proxy=2/600' },
    });
    const call = () => limited.post('/mcp/echo', rpc);
    await limited.post('/v1/mcp/call', { server_id: 'unknown', method: 'ping' });
    expect((await call()).headers.get('ratelimit')).toMatch(/^"proxy";r=0;t=\d+$/);
    const over = await call();
    expect(over.status).toBe(429);
    refused(over.json, 'rate_limited');
    expect(over.json.id).toBeNull();
    expect(over.headers.get('retry-after')).toMatch(/^\d+$/);
    expect(over.headers.get('ratelimit-policy')).toBe('"proxy";q=2;w=600');
  });

  it('a batch spends as many calls as it has messages, refused where they are more than are left, or can ever be', async () => {
    await using limited = await startTestSwitchboard({
      catalogue: [{ id: 'echo', remote_url: upstream.origin }],
      env: { SWITCHBOARD_RATE_LIMIT: 'proxy=10/600' },
    });
    const batchOf = (messages: number) =>
      limited.post(
        '/mcp/echo',
        Array.from({ length: messages }, (_, id) => ({ ...rpc, id })),
      );
    const tooMany = await batchOf(11);
    expect(tooMany.status).toBe(400);
    refused(tooMany.json, 'invalid_request');
    expect(tooMany.json.error.message).toContain('Send at most 10, the rate limit');
    const first = await batchOf(4);
    // One call went before the batch was read that was too large.
    expect(first.headers.get('ratelimit')).toMatch(/^"proxy";r=5;t=\d+$/);
    const over = await batchOf(7);
    expect(over.status).toBe(429);
    refused(over.json, 'rate_limited');
    expect(over.headers.get('ratelimit')).toMatch(/^"proxy";r=0;t=\d+$/);
  });

  it('each request is one line of the log, with the key and without the query', async () => {
    const answer = await send('/mcp/echo.a-b_c?secret=1');
    const lines = sb
      .logged()
      .split('\n')
      .filter(line => line.includes(String(answer.headers['x-request-id'])));
    expect(lines.map(line => JSON.parse(line))).toEqual([
      expect.objectContaining({ msg: 'request', path: '/mcp/echo.a-b_c', status: 200, keyId: 'environment' }),
    ]);
  });
});
