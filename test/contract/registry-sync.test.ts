import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { listed, startRegistry, type RegistryServer } from '../support/registry.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

let registry: RegistryServer;
let sb: RunningSwitchboard;
beforeEach(async () => {
  registry = await startRegistry();
  sb = await startTestSwitchboard();
});
afterEach(async () => {
  await sb[Symbol.asyncDispose]();
  await registry[Symbol.asyncDispose]();
});

const sync = async (more: object = {}) =>
  sb.admin.request('POST', '/catalogue/sync', { url: registry.url, full: true, ...more });
const show = async (id: string) => (await sb.admin.request('GET', `/catalogue/${id}`)).json;
const callStatus = async (id: string) => (await sb.post('/v1/mcp/tools/list', { server_id: id })).status;
const found = async (query: string) =>
  (await sb.post('/v1/search', { query })).json.servers.map((server: { id: string }) => server.id);

describe('a full sync', () => {
  it('brings in every page, searchable at once, and keeps where each entry came from', async () => {
    registry.entries = [
      listed('com.example/tides', {
        description: 'Tide tables of harbours.',
        title: 'Tides',
        version: '2.1.0',
      }),
      listed('com.example/bees'),
      listed('io.github.Ada/Moths'),
    ];
    const { status, json } = await sync();
    expect(status).toBe(200);
    expect(json).toMatchObject({
      registry: registry.url,
      mode: 'full',
      received: 3,
      synced: 3,
      deactivated: 0,
      left: 0,
      problems: [],
    });
    expect(registry.requests).toHaveLength(2);
    expect(await found('tide tables of harbours')).toContain('com.example_tides');
    expect(await show('com.example_tides')).toMatchObject({
      name: 'Tides',
      remote_url: 'https://tides.example/mcp',
      transport: 'streamable-http',
      origin: 'registry',
      registry: { source: registry.url, name: 'com.example/tides', version: '2.1.0', status: 'active' },
    });
    expect(await show('io.github.ada_moths')).toMatchObject({ active: true });
  });

  it('makes servers inactive (410) that the registry deleted or no longer lists', async () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'].map(letter => `x.y/${letter}`);
    registry.entries = names.map(name => listed(name));
    await sync();
    registry.entries = [
      listed('x.y/a', { status: 'deleted' }),
      ...names.slice(2).map(name => listed(name)),
      listed('x.y/never-known', { status: 'deleted' }),
    ];
    expect((await sync()).json).toMatchObject({ synced: 8, deactivated: 2, skipped: { deleted: 2 } });
    expect([await callStatus('x.y_a'), await callStatus('x.y_b')]).toEqual([410, 410]);
    expect(await callStatus('x.y_never-known')).toBe(404);
    // What comes back is active again.
    registry.entries = names.map(name => listed(name));
    expect((await sync()).json).toMatchObject({ synced: 10 });
    expect(await show('x.y_a')).toMatchObject({ active: true });
  });

  it('keeps deprecated servers, marked and below others that fit as well', async () => {
    const description = 'Tide tables of harbours.';
    const tides = (name: string, more = {}) => listed(name, { description, title: 'Tides', ...more });
    const statusMessage = `Use x.y/new. ${'Please. '.repeat(30)}`;
    registry.entries = [tides('x.y/a-old', { status: 'deprecated', statusMessage }), tides('x.y/new')];
    await sync();
    expect(await show('x.y_a-old')).toMatchObject({
      active: true,
      registry: { status: 'deprecated', statusMessage: statusMessage.trim() },
    });
    const { servers } = (await sb.post('/v1/search', { query: 'tide tables of harbours', explain: true }))
      .json;
    const [first, second] = servers;
    expect([first.id, second.id]).toEqual(['x.y_new', 'x.y_a-old']);
    expect(first).not.toHaveProperty('deprecated');
    expect(second).toMatchObject({ deprecated: true, status_message: statusMessage.trim() });
    expect(second.final_score).toBeCloseTo(first.final_score * 0.8);
    expect([first.scores.reduction, second.scores.reduction]).toEqual([1, 0.8]);
    const params = { name: 'search_servers', arguments: { query: 'tide tables of harbours' } };
    const accept = { accept: 'application/json, text/event-stream' };
    const answer = await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, accept);
    expect(answer.text).toMatch(/deprecated.{1,5}:true,.{0,3}status_message.{1,7}Use x\.y\/new\./);

    // Not deprecated any more: no trace is left.
    registry.entries = [tides('x.y/a-old'), tides('x.y/new')];
    await sync();
    const after = (await sb.post('/v1/search', { query: 'tide tables of harbours' })).json.servers;
    expect(after.map(({ id }: { id: string }) => id)).toEqual(['x.y_a-old', 'x.y_new']);
  });

  it('is refused where too much would become inactive, unless it is forced', async () => {
    registry.entries = ['a', 'b', 'c', 'd'].map(letter => listed(`x.y/${letter}`));
    await sync();
    for (const left of [registry.entries.slice(0, 3), []]) {
      registry.entries = left;
      const { status, json } = await sync();
      expect(status).toBe(200);
      expect(json).toMatchObject({ synced: 0, deactivated: 0 });
      expect(json.refused).toMatch(/^\d of the 4 servers .* inactive.* 20 %.* --force/);
      expect(await show('x.y_d')).toMatchObject({ active: true });
    }
    expect((await sync({ force: true })).json).toMatchObject({ deactivated: 4 });
    expect(await show('x.y_d')).toMatchObject({ active: false, origin: 'registry' });
  });

  it("never touches what is the operator's, the shipped catalogue's or another registry's", async () => {
    await using other = await startRegistry([listed('x.y/theirs', { title: 'Of the other' })]);
    await sb.admin.request(
      'POST',
      '/catalogue/import',
      [
        { id: 'x.y_mine', name: 'Mine', description: 'Mine.', remote_url: 'https://own.example/mcp' },
        { id: 'short', name: 'Short', description: 'Short.', remote_url: 'https://same.example/mcp/' },
      ]
        .map(line => JSON.stringify(line))
        .join('\n'),
    );
    await sync({ url: other.url });
    registry.entries = [
      listed('x.y/mine'),
      listed('x.y/theirs'),
      listed('x.y/same', { remotes: [{ type: 'sse', url: 'https://same.example/mcp' }] }),
      listed('x.y/filler', { remotes: [{ type: 'streamable-http', url: 'https://filler.example/mcp' }] }),
      listed('x.y/unwanted'),
    ];
    expect((await sync()).json).toMatchObject({ synced: 1, left: 4 });
    expect(await show('x.y_mine')).toMatchObject({ name: 'Mine', origin: 'operator' });
    expect(await show('x.y_theirs')).toMatchObject({ name: 'Of the other', registry: { source: other.url } });
    expect(await callStatus('x.y_same')).toBe(404);
    expect(await callStatus('x.y_filler')).toBe(404);
    // What the operator took out stays out, and is still known to be the registry's.
    await sb.admin.request('POST', '/catalogue/x.y_unwanted/deactivate');
    await sync();
    expect(await show('x.y_unwanted')).toMatchObject({
      active: false,
      origin: 'operator',
      registry: { name: 'x.y/unwanted' },
    });
  });

  it('skips bad entries by name, keeps their servers as they were, and counts entries nobody can call', async () => {
    registry.entries = [listed('x.y/good'), listed('x.y/spoilt')];
    await sync();
    registry.entries = [
      listed('x.y/good'),
      listed('x.y/spoilt', { remotes: [{ type: 'sse', url: 'https://user:word@h.example/' }] }),
      { server: { name: 'no slash', version: '1' } },
      'nonsense',
      null,
      listed('x.y/local', { remotes: [], packages: [{ registryType: 'npm' }] }),
      listed('x.y/tenant', { remotes: [{ type: 'sse', url: 'https://{tenant}.h.example/' }] }),
      listed('x.y/old', { isLatest: false }),
      listed('x.y/nul', { description: 'a\u0000b' }),
      listed('x.y/large', { extra: 'x'.repeat(40_000) }),
    ];
    const { json } = await sync();
    expect(json).toMatchObject({
      received: 10,
      synced: 1,
      deactivated: 0,
      bad: 6,
      skipped: { no_remote: 1, needs_configuration: 1, deleted: 0 },
    });
    expect(json.problems.map(({ name }: { name?: string }) => name)).toEqual([
      'x.y/spoilt',
      'no slash',
      undefined,
      undefined,
      'x.y/nul',
      'x.y/large',
    ]);
    expect(json.problems[0].reason).toMatch(/must not contain a user name or password/);
    expect(await show('x.y_spoilt')).toMatchObject({
      active: true,
      remote_url: 'https://spoilt.example/mcp',
    });
  });

  it('takes the first address that can be called, with its variables filled in, and notes which need a key', async () => {
    const url = 'https://{region}.h.example/{path}';
    const variables = { region: { default: 'eu' }, path: { value: 'mcp' } };
    registry.entries = [
      listed('x.y/vars', {
        remotes: [
          { type: 'sse', url: 'https://h.example/sse' },
          { type: 'streamable-http', url: 'https://{tenant}.h.example/mcp' },
          { type: 'streamable-http', url, variables },
        ],
      }),
      listed('x.y/key', {
        remotes: [
          {
            type: 'sse',
            url: 'https://k.example/',
            headers: [{ name: 'X-Key', isRequired: true, isSecret: true }],
          },
        ],
      }),
    ];
    await sync();
    expect(await show('x.y_vars')).toMatchObject({
      remote_url: 'https://eu.h.example/mcp',
      transport: 'streamable-http',
      auth: { kind: 'unknown' },
    });
    expect(await show('x.y_key')).toMatchObject({ transport: 'sse', auth: { kind: 'static_header' } });
  });

  it('takes over the variables of an address that somebody must fill, where there is no other', async () => {
    const url = 'https://{region}.h.example/{version}/{tenant}/mcp?key={key}&trace={trace}';
    const variables = {
      region: { default: 'eu' },
      version: { value: 'v2' },
      tenant: { description: 'As in your address there.', isSecret: false },
      key: { isRequired: true, isSecret: true, placeholder: 'sk-…' },
      trace: { choices: ['on', 'off'] },
    };
    const template = { type: 'streamable-http', url, variables };
    const headers = [{ name: 'X-Key', isRequired: true, isSecret: true }];
    registry.entries = [
      listed('x.y/vars', { remotes: [template] }),
      listed('x.y/both', { remotes: [{ ...template, headers }] }),
      listed('x.y/choice', { remotes: [template, { type: 'sse', url: 'https://h.example/sse' }] }),
      listed('x.y/undeclared', { remotes: [{ type: 'sse', url: 'https://h.example/?key={key}' }] }),
      listed('x.y/host', { remotes: [{ ...template, variables: {} }] }),
      listed('x.y/odd', { remotes: [{ type: 'sse', url: 'https://h.example/{a b}/{key}' }] }),
    ];
    expect((await sync()).json).toMatchObject({ synced: 4, bad: 0, skipped: { needs_configuration: 2 } });
    const asked = {
      kind: 'static_header',
      variables: {
        tenant: { description: 'As in your address there.', required: false, secret: false },
        key: { required: true, secret: true, placeholder: 'sk-…' },
        trace: { required: false, secret: true, choices: ['on', 'off'] },
      },
    };
    expect(await show('x.y_vars')).toMatchObject({
      remote_url: 'https://eu.h.example/v2/{tenant}/mcp?key={key}&trace={trace}',
      auth: asked,
    });
    expect((await show('x.y_both')).auth).toMatchObject({ ...asked, headers: [{ name: 'X-Key' }] });
    expect(await show('x.y_choice')).toMatchObject({ remote_url: 'https://h.example/sse', transport: 'sse' });
    expect((await show('x.y_undeclared')).auth).toEqual({
      kind: 'static_header',
      variables: { key: { required: true, secret: true } },
    });
    expect(await callStatus('x.y_vars')).toBe(403);
  });

  it('gives names that differ in case alone ids of their own, the same ones every time', async () => {
    registry.entries = [listed('x.y/twin'), listed('x.y/Twin', { title: 'Other twin' })];
    expect((await sync()).json).toMatchObject({ synced: 2 });
    const { json } = await sb.get('/v0.1/servers?search=twin');
    const ids = json.servers.map((one: any) => one._meta['dev.switchboard/server'].id);
    expect(ids).toEqual(['x.y_twin', expect.stringMatching(/^x\.y_twin-[0-9a-f]{10}$/)]);
    registry.entries.reverse();
    expect((await sync()).json).toMatchObject({ synced: 2, deactivated: 0 });
    expect(await show(ids[1])).toMatchObject({ name: 'Other twin' });
  });

  it('keeps the tools that a server listed itself, as long as it is at the same address', async () => {
    await using upstream = await startV2Server();
    const remotes = [{ type: 'streamable-http', url: upstream.url }];
    registry.entries = [listed('x.y/a', { remotes })];
    await sync();
    expect((await sb.admin.request('POST', '/catalogue/x.y_a/tools')).json.tools).toBeGreaterThan(0);
    const { tools } = await show('x.y_a');
    registry.entries = [listed('x.y/a', { remotes, title: 'New title' })];
    await sync();
    expect(await show('x.y_a')).toMatchObject({ name: 'New title', tools, tools_source: 'live' });
    registry.entries = [listed('x.y/a')];
    await sync();
    expect(await show('x.y_a')).toMatchObject({ tools: [], tools_source: 'catalogue' });
  });

  it('writes nothing when nothing has changed', async () => {
    registry.entries = [listed('x.y/a')];
    await sync();
    const { json } = await sb.get('/v0.1/servers?search=x.y/a');
    const before = json.servers[0]._meta['io.modelcontextprotocol.registry/official'].updatedAt;
    await sync();
    const again = (await sb.get('/v0.1/servers?search=x.y/a')).json.servers[0]._meta;
    expect(again['io.modelcontextprotocol.registry/official'].updatedAt).toBe(before);
  });
});

