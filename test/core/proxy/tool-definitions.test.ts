import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import type { Server } from '../../../src/core/catalogue/entry.ts';
import { DEFAULT_LIMITS } from '../../../src/core/proxy/limits.ts';
import { paramHeaders } from '../../../src/core/proxy/arguments/param-headers.ts';
import { Deadline } from '../../../src/core/proxy/upstream/deadline.ts';
import { CheckedCalls } from '../../../src/core/proxy/arguments/checked-call.ts';
import { ToolDefinitions, toolOutcome } from '../../../src/core/proxy/tools.ts';
import type { ListedTool } from '../../../src/core/proxy/proxy.ts';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { startV1Server } from '../../support/upstreams/v1.ts';
import { caller, callerFor, credentialOf, failure, startProxy, type Harness } from './harness.ts';

const tool = (name: string, properties: object = {}, more: object = {}) => ({
  name,
  description: name,
  inputSchema: { type: 'object', properties, ...more },
});
const CITY = tool('forecast', { city: { type: 'string' } }, { required: ['city'] });
const SERVER: Server = {
  id: 's',
  name: 's',
  description: 's',
  remoteUrl: 'https://s.example/mcp',
  auth: { kind: 'none' },
  categories: [],
  tools: [],
  origin: 'operator',
  active: true,
};
const OK = { content: [{ type: 'text', text: 'ok' }] };

/** A server of revision 2026-07-28 with these tools; `list` may be changed on the way. */
async function startTools(list: () => object, modes: Record<string, HostileMode> = {}) {
  return startHostile({
    era: 'modern',
    modes: { 'tools/list': call => call.result(list()), ok: call => call.result(OK), ...modes },
  });
}

const list = (harness: Harness, who = caller()) => harness.proxy.listTools(who, { serverId: 's' });

it('a listing in the background that a stop cuts off is not logged as a failure', async () => {
  await using upstream = await startTools(() => ({}), { 'tools/list': () => {} });
  await using harness = startProxy(upstream.url('ok'));
  expect(await harness.tool('echo')).toMatchObject(OK);
  await vi.waitFor(() => expect(upstream.inbox.count('tools/list')).toBe(1), 60_000);
  await harness.proxy.close();
  await turn();
  expect(harness.logged.filter(({ err }) => err !== undefined)).toEqual([]);
});

describe('a call of a tool whose definition is fresh', () => {
  it('with wrong arguments is refused before anything is sent, and does not count as a failure of the server', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    expect(await failure(harness.tool('forecast', { citty: 'Bonn' }))).toMatchObject({
      code: 'invalid_params',
      detail:
        'The arguments do not match the schema of the tool "forecast": city is missing (expected string); is "citty" a misspelling of "city"? Nothing was sent to the server.',
    });
    expect(upstream.inbox.count('tools/call')).toBe(0);
    expect(harness.outcomes).toEqual([]);
    expect(await harness.tool('forecast', { city: 'Bonn' })).toMatchObject(OK);
  });

  it('of an unknown name is refused with the nearest one', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY, tool('other')] }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    expect(await failure(harness.tool('forcast'))).toMatchObject({
      code: 'invalid_params',
      detail:
        'The server has no tool "forcast". Did you mean "forecast"? It has:\n- "forecast": forecast\n- "other": other\n' +
        'The input schema of "forecast": {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}',
    });
    expect(upstream.inbox.count('tools/call')).toBe(0);
  });

  it('takes numbers and truth values as strings, where the schema wants nothing else', async () => {
    const typed = tool('typed', {
      count: { type: 'integer' },
      ratio: { type: 'number' },
      loud: { type: 'boolean' },
      word: { type: 'string' },
      either: { type: ['string', 'integer'] },
      maybe: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
    });
    await using upstream = await startTools(() => ({ tools: [typed] }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    await harness.tool('typed', { count: '7', ratio: '-0.5', loud: 'true', word: '7', either: '7' });
    expect(upstream.inbox.of('tools/call')[0]?.message.params.arguments).toEqual({
      count: 7,
      ratio: -0.5,
      loud: true,
      word: '7',
      either: '7',
    });
    await harness.tool('typed', { count: null, word: null, maybe: null, ratio: '1' });
    await harness.tool('typed', { maybe: '7' });
    // By a listing that has expired, too: nothing is refused by it, but what is plain is read.
    harness.clock.advance(24 * 60 * 60_000);
    await harness.tool('typed', { count: '8' });
    const sent = upstream.inbox.of('tools/call').map(({ message }) => message.params.arguments);
    expect(sent.slice(1)).toEqual([{ maybe: null, ratio: 1 }, { maybe: 7 }, { count: 8 }]);
    await list(harness);
    for (const args of [
      { count: 'seven' },
      { count: '7.5' },
      { count: '1e3' },
      { loud: 'yes' },
      { count: '' },
    ])
      expect(await failure(harness.tool('typed', args))).toMatchObject({ code: 'invalid_params' });
    expect(upstream.inbox.count('tools/call')).toBe(4);
  });

  it('is never checked as a generic call', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    const params = { name: 'unknown', arguments: { x: 1 } };
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'tools/call', params })).toMatchObject(
      {
        result: OK,
      },
    );
  });
});

