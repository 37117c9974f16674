import { describe, expect, it } from 'vitest';
import { startHostile, type HostileCall, type HostileMode } from '../../support/upstreams/hostile.ts';
import { CallerAbortError } from '../../../src/core/proxy/proxy.ts';
import { caller, callerFor, credentialOf, failure, startProxy } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** Answers with these lines of an event stream and ends it. */
const stream = ({ response }: HostileCall, text: string) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(text);
};

const event = (message: object) => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`;

/** A server whose answer to a call ends early, and what it says to the GETs that go on with it. */
async function startEnding(first: string, onGet: (call: HostileCall, callId: unknown, nth: number) => void) {
  let callId: unknown;
  let gets = 0;
  const mode: HostileMode = call => {
    callId = call.message.id;
    stream(call, first);
  };
  return startHostile({ modes: { m: mode, GET: call => onGet(call, callId, ++gets) } });
}

describe('a response whose stream the server ends early', () => {
  it('is gone on with by GET, from its last event on, after the wait the server asked for', async () => {
    await using upstream = await startEnding('id: 1\nretry: 200\ndata:\n\nid: e 2\n\n', (call, id) =>
      stream(call, event({ id, result: OK })),
    );
    await using harness = startProxy(upstream.url('m'));
    const start = performance.now();
    expect(await harness.tool()).toMatchObject(OK);
    expect(performance.now() - start).toBeGreaterThanOrEqual(195);
    const [post] = upstream.inbox.of('tools/call');
    const [get] = upstream.inbox.of('GET');
    expect(get?.path).toBe('m');
    expect(get?.headers).toMatchObject({
      accept: 'text/event-stream',
      'last-event-id': 'e 2',
      'mcp-session-id': post?.headers['mcp-session-id'],
      'mcp-protocol-version': '2025-06-18',
    });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('carries the user`s token and what else comes in the stream', async () => {
    await using upstream = await startEnding('id: 1\nretry: 1\ndata:\n\n', (call, id) => {
      const progress = { progressToken: token(), progress: 1 };
      stream(
        call,
        event({ method: 'notifications/progress', params: progress }) +
          event({ id: 'p', method: 'ping' }) +
          event({ id, result: OK }),
      );
    });
    const token = () => upstream.inbox.of('tools/call')[0]?.message.params._meta.progressToken;
    await using harness = startProxy(upstream.url('m'), {
      credentials: {
        forCall: () => Promise.resolve(credentialOf('con')),
        renewAfterRefusal: () => Promise.resolve(undefined),
      },
    });
    const seen: number[] = [];
    const input = {
      serverId: 's',
      name: 'a',
      onProgress: ({ progress }: { progress: number }) => void seen.push(progress),
    };
    expect(await harness.proxy.callTool(callerFor('u'), input)).toMatchObject(OK);
    expect(seen).toEqual([1]);
    expect(upstream.inbox.of('GET')[0]?.headers.authorization).toBe('Bearer con-1');
    await upstream.inbox.first(({ message }) => message.id === 'p' && message.result !== undefined);
  });

  it('as often as the server ends it, up to ten times', async () => {
    await using upstream = await startEnding('id: 0\nretry: 1\ndata:\n\n', (call, id, nth) =>
      stream(call, nth < 10 ? `id: ${nth}\ndata:\n\n` : event({ id, result: OK })),
    );
    await using harness = startProxy(upstream.url('m'));
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.of('GET').map(({ headers }) => headers['last-event-id'])).toEqual(
      Array.from({ length: 10 }, (_, i) => String(i)),
    );
  });

  it('is given up when the server ends it for ever', async () => {
    await using upstream = await startEnding('id: 0\nretry: 1\ndata:\n\n', call => stream(call, 'id: 1\n\n'));
    await using harness = startProxy(upstream.url('m'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_protocol',
      detail: 'The MCP server ended its event stream without a response; the call may have run.',
      retryable: false,
    });
    expect(upstream.inbox.count('GET')).toBe(10);
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it.each([401, 403, 404, 405, 410, 429, 500])(
    '%i to the GET ends it: neither the call nor its session is begun anew',
    async status => {
      await using upstream = await startEnding(
        'id: 1\nretry: 1\ndata:\n\n',
        call => void call.response.writeHead(status).end(),
      );
      await using harness = startProxy(upstream.url('m'), {
        credentials: {
          forCall: () => Promise.resolve(credentialOf('con', 1)),
          renewAfterRefusal: () => Promise.resolve(credentialOf('con', 2)),
        },
      });
      expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_protocol', retryable: false });
      expect(upstream.inbox.count('tools/call')).toBe(1);
      expect(upstream.inbox.count('GET')).toBe(1);
      expect(upstream.inbox.count('initialize')).toBe(1);
    },
  );

  it('a connection cut while it goes on ends it, and nothing is sent again', async () => {
    await using upstream = await startEnding(
      'id: 1\nretry: 1\ndata:\n\n',
      call => void call.request.socket.resetAndDestroy(),
    );
    await using harness = startProxy(upstream.url('m'));
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_unreachable', retryable: false });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it.each([
    ['without ids', 'retry: 1\ndata:\n\n'],
    ['with an id that cannot stand in a header', 'id: ü\nretry: 1\ndata:\n\n'],
    ['in the middle of an event', 'id: 1\nretry: 1\ndata:\n\ndata: {'],
  ])('%s, it is lost', async (_name, first) => {
    await using upstream = await startEnding(first, call => void call.response.writeHead(500).end());
    await using harness = startProxy(upstream.url('m'));
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_protocol' });
    expect(upstream.inbox.count('GET')).toBe(0);
  });

  it('in revision 2026-07-28 it is lost', async () => {
    await using upstream = await startHostile({
      era: 'modern',
      modes: { m: call => stream(call, 'id: 1\nretry: 1\ndata:\n\n') },
    });
    await using harness = startProxy(upstream.url('m'));
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_protocol' });
    expect(upstream.inbox.count('GET')).toBe(0);
  });

  it('a caller that disconnects ends the wait and cancels the call', async () => {
    const ended = Promise.withResolvers<void>();
    await using upstream = await startHostile({
      modes: {
        m: call => {
          call.response.once('close', () => ended.resolve());
          stream(call, 'id: 1\nretry: 10000\ndata:\n\n');
        },
      },
    });
    await using harness = startProxy(upstream.url('m'));
    const controller = new AbortController();
    const call = harness.proxy.callTool(caller({ signal: controller.signal }), {
      serverId: 's',
      name: 'tool',
    });
    await ended.promise;
    controller.abort();
    await expect(call).rejects.toBeInstanceOf(CallerAbortError);
    const cancelled = await upstream.inbox.firstOf('notifications/cancelled');
    expect(cancelled.message.params.requestId).toBe(upstream.inbox.of('tools/call')[0]?.message.id);
    expect(upstream.inbox.count('GET')).toBe(0);
  });

  it('a wait that the call`s time does not allow is a time-out', async () => {
    await using upstream = await startEnding('id: 1\nretry: 600000\ndata:\n\n', () => {});
    await using harness = startProxy(upstream.url('m'), { limits: { totalTimeoutMs: 800 } });
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_timeout', retryable: false });
    expect(upstream.inbox.count('GET')).toBe(0);
  });
});
