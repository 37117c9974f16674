import { describe, expect, it } from 'vitest';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { caller, callerFor, failure, startProxy } from './harness.ts';

const IDLE_MS = 5 * 60_000;
const OK = { content: [{ type: 'text', text: 'ok' }] };

/** A mode that answers once it is let. */
function gate() {
  const { promise, resolve: open } = Promise.withResolvers<void>();
  const mode: HostileMode = call => void promise.then(() => call.result(OK));
  return { mode, open };
}

describe('sessions', () => {
  it('one handshake serves all calls of one tenant and user, each with its own request id', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await Promise.all(Array.from({ length: 10 }, () => harness.tool()));
    expect(upstream.inbox.count('initialize')).toBe(1);
    const calls = upstream.inbox.of('tools/call');
    expect(new Set(calls.map(({ message }) => message.id)).size).toBe(10);
    expect(new Set(calls.map(({ headers }) => headers['mcp-session-id'])).size).toBe(1);
    expect(calls[0]?.headers['mcp-protocol-version']).toBe('2025-06-18');
  });

  it('are never shared between tenants or users', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    const callers = [caller(), callerFor('u'), caller({ tenantId: 't' }), callerFor('u', { tenantId: 't' })];
    for (const who of [...callers, ...callers]) {
      await harness.proxy.callTool(who, { serverId: 's', name: 'a' });
    }
    expect(upstream.inbox.count('initialize')).toBe(4);
    expect(
      new Set(upstream.inbox.of('tools/call').map(({ headers }) => headers['mcp-session-id'])).size,
    ).toBe(4);
  });

  it('a server without session ids gets none', async () => {
    await using upstream = await startHostile({ sessions: false });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.tool();
    expect(upstream.inbox.count('initialize')).toBe(1);
    expect(upstream.inbox.all.every(({ headers }) => headers['mcp-session-id'] === undefined)).toBe(true);
  });

  it('a dead session (404) is renewed once and its call sent again, also for several at a time', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    upstream.sessionIds.clear();
    const results = await Promise.all(Array.from({ length: 5 }, () => harness.tool()));
    expect(results).toEqual(Array.from({ length: 5 }, () => ({ ...OK, isError: false })));
    expect(upstream.inbox.count('initialize')).toBe(2);
    expect(harness.proxy.sessionCount).toBe(1);
  });

  it('a server whose sessions are always dead is asked twice, not for ever', async () => {
    await using upstream = await startHostile({
      modes: {
        dead: call => call.json({ jsonrpc: '2.0', id: null, error: { code: -32_001, message: 'gone' } }, 404),
      },
    });
    await using harness = startProxy(upstream.url('dead'));
    expect(await failure(harness.tool('unknown'))).toMatchObject({ code: 'upstream_error' });
    expect(upstream.inbox.count('tools/call')).toBe(2);
    // The call's two, and those of the listing before it.
    await harness.refreshed(1);
    expect(upstream.inbox.count('initialize')).toBe(4);
    expect(upstream.inbox.count('tools/list')).toBe(2);
  });

  it('a 404 without a session is an HTTP error and not sent again', async () => {
    await using upstream = await startHostile({
      sessions: false,
      modes: { lost: call => void call.response.writeHead(404).end() },
    });
    await using harness = startProxy(upstream.url('lost'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_http_error',
      detail: expect.stringMatching(/HTTP 404/),
    });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  /** A server that says HTTP 400 with these words in every session made before it is told to forget them. */
  const startForgetful = async (message: string) => {
    let forgotten: ReadonlySet<unknown> = new Set();
    const mode: HostileMode = call => {
      if (forgotten.has(call.request.headers['mcp-session-id']))
        call.json({ jsonrpc: '2.0', error: { code: -32_000, message } }, 400);
      else call.result({ ...OK, tools: [{ name: 'tool', inputSchema: { type: 'object' } }] });
    };
    const upstream = await startHostile({ modes: { m: mode, 'tools/list': mode } });
    const harness = startProxy(upstream.url('m'));
    const list = () => harness.proxy.listTools(caller(), { serverId: 's' });
    // Now the tools are known, so that nothing is listed in the background.
    await list();
    forgotten = new Set(upstream.sessionIds);
    return {
      harness,
      list,
      count: (method: string) => upstream.inbox.count(method),
      async [Symbol.asyncDispose]() {
        await harness.proxy.close();
        await upstream[Symbol.asyncDispose]();
      },
    };
  };

  it.each(['Bad Request: No valid session ID provided', 'Session not found', 'Invalid session ID'])(
    'a 400 that says that there is no such session (%s) means a dead one: it is renewed and the call sent again, once',
    async message => {
      await using forgetful = await startForgetful(message);
      expect(await forgetful.harness.tool()).toMatchObject(OK);
      expect(forgetful.count('tools/call')).toBe(2);
      expect(forgetful.count('initialize')).toBe(2);
    },
  );

  it('a 400 that speaks of the session in other words: the call is not sent again, which is said, and the next has a new one', async () => {
    await using forgetful = await startForgetful('The session ended while the tool ran');
    expect(await failure(forgetful.harness.tool())).toMatchObject({
      code: 'upstream_error',
      retryable: false,
      upstreamError: { code: -32_000, message: 'The session ended while the tool ran' },
      detail: expect.stringMatching(
        /^The session ended while the tool ran\. The session with the server was lost, and the call may have run/,
      ),
    });
    expect(forgetful.count('tools/call')).toBe(1);
    expect(await forgetful.harness.tool()).toMatchObject(OK);
    expect(forgetful.count('initialize')).toBe(2);
  });

  it('a 400 that speaks of the session in other words: a mere read is sent again, once', async () => {
    await using forgetful = await startForgetful('The session ended');
    expect((await forgetful.list()).tools).toHaveLength(1);
    expect(forgetful.count('tools/list')).toBe(3);
    expect(forgetful.count('initialize')).toBe(2);
  });

  it('a session id on an error is not kept', async () => {
    let broken = true;
    await using upstream = await startHostile({
      sessions: false,
      modes: {
        initialize: call => {
          const { id } = call.message;
          if (broken)
            call.json({ jsonrpc: '2.0', id, error: { code: -32_603, message: 'not now' } }, 200, {
              'mcp-session-id': 'evil',
            });
          else call.result({ protocolVersion: '2025-11-25', capabilities: {} });
        },
        e: call =>
          call.json({ jsonrpc: '2.0', id: call.message.id, error: { code: 1, message: 'x' } }, 400, {
            'mcp-session-id': 'evil',
          }),
      },
    });
    await using harness = startProxy(upstream.url('e'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_protocol',
      detail: expect.stringMatching(/refused initialize: not now/),
    });
    broken = false;
    await failure(harness.tool());
    await failure(harness.tool());
    expect(upstream.inbox.all.some(({ headers }) => headers['mcp-session-id'] !== undefined)).toBe(false);
  });

  it.each([
    ['a protocol version nobody knows', { protocolVersion: '2030-01-01' }, {}],
    ['no protocol version', {}, {}],
    ['no object', null, {}],
    ['a session id with spaces', { protocolVersion: '2025-11-25' }, { 'mcp-session-id': 'a b' }],
  ])('an initialize answer with %s breaks the protocol', async (_name, result, headers) => {
    await using upstream = await startHostile({
      modes: { initialize: call => call.json({ jsonrpc: '2.0', id: call.message.id, result }, 200, headers) },
    });
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_protocol' });
    expect(harness.proxy.sessionCount).toBe(0);
  });

  it.each<[string, HostileMode]>([
    ['refuses', call => void call.response.writeHead(500).end()],
    ['never answers', () => {}],
    ['holds open', call => call.sse()],
  ])('a server that %s notifications/initialized is called all the same', async (_name, mode) => {
    await using upstream = await startHostile({ modes: { 'notifications/initialized': mode } });
    await using harness = startProxy(upstream.url('ok'), { limits: { sideTimeoutMs: 100 } });
    expect(await harness.tool()).toMatchObject(OK);
  });

  it('another URL of the same server is another session', async () => {
    await using old = await startHostile();
    await using moved = await startHostile();
    await using harness = startProxy(old.url('ok'));
    await harness.tool();
    harness.catalogue('s', moved.url('ok'));
    await harness.tool();
    const oldId = old.inbox.of('tools/call')[0]?.headers['mcp-session-id'];
    expect(old.inbox.count('tools/call')).toBe(1);
    expect(moved.inbox.all.some(({ headers }) => headers['mcp-session-id'] === oldId)).toBe(false);
  });
});