describe('a call of a tool whose definition is not fresh', () => {
  it('goes out unchecked where the catalogue has the tool, before any listing, which follows in the background, once', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'));
    harness.catalogue('s', upstream.url('ok'), {
      tools: [{ name: 'forecast', description: '', input_schema: {} }],
    });
    await Promise.all([harness.tool('forecast', { x: 1 }), harness.tool('forecast', { x: 2 })]);
    const methods = upstream.inbox.all.map(({ message }) => message.method);
    expect(methods.indexOf('tools/call')).toBeLessThan(
      methods.includes('tools/list') ? methods.indexOf('tools/list') : Infinity,
    );
    await vi.waitFor(
      async () =>
        expect(await failure(harness.tool('forecast', {}))).toMatchObject({ code: 'invalid_params' }),
      60_000,
    );
    expect(upstream.inbox.count('tools/list')).toBe(1);
  });

  it('a failed listing affects no call and is retried after a minute at the earliest', async () => {
    await using upstream = await startTools(() => ({ nothing: true }));
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.refreshed(1);
    await harness.tool();
    harness.clock.advance(60_000);
    await harness.tool();
    await harness.refreshed(2);
    expect(upstream.inbox.count('tools/list')).toBe(2);
  });

  it('explains a refusal by what the catalogue says of the tool', async () => {
    const refusal: HostileMode = ({ json, message }) =>
      json({ jsonrpc: '2.0', id: message.id, error: { code: -32_602, message: 'Nope' } });
    await using upstream = await startTools(() => ({ nothing: true }), { ok: refusal });
    await using harness = startProxy(upstream.url('ok'));
    const { inputSchema: input_schema, ...rest } = CITY;
    harness.catalogue('s', upstream.url('ok'), { tools: [{ ...rest, input_schema }] });
    const error = await failure(harness.tool('forecast', {}));
    expect(error.detail).toBe(
      'Nope. According to the last known definition of the tool: city is missing (expected string).',
    );
    expect(error.upstreamError).toMatchObject({ code: -32_602, message: 'Nope' });
    expect((await failure(harness.tool('forcast', {}))).detail).toContain('Did you mean "forecast"?');
  });

  it('explains a result that reports the mistake, in a block of its own', async () => {
    await using upstream = await startV1Server();
    await using harness = startProxy(upstream.url);
    const input_schema = { type: 'object', required: ['message'] };
    harness.catalogue('s', upstream.url, { tools: [{ name: 'echo', description: '', input_schema }] });
    const result = await harness.tool('echo', {});
    expect(result.isError).toBe(true);
    expect(result.content.at(-1)).toEqual({
      type: 'text',
      text: '[Switchboard] According to the last known definition of the tool: message is missing.',
    });
  });
});

