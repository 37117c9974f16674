import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CallerAbortError } from '../../../src/core/proxy/proxy.ts';
import { startEverything, type Everything } from '../../support/upstreams/everything.ts';
import { startHttpSse } from '../../support/upstreams/http-sse.ts';
import { startV1Server, startV1SseServer } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';
import { caller, expectOwnEchoes, failure, startProxy, startSse } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };
const IDLE_MS = 5 * 60_000;

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

  it('stops working on a call whose caller disconnects', async () => {
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
      detail: 'The MCP server returned HTTP 400.',
    });
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });
});

describe('detection with HTTP+SSE', () => {
  it('tries discover, initialize, then a GET, and remembers what worked', async () => {
    await using upstream = await startHttpSse();
    await using harness = startProxy(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.methods()).toEqual([
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
    expect(upstream.inbox.methods()[0]).toBe('GET');
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
