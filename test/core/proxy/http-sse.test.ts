import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CallerAbortError } from '../../../src/core/proxy/proxy.ts';
import { startEverything, type Everything } from '../../support/upstreams/everything.ts';
import { startHttpSse, type HttpSseMode, type HttpSseSession } from '../../support/upstreams/http-sse.ts';
import { startHostile } from '../../support/upstreams/hostile.ts';
import { startV1Server, startV1SseServer } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';
import {
  caller,
  callerFor,
  credentialOf,
  expectOwnEchoes,
  failure,
  startProxy,
  type Harness,
} from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };
const IDLE_MS = 5 * 60_000;

/** A proxy whose catalogue says that the server speaks HTTP+SSE. */
function startSse(url: string, options?: Parameters<typeof startProxy>[1]): Harness {
  const harness = startProxy(url, options);
  harness.catalogue('s', url, { transport: 'sse' });
  return harness;
}

const methods = (upstream: { inbox: { all: { httpMethod: string; message: { method?: string } }[] } }) =>
  upstream.inbox.all.map(({ httpMethod, message }) => message.method ?? httpMethod);

describe('server-everything over HTTP+SSE', () => {
  let everything: Everything;
  beforeAll(async () => {
    everything = await startEverything('sse');
  });
  afterAll(() => everything[Symbol.asyncDispose]());

  it.each(['detected', 'catalogued'])('%s: lists and calls tools, reads resources', async how => {
    await using harness = how === 'detected' ? startProxy(everything.url) : startSse(everything.url);
    const { tools } = await harness.proxy.listTools(caller(), { serverId: 's' });
    expect(tools.map(tool => tool.name)).toContain('echo');
    expect(await harness.tool('echo', { message: 'hé' })).toMatchObject({
      content: [{ text: 'Echo: hé' }],
      isError: false,
    });
    const resources = await harness.proxy.call(caller(), { serverId: 's', method: 'resources/list' });
    expect(resources).toMatchObject({ result: { resources: expect.any(Array) } });
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'ping' })).toEqual({ result: {} });
    expect(harness.proxy.sessionCount).toBe(1);
  });

  it('an unknown method is the server`s own error', async () => {
    await using harness = startSse(everything.url);
    const reply = await harness.proxy.call(caller(), { serverId: 's', method: 'foo/bar' });
    expect(reply).toMatchObject({ error: { code: -32_601, message: 'Method not found' } });
  });

  it('progress reaches the call it belongs to', async () => {
    await using harness = startSse(everything.url);
    const run = async (steps: number) => {
      const seen: (number | undefined)[] = [];
      await harness.proxy.callTool(caller(), {
        serverId: 's',
        name: 'trigger-long-running-operation',
        arguments: { duration: 0.2, steps },
        onProgress: ({ total }) => void seen.push(total),
      });
      return seen;
    };
    const [three, four] = await Promise.all([run(3), run(4)]);
    expect(three).toEqual([3, 3, 3]);
    expect(four).toEqual([4, 4, 4, 4]);
  });

  it('many calls of several users at a time each get their own answer, in one session a user', async () => {
    await using harness = startSse(everything.url);
    await expectOwnEchoes(harness);
  });
});

describe('SDK v1 server over HTTP+SSE', () => {
  it('answers calls; its own requests are refused, and its call goes on', async () => {
    await using upstream = await startV1SseServer();
    await using harness = startProxy(upstream.url);
    expect(await harness.tool('echo', { message: 'x' })).toMatchObject({ content: [{ text: 'Echo: x' }] });
    expect(await harness.tool('ask')).toMatchObject({ content: [{ text: 'refused -32601' }] });
    expect(await harness.tool('fail')).toMatchObject({ isError: true });
  });

  it('stops working on a call whose caller goes away', async () => {
    await using upstream = await startV1SseServer();
    await using harness = startSse(upstream.url);
    const controller = new AbortController();
    const call = harness.proxy.callTool(caller({ signal: controller.signal }), {
      serverId: 's',
      name: 'wait',
    });
    await upstream.inbox.firstOf('tools/call');
    controller.abort();
    await expect(call).rejects.toBeInstanceOf(CallerAbortError);
    await upstream.cancelled;
    expect(await harness.tool('echo', { message: 'x' })).toMatchObject({ content: [{ text: 'Echo: x' }] });
    expect(upstream.inbox.count('GET')).toBe(1);
  });

  it('says 400 for a session it has forgotten: not sent again, but the next call has a new one', async () => {
    await using upstream = await startV1SseServer();
    await using harness = startSse(upstream.url);
    await harness.tool('echo', { message: 'x' });
    upstream.forgetSessions();
    expect(await failure(harness.tool('echo', { message: 'y' }))).toMatchObject({
      code: 'upstream_http_error',
      detail: 'The MCP server answered with HTTP 400.',
    });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });
});

