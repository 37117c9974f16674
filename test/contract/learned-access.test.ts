import { describe, expect, it, vi } from 'vitest';
import { startTestSwitchboard } from '../support/switchboard.ts';
import { startHostile, type HostileMode } from '../support/upstreams/hostile.ts';

const TOOL = { name: 'forecast', inputSchema: { type: 'object' } };
const MODES: Record<string, HostileMode> = {
  'tools/list': call => call.result({ tools: [TOOL] }),
  'tools/call': call => call.result({ content: [{ type: 'text', text: 'Rain.' }] }),
};

describe('a server of unknown access', () => {
  it('is open on every face once a tool has run, but not once it has listed its tools or somebody used a key', async () => {
    await using upstream = await startHostile({ modes: MODES });
    await using sb = await startTestSwitchboard({
      catalogue: [{ id: 'w', description: 'Weather.', remote_url: upstream.url('ok') }],
    });
    const onRest = async () => (await sb.post('/v1/search', { query: 'weather' })).json.servers[0].access;
    const shown = async () => (await sb.admin.request('GET', '/catalogue/w')).json.access;
    const call = () => sb.post('/v1/mcp/tools/call', { server_id: 'w', name: 'forecast', arguments: {} });

    expect((await sb.post('/v1/mcp/tools/list', { server_id: 'w' })).status).toBe(200);
    const connected = await sb.admin.request('PUT', '/connections', {
      server_id: 'w',
      values: { token: 'a-good-key' },
    });
    expect(connected.status).toBe(200);
    expect(await onRest()).toEqual({ kind: 'credentials', status: 'connected' });
    expect((await call()).status).toBe(200);
    await sb.admin.request('POST', '/connections/revoke', { server_id: 'w' });
    expect(await shown()).toEqual({ kind: 'unknown', status: 'unknown' });
    expect(await onRest()).toEqual({ kind: 'unknown', status: 'unknown' });

    expect((await call()).status).toBe(200);
    const open = { kind: 'none', status: 'open' };
    await vi.waitFor(async () => expect(await onRest()).toEqual(open));
    expect(await shown()).toEqual({ ...open, learned: { kind: 'none' } });
    const params = { name: 'search_servers', arguments: { query: 'weather' } };
    const { text } = await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const found = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result.structuredContent;
    expect(found.servers[0].access).toBe('open');
  });
});
