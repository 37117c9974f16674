import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startIdentity, type IdentityUnderTest } from '../support/identity.ts';
import { fetchRaw, open, type RawAnswer } from '../support/raw-http.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { actingForUsers, startAuthorised, type AuthorisedServer } from '../support/upstreams/authorised.ts';
import { startHostile, type Hostile, type HostileCall } from '../support/upstreams/hostile.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';

const text = (words: string, more: object = {}) => ({ type: 'text', text: words, ...more });

/** Results of servers, by the mode of the hostile server that returns them. */
const RESULTS: Readonly<Record<string, unknown>> = {
  plain: { content: [text('grüße'), text('')] },
  none: { content: [] },
  reordered: { content: [{ text: 'first', type: 'text' }] },
  annotated: {
    content: [text('x', { annotations: { priority: 1, audience: ['user'] }, _meta: { a: 1 } }), text('y')],
  },
  surplus: { content: [text('x', { extra: 1 })], more: { b: 2 } },
  image: { content: [{ type: 'image', data: 'AAAA', mimeType: 'image/png' }] },
  odd: { content: ['words', 7, null, { type: 'hologram' }, { type: 'text' }, text('good')] },
  resource: { content: [{ type: 'resource', resource: { uri: 'x:y', text: 'z', more: 1 } }] },
  'own-error': { content: [text('no')], isError: true },
  'no-error': { content: [text('yes')], isError: false },
  object: { content: [text('{}')], structuredContent: { b: [1, { c: null }], a: 'é' } },
  'object-only': { content: [], structuredContent: { 2: 'b', 1: 'a' } },
  list: { content: [], structuredContent: [1, 2] },
  number: { content: [text('7')], structuredContent: 7 },
  nothing: { content: [], structuredContent: null },
  meta: { content: [text('x')], _meta: { 'acme/x': { y: [1] }, fastmcp: 1 } },
  'meta-token': { content: [text('x')], _meta: { progressToken: { bad: true } } },
  'meta-good-token': { content: [text('x')], _meta: { z: 1, progressToken: 7 } },
  long: { content: [text('é'.repeat(30_000)), text('more')], structuredContent: { x: 'y'.repeat(50_000) } },
};

let v1: V1Server;
let hostile: Hostile;
let sb: RunningSwitchboard;
beforeAll(async () => {
  const answering =
    (result: unknown) =>
    ({ result: answer }: HostileCall) =>
      answer(result);
  const modes = Object.fromEntries(
    Object.entries(RESULTS).map(([name, result]) => [name, answering(result)]),
  );
  const proto =
    '{"content":[],"structuredContent":{"a":1,"__proto__":{"b":2}},"_meta":{"__proto__":{"c":3}}}';
  [v1, hostile] = await Promise.all([
    startV1Server(),
    startHostile({ modes: { ...modes, proto: call => call.result(JSON.parse(proto)) } }),
  ]);
  const bad = ['401', 'html-200', 'weird-error'];
  sb = await startTestSwitchboard({
    env: { SWITCHBOARD_RATE_LIMIT: 'off', SWITCHBOARD_READ_TOOL: 'true' },
    catalogue: [
      { id: 'v1', description: 'Echo a message.', remote_url: v1.url },
      ...[...Object.keys(RESULTS), 'proto', ...bad].map(id => ({ id, remote_url: hostile.url(id) })),
      { id: 'gone', remote_url: 'http://127.0.0.1:1/mcp' },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([v1, hostile].map(one => one[Symbol.asyncDispose]()));
});

type Headers = Readonly<Record<string, string>>;

interface Case {
  readonly params: unknown;
  readonly id?: unknown;
  readonly headers?: Headers;
}

/** The SDK ignores members of params that it does not know, and they are a reason not to answer directly. */
const throughSdk = (params: unknown): unknown =>
  typeof params === 'object' && !Array.isArray(params) ? { ...params, door: 'sdk' } : params;

const post = (origin: string, { params, id = 1, headers = {} }: Case, path = '/mcp'): Promise<RawAnswer> =>
  fetchRaw(origin, path, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      'x-api-key': 'a-key-for-tests-of-at-least-32-characters',
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params }),
  });

