import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fetchRaw } from '../support/raw-http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

let sb: RunningSwitchboard;
beforeAll(async () => {
  sb = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'off' } });
});
afterAll(() => sb[Symbol.asyncDispose]());

const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
const META = 'io.modelcontextprotocol/';
const ENVELOPE = { [`${META}protocolVersion`]: '2026-07-28', [`${META}clientCapabilities`]: {} };
const modern = (method: string, params: object = {}) => ({
  body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: ENVELOPE } }),
  headers: { 'mcp-protocol-version': '2026-07-28', 'mcp-method': method },
});
const listWith = (more: object) => JSON.stringify({ ...LIST, ...more });
const nested = (levels: number) => `${'[['.repeat(levels / 2)}${']]'.repeat(levels / 2)}`;

/** The one JSON-RPC message of an answer, JSON or SSE. */
const messageOf = (text: string) => JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);

const ACCEPTED = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'x-api-key': 'a-key-for-tests-of-at-least-32-characters',
};

interface Sent {
  readonly body: string | Uint8Array;
  readonly headers?: Record<string, string>;
}

describe('a body that cannot be served', () => {
  const invalidUtf8 = Buffer.concat([
    Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'),
    Buffer.from([0xff, 0x22, 0x7d]),
  ]);
  const cases: [what: string, sent: Sent, status: number, code: number, id: unknown][] = [
    ['that is broken JSON', { body: '{"jsonrpc": broken' }, 400, -32700, null],
    ['that is cut short', { body: '{"jsonrpc":"2.0","id":1' }, 400, -32700, null],
    ['that is empty', { body: '' }, 400, -32700, null],
    ['of white space', { body: ' \n' }, 400, -32700, null],
    ['of invalid UTF-8', { body: invalidUtf8 }, 400, -32700, null],
    ['that starts with a null byte', { body: '\0{}' }, 400, -32700, null],
    ['that nests 202 levels deep', { body: nested(202) }, 400, -32700, null],
    ['that nests 2,000,000 levels deep', { body: '['.repeat(2_000_000) }, 400, -32700, null],
    [
      'whose params nest 300 levels deep',
      { body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":${nested(300)}}}` },
      400,
      -32700,
      null,
    ],
    [
      'of more than 4 MiB',
      { body: listWith({ params: { x: 'x'.repeat(4 * 1024 * 1024) } }) },
      413,
      -32600,
      null,
    ],
    ['that is an array', { body: JSON.stringify([LIST]) }, 400, -32600, null],
    ['that is an empty array', { body: '[]' }, 400, -32600, null],
    ['that is null', { body: 'null' }, 400, -32600, null],
    ['that is a string', { body: '"tools/list"' }, 400, -32600, null],
    ['that is a number', { body: '7' }, 400, -32600, null],
    ['that is an empty object', { body: '{}' }, 400, -32600, null],
    ['without jsonrpc', { body: '{"id":1,"method":"tools/list"}' }, 400, -32600, 1],
    ['of JSON-RPC 1.0', { body: listWith({ jsonrpc: '1.0' }) }, 400, -32600, 1],
    ['whose version is a number', { body: listWith({ jsonrpc: 2 }) }, 400, -32600, 1],
    ['without a method', { body: '{"jsonrpc":"2.0","id":1}' }, 400, -32600, null],
    ['whose method is a number', { body: listWith({ method: 7 }) }, 400, -32600, null],
    ['whose id is null', { body: listWith({ id: null }) }, 400, -32600, null],
    ['whose id is a fraction', { body: listWith({ id: 1.5 }) }, 400, -32600, null],
    ['whose id is an object', { body: listWith({ id: {} }) }, 400, -32600, null],
    ['whose id is an array', { body: listWith({ id: [1] }) }, 400, -32600, null],
    ['whose id is a boolean', { body: listWith({ id: true }) }, 400, -32600, null],
    [
      'whose id is beyond 2^53',
      { body: '{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}' },
      400,
      -32600,
      null,
    ],
    [
      'whose id is infinite',
      { body: '{"jsonrpc":"2.0","id":1e999,"method":"tools/list"}' },
      400,
      -32600,
      null,
    ],
    ['whose params are an array', { body: listWith({ params: [] }) }, 400, -32600, 1],
    ['whose params are a string', { body: listWith({ params: 'x' }) }, 400, -32600, 1],
    [
      'of type text/plain',
      { body: JSON.stringify(LIST), headers: { 'content-type': 'text/plain' } },
      415,
      -32600,
      null,
    ],
    [
      'of a form',
      { body: 'a=b', headers: { 'content-type': 'application/x-www-form-urlencoded' } },
      415,
      -32600,
      null,
    ],
    [
      'in UTF-16',
      { body: JSON.stringify(LIST), headers: { 'content-type': 'application/json; charset=utf-16' } },
      415,
      -32600,
      null,
    ],
    [
      'in an unknown encoding',
      { body: JSON.stringify(LIST), headers: { 'content-encoding': 'zstd2' } },
      415,
      -32600,
      null,
    ],
    [
      'that says gzip and is not',
      { body: JSON.stringify(LIST), headers: { 'content-encoding': 'gzip' } },
      400,
      -32600,
      null,
    ],
    [
      'for a client that takes HTML alone',
      { body: JSON.stringify(LIST), headers: { accept: 'text/html' } },
      406,
      -32600,
      null,
    ],
    [
      'for a client that takes no event stream',
      { body: JSON.stringify(LIST), headers: { accept: 'application/json' } },
      406,
      -32600,
      null,
    ],
    [
      'for a client that refuses JSON',
      { body: JSON.stringify(LIST), headers: { accept: '*/*, application/json;q=0' } },
      406,
      -32600,
      null,
    ],
    [
      'with a bad deadline',
      { body: JSON.stringify(LIST), headers: { 'switchboard-timeout-ms': 'soon' } },
      400,
      -32600,
      null,
    ],
    [
      'of an unknown revision',
      { body: JSON.stringify(LIST), headers: { 'mcp-protocol-version': '1999-01-01' } },
      400,
      -32000,
      null,
    ],
    [
      'of 2026-07-28 without its envelope',
      { body: JSON.stringify(LIST), headers: { 'mcp-protocol-version': '2026-07-28' } },
      400,
      -32602,
      1,
    ],
    [
      'whose headers say another method',
      { ...modern('tools/list'), headers: { ...modern('tools/list').headers, 'mcp-method': 'ping' } },
      400,
      -32020,
      1,
    ],
    ['of 2026-07-28 with an unknown method', modern('no/such'), 404, -32601, 1],
    ['of 2026-07-28 with a method that is gone', modern('ping'), 404, -32601, 1],
  ];

  it.each(cases)(
    '%s is a JSON-RPC error [errors.no-html]',
    async (_what, { body, headers }, status, code, id) => {
      const answer = await sb.post('/mcp', body, headers);
      expect(answer.status).toBe(status);
      expect(answer.headers.get('content-type')).toMatch(/^application\/json(; charset=utf-8)?$/);
      expect(answer.json).toMatchObject({ jsonrpc: '2.0', id, error: { code, message: expect.any(String) } });
      expect(Object.keys(answer.json).toSorted()).toEqual(['error', 'id', 'jsonrpc']);
      expect(answer.text).not.toMatch(/<html|node_modules|\.ts:|\n\s+at /);
    },
  );

  it('with a method unknown to 2025-xx is error -32601 in an answer', async () => {
    const answer = await sb.post('/mcp', listWith({ method: 'no/such', id: 'a' }));
    expect(answer.status).toBe(200);
    expect(messageOf(answer.text)).toMatchObject({ jsonrpc: '2.0', id: 'a', error: { code: -32601 } });
  });
});

describe('a body at the limits', () => {
  it.each([
    ['of almost 4 MiB', listWith({ params: { x: 'x'.repeat(4 * 1024 * 1024 - 100) } })],
    [
      'that nests 190 levels deep',
      `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":${nested(190)}}}`,
    ],
    ['with the largest whole id', listWith({ id: Number.MAX_SAFE_INTEGER })],
    ['with an id of zero', listWith({ id: 0 })],
    ['with an empty string as id', listWith({ id: '' })],
  ])('%s is served', async (_what, body) => {
    const answer = await sb.post('/mcp', body);
    expect(answer.status).toBe(200);
    expect(messageOf(answer.text)).toMatchObject({ id: JSON.parse(body).id, result: { tools: [{}, {}] } });
  });

  it('with a notification has no response', async () => {
    const answer = await sb.post('/mcp', { jsonrpc: '2.0', method: 'notifications/initialized' });
    expect([answer.status, answer.text]).toEqual([202, '']);
  });
});

describe('Accept', () => {
  it.each([
    '*/*',
    'application/*, text/*',
    'text/event-stream, application/json;q=0.5',
    'application/json, text/event-stream',
  ])('%s is served in both eras', async accept => {
    expect((await sb.post('/mcp', LIST, { accept })).status).toBe(200);
    const { body, headers } = modern('tools/list');
    expect((await sb.post('/mcp', body, { accept, ...headers })).json.result.tools).toHaveLength(2);
  });

  it('may be missing', async () => {
    const sent = httpRequest(`${sb.url}/mcp`, {
      method: 'POST',
      headers: { 'x-api-key': sb.key, 'content-type': 'application/json' },
    });
    const [answer] = await once(sent.end(JSON.stringify(LIST)), 'response');
    expect(answer.statusCode).toBe(200);
    expect(messageOf(await textOf(answer)).result.tools).toHaveLength(2);
  });
});

describe('other HTTP methods', () => {
  it.each(['GET', 'DELETE', 'PUT', 'PATCH', 'OPTIONS', 'HEAD'])(
    '%s is 405: there is no session to open or close',
    async method => {
      const headers = { 'x-api-key': sb.key, accept: 'text/event-stream', 'mcp-session-id': 'x' };
      const answer = await fetch(`${sb.url}/mcp`, { method, headers });
      expect(answer.status).toBe(405);
      expect(answer.headers.get('allow')).toBe('POST');
      expect(answer.headers.get('content-type')).toBe('application/json; charset=utf-8');
      const text = await answer.text();
      if (method === 'HEAD') expect(text).toBe('');
      else expect(JSON.parse(text)).toMatchObject({ jsonrpc: '2.0', id: null, error: { code: -32600 } });
    },
  );
});

describe('a Host that is not ours', () => {
  it('is a JSON-RPC error as well', async () => {
    const sent = httpRequest(`${sb.url}/mcp`, { method: 'POST', headers: { host: 'evil.example' } });
    const [answer] = await once(sent.end('{}'), 'response');
    expect(answer.statusCode).toBe(403);
    expect(JSON.parse(await textOf(answer))).toMatchObject({
      jsonrpc: '2.0',
      id: null,
      error: { code: -32000 },
    });
  });
});

describe('an answer', () => {
  it.each([
    ['of an event stream', { body: JSON.stringify(LIST) }],
    ['of JSON', modern('tools/list')],
    ['that is a refusal', { body: '{' }],
  ])('%s ends the connection of a client that wants it to end', async (_what, { body, ...sent }: Sent) => {
    const headers = { ...ACCEPTED, ...sent.headers, connection: 'close' };
    const answer = await fetchRaw(sb.url, '/mcp', { method: 'POST', headers, body: String(body) });
    expect(answer.headers.connection).toBe('close');
    const kept = await fetchRaw(sb.url, '/mcp', {
      method: 'POST',
      headers: { ...headers, connection: 'keep-alive' },
      body: String(body),
    });
    expect(kept.headers.connection).toBe('keep-alive');
  });

  const long = 'x'.repeat(5_000);
  const withMeta = (version: string, more: object = {}) =>
    listWith({ params: { ...more, _meta: { ...ENVELOPE, [`${META}protocolVersion`]: version } } });
  it.each([
    ['version in the header', { body: JSON.stringify(LIST), headers: { 'mcp-protocol-version': long } }],
    ['version in the message', { body: withMeta(long) }],
    ['version in both', { body: withMeta(long), headers: { 'mcp-protocol-version': long } }],
    ['version beside a right one', { ...modern('tools/list'), headers: { 'mcp-protocol-version': long } }],
    [
      'method in the header',
      { ...modern('tools/list'), headers: { ...modern('').headers, 'mcp-method': long } },
    ],
    [
      'name in the header',
      {
        ...modern('tools/call', { name: 'search_servers' }),
        headers: { ...modern('tools/call').headers, 'mcp-name': long },
      },
    ],
    [
      'name in the message',
      {
        ...modern('tools/call', { name: long }),
        headers: { ...modern('tools/call').headers, 'mcp-name': 'x' },
      },
    ],
  ])('to a %s of 5,000 characters quotes its start alone', async (_what, { body, headers }: Sent) => {
    const answer = await fetchRaw(sb.url, '/mcp', {
      method: 'POST',
      headers: { ...ACCEPTED, ...headers },
      body: String(body),
    });
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ jsonrpc: '2.0', error: { code: expect.any(Number) } });
    expect(answer.json.error.message).not.toBe('');
    expect(answer.text.length).toBeLessThan(1_500);
  });

  it('to a version that is not known names the ones that are', async () => {
    const answer = await fetchRaw(sb.url, '/mcp', {
      method: 'POST',
      headers: ACCEPTED,
      body: withMeta('1999-01-01'),
    });
    expect(answer.json.error).toMatchObject({
      code: -32022,
      data: { requested: '1999-01-01', supported: expect.arrayContaining(['2026-07-28']) },
    });
  });
});
