import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestSwitchboard, type RunningSwitchboard } from './support/switchboard.ts';
import { startHostile, type Hostile } from './support/upstreams/hostile.ts';
import { startV1Server, type V1Server } from './support/upstreams/v1.ts';

let v1: V1Server;
let hostile: Hostile;
let sb: RunningSwitchboard;
beforeAll(async () => {
  [v1, hostile] = await Promise.all([startV1Server(), startHostile()]);
  sb = await startTestSwitchboard({
    catalogue: [
      { id: 'v1', description: 'Echo a message.', remote_url: v1.url },
      ...['html-200', '401', '429', 'weird-error'].map(mode => ({ id: mode, remote_url: hostile.url(mode) })),
      // The same once more: after its first 429 a server is not asked again for a while.
      { id: '429-again', remote_url: `${hostile.url('429')}?again` },
      { id: 'retired', remote_url: hostile.url('ok') },
    ],
  });
  await sb.admin.request('POST', '/catalogue/retired/deactivate');
});
afterAll(async () => {
  await sb[Symbol.asyncDispose]();
  await Promise.all([v1[Symbol.asyncDispose](), hostile[Symbol.asyncDispose]()]);
});

async function overMcp(name: string, args: object): Promise<any> {
  const { text } = await sb.post('/mcp', {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name, arguments: args },
  });
  return JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? text).result;
}

describe('the same question on both faces', () => {
  it.each(['echo a message', 'Zürich weather', 'nothing at all like this 123'])(
    '%j finds the same servers in the same order',
    async query => {
      const rest = (await sb.post('/v1/search', { query, limit: 5 })).json.servers;
      const mcp = (await overMcp('search_servers', { query, limit: 5 })).structuredContent.servers;
      const key = (server: { id: string; final_score: number }) => [server.id, server.final_score];
      expect(mcp.map(key)).toEqual(
        rest.map(key).map(([id, score]: [string, number]) => [id, Math.round(score * 100) / 100]),
      );
    },
  );

  it('a call gives the same content', async () => {
    const args = { message: 'grüße' };
    const rest = (await sb.post('/v1/mcp/tools/call', { server_id: 'v1', name: 'echo', arguments: args }))
      .json;
    const mcp = await overMcp('call_remote_tool', { server_id: 'v1', tool_name: 'echo', arguments: args });
    expect(mcp.content).toEqual(rest.content);
  });

  it.each(['nobody', 'retired', 'html-200', '401', '429', 'weird-error'])(
    'a call to %s gives the same error and text',
    async server_id => {
      const rest = (await sb.post('/v1/mcp/tools/call', { server_id, name: 'x' })).json;
      const { content, isError } = await overMcp('call_remote_tool', {
        server_id: server_id === '429' ? '429-again' : server_id,
        tool_name: 'x',
      });
      expect(isError).toBe(true);
      const wait = rest.retry_after === undefined ? '' : `, retry after ${rest.retry_after} s`;
      expect(content[0].text).toBe(`${rest.detail} (${rest.code}${wait})`);
    },
  );

  it.each(['', ' ', 'x'.repeat(1001)])('a bad query gets the same words', async query => {
    const rest = (await sb.post('/v1/search', { query })).json;
    expect((await overMcp('search_servers', { query })).content[0].text).toBe(
      `${rest.detail} (${rest.code})`,
    );
  });
});

describe('what counts for the month', () => {
  const used = async (id: string) =>
    (await sb.admin.request('GET', '/keys')).json.keys.find((one: any) => one.id === id).used_this_month;
  const query = { query: 'echo' };
  const remote = { server_id: 'v1', name: 'echo', arguments: { message: 'x' } };
  const { name: tool_name, ...call } = remote;

  it.each([
    ['a search', '/v1/search', query, 'search_servers', query, { calls: 0, searches: 1 }],
    [
      'a malformed search',
      '/v1/search',
      { query: '' },
      'search_servers',
      { query: '' },
      { calls: 0, searches: 0 },
    ],
    ['an unknown field', '/v1/search', { q: 'x' }, 'search_servers', { q: 'x' }, { calls: 0, searches: 0 }],
    [
      'a call',
      '/v1/mcp/tools/call',
      remote,
      'call_remote_tool',
      { ...call, tool_name },
      { calls: 1, searches: 0 },
    ],
    [
      'a malformed call',
      '/v1/mcp/tools/call',
      { server_id: 'v1' },
      'call_remote_tool',
      { server_id: 'v1' },
      { calls: 0, searches: 0 },
    ],
    [
      'a listing',
      '/v1/mcp/tools/list',
      { server_id: 'v1' },
      'search_servers',
      { server_id: 'v1' },
      { calls: 1, searches: 0 },
    ],
  ])('%s counts alike on both faces [quota.faces]', async (_what, path, body, name, args, counts) => {
    const keys = await Promise.all(
      ['rest', 'mcp'].map(
        async face =>
          (await sb.admin.request('POST', '/keys', { name: face, monthly_quota: { calls: 9, searches: 9 } }))
            .json,
      ),
    );
    await sb.post(path, body, { 'x-api-key': keys[0].key });
    const message = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } };
    await sb.post('/mcp', message, { 'x-api-key': keys[1].key });
    expect([await used(keys[0].id), await used(keys[1].id)]).toEqual([counts, counts]);
  });
});
