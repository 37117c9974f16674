import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { CallerAbortError } from '../../../src/core/proxy/proxy.ts';
import { startHttpSse, type HttpSseMode, type HttpSseSession } from '../../support/upstreams/http-sse.ts';
import { caller, callerFor, credentialOf, failure, startSse } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };
const IDLE_MS = 5 * 60_000;

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
        renewAfterRefusal: () => Promise.resolve(undefined),
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
        renewAfterRefusal: () => Promise.resolve(credentialOf('con', 2)),
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
