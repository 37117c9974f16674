import { expect, it, vi } from 'vitest';
import { startTestSwitchboard } from '../support/switchboard.ts';
import { refusedPort } from '../support/upstreams/http.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

const MCP = { accept: 'application/json, text/event-stream' };
/** What is found out about a server is of no one request. */
const OF_A_SERVER = /^(upstream era detected|upstream failed repeatedly|failed to refresh tool definitions)/;

it('each log line of a request has the id from its response', async () => {
  await using upstream = await startV2Server();
  await using sb = await startTestSwitchboard({
    env: { LOG_LEVEL: 'info' },
    catalogue: [
      { id: 'up', remote_url: upstream.url },
      { id: 'down', remote_url: `http://127.0.0.1:${await refusedPort()}/mcp` },
    ],
  });
  const lines = (): any[] =>
    sb
      .logged()
      .trim()
      .split('\n')
      .map(line => JSON.parse(line));
  const before = lines().length;
  const tool = (server_id: string, name: string) =>
    sb.post('/v1/mcp/tools/call', { server_id, name, arguments: { message: 'hello' } });
  const listing = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
  const found = { name: 'search_servers', arguments: { query: 'anything' } };
  const remote = { server_id: 'up', tool_name: 'echo', arguments: { message: 'hello' } };
  expect((await sb.get('/mcp')).status).toBe(405);
  const answers = {
    search: await sb.post('/v1/search', { query: 'anything' }),
    call: await tool('up', 'echo'),
    failedCall: await tool('down', 'echo'),
    unknownServer: await tool('nobody', 'echo'),
    wrongKey: await sb.get('/v1/nowhere', { 'x-api-key': 'wrong' }),
    face: await sb.post('/mcp', { ...listing, method: 'tools/call', params: found }, MCP),
    faceCall: await sb.post(
      '/mcp',
      { ...listing, method: 'tools/call', params: { name: 'call_remote_tool', arguments: remote } },
      MCP,
    ),
    passed: await sb.post('/mcp/down', listing, MCP),
    audited: await sb.post('/v1/admin/keys', { name: 'a key' }),
    page: await sb.get('/connect/nothing'),
    probe: await sb.get('/nowhere'),
  };
  const ids = new Map(
    Object.entries(answers).map(([what, { headers }]) => [what, headers.get('x-request-id')]),
  );
  expect(new Set(ids.values()).size).toBe(Object.keys(answers).length);
  // The line of a request comes after its answer.
  await vi.waitFor(() => {
    const ended = lines().filter(({ msg }) => msg === 'request');
    expect(ended.map(({ requestId }) => requestId)).toEqual(expect.arrayContaining([...ids.values()]));
  }, 60_000);

  const caused = lines()
    .slice(before)
    .filter(({ msg }) => !OF_A_SERVER.test(msg));
  expect(caused.filter(({ requestId }) => ![...ids.values()].includes(requestId))).toEqual([]);
  const saidOf = (what: keyof typeof answers) =>
    caused.filter(({ requestId }) => requestId === ids.get(what)).map(({ msg }) => msg);
  expect(saidOf('failedCall')).toEqual(['upstream call failed', 'request']);
  expect(saidOf('passed')).toEqual(['upstream call failed', 'request']);
  expect(saidOf('audited')).toEqual(['audit event', 'request']);
  expect(saidOf('search')).toEqual(['request']);
  const rpcOf = (what: keyof typeof answers) =>
    caused.find(({ msg, requestId }) => msg === 'request' && requestId === ids.get(what))?.rpc;
  expect(rpcOf('face')).toBe('tools/call search_servers');
  expect(rpcOf('faceCall')).toBe('tools/call call_remote_tool up/echo');
  expect(rpcOf('search')).toBeUndefined();
  expect(lines().some(({ method, path }) => method === 'GET' && path === '/mcp')).toBe(false);
});
