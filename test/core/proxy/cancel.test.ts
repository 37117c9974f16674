import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { CallerAbortError } from '../../../src/core/proxy/proxy.ts';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { startV1Server } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';
import { caller, startProxy, type Harness } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** A call with the means to go away from it. */
function leaving({ proxy }: Harness, name = 'tool') {
  const controller = new AbortController();
  const who = caller({ signal: controller.signal });
  const call = proxy.callTool(who, { serverId: 's', name });
  return { call, leave: () => controller.abort(new Error('the socket closed')) };
}

const aborted = (call: Promise<unknown>) =>
  expect(call).rejects.toSatisfy(error => error instanceof CallerAbortError && error.name === 'AbortError');

describe('a caller that disconnects', () => {
  it('legacy: the connection is closed, the server told which request it was, nothing is counted', async () => {
    const closed = Promise.withResolvers<void>();
    const mode: HostileMode = call => void once(call.response, 'close').then(() => closed.resolve());
    await using upstream = await startHostile({ modes: { m: mode } });
    await using harness = startProxy(upstream.url('m'));
    const { call, leave } = leaving(harness);
    const { message } = await upstream.inbox.firstOf('tools/call');
    leave();
    await aborted(call);
    const told = await upstream.inbox.firstOf('notifications/cancelled');
    expect(told.message.params.requestId).toBe(message.id);
    expect(told.headers['mcp-session-id']).toBeDefined();
    await closed.promise;
    expect(harness.outcomes).toEqual([]);
  });

  it('modern: closing the stream is the cancellation', async () => {
    const closed = Promise.withResolvers<void>();
    const mode: HostileMode = call => {
      call.sse({ jsonrpc: '2.0', method: 'notifications/progress' });
      void once(call.response, 'close').then(() => closed.resolve());
    };
    await using upstream = await startHostile({ era: 'modern', modes: { m: mode } });
    await using harness = startProxy(upstream.url('m'));
    const { call, leave } = leaving(harness);
    await upstream.inbox.firstOf('tools/call');
    leave();
    await aborted(call);
    await closed.promise;
    expect(upstream.inbox.count('notifications/cancelled')).toBe(0);
  });

  it('before the call began: nothing is sent', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'));
    const call = harness.proxy.callTool(caller({ signal: AbortSignal.abort() }), {
      serverId: 's',
      name: 'a',
    });
    await aborted(call);
    expect(upstream.inbox.all).toHaveLength(0);
  });

  it.each(['server/discover', 'initialize', 'notifications/initialized'])(
    'during a shared %s: the others still get their response',
    async method => {
      const released = Promise.withResolvers<void>();
      const reached = Promise.withResolvers<void>();
      const answers: Record<string, HostileMode> = {
        'server/discover': call => call.json({}, 404),
        initialize: call => call.result({ protocolVersion: '2025-11-25', capabilities: {} }),
        'notifications/initialized': call => void call.response.writeHead(202).end(),
      };
      const hold: HostileMode = call => {
        reached.resolve();
        void released.promise.then(() => answers[method]?.(call));
      };
      await using upstream = await startHostile({ sessions: false, modes: { [method]: hold } });
      await using harness = startProxy(upstream.url('ok'));
      const first = leaving(harness);
      const second = leaving(harness);
      await reached.promise;
      first.leave();
      await aborted(first.call);
      released.resolve();
      expect(await second.call).toMatchObject(OK);
      expect(upstream.inbox.count(method)).toBe(1);
      expect(upstream.inbox.count('tools/call')).toBe(1);
    },
  );

  it('all of them gone, the shared handshake is finished for the next one', async () => {
    const released = Promise.withResolvers<void>();
    const hold: HostileMode = call =>
      void released.promise.then(() => call.result({ protocolVersion: '2025-11-25', capabilities: {} }));
    await using upstream = await startHostile({ sessions: false, modes: { initialize: hold } });
    await using harness = startProxy(upstream.url('ok'));
    const calls = Array.from({ length: 50 }, () => leaving(harness));
    await upstream.inbox.firstOf('initialize');
    for (const { leave } of calls) leave();
    await Promise.all(calls.map(({ call }) => aborted(call)));
    released.resolve();
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('initialize')).toBe(1);
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('while it waits its turn: never sent, and its place is free', async () => {
    const { promise, resolve: release } = Promise.withResolvers<void>();
    const mode: HostileMode = call => void promise.then(() => call.result(OK));
    await using upstream = await startHostile({ modes: { m: mode } });
    await using harness = startProxy(upstream.url('m'), {
      limits: { connectionsPerOrigin: 1, maxQueuedPerOrigin: 1 },
    });
    const running = leaving(harness, 'running');
    await upstream.inbox.firstOf('tools/call');
    for (const _ of [1, 2, 3]) {
      const waiting = leaving(harness, 'waiting');
      await new Promise(resolve => setImmediate(resolve));
      waiting.leave();
      await aborted(waiting.call);
    }
    release();
    await running.call;
    expect(upstream.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual(['running']);
    expect(upstream.inbox.count('notifications/cancelled')).toBe(0);
  });

  it.each([
    ['v1', startV1Server],
    ['v2', startV2Server],
  ])('an SDK %s server stops working on it', async (_version, start) => {
    await using upstream = await start();
    await using harness = startProxy(upstream.url);
    const { call, leave } = leaving(harness, 'wait');
    await upstream.inbox.firstOf('tools/call');
    leave();
    await aborted(call);
    await upstream.cancelled;
  });
});
