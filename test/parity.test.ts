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
      expect(mcp.map(key)).toEqual(rest.map(key));
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
