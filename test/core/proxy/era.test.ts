import { describe, expect, it } from 'vitest';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { caller, failure, startProxy } from './harness.ts';

const DAY_MS = 24 * 60 * 60_000;
const OK = { content: [{ type: 'text', text: 'ok' }] };

const answer =
  (status: number, body: (id: unknown) => unknown): HostileMode =>
  call =>
    call.json(body(call.message.id), status);

describe('era detection', () => {
  it('asks server/discover, then initialize, and only then sends the call: once', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    expect(upstream.inbox.all.map(({ message }) => message.method)).toEqual([
      'server/discover',
      'initialize',
      'notifications/initialized',
      'tools/call',
    ]);
  });

  it('a modern server gets no handshake', async () => {
    await using upstream = await startHostile({ era: 'modern' });
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.all.map(({ message }) => message.method)).toEqual([
      'server/discover',
      'tools/call',
    ]);
    expect(harness.proxy.sessionCount).toBe(0);
  });

  const legacyAnswers: [name: string, mode: HostileMode][] = [
    ['a lenient server that answers anything', call => call.result({ ok: true })],
    ['400 without JSON-RPC', call => void call.response.writeHead(400).end('Bad Request')],
    ['404', call => void call.response.writeHead(404).end()],
    ['405', call => void call.response.writeHead(405).end()],
    ['406', call => void call.response.writeHead(406).end()],
    ['404 with -32601', answer(404, id => ({ jsonrpc: '2.0', id, error: { code: -32_601, message: 'x' } }))],
    [
      '400 "not initialized"',
      answer(400, () => ({ jsonrpc: '2.0', id: null, error: { code: -32_000, message: 'x' } })),
    ],
    [
      '404 "session not found"',
      answer(404, () => ({ jsonrpc: '2.0', id: null, error: { code: -32_001, message: 'x' } })),
    ],
    ['HTML', call => void call.response.writeHead(200, { 'content-type': 'text/html' }).end('<html>')],
    ['202', call => void call.response.writeHead(202).end()],
    ['only older versions', call => call.result({ supportedVersions: ['2025-11-25'] })],
    [
      '-32022 with older versions',
      answer(400, id => ({
        jsonrpc: '2.0',
        id,
        error: { code: -32_022, message: 'x', data: { supported: ['2025-06-18'] } },
      })),
    ],
  ];
  it.each(legacyAnswers)('%s leads on to initialize', async (_name, mode) => {
    await using upstream = await startHostile({ modes: { 'server/discover': mode } });
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('initialize')).toBe(1);
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  const modernAnswers: [name: string, mode: HostileMode][] = [
    ['-32020', answer(400, id => ({ jsonrpc: '2.0', id, error: { code: -32_020, message: 'x' } }))],
    ['-32021', answer(400, id => ({ jsonrpc: '2.0', id, error: { code: -32_021, message: 'x' } }))],
    ['a list with our version', call => call.result({ supportedVersions: ['2025-11-25', '2026-07-28'] })],
  ];
  it.each(modernAnswers)('%s is proof of a modern server', async (_name, mode) => {
    await using upstream = await startHostile({ era: 'modern', modes: { 'server/discover': mode } });
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('initialize')).toBe(0);
  });

  const noEvidence: [name: string, code: string, mode: HostileMode][] = [
    ['401', 'upstream_unauthorized', call => void call.response.writeHead(401).end()],
    ['403', 'upstream_forbidden', call => void call.response.writeHead(403).end()],
    ['429', 'upstream_rate_limited', call => void call.response.writeHead(429).end()],
    ['500', 'upstream_http_error', call => void call.response.writeHead(500).end()],
    [
      '500 with JSON-RPC',
      'upstream_http_error',
      answer(500, id => ({ jsonrpc: '2.0', id, error: { code: -32_601, message: 'x' } })),
    ],
    ['503', 'upstream_http_error', call => void call.response.writeHead(503).end()],
    ['a time-out', 'upstream_timeout', () => {}],
    ['a reset', 'upstream_unreachable', call => void call.request.socket.resetAndDestroy()],
  ];
  it.each(noEvidence)(
    '%s says nothing about the era: %s, and the next call asks again',
    async (_name, code, mode) => {
      let broken = true;
      await using upstream = await startHostile({
        modes: { 'server/discover': call => (broken ? mode(call) : call.json({}, 404)) },
      });
      await using harness = startProxy(upstream.url('ok'), { limits: { totalTimeoutMs: 1_500 } });
      expect(await failure(harness.tool())).toMatchObject({ code });
      expect(upstream.inbox.count('initialize')).toBe(0);
      broken = false;
      expect(await harness.tool()).toMatchObject(OK);
      expect(upstream.inbox.count('tools/call')).toBe(1);
    },
  );

  it('a server with none but unknown versions: a clear error', async () => {
    await using upstream = await startHostile({
      modes: { 'server/discover': call => call.result({ supportedVersions: ['2030-01-01'] }) },
    });
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_protocol',
      detail: expect.stringMatching(/2030-01-01/),
    });
  });

  it.each([404, 405])('%i to every request: the catalogued URL may be wrong', async status => {
    const refuse: HostileMode = call => void call.response.writeHead(status).end('nothing here');
    await using upstream = await startHostile({
      modes: { 'server/discover': refuse, initialize: refuse, GET: refuse },
    });
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_protocol',
      detail:
        `The MCP server returned HTTP ${status} to initialize and has no event stream (HTTP+SSE) either. ` +
        'Its catalogued URL may be wrong.',
    });
    expect(upstream.inbox.all.map(({ httpMethod }) => httpMethod)).toEqual(['POST', 'POST', 'GET']);
  });

  it('400 to every request: quotes the server', async () => {
    const refuse: HostileMode = ({ response }) =>
      void response.writeHead(400, { 'content-type': 'text/plain' }).end('Missing account header');
    await using upstream = await startHostile({
      modes: { 'server/discover': refuse, initialize: refuse, GET: refuse },
    });
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_http_error',
      detail: 'The MCP server returned HTTP 400: Missing account header',
    });
  });

  it('concurrent first calls share one probe', async () => {
    await using upstream = await startHostile({ era: 'modern' });
    await using harness = startProxy(upstream.url('ok'));
    await Promise.all(Array.from({ length: 10 }, () => harness.tool()));
    expect(upstream.inbox.count('server/discover')).toBe(1);
  });
});