describe('the end of sessions', () => {
  it('idle ones are ended with DELETE; used ones stay', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.refreshed(1);
    harness.clock.advance(IDLE_MS - 1);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(1);
    await harness.tool();
    await harness.refreshed(2);
    harness.clock.advance(IDLE_MS - 1);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(1);
    harness.clock.advance(1);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(0);
    const ended = await upstream.inbox.firstOf('DELETE');
    expect(ended.headers['mcp-session-id']).toBe(
      upstream.inbox.of('tools/call')[0]?.headers['mcp-session-id'],
    );
  });

  it('a session with a call under way is not idle', async () => {
    const { mode, open } = gate();
    await using upstream = await startHostile({ modes: { slow: mode } });
    await using harness = startProxy(upstream.url('slow'));
    const call = harness.tool();
    await upstream.inbox.firstOf('tools/call');
    harness.clock.advance(IDLE_MS * 2);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(1);
    open();
    await call;
  });

  it('the least recently used goes when there are too many', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), { limits: { maxSessions: 2 } });
    const as = (tenantId: string) =>
      harness.proxy.callTool(caller({ tenantId }), { serverId: 's', name: 'a' });
    await as('a');
    await as('b');
    await as('a');
    await as('c');
    expect(harness.proxy.sessionCount).toBe(2);
    const ended = await upstream.inbox.firstOf('DELETE');
    expect(ended.headers['mcp-session-id']).toBe(
      upstream.inbox.of('tools/call')[1]?.headers['mcp-session-id'],
    );
  });

  it('one tenant`s sessions go before those of others', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), { limits: { maxSessionsPerTenant: 2 } });
    const as = (tenantId: string, userId: string) =>
      harness.proxy.callTool(callerFor(userId, { tenantId }), { serverId: 's', name: 'a' });
    await as('quiet', '1');
    for (const userId of ['1', '2', '3']) await as('busy', userId);
    expect(harness.proxy.sessionCount).toBe(3);
    const ended = await upstream.inbox.firstOf('DELETE');
    expect(ended.headers['mcp-session-id']).toBe(
      upstream.inbox.of('tools/call')[1]?.headers['mcp-session-id'],
    );
  });

  it('the sessions with one server go before those with others', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), { limits: { maxSessionsPerServer: 2 } });
    harness.catalogue('quiet', upstream.url('ok'));
    await harness.proxy.callTool(caller({ tenantId: 'a' }), { serverId: 'quiet', name: 'a' });
    for (const tenantId of ['a', 'b', 'c']) {
      await harness.proxy.callTool(caller({ tenantId }), { serverId: 's', name: 'a' });
    }
    expect(harness.proxy.sessionCount).toBe(3);
    const ended = await upstream.inbox.firstOf('DELETE');
    expect(ended.headers['mcp-session-id']).toBe(
      upstream.inbox.of('tools/call')[1]?.headers['mcp-session-id'],
    );
  });

  it('an idle one goes before a busy one that was used longer ago', async () => {
    const { mode, open } = gate();
    await using upstream = await startHostile({ modes: { slow: mode } });
    await using harness = startProxy(upstream.url('ok'), { limits: { maxSessionsPerServer: 2 } });
    harness.catalogue('s', upstream.url('slow'));
    const busy = harness.proxy.callTool(caller({ tenantId: 'busy' }), { serverId: 's', name: 'busy' });
    await upstream.inbox.firstOf('tools/call');
    harness.catalogue('s', upstream.url('ok'));
    for (const tenantId of ['idle', 'new']) {
      await harness.proxy.callTool(caller({ tenantId }), { serverId: 's', name: tenantId });
    }
    const ended = await upstream.inbox.firstOf('DELETE');
    const [, idle] = upstream.inbox.of('tools/call');
    expect(idle?.message.params.name).toBe('idle');
    expect(ended.headers['mcp-session-id']).toBe(idle?.headers['mcp-session-id']);
    open();
    await busy;
  });

  it('every bound holds at once', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), {
      limits: { maxSessions: 4, maxSessionsPerTenant: 2, maxSessionsPerServer: 2 },
    });
    for (const id of ['s', 't', 'u', 'v']) harness.catalogue(id, upstream.url('ok'));
    for (const [tenantId, serverId] of [
      ['a', 's'],
      ['b', 's'],
      ['a', 't'],
      ['a', 's'],
      ['b', 't'],
      ['c', 's'],
      ['c', 't'],
      ['d', 'u'],
      ['e', 'v'],
    ] as const) {
      await harness.proxy.callTool(caller({ tenantId }), { serverId, name: 'a' });
      expect(harness.proxy.sessionCount).toBeLessThanOrEqual(4);
    }
    expect(harness.proxy.sessionCount).toBe(4);
  });

  it('one that must go while it is in use ends after its last call', async () => {
    const { mode, open } = gate();
    await using upstream = await startHostile({ modes: { slow: mode } });
    await using harness = startProxy(upstream.url('slow'), { limits: { maxSessions: 1 } });
    const first = harness.proxy.callTool(caller({ tenantId: 'a' }), { serverId: 's', name: 'a' });
    await upstream.inbox.firstOf('tools/call');
    const second = harness.proxy.callTool(caller({ tenantId: 'b' }), { serverId: 's', name: 'b' });
    await upstream.inbox.first(({ message }) => message.params?.name === 'b');
    expect(upstream.inbox.count('DELETE')).toBe(0);
    open();
    expect(await first).toMatchObject(OK);
    await second;
    await upstream.inbox.firstOf('DELETE');
  });

  it('close() ends every session and refuses further calls', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    for (const tenantId of ['a', 'b', 'c']) {
      await harness.proxy.callTool(caller({ tenantId }), { serverId: 's', name: 'a' });
    }
    await harness.proxy.close();
    expect(upstream.inbox.count('DELETE')).toBe(3);
    expect(await failure(harness.tool())).toMatchObject({ code: 'unavailable' });
  });

  it('close() does not wait for a server that does not answer, nor for calls under way', async () => {
    await using upstream = await startHostile({ modes: { DELETE: () => {} } });
    await using harness = startProxy(upstream.url('hang'), { limits: { sideTimeoutMs: 600_000 } });
    const call = failure(harness.tool());
    await upstream.inbox.firstOf('tools/call');
    await harness.proxy.close();
    expect(await call).toMatchObject({ code: 'unavailable' });
  });

  it('close() opens no session for a call that still waited for its token', async () => {
    await using upstream = await startHostile({ modes: { DELETE: () => {} } });
    const token = Promise.withResolvers<undefined>();
    const credentials = {
      forCall: ({ tenantId }: { tenantId: string }) =>
        tenantId === 'late' ? token.promise : Promise.resolve(undefined),
      renewAfterRefusal: () => Promise.resolve(undefined),
    };
    await using harness = startProxy(upstream.url('ok'), { credentials });
    await harness.tool();
    const late = failure(harness.proxy.callTool(caller({ tenantId: 'late' }), { serverId: 's', name: 'a' }));
    const closing = harness.proxy.close();
    token.resolve(undefined);
    expect(await late).toMatchObject({ code: 'unavailable' });
    await closing;
    expect(upstream.inbox.count('initialize')).toBe(1);
  });

  it('endIdle() ends those that no call uses: a stop does so while it waits for the calls', async () => {
    const { mode, open } = gate();
    await using upstream = await startHostile({ modes: { slow: mode } });
    await using harness = startProxy(upstream.url('slow'));
    const slow = harness.tool();
    await upstream.inbox.firstOf('tools/call');
    harness.catalogue('t', upstream.url('ok'));
    await harness.proxy.callTool(caller(), { serverId: 't', name: 'a' });
    await harness.refreshed(1);
    harness.proxy.endIdle();
    expect(await upstream.inbox.firstOf('DELETE')).toMatchObject({ path: 'ok' });
    expect(harness.proxy.sessionCount).toBe(1);
    open();
    expect(await slow).toMatchObject(OK);
    expect(upstream.inbox.count('DELETE')).toBe(1);
  });
});

