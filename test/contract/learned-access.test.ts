import { describe, expect, it, vi } from 'vitest';
import { startProtectedServer } from '../support/authorization/protected.ts';
import { startAuthorizationServer } from '../support/authorization/server.ts';
import { startTestSwitchboard } from '../support/switchboard.ts';
import { startChangeable } from '../support/upstreams/changeable.ts';
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
    await vi.waitFor(async () => expect(await onRest()).toEqual(open), 60_000);
    expect(await shown()).toEqual({ ...open, learned: { kind: 'none' } });
    const params = { name: 'search_servers', arguments: { query: 'weather' } };
    const { text } = await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    const found = JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text).result.structuredContent;
    expect(found.servers[0].access).toBe('open');
  });

  it('is what its 401 to a health check says, if nobody has said anything yet', async () => {
    await using issuer = await startAuthorizationServer();
    await using signsIn = await startProtectedServer({ authorizationServer: issuer });
    await using takesKey = await startChangeable(401);
    await using fails = await startChangeable(403);
    await using lists = await startChangeable();
    await using sb = await startTestSwitchboard({
      catalogue: [
        { id: 'signs-in', remote_url: signsIn.url },
        { id: 'takes-key', remote_url: takesKey.url },
        { id: 'stated', remote_url: `${signsIn.url}?stated`, auth: { kind: 'credentials' } },
        { id: 'fails', remote_url: fails.url },
        { id: 'lists', remote_url: lists.url },
      ],
    });
    const shown = async (id: string) => (await sb.admin.request('GET', `/catalogue/${id}`)).json.access;
    const probed = await sb.admin.request('POST', '/catalogue/probe', {});
    expect(probed.json).toMatchObject({ visited: 5, needs_sign_in: 4, ok: 1 });
    expect(await shown('signs-in')).toEqual({
      kind: 'oauth',
      status: 'connect',
      learned: {
        kind: 'oauth',
        issuer: issuer.issuer,
        resource_metadata: expect.stringContaining(new URL(signsIn.url).origin),
      },
    });
    expect(await shown('takes-key')).toEqual({
      kind: 'credentials',
      status: 'connect',
      learned: { kind: 'credentials' },
    });
    expect(await shown('stated')).toEqual({ kind: 'credentials', status: 'connect' });
    for (const id of ['fails', 'lists'])
      expect(await shown(id)).toEqual({ kind: 'unknown', status: 'unknown' });
  });
});