describe('a call of an unknown tool', () => {
  it('waits for the listing, and is then checked by it', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool('forecast', {}))).toMatchObject({ code: 'invalid_params' });
    expect(await harness.tool('forecast', { city: 'Bonn' })).toMatchObject(OK);
    const methods = upstream.inbox.all.map(({ message }) => message.method);
    expect(methods.filter(method => method?.startsWith('tools/'))).toEqual(['tools/list', 'tools/call']);
  });

  it('needs no slot of its own for the listing: as many as there are slots wait for one of them', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'), { limits: { connectionsPerOrigin: 1 } });
    const args = { city: 'Bonn' };
    const calls = [harness.tool('forecast', args), harness.tool('forecast', args)];
    expect(await Promise.all(calls)).toMatchObject([OK, OK]);
    expect(upstream.inbox.count('tools/list')).toBe(1);
  });

  it.each([
    ['lists nothing', () => ({ tools: [] })],
    ['cannot be listed', () => ({ nothing: true })],
  ])('goes out where the server %s: it may still have the tool', async (_what, listing) => {
    await using upstream = await startTools(listing);
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.tool('hidden')).toMatchObject(OK);
    expect(await harness.tool('hidden')).toMatchObject(OK);
  });
});

describe('a call that may only read', () => {
  const READS = tool('look', {}, {});
  const listing = () => ({ tools: [{ ...READS, annotations: { readOnlyHint: true } }, CITY] });
  const read = (harness: Harness, name: string) =>
    harness.proxy.callTool(caller(), { serverId: 's', name, readOnly: true });

  it('is made of a tool that its server marks so, and refused of others, before anything is sent', async () => {
    await using upstream = await startTools(listing);
    await using harness = startProxy(upstream.url('ok'));
    expect(await read(harness, 'look')).toMatchObject(OK);
    expect(await failure(read(harness, 'forecast'))).toMatchObject({
      code: 'invalid_params',
      detail: expect.stringContaining('The arguments do not match'),
    });
    const unmarked = harness.proxy.callTool(caller(), {
      serverId: 's',
      name: 'forecast',
      arguments: { city: 'Bonn' },
      readOnly: true,
    });
    expect((await failure(unmarked)).detail).toBe(
      'The server does not mark its tool "forecast" as read-only. The call was not sent.',
    );
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it.each([
    ['is marked as destructive too', [{ readOnlyHint: true, destructiveHint: true }]],
    ['is listed once more without the mark', [{ readOnlyHint: true }, {}]],
    ['is listed once more with it', [{ destructiveHint: true }, { readOnlyHint: true }]],
    ['has a text for a mark', [{ readOnlyHint: 'true' }]],
  ])('is refused of a tool that %s', async (_what, marks) => {
    await using upstream = await startTools(() => ({
      tools: marks.map(annotations => ({ ...READS, annotations })),
    }));
    await using harness = startProxy(upstream.url('ok'));
    expect((await failure(read(harness, 'look'))).detail).toMatch(/does not mark its tool "look"/);
  });

  it('is refused where only the catalogue says so, or the server cannot be asked', async () => {
    await using upstream = await startTools(() => ({ nothing: true }));
    await using harness = startProxy(upstream.url('ok'));
    const annotations = { readOnlyHint: true };
    harness.catalogue('s', upstream.url('ok'), {
      tools: [{ name: 'look', description: '', input_schema: {}, annotations }],
    });
    expect((await failure(read(harness, 'look'))).detail).toMatch(/^The server's tools could not be listed/);
    expect(upstream.inbox.count('tools/call')).toBe(0);
  });
});

describe('a guess at a tool of a server with unknown tools', () => {
  const refusals: Record<string, HostileMode> = {
    'a result in words of its own': call =>
      call.result({ content: [{ type: 'text', text: 'Pardon?' }], isError: true }),
    'an error -32601': ({ json, message }) =>
      json({ jsonrpc: '2.0', id: message.id, error: { code: -32_601, message: 'Pardon?' } }),
  };
  const textOf = async (harness: Harness, name: string): Promise<string> => {
    const result = await harness.tool(name).catch((error: Error) => error);
    return result instanceof Error ? result.message : JSON.stringify(result.content);
  };

  it.each(Object.entries(refusals))(
    'is answered at the first try with the names: %s',
    async (_name, refusal) => {
      await using upstream = await startTools(() => ({ tools: [CITY, tool('other')] }), { ok: refusal });
      await using harness = startProxy(upstream.url('ok'));
      const text = await textOf(harness, 'list');
      expect(text).toMatch(/^The server has no tool .*list.* It has:.*forecast.*other/s);
      expect(upstream.inbox.count('tools/list')).toBe(1);
      expect(upstream.inbox.count('tools/call')).toBe(0);
    },
  );

  it('is answered with 50 names and 4,000 characters at most, the nearest first', async () => {
    const many = Array.from({ length: 500 }, (_, at) => tool(`tool-number-${at}`, {}, { description: 'x' }));
    const talking = { ...tool('cast_spell'), description: 'word\n'.repeat(1_000) };
    await using upstream = await startTools(() => ({ tools: [...many, talking] }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    const { detail } = await failure(harness.tool('spell_cast'));
    expect(detail.length).toBeLessThan(4_200);
    expect(detail).toMatch(
      /Did you mean "cast_spell"\? It has 501 tools, 451 of which are not shown:\n- "cast_spell": word word/,
    );
    expect(detail).toContain('\nThe input schema of "cast_spell": {');
  });

  it('waits once for a server that does not list its tools, not with every call', async () => {
    await using upstream = await startTools(() => ({}), { 'tools/list': () => {} });
    const limits = { toolListWaitMs: 1_000 };
    await using harness = startProxy(upstream.url('ok'), { limits });
    // A caller with little time waits for less, which says nothing of the server.
    await harness.proxy.callTool(caller({ timeoutMs: 2_700 }), { serverId: 's', name: 'x' });
    const definitions = new ToolDefinitions({
      clock: harness.clock,
      log: createLog('silent'),
      limits: { toolRefreshIntervalMs: 60_000 },
    });
    const view = { server: SERVER, caller: caller(), connectionKey: undefined };
    const checked = new CheckedCalls(definitions, limits);
    let waited = 0;
    const call = async (totalMs: number) => {
      using deadline = new Deadline(totalMs);
      const refresh = (where?: 'in-slot') => (where && waited++, new Promise<void>(() => {}));
      const send = () => Promise.resolve({ answer: { result: { content: [] } }, bytes: 0 });
      await checked.run(view, { name: 'x' }, { send, read: toolOutcome, refresh, deadline });
    };
    await call(2_700);
    await call(60_000);
    await call(60_000);
    expect(waited).toBe(2);
  });

  it('does not wait for a listing for longer than the call itself may take', async () => {
    await using upstream = await startTools(() => ({}), {
      'tools/list': () => {},
      ok: refusals['an error -32601']!,
    });
    await using harness = startProxy(upstream.url('ok'));
    const call = harness.proxy.callTool(caller({ timeoutMs: 1_000 }), { serverId: 's', name: 'x' });
    expect((await failure(call)).detail).toMatch(/^Pardon\?/);
  });

  it('is not answered with the names where the tool exists: what it says is its own', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }), {
      ok: refusals['a result in words of its own']!,
    });
    await using harness = startProxy(upstream.url('ok'));
    expect((await harness.tool('forecast', { city: 'x' })).content).toHaveLength(1);
  });
});

describe('how long a listing holds', () => {
  it.each([
    ['not said', undefined, 60 * 60_000],
    ['nothing', 0, 60_000],
    ['ten minutes', 600_000, 600_000],
    ['for ever', Number.MAX_SAFE_INTEGER, 24 * 60 * 60_000],
    ['nonsense', 'soon', 60 * 60_000],
  ])('%s', async (_name, ttlMs, holdsMs) => {
    await using upstream = await startTools(() => ({ tools: [CITY], ttlMs }));
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    harness.clock.advance(holdsMs - 1);
    expect(await failure(harness.tool('forecast', {}))).toMatchObject({ code: 'invalid_params' });
    harness.clock.advance(1);
    expect(await harness.tool('forecast', {})).toMatchObject(OK);
  });

  it('until the server says that its tools have changed', async () => {
    const changed: HostileMode = ({ sse, message, response }) => {
      sse({ jsonrpc: '2.0', method: 'notifications/tools/list_changed' });
      sse({ jsonrpc: '2.0', id: message.id, result: { resultType: 'complete', ...OK } });
      response.end();
    };
    await using upstream = await startTools(() => ({ tools: [CITY] }), { ok: changed });
    await using harness = startProxy(upstream.url('ok'));
    await list(harness);
    await harness.tool('forecast', { city: 'Bonn' });
    expect(await harness.tool('forecast', {})).toMatchObject(OK);
  });
});

describe('whom a listing holds for', () => {
  const credentials = {
    forCall: ({ subject }: { subject?: { userId: string } }) =>
      Promise.resolve(credentialOf(subject?.userId ?? 'nobody')),
    renewAfterRefusal: () => Promise.resolve(undefined),
  };

  it.each([
    ['private', false],
    ['public', true],
  ])('one made with the token of a user, cacheScope %s', async (cacheScope, isShared) => {
    const shared: string[][] = [];
    await using upstream = await startTools(() => ({ tools: [CITY], cacheScope }));
    await using harness = startProxy(upstream.url('ok'), {
      credentials,
      onSharedTools: (_server, tools: readonly ListedTool[]) =>
        void shared.push(tools.map(({ name }) => name)),
    });
    const call = (userId: string) =>
      harness.proxy.callTool(callerFor(userId), { serverId: 's', name: 'forecast', arguments: {} });
    await list(harness, callerFor('ada'));
    expect(shared).toEqual(isShared ? [['forecast']] : []);
    expect(await failure(call('ada'))).toMatchObject({ code: 'invalid_params' });
    expect(await failure(call('bob'))).toMatchObject({ code: 'invalid_params' });
    expect(upstream.inbox.count('tools/list')).toBe(isShared ? 1 : 2);
  });

  it('one made without a token holds for everybody', async () => {
    const shared: number[] = [];
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'), {
      onSharedTools: (_server, tools: readonly ListedTool[]) => void shared.push(tools.length),
    });
    await list(harness, caller({ tenantId: 'other' }));
    expect(shared).toEqual([1]);
    expect(await failure(harness.tool('forecast'))).toMatchObject({ code: 'invalid_params' });
  });
});