describe('the verdict', () => {
  it.each(['modern', 'legacy'] as const)('%s is valid for a day', async era => {
    await using upstream = await startHostile({ era });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.refreshed(1);
    harness.clock.advance(DAY_MS - 1);
    await harness.tool();
    await harness.refreshed(2);
    expect(upstream.inbox.count('server/discover')).toBe(1);
    harness.clock.advance(1);
    await harness.tool();
    expect(upstream.inbox.count('server/discover')).toBe(2);
  });

  it('a modern server that becomes legacy: the call that finds out fails once, the next one goes through', async () => {
    await using upstream = await startHostile({ era: 'modern' });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool('a');
    upstream.era = 'legacy';
    expect(await failure(harness.tool('b'))).toMatchObject({
      code: 'upstream_error',
      detail: 'Session not found',
    });
    expect(await harness.tool('c')).toMatchObject(OK);
    expect(upstream.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual([
      'a',
      'b',
      'c',
    ]);
  });

  it('a legacy server that becomes modern refuses the version before running anything: sent again as modern', async () => {
    await using upstream = await startHostile();
    // Not as a URL is normally written: the verdict must be found again all the same.
    await using harness = startProxy(upstream.url('ok').replace('http', 'HTTP'));
    await harness.tool('a');
    upstream.era = 'modern';
    expect(await harness.tool('b')).toMatchObject(OK);
    expect(await harness.tool('c')).toMatchObject(OK);
    const versions = upstream.inbox.of('tools/call').map(({ headers }) => headers['mcp-protocol-version']);
    expect(versions).toEqual(['2025-06-18', '2025-06-18', '2026-07-28', '2026-07-28']);
  });

  it('a legacy server that is gone modern when its session has to be renewed', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool('a');
    await harness.refreshed(1);
    upstream.era = 'modern';
    harness.clock.advance(5 * 60_000);
    harness.proxy.sweep();
    expect(await harness.tool('b')).toMatchObject(OK);
    expect(upstream.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual(['a', 'b']);
  });

  it('a modern server that responds like an old one is trusted, and probed again at most once a minute', async () => {
    await using upstream = await startHostile({
      era: 'modern',
      modes: { sloppy: call => call.json({ jsonrpc: '2.0', id: call.message.id, result: OK }) },
    });
    await using harness = startProxy(upstream.url('sloppy'));
    for (const _ of [1, 2, 3]) expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('server/discover')).toBe(1);
    harness.clock.advance(60_000);
    for (const _ of [1, 2, 3]) expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('server/discover')).toBe(2);
    expect(upstream.inbox.count('tools/call')).toBe(6);
  });

  it('belongs to the URL: another URL of the same server is probed', async () => {
    await using upstream = await startHostile({ era: 'modern' });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    harness.catalogue('s', upstream.url('ok2'));
    await harness.tool();
    expect(upstream.inbox.of('server/discover').map(({ path }) => path)).toEqual(['ok', 'ok2']);
  });
});