describe('the ladder', () => {
  it('discover, initialize, then a GET; the verdict is kept', async () => {
    await using upstream = await startHttpSse();
    await using harness = startProxy(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    expect(methods(upstream)).toEqual([
      'server/discover',
      'initialize',
      'GET',
      'initialize',
      'notifications/initialized',
      'tools/call',
    ]);
    await harness.proxy.callTool(caller({ tenantId: 'other' }), { serverId: 's', name: 'a' });
    expect(upstream.inbox.count('server/discover')).toBe(1);
    expect(upstream.inbox.count('GET')).toBe(2);
  });

  it('a server catalogued with this transport gets no probe', async () => {
    await using upstream = await startHttpSse();
    await using harness = startSse(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    expect(methods(upstream)[0]).toBe('GET');
    expect(upstream.inbox.count('initialize')).toBe(1);
  });

  it('a server catalogued with this transport that has moved on is found out', async () => {
    await using v1 = await startV1Server({ sessions: false, json: true });
    await using v2 = await startV2Server();
    for (const { url } of [v1, v2]) {
      await using harness = startSse(url, { limits: { endpointTimeoutMs: 100 } });
      expect(await harness.tool('echo', { message: 'x' })).toMatchObject({ content: [{ text: 'Echo: x' }] });
    }
  });

  it('a server that moves on after it was found is found again', async () => {
    let old = true;
    await using upstream = await startHttpSse({
      onGet: ({ response, raw, id }) =>
        old ? raw(`event: endpoint\ndata: /messages?session=${id}\n\n`) : void response.writeHead(405).end(),
      onPost: ({ message, response }) => {
        if (old) {
          response.writeHead(405).end();
          return;
        }
        const result = { resultType: 'complete', supportedVersions: ['2026-07-28'], ...OK };
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
      },
    });
    await using harness = startProxy(upstream.url);
    await harness.tool('a');
    await harness.refreshed(1);
    old = false;
    harness.clock.advance(IDLE_MS);
    harness.proxy.sweep();
    await upstream.allClosed();
    expect(await harness.tool('b')).toMatchObject(OK);
    expect(harness.proxy.sessionCount).toBe(0);
    expect(upstream.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual(['a', 'b']);
  });

  it.each([
    [401, 'upstream_unauthorized'],
    [403, 'upstream_forbidden'],
    [429, 'upstream_rate_limited'],
    [500, 'upstream_http_error'],
    [503, 'upstream_http_error'],
  ])(
    '%i to the GET says nothing about the transport: %s, and the next call asks again',
    async (status, code) => {
      let broken = true;
      await using upstream = await startHttpSse({
        onGet: ({ response, raw, id }) =>
          broken
            ? void response.writeHead(status).end()
            : raw(`event: endpoint\ndata: /messages?session=${id}\n\n`),
      });
      await using harness = startSse(upstream.url);
      expect(await failure(harness.tool())).toMatchObject({ code });
      expect(upstream.inbox.count('server/discover')).toBe(0);
      broken = false;
      expect(await harness.tool()).toMatchObject(OK);
    },
  );
});

describe('a session', () => {
  it('is one stream for all calls of one tenant and user, opened once, with request ids of its own', async () => {
    await using upstream = await startHttpSse();
    await using harness = startSse(upstream.url);
    await Promise.all(Array.from({ length: 10 }, () => harness.tool()));
    expect(upstream.inbox.count('GET')).toBe(1);
    expect(upstream.inbox.count('initialize')).toBe(1);
    expect(new Set(upstream.inbox.of('tools/call').map(({ message }) => message.id)).size).toBe(10);
    for (const who of [callerFor('u'), caller({ tenantId: 't' }), callerFor('u', { tenantId: 't' })]) {
      await harness.proxy.callTool(who, { serverId: 's', name: 'a' });
    }
    expect(upstream.sessions).toHaveLength(4);
  });

  it('carries the user`s token on the stream and on every message, and belongs to one account', async () => {
    await using upstream = await startHttpSse();
    let account = 'con_1';
    await using harness = startSse(upstream.url, {
      credentials: {
        forCall: () => Promise.resolve(credentialOf(account)),
        renewed: () => Promise.resolve(undefined),
      },
    });
    await harness.tool();
    await harness.refreshed(1);
    account = 'con_2';
    await harness.tool();
    expect(upstream.inbox.all.map(({ headers }) => headers.authorization)).toEqual([
      // One more than the second: the listing after a call comes once a minute.
      ...Array.from({ length: 5 }, () => 'Bearer con_1-1'),
      ...Array.from({ length: 4 }, () => 'Bearer con_2-1'),
    ]);
  });

  it('a token the server refuses (401) is renewed, and the call sent again in the same session', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call =>
          call.request.headers.authorization === 'Bearer con-2'
            ? call.result()
            : void call.response.writeHead(401).end(),
      },
    });
    await using harness = startSse(upstream.url, {
      credentials: {
        forCall: () => Promise.resolve(credentialOf('con', 1)),
        renewed: () => Promise.resolve(credentialOf('con', 2)),
      },
    });
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('GET')).toBe(1);
  });

  it.each([404, 410])(
    'one the server no longer knows (%i) is opened once more, its call sent again',
    async status => {
      let dead = true;
      await using upstream = await startHttpSse({
        modes: {
          'tools/call': call => (dead ? void call.response.writeHead(status).end() : call.result()),
          initialize: call => {
            dead = call.session.id === '1';
            call.result({ protocolVersion: '2024-11-05', capabilities: {} });
          },
        },
      });
      await using harness = startSse(upstream.url);
      expect(await harness.tool()).toMatchObject(OK);
      expect(upstream.inbox.count('tools/call')).toBe(2);
      expect(upstream.inbox.count('GET')).toBe(2);
      expect(harness.proxy.sessionCount).toBe(1);
    },
  );

  it('a server that knows no session is asked twice, not for ever', async () => {
    await using upstream = await startHttpSse({
      modes: { 'tools/call': call => void call.response.writeHead(404).end() },
    });
    await using harness = startSse(upstream.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_http_error' });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });

  it('the calls that run in a forgotten one get their answers all the same', async () => {
    let first: Parameters<HttpSseMode>[0] | undefined;
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          if (first) return call.result();
          first = call;
          call.accept();
        },
      },
    });
    await using harness = startSse(upstream.url);
    const running = harness.tool('running');
    await upstream.inbox.firstOf('tools/call');
    upstream.forgetSessions();
    expect(await harness.tool('next')).toMatchObject(OK);
    first?.session.send({ jsonrpc: '2.0', id: first.message.id, result: { content: [] } });
    expect(await running).toEqual({ content: [], isError: false });
    expect(upstream.inbox.count('GET')).toBe(2);
  });

  it('a stream that ends between calls is opened again by the next', async () => {
    await using upstream = await startHttpSse();
    await using harness = startSse(upstream.url);
    await harness.tool();
    upstream.sessions[0]?.response.end();
    await expect.poll(() => harness.proxy.sessionCount).toBe(0);
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('GET')).toBe(2);
  });

  it('idle ones close their stream; busy ones stay', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: { 'tools/call': call => void promise.then(() => call.result()) },
    });
    await using harness = startSse(upstream.url);
    const call = harness.tool();
    await upstream.inbox.firstOf('tools/call');
    harness.clock.advance(IDLE_MS * 2);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(1);
    resolve();
    await call;
    await harness.refreshed(1);
    harness.clock.advance(IDLE_MS);
    harness.proxy.sweep();
    expect(harness.proxy.sessionCount).toBe(0);
    await upstream.allClosed();
  });

  it('the least recently used closes its stream when there are too many, a busy one after its last call', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call =>
          call.message.params.name === 'slow' ? void promise.then(() => call.result()) : call.result(),
      },
    });
    await using harness = startSse(upstream.url, { limits: { maxSessions: 1 } });
    const slow = harness.tool('slow');
    await upstream.inbox.firstOf('tools/call');
    await harness.proxy.callTool(caller({ tenantId: 'b' }), { serverId: 's', name: 'a' });
    expect(upstream.sessions).toHaveLength(2);
    resolve();
    expect(await slow).toMatchObject(OK);
    await expect.poll(() => upstream.sessions.length).toBe(1);
    expect(upstream.sessions[0]?.id).toBe('2');
  });

  it('open streams take no place of calls: one connection serves a call beside many of them', async () => {
    await using upstream = await startHttpSse();
    await using harness = startSse(upstream.url, { limits: { connectionsPerOrigin: 1 } });
    for (let i = 0; i < 20; i++) {
      await harness.proxy.callTool(callerFor(`u${i}`), { serverId: 's', name: 'a' });
    }
    expect(upstream.sessions).toHaveLength(20);
  });

  it('close() closes every stream, and calls under way end', async () => {
    await using upstream = await startHttpSse({ modes: { 'tools/call': call => call.accept() } });
    const harness = startSse(upstream.url);
    const call = failure(harness.tool());
    await upstream.inbox.firstOf('tools/call');
    await harness.proxy.close();
    expect(await call).toMatchObject({ code: 'unavailable', retryable: false });
    await upstream.allClosed();
    expect(harness.proxy.sessionCount).toBe(0);
  });

  it('a caller that leaves during the opening does not end it for the others', async () => {
    const opened = Promise.withResolvers<HttpSseSession>();
    await using upstream = await startHttpSse({ onGet: session => opened.resolve(session) });
    await using harness = startSse(upstream.url);
    const controller = new AbortController();
    const leaving = harness.proxy.callTool(caller({ signal: controller.signal }), {
      serverId: 's',
      name: 'a',
    });
    const staying = harness.tool();
    const session = await opened.promise;
    controller.abort();
    await expect(leaving).rejects.toBeInstanceOf(CallerAbortError);
    session.raw(`event: endpoint\ndata: /messages?session=${session.id}\n\n`);
    expect(await staying).toMatchObject(OK);
    expect(upstream.inbox.count('GET')).toBe(1);
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });
});