describe('a listing in the background', () => {
  it('that fails counts against the server, and is not made while the server is not called', async () => {
    await using upstream = await startTools(() => ({ tools: [] }), {
      'tools/list': call => void call.response.writeHead(503, { 'retry-after': '30' }).end(),
    });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.refreshed(1);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_unavailable', retryAfterSec: 30 });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('is not sent to a server that asked to wait', async () => {
    let asked = 0;
    await using upstream = await startTools(() => ({ tools: [] }), {
      // The first is under way when the second says to wait; it ends after it, and would list the tools now.
      ok: call => {
        if (++asked === 1) first.resolve(() => call.result(OK));
        else call.response.writeHead(503, { 'retry-after': '30' }).end();
      },
    });
    const first = Promise.withResolvers<() => void>();
    await using harness = startProxy(upstream.url('ok'));
    const call = harness.tool();
    const answer = await first.promise;
    await failure(harness.tool());
    answer();
    await call;
    await harness.refreshed(1);
    expect(upstream.inbox.count('tools/list')).toBe(0);
  });

  it('is made once a minute for each user whose tools are private, not once for all of them', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY] }));
    await using harness = startProxy(upstream.url('ok'), {
      credentials: {
        forCall: ({ subject }) => Promise.resolve(credentialOf(`con_${subject?.userId}`)),
        renewAfterRefusal: () => Promise.resolve(undefined),
      },
    });
    const call = (userId: string, args: object) =>
      harness.proxy.callTool(callerFor(userId), { serverId: 's', name: 'forecast', arguments: { ...args } });
    for (const user of ['ann', 'ben', 'ann', 'ben'])
      expect(await failure(call(user, {}))).toMatchObject({ code: 'invalid_params' });
    expect(upstream.inbox.count('tools/list')).toBe(2);
  });
});

