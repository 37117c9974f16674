import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startEverything, type Everything } from '../support/upstreams/everything.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';
import { refusedPort } from '../support/upstreams/http.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let everything: Everything;
let v1: V1Server;
let v2: V2Server;
let hostile: Hostile;
let sb: RunningSwitchboard;

const HOSTILE_MODES = [
  'ok',
  'hang',
  'html-200',
  'sse-half',
  'huge',
  '401',
  '403',
  '429',
  '500-html',
  'weird-error',
  'weird',
  'no-method',
  'error-400',
  'sse',
  'bad-json',
  '410',
];

beforeAll(async () => {
  [everything, v1, v2, hostile] = await Promise.all([
    startEverything(),
    startV1Server(),
    startV2Server(),
    startHostile(),
  ]);
  sb = await startTestSwitchboard({
    proxyLimits: { totalTimeoutMs: 2_000, maxResponseBytes: 1_000_000 },
    catalogue: [
      { id: 'everything', remote_url: everything.url },
      { id: 'v1', remote_url: v1.url },
      { id: 'v2', remote_url: v2.url },
      { id: 'down', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp` },
      { id: 'retired', remote_url: hostile.url('ok') },
      { id: 'own-sign-in', remote_url: hostile.url('401'), auth: { kind: 'own_oauth' } },
      { id: 'wants-a-key', remote_url: hostile.url('401'), auth: { kind: 'static_header' } },
      { id: 'metadata', remote_url: 'http://169.254.169.254/latest' },
      ...HOSTILE_MODES.map(mode => ({ id: mode, remote_url: hostile.url(mode) })),
    ],
  });
  await sb.admin.request('POST', '/catalogue/retired/deactivate');
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([everything, v1, v2, hostile].map(one => one[Symbol.asyncDispose]()));
});

const call = (body: unknown) => sb.post('/v1/mcp/call', body);
const callTool = (body: unknown) => sb.post('/v1/mcp/tools/call', body);
const listTools = (body: unknown) => sb.post('/v1/mcp/tools/list', body);

describe('POST /v1/mcp/call, 200', () => {
  it.each(['everything', 'v1', 'v2'])(
    '%s lists its tools, whatever era it speaks [call.request] [call.result] [call.sse]',
    async id => {
      const { status, json, headers } = await call({ server_id: id, method: 'tools/list' });
      expect(status).toBe(200);
      expect(headers.get('content-type')).toMatch(/^application\/json/);
      expect(json).toMatchObject({ jsonrpc: '2.0', id: 1 });
      expect(json.result.tools.map((tool: { name: string }) => tool.name)).toContain('echo');
    },
  );

  it.each(['a', '1', '', 7, 0, -1.5])('the id %j comes back with its type [call.id-echo]', async id => {
    expect((await call({ jsonrpc: '2.0', id, server_id: 'ok', method: 'tools/list' })).json.id).toBe(id);
  });

  it('passes resources and prompts methods through [call.methods]', async () => {
    const ask = async (method: string, params?: object) =>
      (await call({ server_id: 'everything', method, params })).json.result;
    expect(
      (await ask('tools/call', { name: 'echo', arguments: { message: 'hé' } })).content[0].text,
    ).toContain('hé');
    const { resources } = await ask('resources/list');
    expect((await ask('resources/read', { uri: resources[0].uri })).contents[0].uri).toBe(resources[0].uri);
    const { prompts } = await ask('prompts/list');
    expect((await ask('prompts/get', { name: prompts[0].name })).messages.length).toBeGreaterThan(0);
  });

  it("keeps what it does not know in a server's result", async () => {
    const { json } = await call({ server_id: 'weird', method: 'tools/call', params: { name: 'a' } });
    expect(json.result).toMatchObject({ content: [{ type: 'hologram' }], extra: { deep: [1, 2] } });
  });

  it("passes the server's own error on: its code, message and data [call.upstream-error] [call.method-not-found]", async () => {
    const { status, json } = await call({
      server_id: 'weird-error',
      method: 'tools/call',
      params: { name: 'a' },
    });
    expect(status).toBe(200);
    expect(json.error).toMatchObject({ code: 7, message: 'custom' });
    expect((await call({ server_id: 'v1', method: 'no/such' })).json.error.code).toBe(-32601);
    expect((await call({ server_id: 'v2', method: 'no/such' })).json.error.code).toBe(-32601);
    expect(
      (await call({ server_id: 'error-400', method: 'tools/call', params: {} })).json.error,
    ).toMatchObject({ code: -32602, data: { a: 1 } });
  });

  it.each([
    ['down', 'upstream_unreachable', true, /could not be reached|refused/i],
    ['hang', 'upstream_timeout', false, /request to the MCP server timed out/i],
    ['html-200', 'upstream_protocol', false, /text\/html/],
    ['sse-half', 'upstream_protocol', false, /ended its response in the middle of an event/],
    ['bad-json', 'upstream_protocol', false, /JSON/],
    ['huge', 'upstream_too_large', false, /1000000|1,000,000/],
    ['403', 'upstream_forbidden', false, /./],
    ['500-html', 'upstream_http_error', false, /500/],
    ['410', 'upstream_http_error', false, /410/],
    ['metadata', 'upstream_blocked', false, /not allowed|169\.254/],
  ])(
    'server %s: code -32000, reason %s [call.unreachable] [call.timeout]',
    async (id, reason, retryable, message) => {
      const { status, json } = await call({
        server_id: id,
        method: 'tools/call',
        params: { name: 'a' },
        id: 'x',
      });
      expect(status).toBe(200);
      expect(json).toEqual({
        jsonrpc: '2.0',
        id: 'x',
        error: {
          code: -32000,
          message: expect.stringMatching(message),
          data: { origin: 'switchboard', reason, retryable },
        },
      });
      expect(json.error.message).not.toMatch(/secret|<html/);
    },
  );

  it('passes on how long a rate-limiting server wants us to wait', async () => {
    const { json } = await call({ server_id: '429', method: 'tools/call', params: {} });
    expect(json.error.data).toEqual({
      origin: 'switchboard',
      reason: 'upstream_rate_limited',
      retryable: true,
      retry_after: 7,
    });
  });
});

describe('POST /v1/mcp/call, refused', () => {
  it.each([
    [{ server_id: 'nobody', method: 'tools/list', id: 5 }, 404, -32000, 'server_not_found', 5],
    [{ server_id: 'retired', method: 'tools/list', id: 'r' }, 410, -32000, 'server_inactive', 'r'],
    ['{"server_id": broken', 400, -32700, 'invalid_json', null],
    [{ method: 'tools/list', id: 5 }, 400, -32600, 'invalid_request', 5],
    [{ server_id: 'ok', id: 5 }, 400, -32600, 'invalid_request', 5],
    [{ server_id: 'ok', method: 'x', id: 5, colour: 1 }, 400, -32600, 'invalid_request', 5],
    [{ server_id: 'ok', method: 'x', id: { a: 1 } }, 400, -32600, 'invalid_request', null],
    [{ server_id: 'ok', method: 'x', id: null }, 400, -32600, 'invalid_request', null],
    [{ server_id: 'ok', method: 'x', jsonrpc: '1.0', id: 5 }, 400, -32600, 'invalid_request', 5],
    [[{ server_id: 'ok', method: 'x' }], 400, -32600, 'invalid_request', null],
    [{ server_id: 'ok', method: 'x', params: [1], id: 5 }, 400, -32602, 'invalid_params', 5],
    [{ server_id: 'ok', method: 'x', params: 'text', id: 5 }, 400, -32602, 'invalid_params', 5],
    [{ server_id: 'ok', method: 'initialize', id: 5 }, 400, -32600, 'invalid_request', 5],
    [{ server_id: 'ok', method: 'notifications/cancelled', id: 5 }, 400, -32600, 'invalid_request', 5],
  ])(
    'case %# [call.not-found] [call.inactive] [call.parse-error] [call.invalid-request] [call.invalid-params]',
    async (body, status, rpcCode, code, id) => {
      const answer = await call(body);
      expect(answer.status).toBe(status);
      expect(answer.json).toMatchObject({
        code,
        status,
        jsonrpc: '2.0',
        id,
        error: { code: rpcCode, data: { origin: 'switchboard', reason: code } },
      });
      expect(answer.json.detail).toBe(answer.json.error.message);
    },
  );
});

describe('POST /v1/mcp/tools/list', () => {
  it.each(['everything', 'v1', 'v2'])(
    '%s: name, description, inputSchema [tools-list.request] [tools-list.result]',
    async id => {
      const { status, json } = await listTools({ server_id: id });
      expect(status).toBe(200);
      expect(json.tools.length).toBeGreaterThan(0);
      for (const tool of json.tools) {
        expect(tool).toMatchObject({
          name: expect.any(String),
          description: expect.any(String),
          inputSchema: { type: 'object' },
        });
      }
    },
  );

  it.each([
    ['nobody', 404, 'server_not_found'],
    ['retired', 410, 'server_inactive'],
    ['down', 502, 'upstream_unreachable'],
    ['hang', 502, 'upstream_timeout'],
    ['500-html', 502, 'upstream_http_error'],
    ['weird-error', 502, 'upstream_error'],
  ])('%s is %i %s [tools-list.failed] [tools-list.not-found]', async (server_id, status, code) => {
    const answer = await listTools({ server_id });
    expect(answer.status).toBe(status);
    expect(answer.json).toMatchObject({ code, status, detail: expect.any(String) });
  });
});

describe('POST /v1/mcp/tools/call', () => {
  it.each(['everything', 'v1', 'v2'])(
    '%s: content and isError [tools-call.request] [tools-call.result]',
    async server_id => {
      const { status, json } = await callTool({ server_id, name: 'echo', arguments: { message: 'hello' } });
      expect(status).toBe(200);
      expect(json.isError).toBe(false);
      expect(json.content[0]).toMatchObject({ type: 'text', text: expect.stringContaining('hello') });
    },
  );

  it('text, image and resource blocks come through [tools-call.content]', async () => {
    const names = (await listTools({ server_id: 'everything' })).json.tools.map(
      (tool: { name: string }) => tool.name,
    );
    const image = names.find((name: string) => /tiny-?image/i.test(name));
    const resource = names.find((name: string) => /resource-reference/i.test(name));
    const blocks = async (name: string, args: object) =>
      (await callTool({ server_id: 'everything', name, arguments: args })).json.content;
    expect(await blocks(image, {})).toContainEqual({
      type: 'image',
      data: expect.stringMatching(/^[A-Za-z0-9+/=]+$/),
      mimeType: 'image/png',
    });
    const content = await blocks(resource, { resourceType: 'Text', resourceId: 1 });
    expect(content).toContainEqual(
      expect.objectContaining({
        type: 'resource',
        resource: expect.objectContaining({ uri: expect.any(String) }),
      }),
    );
  });

  it('a tool that reports its own failure is a normal response [tools-call.is-error]', async () => {
    const { status, json } = await callTool({ server_id: 'v1', name: 'fail' });
    expect(status).toBe(200);
    expect(json.isError).toBe(true);
  });

  it.each([
    [
      'nobody',
      404,
      'server_not_found',
      'No server has the id "nobody". Search for the server to find its id.',
    ],
    ['retired', 410, 'server_inactive', 'The server retired is no longer active.'],
  ])('%s is %i [tools-call.not-found]', async (server_id, status, code, detail) => {
    const answer = await callTool({ server_id, name: 'x' });
    expect({ status: answer.status, code: answer.json.code, detail: answer.json.detail }).toEqual({
      status,
      code,
      detail,
    });
  });

  it.each([
    ['down', 'upstream_unreachable', true],
    ['hang', 'upstream_timeout', false],
    ['html-200', 'upstream_protocol', false],
    ['sse-half', 'upstream_protocol', false],
    ['huge', 'upstream_too_large', false],
    ['429', 'upstream_rate_limited', true],
  ])('%s is 502 %s, retryable: %s [tools-call.failed]', async (server_id, code, retryable) => {
    const answer = await callTool({ server_id, name: 'x' });
    const { status, json } = answer;
    expect({ status, code: json.code, retryable: json.retryable }).toEqual({ status: 502, code, retryable });
    expect(typeof answer.json.detail).toBe('string');
  });

  it('a server that refuses access is quoted, and the kind of sign-in in its entry decides the advice', async () => {
    const { detail } = (await callTool({ server_id: '403', name: 'x' })).json;
    expect(detail).toMatch(/\(HTTP 403\): \{"error":"insufficient_scope"\}\. It may require a sign-in\. /);
    expect(detail).toContain('npx switchboard connect 403');
  });

  it.each(['401', 'own-sign-in'])(
    'a server that wants a connection, %s, is 403 on each endpoint',
    async server_id => {
      const required = {
        status: 403,
        detail: expect.stringContaining(`npx switchboard connect ${server_id}`),
      };
      const called = await callTool({ server_id, name: 'x' });
      expect(called).toMatchObject({ status: 403, json: { code: 'connection_required', ...required } });
      const generic = await call({ server_id, method: 'tools/call', params: { name: 'a' }, id: 'x' });
      expect(generic).toMatchObject({
        status: 403,
        json: { id: 'x', error: { data: { origin: 'switchboard', reason: 'connection_required' } } },
      });
    },
  );

  it('a server that is known to want a key is not called without one', async () => {
    const before = hostile.inbox.all.length;
    const { status, json } = await callTool({ server_id: 'wants-a-key', name: 'x' });
    expect({ status, json }).toMatchObject({
      status: 403,
      json: {
        code: 'connection_required',
        kind: 'credentials',
        server_id: 'wants-a-key',
        reason: 'not_connected',
        detail: expect.stringContaining('npx switchboard connect wants-a-key'),
      },
    });
    expect(hostile.inbox.all.length).toBe(before);
  });

  it("an error of the server's is 502 with its message and the whole object [tools-call.failed]", async () => {
    const { status, json } = await callTool({ server_id: 'weird-error', name: 'x' });
    expect(status).toBe(502);
    expect(json).toMatchObject({
      code: 'upstream_error',
      detail: 'custom',
      upstream_error: { code: 7, message: 'custom' },
    });
  });

  it.each([
    [{ server_id: 'ok' }, "name: is missing; it must be a string: the tool's name"],
    [{ server_id: 'ok', name: '' }, 'name: must not be empty'],
    [{ server_id: 7, name: 'x' }, 'server_id: must be a string: a server id from POST /v1/search'],
    [{ server_id: 'ok', name: 'x', arguments: [1] }, /^arguments: /],
  ])('case %# is 400', async (body, detail) => {
    const answer = await callTool(body);
    expect(answer.status).toBe(400);
    expect(answer.json.detail).toMatch(detail);
  });

  it('a body of 5 MB is 413', async () => {
    const { status, json } = await callTool({
      server_id: 'ok',
      name: 'x',
      arguments: { a: 'x'.repeat(5_000_000) },
    });
    expect({ status, detail: json.detail }).toEqual({
      status: 413,
      detail: 'The body is larger than 4194304 bytes. Send less data.',
    });
  });
});

describe('use', () => {
  it('successful calls make a server popular, failed ones do not [search.popularity]', async () => {
    const popularity = async (id: string) => {
      const { json } = await sb.post('/v1/search', { query: `The server ${id} ${Math.random()}`, limit: 50 });
      return json.servers.find((server: { id: string }) => server.id === id)?.scores.popularity;
    };
    await call({
      server_id: 'v2',
      method: 'tools/call',
      params: { name: 'echo', arguments: { message: 'x' } },
    });
    await call({ server_id: 'down', method: 'tools/list' });
    expect(await popularity('v2')).toBeGreaterThan(0);
    expect(await popularity('down')).toBe(0);
  });

  it('nothing of the caller but params reaches a server', async () => {
    await sb.post(
      '/v1/mcp/call',
      { server_id: 'ok', method: 'tools/call', params: { name: 'a' } },
      { cookie: 'a=b', authorization: 'Bearer z', 'x-mine': '1' },
    );
    const headers = hostile.inbox.of('tools/call').at(-1)?.headers ?? {};
    expect(Object.keys(headers)).not.toEqual(expect.arrayContaining(['cookie']));
    expect(JSON.stringify(headers)).not.toMatch(/Bearer z|x-mine|a=b|a-key-for-tests/);
  });

  const ways: [path: string, body: (args: unknown) => object][] = [
    [
      '/v1/mcp/call',
      args => ({ server_id: 'ok', method: 'tools/call', params: { name: 'a', arguments: args } }),
    ],
    ['/v1/mcp/tools/call', args => ({ server_id: 'ok', name: 'a', arguments: args })],
    [
      '/mcp',
      args => ({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: {
          name: 'call_remote_tool',
          arguments: { server_id: 'ok', tool_name: 'a', arguments: args },
        },
      }),
    ],
  ];
  it.each(ways)('every argument arrives through %s, whatever its name', async (path, body) => {
    const json = '{"__proto__":{"a":1},"constructor":{"prototype":2},"toString":null,"a":{"__proto__":[]}}';
    const accept = { accept: 'application/json, text/event-stream' };
    expect((await sb.post(path, body(JSON.parse(json)), accept)).status).toBe(200);
    expect(JSON.stringify(hostile.inbox.of('tools/call').at(-1)?.message.params.arguments)).toBe(json);
  });
});