describe('what goes upstream', () => {
  it('nothing of the caller but the params', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    const who = callerFor('user-7', { tenantId: 'tenant-7', keyId: 'key-7', requestId: 'req-7' });
    await harness.proxy.callTool(who, { serverId: 's', name: 'a', arguments: { b: 1 } });
    const { headers, message } = await upstream.inbox.firstOf('tools/call');
    expect(Object.keys(headers).sort()).toEqual(
      [
        'accept',
        'connection',
        'content-length',
        'content-type',
        'host',
        'mcp-protocol-version',
        'mcp-session-id',
        'user-agent',
      ].sort(),
    );
    expect(message).toEqual({
      jsonrpc: '2.0',
      id: expect.any(Number),
      method: 'tools/call',
      params: { name: 'a', arguments: { b: 1 } },
    });
    expect(JSON.stringify(upstream.inbox.all)).not.toMatch(/tenant-7|key-7|user-7|req-7/);
  });

  it('params and results stay out of the log', async () => {
    await using upstream = await startHostile({
      modes: {
        m: call => call.result({ content: [{ type: 'text', text: 'result-secret' }] }),
        e: call =>
          call.json({
            jsonrpc: '2.0',
            id: call.message.id,
            error: { code: 1, message: 'x', data: 'result-secret' },
          }),
        j: call =>
          void call.response.writeHead(200, { 'content-type': 'application/json' }).end('result-secret'),
      },
    });
    await using harness = startProxy(upstream.url('m'));
    await harness.tool('param-secret', { a: 'param-secret' });
    for (const mode of ['e', 'j']) {
      harness.catalogue('s', upstream.url(mode));
      await failure(harness.tool('param-secret', { a: 'param-secret' }));
    }
    expect(harness.logged.length).toBeGreaterThan(2);
    expect(JSON.stringify(harness.logged)).not.toContain('secret');
  });

  it.each([
    'initialize',
    'notifications/initialized',
    'notifications/anything',
    'subscriptions/listen',
    'resources/subscribe',
    'resources/unsubscribe',
    'logging/setLevel',
  ])('%s is refused with a reason, before anything is asked', async method => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    const error = await failure(harness.proxy.call(caller(), { serverId: 's', method }));
    expect(error).toMatchObject({
      code: 'invalid_request',
      detail: expect.stringContaining(`${method} is not forwarded: `),
    });
    expect(upstream.inbox.all).toHaveLength(0);
    expect(harness.outcomes).toEqual([]);
  });

  it('an unknown server is the catalogue`s error', async () => {
    await using harness = startProxy('http://127.0.0.1:1/');
    const error = await failure(harness.proxy.listTools(caller(), { serverId: 'nobody' }));
    expect(error.code).toBe('server_not_found');
    expect(harness.outcomes).toEqual([]);
  });
});

