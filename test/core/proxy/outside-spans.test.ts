import { expect, it, vi } from 'vitest';
import { DEFAULT_LIMITS } from '../../../src/core/proxy/limits.ts';
import { HttpClient } from '../../../src/core/proxy/upstream/http.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { activeSpan, within, type Span } from '../../../src/platform/telemetry/tracing.ts';
import { listen } from '../../support/upstreams/http.ts';
import { startV1Server, startV1SseServer } from '../../support/upstreams/v1.ts';
import { startProxy, startSse } from './harness.ts';

/** What outlives the request that began it has events later on, which must not be told as that request's. */
const spanOf = (traceId: string): Span => {
  const span: Span = {
    logFields: { trace_id: traceId, span_id: traceId },
    context: {},
    child: () => span,
    rename: () => {},
    set: () => {},
    failed: () => {},
    end: () => {},
  };
  return span;
};

it('events on a connection do not belong to the trace of the call that opened it', async () => {
  await using server = await listen((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end('data: {}\n\n');
  });
  const guard = new Guard({ allowPrivateNetwork: true, connectTimeoutMs: 5_000 });
  const client = new HttpClient(guard, DEFAULT_LIMITS);
  const seen: (Span | undefined)[] = [];
  const request = {
    url: new URL(server.origin),
    method: 'GET' as const,
    headers: {},
    signal: new AbortController().signal,
    onEvent: () => {
      seen.push(activeSpan());
      return false;
    },
  };
  for (const id of ['first', 'second']) await within(spanOf(id), () => client.send(request));
  await client.close();
  expect(seen).toEqual([undefined, undefined]);
});

it('the end of an event stream is a line of the log without the trace of the call that opened it', async () => {
  await using opened = new AsyncDisposableStack();
  const upstream = await startV1SseServer();
  const harness = opened.use(startSse(upstream.url));
  await within(spanOf('opener'), () => harness.tool('echo', { message: 'hi' }));
  await upstream[Symbol.asyncDispose]();
  const ended = await vi.waitUntil(
    () => harness.logged.find(({ msg }) => msg === 'upstream event stream ended'),
    { timeout: 20_000, interval: 5 },
  );
  expect(ended).not.toHaveProperty('trace_id');
});

it('a listener to listings runs outside any trace', async () => {
  await using upstream = await startV1Server();
  const heard: (Span | undefined)[] = [];
  await using harness = startProxy(upstream.url, { onSharedTools: () => void heard.push(activeSpan()) });
  await within(spanOf('lister'), () => harness.tool('echo', { message: 'hi' }));
  await vi.waitUntil(() => heard.length > 0, { timeout: 20_000, interval: 5 });
  expect(heard).toEqual([undefined]);
});