/** An answer without what differs from call to call. How its length is told is not part of it. */
function comparable({ status, headers, text: body }: RawAnswer) {
  const { date: _date, 'x-request-id': _id, ...others } = headers;
  const { 'content-length': _length, 'transfer-encoding': _encoding, ...compared } = others;
  const words = body
    .replaceAll(/(?:res|ql|qry|log|link|page|web|req)_[\w-]+/g, 'ID')
    .replaceAll(/(?<=query_log_id[\\"]*:[\\"]*)[\w-]+/g, 'ID')
    .replaceAll(/(?<=\/connect\/)[\w-]+/g, 'ID')
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replaceAll(/retry after \d+ s/g, 'retry after some time');
  return { status, headers: compared, words };
}

/** An event stream of known length is one of ours. */
const isDirect = ({ headers }: RawAnswer) =>
  headers['content-type'] === 'text/event-stream' && headers['content-length'] !== undefined;

async function expectSame(origin: string, one: Case): Promise<RawAnswer> {
  const answer = await post(origin, one);
  const fromSdk = await post(origin, { ...one, params: throughSdk(one.params) });
  expect(comparable(answer)).toEqual(comparable(fromSdk));
  expect(isDirect(fromSdk)).toBe(false);
  return answer;
}

const remote = (args: object, name = 'call_remote_tool') => ({ name, arguments: args });
const echo = remote({ server_id: 'v1', tool_name: 'echo', arguments: { message: 'grüße' } });

describe('a call answered directly is answered as by the SDK', () => {
  it.each([...Object.keys(RESULTS), 'proto'])('with the result: %s', async server_id => {
    const answer = await expectSame(sb.url, { params: remote({ server_id, tool_name: 'x' }) });
    expect(isDirect(answer)).toBe(true);
  });

  it.each<[string, unknown]>([
    ['a call', echo],
    ['a call without arguments of its own', remote({ server_id: 'v1', tool_name: 'echo' })],
    ['bad arguments of its own', remote({ server_id: 'v1', tool_name: 'echo', arguments: { message: 7 } })],
    ['arguments as JSON', remote({ server_id: 'v1', tool_name: 'echo', arguments: '{"message":"x"}' })],
    ['arguments of null', remote({ server_id: 'v1', tool_name: 'echo', arguments: null })],
    ['an unknown tool of a server', remote({ server_id: 'v1', tool_name: 'nothing' })],
    ['an unknown server', remote({ server_id: 'nobody', tool_name: 'x' })],
    ['an unknown field', remote({ server_id: 'v1', tool_name: 'echo', message: 'x' })],
    ['a missing field', remote({ server_id: 'v1' })],
    ['no arguments', { name: 'call_remote_tool' }],
    ['empty arguments', remote({})],
    ['a server that cannot be reached', remote({ server_id: 'gone', tool_name: 'x' })],
    ['a server that refuses', remote({ server_id: '401', tool_name: 'x' })],
    ['a server that answers with a page', remote({ server_id: 'html-200', tool_name: 'x' })],
    ['a server that answers with an odd error', remote({ server_id: 'weird-error', tool_name: 'x' })],
    ['a stored result that does not exist', remote({ server_id: 'switchboard', tool_name: 'read_result' })],
    ['read_remote_tool', remote({ server_id: 'v1', tool_name: 'echo' }, 'read_remote_tool')],
    ['a search', remote({ query: 'echo a message' }, 'search_servers')],
    ['a search for nothing', remote({}, 'search_servers')],
    ['the tools of a server', remote({ server_id: 'v1' }, 'search_servers')],
    ['the tools of no server', remote({ server_id: 'nobody' }, 'search_servers')],
    ['metadata', { ...echo, _meta: { traceparent: 'x', 'acme/y': { z: 1 } } }],
  ])('%s', async (_what, params) => {
    expect(isDirect(await expectSame(sb.url, { params }))).toBe(true);
  });

  it.each([0, -1, 7, Number.MAX_SAFE_INTEGER, '', '7', 'ü"\n'])('with the id %j', async id => {
    expect(isDirect(await expectSame(sb.url, { params: echo, id }))).toBe(true);
  });

  it.each<[string, Headers]>([
    ['no revision', {}],
    ...['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05', '2024-10-07'].map(
      (version): [string, Headers] => [version, { 'mcp-protocol-version': version }],
    ),
    ['any type', { accept: '*/*' }],
    ['any type in an order', { accept: 'text/event-stream;q=0.5, application/*' }],
    ['a charset', { 'content-type': 'Application/JSON; charset=utf-8' }],
    ['a session id of ours', { 'mcp-session-id': 'session.0f8fad5b-d9cb-469f-a165-70867728950e' }],
    ['a session id of another server', { 'mcp-session-id': 'x' }],
  ])('with headers: %s', async (_what, headers) => {
    expect(isDirect(await expectSame(sb.url, { params: echo, headers }))).toBe(true);
  });

  it('at the path with a slash, and with a query', async () => {
    const [answer, ...others] = await Promise.all(
      ['/mcp', '/mcp/', '/mcp?x=1'].map(path => post(sb.url, { params: echo }, path)),
    );
    for (const other of others) expect(comparable(other)).toEqual(comparable(answer!));
  });
});