describe('requests of the server within an answer', () => {
  it('are answered in the same session: ping with {}, anything else with "no such method"', async () => {
    const asks: HostileMode = call => {
      call.sse(
        { jsonrpc: '2.0', id: 's-1', method: 'ping' },
        { jsonrpc: '2.0', id: 7, method: 'sampling/createMessage', params: {} },
      );
      const { inbox } = call.server;
      const replies = [
        inbox.first(({ message }) => message.id === 's-1'),
        inbox.first(({ message }) => message.id === 7),
      ];
      void Promise.all(replies).then(([pong, refusal]) => {
        call.sse({
          jsonrpc: '2.0',
          id: call.message.id,
          result: { replies: [pong?.message, refusal?.message] },
        });
      });
    };
    await using upstream = await startHostile({ modes: { asks } });
    // With one slot only: the replies must not wait for the call that waits for them.
    await using harness = startProxy(upstream.url('asks'), { limits: { connectionsPerOrigin: 1 } });
    const reply = await harness.proxy.call(caller(), {
      serverId: 's',
      method: 'tools/call',
      params: { name: 'a' },
    });
    expect(reply).toMatchObject({
      result: {
        replies: [
          { jsonrpc: '2.0', id: 's-1', result: {} },
          { jsonrpc: '2.0', id: 7, error: { code: -32_601 } },
        ],
      },
    });
    const ids = upstream.inbox.all.map(({ headers }) => headers['mcp-session-id']).filter(Boolean);
    expect(new Set(ids).size).toBe(1);
  });
});

