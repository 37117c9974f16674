import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createMiniLmEmbedder } from '../../src/core/search/embed/minilm/embedder.ts';
import { CLIENTS, connectV2 } from '../support/mcp-clients.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startHostile, type Hostile } from '../support/upstreams/hostile.ts';
import { startV1Server, type V1Server } from '../support/upstreams/v1.ts';

let v1: V1Server;
let hostile: Hostile;
let sb: RunningSwitchboard;

const manyTools = Array.from({ length: 80 }, (_, at) => ({
  name: `lighthouse_tool_${at}`,
  description: `Does lighthouse thing number ${at}. ${'It is described at great length. '.repeat(20)}`,
  input_schema: { type: 'object', properties: { name: { type: 'string', description: 'x'.repeat(300) } } },
}));

beforeAll(async () => {
  [v1, hostile] = await Promise.all([startV1Server(), startHostile()]);
  sb = await startTestSwitchboard({
    catalogue: [
      {
        id: 'echoes',
        description: 'Echo a message back.',
        remote_url: v1.url,
        categories: ['code'],
        tools: [{ name: 'echo', description: 'Echo a message' }],
      },
      ...Array.from({ length: 12 }, (_, at) => ({
        id: `lighthouse-${at}`,
        description: 'Look up lighthouses.',
        remote_url: `https://l${at}.example/mcp`,
        categories: ['travel-maps'],
        tools: manyTools,
      })),
      { id: 'locked', remote_url: hostile.url('401') },
      { id: 'picky', remote_url: hostile.url('error-400') },
    ],
  });
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([v1[Symbol.asyncDispose](), hostile[Symbol.asyncDispose]()]);
});

describe.each(CLIENTS)('%s', (_name, connect) => {
  it('lists exactly the two tools, which say what is behind them', async () => {
    await using client = await connect(sb);
    const tools = await client.tools();
    expect(tools.map(tool => tool.name)).toEqual(['search_servers', 'call_remote_tool']);
    expect(tools[0]?.description).toContain('weather, maps, flights and hotels');
    for (const tool of tools) expect(tool).toMatchObject({ annotations: expect.any(Object) });
    // The result of a remote tool has the shape that its server gives it.
    expect(tools.map(tool => tool.outputSchema !== undefined)).toEqual([true, false]);
  });

  it('searches, then calls what it found', async () => {
    await using client = await connect(sb);
    const found = await client.call('search_servers', { query: 'echo a message', limit: 3 });
    expect(JSON.parse(found.content[0]?.text ?? '')).toEqual(found.structuredContent);
    const [first] = found.structuredContent.servers;
    expect(first.id).toBe('echoes');
    expect(first.tools.map((tool: { name: string }) => tool.name)).toContain('echo');
    const called = await client.call('call_remote_tool', {
      server_id: first.id,
      tool_name: 'echo',
      arguments: { message: 'hello' },
    });
    expect(called.content[0]).toMatchObject({ type: 'text', text: expect.stringContaining('hello') });
    expect(called).not.toHaveProperty('structuredContent');
    expect(called._meta).toMatchObject({
      'switchboard/server_id': 'echoes',
      'switchboard/tool_name': 'echo',
    });
  });

  it('a failing tool, a mistake and an unknown server are results the model can read', async () => {
    await using client = await connect(sb);
    const failed = await client.call('call_remote_tool', { server_id: 'echoes', tool_name: 'fail' });
    expect(failed.isError).toBe(true);
    const textOf = async (args: object) => {
      const result = await client.call('call_remote_tool', { tool_name: 'x', ...args });
      expect(result.isError).toBe(true);
      return result.content[0]?.text;
    };
    expect(await textOf({ server_id: 'nobody' })).toBe(
      'No server has the id "nobody". Search for the server to find its id. (server_not_found)',
    );
    expect(await textOf({ server_id: 'picky' })).toBe('bad params (upstream_error)');
    expect(await textOf({ server_id: 'locked' })).toMatch(/\(connection_required\)$/);
    expect(await textOf({ server: 'echoes' })).toMatch(
      /server_id: .*; Unknown field "server" \(the fields are server_id, tool_name, arguments, query_log_id\) \(invalid_request\)\nPut the tool's own arguments into arguments\.$/,
    );
    expect((await client.call('search_servers', { query: ' ' })).content[0]?.text).toMatch(
      /^query: must not be empty/,
    );
  });

  it('an unknown tool is a protocol error that names the two', async () => {
    await using client = await connect(sb);
    await expect(client.call('nope', {})).rejects.toThrow(/search_servers and call_remote_tool/);
  });
});