describe('a schema too large to check with', () => {
  const properties = Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [`p${at}`, {}]));
  const wide = tool('wide', properties, { required: ['p0'] });

  it('is listed whole, and costs no call anything: nothing of it is kept', async () => {
    await using upstream = await startTools(() => ({ tools: [CITY, wide] }));
    await using harness = startProxy(upstream.url('ok'));
    expect((await list(harness)).tools).toEqual([CITY, wide]);
    expect(await harness.tool('wide', { p1: 1 })).toMatchObject(OK);
    expect((await failure(harness.tool('forecast', {}))).code).toBe('invalid_params');

    const definitions = new ToolDefinitions({
      clock: harness.clock,
      log: createLog('silent'),
      limits: DEFAULT_LIMITS,
    });
    const view = { server: SERVER, caller: caller(), connectionKey: undefined };
    const holds = { bytes: 1, ttlMs: undefined, isPublic: true, isModern: true };
    definitions.keep(view, { tools: [CITY, wide], ...holds });
    expect(definitions.schemaOf(view, 'forecast')).toBe(CITY.inputSchema);
    expect(definitions.schemaOf(view, 'wide')).toEqual({});
  });

  it('of the catalogue gives its headers without being gone through', () => {
    const listing = new Proxy(
      { ...properties, a: { 'x-mcp-header': 'A', type: 'string' } },
      {
        ownKeys: () => {
          throw new Error('gone through');
        },
      },
    );
    expect(paramHeaders({ properties: listing }, { a: 'x', b: 1 }, value => value)).toEqual({
      'mcp-param-a': 'x',
    });
  });
});

