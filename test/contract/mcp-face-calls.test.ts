import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  CLIENTS,
  LEGACY_CLIENTS,
  type CallOptions,
  type McpClient,
  type Progress,
} from '../support/mcp-clients.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startAskingServer, type AskingServer } from '../support/upstreams/asking.ts';
import { startHostile, type Hostile, type HostileCall } from '../support/upstreams/hostile.ts';
import { startV1Server } from '../support/upstreams/v1.ts';
import { startV2Server, type V2Server } from '../support/upstreams/v2.ts';

let asking: AskingServer;
let askingLegacy: AskingServer;
let v2: V2Server;
let hostile: Hostile;
let sb: RunningSwitchboard;

const ODD_BLOCKS = [
  'words',
  7,
  null,
  [1],
  { type: 'hologram', z: 1 },
  { type: 'text' },
  { type: 'image', data: 'AAAA' },
  { type: 'text', text: 'good' },
];
const LONG = 'é'.repeat(1_234_567);

beforeAll(async () => {
  [asking, askingLegacy, v2, hostile] = await Promise.all([
    startAskingServer(),
    startAskingServer('stateless'),
    startV2Server(),
    startHostile({
      modes: {
        odd: call => call.result({ content: ODD_BLOCKS }),
        long: call => call.result({ content: [{ type: 'text', text: LONG }] }),
        structured: call => call.result({ content: [], structuredContent: { a: [1, { b: null }] } }),
        'structured-list': call => call.result({ content: [], structuredContent: [1, 2] }),
        'structured-null': call => call.result({ content: [], structuredContent: null }),
        'own-error': call => call.result({ content: [{ type: 'text', text: 'no' }], isError: true }),
      },
    }),
  ]);
  const modes = [
    'odd',
    'long',
    'structured',
    'structured-list',
    'structured-null',
    'own-error',
    'weird',
    'hang',
  ];
  sb = await startTestSwitchboard({
    env: { SWITCHBOARD_RATE_LIMIT: 'off' },
    catalogue: [
      { id: 'asking', remote_url: asking.url },
      { id: 'asking-legacy', remote_url: askingLegacy.url },
      { id: 'v2', remote_url: v2.url },
      ...modes.map(id => ({ id, remote_url: hostile.url(id) })),
      { id: 'gone', remote_url: 'http://127.0.0.1:1/mcp' },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([asking, askingLegacy, v2, hostile].map(one => one[Symbol.asyncDispose]()));
});

/** With the tools known, a client checks results against their output schemas. */
async function open(connect: (to: RunningSwitchboard) => Promise<McpClient>) {
  const client = await connect(sb);
  await client.tools();
  return {
    call: (args: object, options?: CallOptions): Promise<any> =>
      client.call('call_remote_tool', { ...args }, options),
    [Symbol.asyncDispose]: () => client[Symbol.asyncDispose](),
  };
}

describe.each(CLIENTS)('%s', (_name, connect) => {
  it.each(['asking', 'asking-legacy'])('is told of the progress that %s reports', async server_id => {
    await using client = await open(connect);
    const seen: Progress[] = [];
    const result = await client.call(
      { server_id, tool_name: 'steps' },
      { onprogress: progress => seen.push(progress) },
    );
    expect(result.content).toEqual([{ type: 'text', text: 'told' }]);
    // The server sends three at once; the last one is never lost.
    expect(seen[0]).toEqual({ progress: 1, total: 3, message: 'one' });
    expect(seen.at(-1)).toEqual({ progress: 3, total: 3, message: 'three' });
  });

  it('that does not ask for progress asks no server for it', async () => {
    await using client = await open(connect);
    const result = await client.call({ server_id: 'asking', tool_name: 'steps' });
    expect(result.content).toEqual([{ type: 'text', text: 'nobody asked' }]);
  });

  it('that disconnects during a call with progress leaves nothing behind', async () => {
    await using client = await open(connect);
    await using upstream = await startV2Server();
    await sb.admin.request(
      'POST',
      '/catalogue/import',
      line({ id: `wait-${waiting++}`, remote_url: upstream.url }),
    );
    const leaving = new AbortController();
    const call = client.call(
      { server_id: `wait-${waiting - 1}`, tool_name: 'wait' },
      { onprogress: () => {}, signal: leaving.signal },
    );
    await upstream.inbox.firstOf('tools/call');
    const refused = expect(call).rejects.toThrow();
    leaving.abort();
    await refused;
    // Clients of 2025-xx leave the stream of an aborted call open until they close.
    await client[Symbol.asyncDispose]();
    await upstream.cancelled;
  });

  it('converts invalid content blocks to text', async () => {
    await using client = await open(connect);
    const result = await client.call({ server_id: 'odd', tool_name: 'x' });
    expect(result.content.map((block: { text: string }) => block.text)).toEqual([
      'words',
      '7',
      'null',
      '[1]',
      '{"type":"hologram","z":1}',
      '{"type":"text"}',
      '{"type":"image","data":"AAAA"}',
      'good',
    ]);
  });

  it('gets a long text cut, with a marker that says how long it is', async () => {
    await using client = await open(connect);
    const { content } = await client.call({ server_id: 'long', tool_name: 'x' });
    expect(content.map(({ text }: { text: string }) => text)).toEqual([
      'é'.repeat(22_000),
      expect.stringMatching(
        /^\[cut: 22,000 of 1,234,567 characters shown\. To continue: call_remote_tool \{.*\]$/,
      ),
    ]);
  });

  it.each([
    ['structured', { a: [1, { b: null }] }],
    ['structured-list', [1, 2]],
    ['structured-null', null],
  ])('gets structured content of any kind: %s', async (server_id, value) => {
    await using client = await open(connect);
    const { structuredContent } = await client.call({ server_id, tool_name: 'x' });
    // Revisions 2025-xx know objects alone.
    const isOther = typeof value !== 'object' || value === null || Array.isArray(value);
    expect([value, { result: value }]).toContainEqual(structuredContent);
    if (!isOther) expect(structuredContent).toEqual(value);
  });
});

let waiting = 0;
const line = (entry: object) => `${JSON.stringify({ name: 'x', description: 'x', ...entry })}\n`;

async function rpc(
  method: string,
  params: object,
  headers: Record<string, string> = {},
  on: Pick<RunningSwitchboard, 'post'> = sb,
): Promise<any> {
  const { text } = await on.post('/mcp', { jsonrpc: '2.0', id: 1, method, params }, headers);
  return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result;
}

it('a progress token is short: every notification repeats it', async () => {
  const { content, isError } = await rpc('tools/call', {
    name: 'call_remote_tool',
    arguments: { server_id: 'asking', tool_name: 'steps' },
    _meta: { progressToken: 'x'.repeat(1_025) },
  });
  expect([isError, content[0].text]).toEqual([
    true,
    'progressToken: must have at most 1024 characters (invalid_request)',
  ]);
});

describe('notifications/cancelled of a client of 2025-xx', () => {
  const servers = [
    ['2025-11-25', startV1Server],
    ['2026-07-28', startV2Server],
  ] as const;
  const offer = async (remote_url: string) => {
    const id = `cancel-${waiting++}`;
    await sb.admin.request('POST', '/catalogue/import', line({ id, remote_url }));
    return id;
  };

  it.each(
    LEGACY_CLIENTS.flatMap(([client, connect]) =>
      servers.map(([server, start]) => [client, server, connect, start] as const),
    ),
  )('%s ends the call at a server of %s, and goes on', async (_client, _server, connect, start) => {
    await using upstream = await start();
    await using client = await open(connect);
    const leaving = new AbortController();
    const server_id = await offer(upstream.url);
    const call = client.call({ server_id, tool_name: 'wait' }, { signal: leaving.signal });
    const refused = expect(call).rejects.toThrow();
    await upstream.inbox.firstOf('tools/call');
    leaving.abort();
    await refused;
    await upstream.cancelled;
    const echo = { server_id, tool_name: 'echo', arguments: { message: 'x' } };
    expect((await client.call(echo)).content).toEqual([{ type: 'text', text: 'Echo: x' }]);
  });

  it('ends no call of another session, key or id, and none without a session id of ours', async () => {
    await using upstream = await startV1Server();
    const server_id = await offer(upstream.url);
    const { key } = (await sb.admin.request('POST', '/keys', { name: 'other' })).json;
    const session = async () => {
      const params = {
        protocolVersion: '2025-11-25',
        capabilities: {},
        clientInfo: { name: 'x', version: '1' },
      };
      const { headers } = await sb.post('/mcp', { jsonrpc: '2.0', id: 0, method: 'initialize', params });
      return { 'mcp-session-id': headers.get('mcp-session-id') ?? '' };
    };
    const [mine, another] = [await session(), await session()];
    const cancel = async (requestId: unknown, headers: Record<string, string>) => {
      const message = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } };
      expect((await sb.post('/mcp', message, headers)).status).toBe(202);
    };
    const params = { name: 'call_remote_tool', arguments: { server_id, tool_name: 'wait' } };
    let hasEnded = false;
    const call = sb
      .post('/mcp', { jsonrpc: '2.0', id: 7, method: 'tools/call', params }, mine)
      .finally(() => {
        hasEnded = true;
      });
    await upstream.inbox.firstOf('tools/call');
    await cancel(7, another);
    await cancel(7, {});
    await cancel(8, mine);
    await cancel('7', mine);
    await cancel(7, { ...mine, 'x-api-key': key });
    const args = { server_id, tool_name: 'echo', arguments: { message: 'x' } };
    await rpc('tools/call', { name: 'call_remote_tool', arguments: args }, mine);
    expect([hasEnded, upstream.inbox.count('notifications/cancelled')]).toEqual([false, 0]);
    await cancel(7, mine);
    await upstream.cancelled;
    // A cancelled request gets no answer.
    expect((await call).text).not.toContain('data: {');
  });
});

describe('arguments of call_remote_tool', () => {
  const call = (args: unknown, tool_name = 'echo') =>
    rpc('tools/call', {
      name: 'call_remote_tool',
      arguments: { server_id: 'v2', tool_name, arguments: args },
    });

  it('may be the object as a string of JSON, or null for none', async () => {
    expect((await call('{"message":"x"}')).content).toEqual((await call({ message: 'x' })).content);
    expect((await call(null)).content).toEqual((await call({})).content);
    const { tools } = await rpc('tools/list', {});
    const { properties, required } = tools[1].inputSchema;
    expect(properties.arguments).toMatchObject({ type: 'object' });
    expect(required).toEqual(['server_id', 'tool_name']);
  });

  it.each([['[]'], ['7'], ['"{}"'], ['{'], [''], [7], [[]], [`{"a":${'['.repeat(300)}${']'.repeat(300)}}`]])(
    'are else refused: %j',
    async args => {
      const { content, isError } = await call(args);
      expect(isError).toBe(true);
      expect(content[0].text).toMatch(/^arguments: must be a JSON object \(invalid_request\)/);
    },
  );
});

describe('a server whose tools are not known', () => {
  it('is said to be one by the search, and answers a guess with the names', async () => {
    await using fresh = await startTestSwitchboard({
      catalogue: [{ id: 'v2', description: 'Echoes words.', remote_url: v2.url }],
    });
    const call = (name: string, args: object) => rpc('tools/call', { name, arguments: args }, {}, fresh);
    const found = (await call('search_servers', { query: 'echo words' })).structuredContent;
    expect(found.servers[0]).toMatchObject({ id: 'v2', tools: [] });
    expect(found.hint).toBe('To list more tools of a server, call search_servers with its server_id.');
    const { content, isError } = await call('call_remote_tool', { server_id: 'v2', tool_name: 'say' });
    expect(isError).toBe(true);
    expect(content.map((block: { text: string }) => block.text).join('\n')).toMatch(
      /The server has no tool "say"\. It has:\n- "echo"/,
    );
  });
});

describe('REST', () => {
  it('gets what /mcp cuts, whole', async () => {
    const { json } = await sb.post('/v1/mcp/tools/call', { server_id: 'long', name: 'x' });
    expect(json.content[0].text).toBe(LONG);
  });

  it('gets blocks as they came', async () => {
    const { json } = await sb.post('/v1/mcp/tools/call', { server_id: 'odd', name: 'x' });
    expect(json.content).toEqual(ODD_BLOCKS);
  });
});

describe('Switchboard-Timeout-Ms', () => {
  const deadline = (ms: string | number) => ({ 'switchboard-timeout-ms': String(ms) });
  const BODIES = {
    '/v1/mcp/call': { server_id: 'hang', method: 'tools/call', params: { name: 'x' } },
    '/v1/mcp/tools/call': { server_id: 'hang', name: 'x' },
    '/v1/mcp/tools/list': { server_id: 'hang' },
  };

  it.each(Object.entries(BODIES))('ends a call over %s in time', async (path, body) => {
    const { json } = await sb.post(path, body, deadline(1_000));
    const detail = expect.stringMatching(
      /^The request to the MCP server timed out after 1 s.* To allow more time, send the header Switchboard-Timeout-Ms \(up to 300000\)\.$/,
    ) as string;
    if (path === '/v1/mcp/call') expect(json.error).toMatchObject({ code: -32000, message: detail });
    else expect(json).toMatchObject({ status: 502, code: 'upstream_timeout', detail });
  });

  it('ends a call over /mcp in time, and says whose limit it was', async () => {
    const args = { server_id: 'hang', tool_name: 'x' };
    const { content, isError } = await rpc(
      'tools/call',
      { name: 'call_remote_tool', arguments: args },
      deadline(1_000),
    );
    expect(isError).toBe(true);
    expect(content[0].text).toMatch(
      /^The request to the MCP server timed out after 1 s; the call may have run\. \(upstream_timeout\)\nAsk the tool for less data\. This client set the limit itself, in the header Switchboard-Timeout-Ms\.$/,
    );
  });

  it('lets a server be silent for longer than others wait, as a progressToken does at /mcp', async () => {
    const held: HostileCall[] = [];
    await using silent = await startHostile({
      era: 'modern',
      modes: { quiet: call => void held.push(call) },
    });
    await using quick = await startTestSwitchboard({
      catalogue: [{ id: 'quiet', remote_url: silent.url('quiet') }],
      proxyLimits: { totalTimeoutMs: 1_000, passIdleMs: 1_000, toolRefreshIntervalMs: Infinity },
    });
    const message = (params: object) => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const rest = (headers?: Record<string, string>) =>
      quick.post('/v1/mcp/tools/call', { server_id: 'quiet', name: 'x' }, headers);
    const passed = (headers?: Record<string, string>) =>
      quick.post('/mcp/quiet', message({ name: 'x' }), {
        'mcp-protocol-version': '2026-07-28',
        ...headers,
      });
    const args = { server_id: 'quiet', tool_name: 'x' };
    const _meta = { progressToken: 1 };
    const patient = [
      rest(deadline(60_000)),
      passed(deadline(60_000)),
      quick.post('/mcp', message({ name: 'call_remote_tool', arguments: args, _meta })),
    ];
    await vi.waitFor(() => expect(held).toHaveLength(patient.length), 60_000);
    for (const answer of await Promise.all([rest(), passed()])) {
      expect(answer.status).toBe(502);
      expect(answer.text).toMatch(
        /timed out after 1 s.* To allow more time, send the header Switchboard-Timeout-Ms/,
      );
    }
    for (const call of held) call.result({ content: [{ type: 'text', text: 'at last' }] });
    for (const { text } of await Promise.all(patient)) expect(text).toContain('"text":"at last"');
  });

  it.each(['0', '999', '300001', '-1000', '1e4', '2000.5', 'soon', '0x1000', '2000, 3000', ' '])(
    '%j is a 400 that names the header',
    async value => {
      for (const [path, body] of Object.entries(BODIES)) {
        const answer = await sb.post(path, body, deadline(value));
        expect(answer.status).toBe(400);
        expect(answer.json).toMatchObject({
          code: 'invalid_request',
          detail: 'Switchboard-Timeout-Ms: must be a whole number of milliseconds from 1000 to 300000',
        });
      }
    },
  );

  it('says nothing to endpoints that call no server', async () => {
    expect((await sb.post('/v1/search', { query: 'x' }, deadline('soon'))).status).toBe(200);
  });

  it('stands in the OpenAPI document of the three endpoints', async () => {
    const { paths } = (await sb.get('/openapi.json')).json;
    for (const path of Object.keys(BODIES)) {
      expect(paths[path].post.parameters).toEqual([
        expect.objectContaining({
          name: 'Switchboard-Timeout-Ms',
          in: 'header',
          required: false,
          schema: { type: 'integer', minimum: 1_000, maximum: 300_000, default: 60_000 },
        }),
      ]);
    }
    expect(paths['/v1/search'].post).not.toHaveProperty('parameters');
  });
});

describe('ids on POST /v1/mcp/call', () => {
  const send = (id: string) => sb.post('/v1/mcp/call', `{"server_id":"v2","method":"tools/list","id":${id}}`);

  it.each(['0', '-1', '9007199254740991', '1.5', '"9007199254740993"', '""'])(
    '%s is returned unchanged',
    async id => {
      const answer = await send(id);
      expect(answer.status).toBe(200);
      expect(answer.json.id).toBe(JSON.parse(id));
    },
  );

  it.each(['9007199254740993', '-9007199254740993', '1e300', '1e999', 'null', 'true', '{}', '[]'])(
    '%s, which cannot be returned unchanged, is refused',
    async id => {
      const answer = await send(id);
      expect(answer.status).toBe(400);
      expect(answer.json).toMatchObject({ id: null, code: 'invalid_request', error: { code: -32600 } });
      expect(answer.json.detail).toMatch(/^id: .*above 2\^53 - 1 as strings$/);
    },
  );
});

describe('a call that cannot be made', () => {
  it.each([
    ['search_servers', 'search', '/v1/search', { query: '' }],
    ['call_remote_tool', 'proxy', '/v1/mcp/tools/call', {}],
  ])('spends the budget on both faces: %s', async (name, budget, path, bad) => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: `${budget}=2/600` } });
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: bad } };
    expect((await limited.post('/mcp', call)).text).toContain('(invalid_request)');
    expect((await limited.post(path, bad)).status).toBe(400);
    expect((await limited.post('/mcp', call)).text).toContain('(rate_limited, retry after');
    expect((await limited.post(path, bad)).status).toBe(429);
  });
});

describe('tools/list', () => {
  it('is the same whatever the catalogue has, as clients keep it in their prompt caches [mcp.stable-list]', async () => {
    await using fresh = await startTestSwitchboard({
      catalogue: [{ id: 'old-one', remote_url: 'https://old.example/mcp', tools: [{ name: 'o' }] }],
    });
    const list = () => rpc('tools/list', {}, {}, fresh);
    const before = await list();
    const entry = { id: 'new-one', remote_url: 'https://new.example/mcp', categories: ['astrology'] };
    await fresh.admin.request('POST', '/catalogue/import', line(entry));
    expect(await list()).toEqual(before);
    expect(before).toEqual(await rpc('tools/list', {}));
    expect(JSON.stringify(before).length).toBeLessThan(5_500);
  });
});