describe('only the SDK answers', () => {
  it.each<[string, Case]>([
    ['an unknown tool', { params: remote({}, 'nothing') }],
    ['a tool without a name', { params: { arguments: {} } }],
    ['a name that is no text', { params: { name: 7 } }],
    ['no params', { params: undefined }],
    ['params that are a list', { params: [1] }],
    ['arguments of null', { params: { name: 'call_remote_tool', arguments: null } }],
    ['arguments that are a list', { params: { name: 'call_remote_tool', arguments: [] } }],
    ['metadata that is no object', { params: { ...echo, _meta: 7 } }],
    ['a progress token', { params: { ...echo, _meta: { progressToken: 1 } } }],
    ['a task', { params: { ...echo, task: { ttl: 1 } } }],
    ['a state', { params: { ...echo, requestState: 'x' } }],
    ['an unknown revision', { params: echo, headers: { 'mcp-protocol-version': '2023-01-01' } }],
    ['a revision of the next era', { params: echo, headers: { 'mcp-protocol-version': '2026-07-28' } }],
    ['a type that is not accepted', { params: echo, headers: { accept: 'application/json' } }],
    [
      'an envelope of the next era',
      { params: { ...echo, _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' } } },
    ],
  ])('%s', async (_what, one) => {
    expect(isDirect(await expectSame(sb.url, one))).toBe(false);
  });

  it('arguments with a member that it drops', async () => {
    const body = (door: string) =>
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_servers","arguments":{"query":"echo","__proto__":{"a":1}}${door}}}`;
    const headers = {
      'content-type': 'application/json',
      'x-api-key': 'a-key-for-tests-of-at-least-32-characters',
    };
    const [answer, other] = await Promise.all(
      ['', ',"door":1'].map(door => fetchRaw(sb.url, '/mcp', { method: 'POST', headers, body: body(door) })),
    );
    expect(comparable(answer!)).toEqual(comparable(other!));
    expect(isDirect(answer!)).toBe(false);
  });
});

describe('limits are the same through both doors', () => {
  const keyed = async (of: RunningSwitchboard, more: object = {}) => {
    const { key } = (await of.admin.request('POST', '/keys', { name: 'x', ...more })).json;
    return { 'x-api-key': String(key) };
  };
  const twice = async (origin: string, params: unknown, headers: Headers) => [
    comparable(await post(origin, { params, headers })),
    comparable(await post(origin, { params, headers })),
  ];

  it('of the rate', async () => {
    await using limited = await startTestSwitchboard({
      env: { SWITCHBOARD_RATE_LIMIT: 'proxy=1/600' },
      catalogue: [{ id: 'v1', remote_url: v1.url }],
    });
    const ours = await twice(limited.url, echo, await keyed(limited));
    expect(ours).toEqual(await twice(limited.url, throughSdk(echo), await keyed(limited)));
    expect(ours[1]?.words).toContain('(rate_limited, retry after');
    expect(ours[0]?.words).toContain('Echo: grüße');
  });

  it('of the month', async () => {
    const quota = { monthly_quota: { calls: 1 } };
    const ours = await twice(sb.url, echo, await keyed(sb, quota));
    expect(ours).toEqual(await twice(sb.url, throughSdk(echo), await keyed(sb, quota)));
    expect(ours[1]?.words).toContain('quota_exceeded');
  });

  it('of a key without the scope, and of no key', async () => {
    const narrow = await keyed(sb, { scopes: ['search'] });
    expect((await expectSame(sb.url, { params: echo, headers: narrow })).text).toContain(
      'insufficient_scope',
    );
    const refused = await expectSame(sb.url, { params: echo, headers: { 'x-api-key': 'wrong' } });
    expect(refused.status).toBe(401);
  });
});

describe('a user without a connection', () => {
  let upstream: AuthorisedServer;
  let identity: IdentityUnderTest;
  beforeAll(async () => {
    upstream = await startAuthorised('legacy');
    identity = await startIdentity({
      catalogue: [actingForUsers('plain', upstream.url)],
      allowedOrigins: [upstream.origin],
      env: { SWITCHBOARD_RATE_LIMIT: 'off' },
    });
  });
  afterAll(async () => {
    await identity[Symbol.asyncDispose]();
    await upstream[Symbol.asyncDispose]();
  });
  const params = remote({ server_id: 'plain', tool_name: 'echo', arguments: { message: 'x' } });

  it.each([
    ['is told where to sign in', {}, 'auth_url: '],
    [
      'whose client opens pages gets the error for it',
      { 'mcp-session-id': 'elicitation-url.0f8fad5b-d9cb-469f-a165-70867728950e' },
      '-32042',
    ],
  ])('%s, through both doors', async (_what, session, words) => {
    const headers = { ...identity.as(await identity.connect('lost')), ...session };
    expect((await expectSame(identity.url, { params, headers })).text).toContain('Echo: x');
    await identity.post('/v1/identity/revoke', { user_id: 'lost', provider: 'local' });
    const answer = await expectSame(identity.url, { params, headers });
    expect(isDirect(answer)).toBe(true);
    expect(answer.text).toContain(words);
  });

  it('who was revoked gets the same refusal', async () => {
    const headers = identity.as(await identity.connect('revoked'));
    await identity.revoke('revoked');
    const answer = await expectSame(identity.url, { params, headers });
    expect(answer.text).toContain('identity_token_invalid');
  });
});

describe('a call that takes long', () => {
  it('sends its headers before the result, and then the result', async () => {
    const held: HostileCall[] = [];
    const hold = (call: HostileCall) =>
      void (call.message.method === 'tools/call' ? held.push(call) : call.result({ tools: [] }));
    await using slow = await startHostile({ modes: { hold } });
    await sb.admin.request(
      'POST',
      '/catalogue/import',
      `${JSON.stringify({ id: 'slow', name: 'slow', description: 'x', remote_url: slow.url('hold') })}\n`,
    );
    const answer = await open(sb.url, '/mcp', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': sb.key },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: remote({ server_id: 'slow', tool_name: 'x' }),
      }),
    });
    expect([answer.statusCode, answer.headers['transfer-encoding']]).toEqual([200, 'chunked']);
    expect(held).toHaveLength(1);
    held[0]?.result({ content: [text('at last')] });
    const chunks: Buffer[] = [];
    for await (const chunk of answer) chunks.push(chunk as Buffer);
    expect(Buffer.concat(chunks).toString()).toMatch(/^event: message\ndata: \{.*"at last".*\}\n\n$/);
  });
});