describe('x-mcp-header', () => {
  const header = (value: unknown, type: unknown = 'string') => ({ type, 'x-mcp-header': value });
  const INVALID: readonly [name: string, schema: object][] = [
    ['empty', { properties: { a: header('') } }],
    ['object', { properties: { a: header('A', 'object') } }],
    ['array', { properties: { a: header('A', 'array') } }],
    ['null', { properties: { a: header('A', 'null') } }],
    ['number', { properties: { a: header('A', 'number') } }],
    ['no_type', { properties: { a: { 'x-mcp-header': 'A' } } }],
    ['same_case', { properties: { a: header('R'), b: header('R') } }],
    ['other_case', { properties: { a: header('MyField'), b: { properties: { c: header('myfield') } } } }],
    ['space', { properties: { a: header('My Region') } }],
    ['colon', { properties: { a: header('Region:Primary') } }],
    ['letters', { properties: { a: header('Région') } }],
    ['control', { properties: { a: header('A\tB') } }],
    ['no_text', { properties: { a: header(7) } }],
    ['root', header('A')],
    ['items', { properties: { a: { type: 'array', items: header('A') } } }],
    ['any_of', { anyOf: [{ properties: { a: header('A') } }] }],
    ['defs', { $defs: { a: header('A') } }],
  ];
  const tools = [
    {
      name: 'valid',
      inputSchema: { properties: { a: header('A'), b: { properties: { c: header('C', 'integer') } } } },
    },
    {
      name: 'named_so',
      inputSchema: { properties: { 'x-mcp-header': { type: 'object' } }, default: header('') },
    },
    ...INVALID.map(([name, inputSchema]) => ({ name, inputSchema })),
  ];

  it('that is invalid keeps a tool out of the listing of a modern server, and from being called', async () => {
    await using upstream = await startTools(() => ({ tools }));
    await using harness = startProxy(upstream.url('ok'));
    expect((await list(harness)).tools.map(({ name }) => name)).toEqual(['valid', 'named_so']);
    expect(await failure(harness.tool('colon'))).toMatchObject({
      code: 'invalid_params',
      detail: expect.stringContaining('its definition is invalid'),
    });
    const left = harness.logged.filter(({ msg }) => msg === 'skipped a tool in the listing');
    expect(left.map(line => line['tool'])).toEqual(INVALID.map(([name]) => name));
    await harness.tool('valid', { a: 'x', b: { c: 1 } });
    expect(upstream.inbox.of('tools/call')[0]?.headers).toMatchObject({
      'mcp-param-a': 'x',
      'mcp-param-c': '1',
    });
  });

  it('means nothing to servers of earlier revisions', async () => {
    await using upstream = await startHostile({ modes: { 'tools/list': call => call.result({ tools }) } });
    await using harness = startProxy(upstream.url('ok'));
    expect((await list(harness)).tools).toHaveLength(tools.length);
  });
});