describe('concurrency', () => {
  it('no more calls reach an origin at a time than it has slots', async () => {
    let open = 0;
    let most = 0;
    const mode: HostileMode = call => {
      most = Math.max(most, ++open);
      setImmediate(() => {
        open--;
        call.result(OK);
      });
    };
    await using upstream = await startHostile({ modes: { m: mode } });
    await using harness = startProxy(upstream.url('m'), { limits: { connectionsPerOrigin: 3 } });
    await Promise.all(Array.from({ length: 40 }, () => harness.tool()));
    expect(most).toBeLessThanOrEqual(3);
    expect(upstream.inbox.count('tools/call')).toBe(40);
  });

  it('more calls than may wait are refused at once', async () => {
    await using upstream = await startHostile();
    const limits = { connectionsPerOrigin: 1, maxQueuedPerOrigin: 2, totalTimeoutMs: 2_000 };
    await using harness = startProxy(upstream.url('ok'), { limits });
    await harness.tool();
    harness.catalogue('s', upstream.url('hang'));
    await failure(harness.tool());
    const errors = await Promise.all([1, 2, 3, 4].map(() => failure(harness.tool())));
    expect(errors.map(error => error.code).sort()).toEqual([
      'unavailable',
      'upstream_timeout',
      'upstream_timeout',
      'upstream_timeout',
    ]);
  });
});

describe('sending twice', () => {
  it('a connection the server has closed in the meantime is replaced before the call is sent', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await upstream.cutConnections();
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });

  it('a kept connection that is closed on the call fails it: it may have run', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    harness.catalogue('s', upstream.url('reset'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_unreachable',
      detail: expect.stringMatching(/may have run/),
    });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });
});