describe('modern errors', () => {
  const refused = (code: number, data?: unknown): HostileMode =>
    answer(400, id => ({ jsonrpc: '2.0', id, error: { code, message: 'refused', data } }));

  it('-32022 is tried again once, then passed on', async () => {
    await using upstream = await startHostile({
      era: 'modern',
      modes: { v: refused(-32_022, { supported: ['2026-07-28'], requested: '2026-07-28' }) },
    });
    await using harness = startProxy(upstream.url('v'));
    const reply = await harness.proxy.call(caller(), {
      serverId: 's',
      method: 'tools/call',
      params: { name: 'a' },
    });
    expect(reply).toMatchObject({ error: { code: -32_022 } });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });

  it.each([-32_021, -32_602, -32_603])('%i is a response', async code => {
    await using upstream = await startHostile({ era: 'modern', modes: { e: refused(code) } });
    await using harness = startProxy(upstream.url('e'));
    const reply = await harness.proxy.call(caller(), {
      serverId: 's',
      method: 'tools/call',
      params: { name: 'a' },
    });
    expect(reply).toEqual({ error: { code, message: 'refused' } });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('-32020 is retried once with the headers of the fresh schema, if the tool exists', async () => {
    const inputSchema = { properties: { q: { type: 'string', 'x-mcp-header': 'Q' } } };
    const list: HostileMode = call => call.result({ tools: [{ name: 'a', inputSchema }] });
    await using upstream = await startHostile({
      era: 'modern',
      modes: { h: refused(-32_020), 'tools/list': list },
    });
    await using harness = startProxy(upstream.url('h'));
    expect(await failure(harness.tool('a', { q: 'x' }))).toMatchObject({ code: 'upstream_error' });
    expect(upstream.inbox.of('tools/call').map(({ headers }) => headers['mcp-param-q'])).toEqual([
      undefined,
      'x',
    ]);
    expect(await failure(harness.tool('unknown'))).toMatchObject({ code: 'invalid_params' });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });

  it('ping does not exist in this revision and is answered by Switchboard', async () => {
    await using upstream = await startHostile({ era: 'modern' });
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'ping' })).toEqual({ result: {} });
    expect(upstream.inbox.count('ping')).toBe(0);
  });
});