describe('messages', () => {
  it('are routed by id, in whatever order and manner they come', async () => {
    const calls: Parameters<HttpSseMode>[0][] = [];
    const both = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          call.accept();
          calls.push(call);
          if (calls.length === 2) both.resolve();
        },
      },
    });
    await using harness = startSse(upstream.url);
    const results = ['one', 'two'].map(name => harness.tool(name));
    await both.promise;
    const [first, second] = calls;
    if (!first || !second) throw new Error('two calls were to come');
    const answer = ({ message }: typeof first, id: unknown = message.id) => ({
      jsonrpc: '2.0',
      id,
      result: { content: [{ type: 'text', text: message.params.name }] },
    });
    const { session } = first;
    session.raw(': hello\n\nevent: other\ndata: not json\n\nevent: endpoint\ndata: /elsewhere\n\ndata:\n\n');
    for (const stray of [
      null,
      'x',
      { id: 999, result: {} },
      { jsonrpc: '2.0', error: { code: 1, message: 'x' } },
    ])
      session.send(stray);
    session.send([{ jsonrpc: '2.0', method: 'notifications/message' }, answer(second)]);
    session.send(answer(first, String(first.message.id)));
    expect((await Promise.all(results)).map(({ content }) => content)).toEqual([
      [{ type: 'text', text: 'one' }],
      [{ type: 'text', text: 'two' }],
    ]);
  });

  it('pings of the server are answered, other requests refused', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          call.accept();
          call.session.send({ jsonrpc: '2.0', id: 'p', method: 'ping' });
          call.session.send({ jsonrpc: '2.0', id: 's', method: 'sampling/createMessage', params: {} });
          void upstream.inbox
            .first(({ message }) => message.id === 's')
            .then(() => call.session.send({ jsonrpc: '2.0', id: call.message.id, result: OK }));
        },
      },
    });
    await using harness = startSse(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    const ping = await upstream.inbox.first(({ message }) => message.id === 'p');
    expect(ping.message.result).toEqual({});
    const sample = await upstream.inbox.first(({ message }) => message.id === 's');
    expect(sample.message.error).toMatchObject({ code: -32_601 });
  });

  it('a ping before the answer to initialize is answered', async () => {
    await using upstream = await startHttpSse({
      modes: {
        initialize: call => {
          call.session.send({ jsonrpc: '2.0', id: 'p', method: 'ping' });
          void upstream.inbox
            .first(({ message }) => message.id === 'p')
            .then(() => call.result({ protocolVersion: '2024-11-05', capabilities: {} }));
        },
      },
    });
    await using harness = startSse(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
  });

  it('a POST that is never answered does not hold up the answer, nor its connection for long', async () => {
    const closed = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          void once(call.response, 'close').then(() => closed.resolve());
          call.session.send({ jsonrpc: '2.0', id: call.message.id, result: OK });
        },
      },
    });
    await using harness = startSse(upstream.url, { limits: { sideTimeoutMs: 100 } });
    expect(await harness.tool()).toMatchObject(OK);
    await closed.promise;
  });

  it.each([
    [401, 'upstream_unauthorized'],
    [403, 'upstream_forbidden'],
    [429, 'upstream_rate_limited'],
    [400, 'upstream_http_error'],
    [500, 'upstream_http_error'],
    [503, 'upstream_http_error'],
  ])('%i to a message is that call`s failure alone: %s', async (status, code) => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call =>
          call.message.params.name === 'bad' ? void call.response.writeHead(status).end() : call.result(),
      },
    });
    await using harness = startSse(upstream.url);
    expect(await failure(harness.tool('bad'))).toMatchObject({ code });
    expect(await harness.tool('good')).toMatchObject(OK);
    expect(upstream.inbox.count('tools/call')).toBe(2);
    expect(upstream.inbox.count('GET')).toBe(1);
  });
});