describe('an incremental sync', () => {
  it('asks for what has changed since the last one, with some overlap, and ends what was deleted', async () => {
    registry.entries = ['a', 'b', 'c', 'd', 'e'].map(letter =>
      listed(`x.y/${letter}`, { updatedAt: '2026-02-01T12:00:00Z' }),
    );
    const incremental = { full: false };
    expect((await sync(incremental)).json).toMatchObject({ mode: 'full', synced: 5 });
    registry.entries.splice(0, 2, listed('x.y/a', { status: 'deleted', updatedAt: '2026-02-02T00:00:00Z' }));
    registry.entries.push(listed('x.y/new', { updatedAt: '2026-02-03T00:00:00+02:00' }));
    registry.requests.length = 0;
    const { json } = await sync(incremental);
    expect(json).toMatchObject({ mode: 'incremental', deactivated: 1 });
    expect(registry.requests[0]?.url.searchParams.get('updated_since')).toBe('2026-02-01T11:50:00.000Z');
    expect(await callStatus('x.y_a')).toBe(410);
    expect(await show('x.y_new')).toMatchObject({ active: true });
    // What is not mentioned has not changed.
    expect(await show('x.y_b')).toMatchObject({ active: true });
    registry.requests.length = 0;
    await sync(incremental);
    expect(registry.requests[0]?.url.searchParams.get('updated_since')).toBe('2026-02-02T21:50:00.000Z');
  });

  it('is refused like a full one where too much would be deleted', async () => {
    registry.entries = ['a', 'b'].map(letter => listed(`x.y/${letter}`));
    await sync();
    registry.entries = [listed('x.y/a', { status: 'deleted' })];
    expect((await sync({ full: false })).json.refused).toMatch(/^1 of the 2 servers/);
  });

  it('misses no change of a registry whose clock is ahead', async () => {
    registry.entries = [listed('x.y/a', { updatedAt: '2999-01-01T00:00:00Z' })];
    await sync();
    registry.requests.length = 0;
    await sync({ full: false });
    const since = registry.requests[0]?.url.searchParams.get('updated_since') ?? '';
    expect(Date.parse(since)).toBeLessThan(Date.now());
  });
});