describe('search_servers', () => {
  it('stays under about 2,000 tokens however much there is, and says how much more', async () => {
    await using client = await connectV2(sb, 'auto');
    const { structuredContent, content } = await client.call('search_servers', {
      query: 'lighthouse thing',
      limit: 12,
    });
    expect(content[0]?.text.length).toBeLessThan(7_100);
    expect(structuredContent.servers).toHaveLength(12);
    for (const server of structuredContent.servers) {
      const known = server.id.startsWith('lighthouse') ? 80 : server.id === 'echoes' ? 1 : 0;
      expect(server.tools.length + (server.more_tools ?? 0)).toBe(known);
    }
    expect(structuredContent.servers[0].tools.length).toBeGreaterThan(0);
  });

  it('says what to try instead when nothing fits [search.abstains]', async () => {
    await using meaning = await startTestSwitchboard({
      embedder: () => createMiniLmEmbedder({ threads: 1 }),
      catalogue: [
        {
          id: 'weather',
          description: 'Weather forecasts for any city.',
          remote_url: 'https://w.example/mcp',
        },
      ],
    });
    await using client = await connectV2(meaning, 'auto');
    const found = async (query: string) => (await client.call('search_servers', { query })).structuredContent;
    expect((await found('weather forecast for Lisbon')).servers).toHaveLength(1);
    const nothing = await found('thank you, that was really kind of you');
    expect(nothing.servers).toEqual([]);
    expect(nothing.hint).toMatch(
      /^No server in the catalogue matches.*a single step.*answer without a server/s,
    );
  });

  it('stays there with 20 servers whose names, ids and descriptions are as long as can be', async () => {
    await using wordy = await startTestSwitchboard({
      catalogue: Array.from({ length: 30 }, (_, at) => ({
        id: `lighthouse-${'x'.repeat(110)}-${at}`,
        name: `Lighthouse ${'n'.repeat(180)}`,
        description: `Look up lighthouses. ${'Some more words on it. '.repeat(170)}`,
        remote_url: `https://l${at}.example/mcp`,
        tools: manyTools,
      })),
    });
    const params = { name: 'search_servers', arguments: { query: 'lighthouse', limit: 20 } };
    const { text } = await wordy.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const { content, structuredContent } = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? '').result;
    expect(structuredContent.servers).toHaveLength(20);
    expect(content[0].text.length).toBeLessThan(7_100);
    for (const server of structuredContent.servers)
      expect(server.tools.length + (server.more_tools ?? 0)).toBe(80);
  });
});

describe('/mcp over HTTP', () => {
  const initialize = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'curl', version: '1' } },
  };

  it('takes the key as X-API-Key or as Bearer, and answers a curl that names no type', async () => {
    for (const headers of [{ 'x-api-key': sb.key }, { 'x-api-key': '', authorization: `Bearer ${sb.key}` }]) {
      const { status, text } = await sb.post('/mcp', initialize, { accept: '*/*', ...headers });
      expect(status).toBe(200);
      expect(text).toContain('"name":"switchboard"');
    }
  });

  it('without a good key is a JSON 401 that names both ways to send one, and no OAuth discovery', async () => {
    for (const headers of [{}, { authorization: 'Bearer wrong' }, { 'x-api-key': 'wrong' }]) {
      const answer = await sb.post('/mcp', initialize, { 'x-api-key': '', ...headers });
      expect(answer.status).toBe(401);
      expect(answer.json).toMatchObject({
        jsonrpc: '2.0',
        id: null,
        error: {
          code: -32000,
          message:
            'Send a valid API key in the header X-API-Key, or as Authorization: Bearer. `switchboard keys create` creates one.',
          data: { reason: 'unauthorized' },
        },
      });
      expect(answer.headers.get('www-authenticate')).toBe(
        'Bearer realm="switchboard", error="invalid_token"',
      );
    }
  });
});

describe('limits', () => {
  it('are one budget for both faces', async () => {
    await using limited = await startTestSwitchboard({ env: { SWITCHBOARD_RATE_LIMIT: 'search=2/600' } });
    const ask = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'search_servers', arguments: { query: 'x' } },
    };
    await limited.post('/v1/search', { query: 'x' });
    expect((await limited.post('/mcp', ask)).text).toContain('"structuredContent"');
    const refused = await limited.post('/mcp', ask);
    expect(refused.text).toMatch(/may make 2 search requests.*\(rate_limited, retry after \d+ s\)/);
    expect((await limited.post('/v1/search', { query: 'x' })).status).toBe(429);
  });
});

describe('params that are wrong', () => {
  const CLIENT = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'a', version: '1' } };
  const sendTo = async (era: string, method: string, params: object) => {
    const meta = 'io.modelcontextprotocol/';
    const _meta = { [`${meta}protocolVersion`]: '2026-07-28', [`${meta}clientCapabilities`]: {} };
    const name = 'name' in params ? { 'mcp-name': String(params.name) } : {};
    const modern = era === '2026-07-28';
    const { text } = await sb.post(
      '/mcp',
      { jsonrpc: '2.0', id: 1, method, params: modern ? { ...params, _meta } : params },
      modern ? { 'mcp-protocol-version': era, 'mcp-method': method, ...name } : {},
    );
    return JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);
  };

  it.each<[era: string, method: string, params: object, message: string | RegExp]>([
    [
      '2025-11-25',
      'initialize',
      { ...CLIENT, clientInfo: undefined, capabilities: { sampling: 7 } },
      'Invalid params of initialize: capabilities.sampling: must be a JSON object, not a number; clientInfo: is missing; it must be a JSON object',
    ],
    [
      '2025-11-25',
      'initialize',
      { ...CLIENT, capabilities: { experimental: { a: 1, b: 2, c: 3, d: 4, e: 5 } } },
      /^Invalid params of initialize: capabilities\.experimental\.a: .*; and 2 more$/,
    ],
    [
      '2025-11-25',
      'initialize',
      { ...CLIENT, capabilities: { experimental: { ['x'.repeat(5_000)]: 7 } } },
      /^Invalid params of initialize: capabilities\.experimental\.x{240,260}…$/,
    ],
    ...['2025-11-25', '2026-07-28'].flatMap<[string, string, object, string]>(era => [
      [
        era,
        'tools/list',
        { cursor: 7 },
        'Invalid params of tools/list: cursor: must be a string, not a number',
      ],
      [era, 'tools/call', {}, 'Invalid params of tools/call: name: is missing; it must be a string'],
      [
        era,
        'tools/call',
        { name: 'search_servers', arguments: 'x' },
        'Invalid params of tools/call: arguments: must be a JSON object, not a string',
      ],
    ]),
  ])('%s %s %o is error -32602, in one line', async (era, method, params, message) => {
    const { id, error } = await sendTo(era, method, params);
    expect([id, error.code]).toEqual([1, -32_602]);
    expect(error.message).toMatch(message);
  });
});