describe('a hostile server', () => {
  const endpoints: [name: string, endpoint: string, code: string][] = [
    ['another host', 'http://localhost:1/messages', 'upstream_blocked'],
    ['another port', 'http://127.0.0.1:1/messages', 'upstream_blocked'],
    ['another scheme', 'https://127.0.0.1/messages', 'upstream_blocked'],
    ['the metadata service', 'http://169.254.169.254/latest', 'upstream_blocked'],
    ['a host without scheme', '//evil.test/messages', 'upstream_blocked'],
    ['a file', 'file:///etc/passwd', 'upstream_blocked'],
    ['a script', 'javascript:alert(1)', 'upstream_blocked'],
    ['no URL', 'http://[', 'upstream_protocol'],
    ['a very long URL', `/${'x'.repeat(5_000)}`, 'upstream_protocol'],
  ];
  it.each(endpoints)('an endpoint that is %s gets no message', async (_name, endpoint, code) => {
    await using upstream = await startHttpSse({
      onGet: ({ raw }) => raw(`event: endpoint\ndata: ${endpoint}\n\n`),
    });
    await using harness = startSse(upstream.url);
    expect(await failure(harness.tool())).toMatchObject({ code });
    expect(methods(upstream)).toEqual(['GET']);
    await upstream.allClosed();
  });

  it('an endpoint with credentials in it gets no message', async () => {
    await using upstream = await startHttpSse({
      onGet: ({ raw }) => raw(`event: endpoint\ndata: http://u:p@127.0.0.1:${upstream.port}/messages\n\n`),
    });
    await using harness = startSse(upstream.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_blocked' });
    await upstream.allClosed();
  });

  it.each(['http://localhost/x', '/messages'])('a redirect of the GET to %s', async location => {
    await using upstream = await startHttpSse({
      onGet: ({ response }) => void response.writeHead(307, { location }).end(),
    });
    await using harness = startSse(upstream.url);
    const error = await failure(harness.tool());
    expect(error.code).toBe(location.startsWith('/') ? 'upstream_http_error' : 'upstream_blocked');
  });

  it('one that never answers the GET runs into the time-out, and is left', async () => {
    await using upstream = await startHttpSse({ onGet: () => {} });
    await using harness = startSse(upstream.url, { limits: { totalTimeoutMs: 800 } });
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_timeout', retryable: true });
    await upstream.allClosed();
    expect(harness.proxy.sessionCount).toBe(0);
  });

  it('one that never names its endpoint is taken for another kind of server, and left', async () => {
    await using upstream = await startHttpSse({ onGet: ({ raw }) => raw(': hello\n\n') });
    await using harness = startSse(upstream.url, { limits: { endpointTimeoutMs: 100 } });
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_protocol',
      detail: 'The MCP server opened an event stream without an endpoint event.',
    });
    await upstream.allClosed();
    expect(methods(upstream)).toEqual(['GET', 'server/discover', 'initialize']);
  });

  it('one that floods its stream between calls is cut off, and said so in the log; the next call has a new stream', async () => {
    const { promise: isCut, resolve } = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          call.result();
          if (call.message.params.name === 'good') return;
          const { response, raw } = call.session;
          const more = () => {
            while (!response.destroyed && response.write(': \n\ndata: {"method":"x"}\n\n'.repeat(100)));
          };
          response.on('drain', more).once('close', resolve);
          raw('');
          more();
        },
      },
    });
    await using harness = startSse(upstream.url);
    await harness.tool('flood').catch(() => undefined);
    await isCut;
    const ended = () => harness.logged.filter(({ msg }) => msg === 'upstream event stream ended');
    await expect.poll(ended).toMatchObject([{ serverId: 's', tenantId: 'local', code: 'upstream_protocol' }]);
    expect(harness.proxy.sessionCount).toBe(0);
    expect(await harness.tool('good')).toMatchObject(OK);
    expect(upstream.inbox.count('GET')).toBe(2);
  });

  const streams: [
    name: string,
    (session: HttpSseSession, id: unknown) => void,
    code: string,
    text: RegExp,
  ][] = [
    ['ends its stream', ({ response }) => void response.end(), 'upstream_protocol', /ended its event stream/],
    ['breaks its stream', ({ response }) => void response.destroy(), 'upstream_protocol', /broke off/],
    ['sends broken JSON', ({ raw }) => raw('data: {"jsonrpc"\n\n'), 'upstream_protocol', /not valid JSON/],
    [
      'sends an endless event',
      ({ raw, response }) => {
        const more = () => {
          while (!response.destroyed && response.write('data: '.padEnd(64 * 1024, 'x')));
        };
        response.on('drain', more);
        raw('');
        more();
      },
      'upstream_too_large',
      /8388608 bytes/,
    ],
    [
      'sends data lines without end',
      ({ raw, response }) => {
        const more = () => {
          while (!response.destroyed && response.write('data: x\n'.repeat(1_000)));
        };
        response.on('drain', more);
        raw('');
        more();
      },
      'upstream_too_large',
      /8388608 bytes/,
    ],
    [
      'floods us with requests',
      ({ raw }) => raw('data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n'.repeat(1_000)),
      'upstream_too_large',
      /requests of its own/,
    ],
    [
      'floods us with small events',
      ({ raw }) => raw('data: {"method":"x"}\n\n'.repeat(12_000)),
      'upstream_protocol',
      /much more in its event stream/,
    ],
    [
      'nests too deep',
      ({ raw }, id) =>
        raw(`data: {"jsonrpc":"2.0","id":${Number(id)},"result":${'['.repeat(300)}${']'.repeat(300)}}\n\n`),
      'upstream_protocol',
      /nested too deep/,
    ],
  ];
  it.each(streams)(
    'one that %s fails the calls that wait, and no other',
    async (_name, misbehave, code, text) => {
      await using upstream = await startHttpSse({
        modes: {
          'tools/call': call => {
            if (call.message.params.name === 'good') return call.result();
            call.accept();
            misbehave(call.session, call.message.id);
          },
          reply: () => {},
        },
      });
      await using harness = startSse(upstream.url);
      const error = await failure(harness.tool('bad'));
      expect(error).toMatchObject({ code, retryable: false, detail: expect.stringMatching(text) });
      expect(error.detail).toMatch(/the call may have run/);
      expect(await harness.tool('good')).toMatchObject(OK);
      expect(upstream.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual([
        'bad',
        'good',
      ]);
    },
  );

  it('answers of any size in all, each under the limit, are fine in one stream', async () => {
    const text = 'x'.repeat(600);
    await using upstream = await startHttpSse({
      modes: { 'tools/call': call => call.result({ content: [{ type: 'text', text }] }) },
    });
    await using harness = startSse(upstream.url, { limits: { maxResponseBytes: 1_000 } });
    for (let i = 0; i < 10; i++) expect(await harness.tool()).toMatchObject({ content: [{ text }] });
    expect(upstream.inbox.count('GET')).toBe(1);
  });

  it('one that is not HTTP+SSE at all: tried as what it is', async () => {
    await using upstream = await startHostile({
      modes: { GET: call => void call.response.writeHead(405).end() },
    });
    await using harness = startSse(upstream.url('ok'));
    expect(await harness.tool()).toMatchObject(OK);
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('GET')).toBe(1);
  });
});
