import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import type { Resolve } from '../../../src/platform/outbound/guard.ts';
import { startHostile } from '../../support/upstreams/hostile.ts';
import { refusedPort, type Inbox, type Message } from '../../support/upstreams/http.ts';
import { startHttpSse, type HttpSseMode } from '../../support/upstreams/http-sse.ts';
import { caller, credentialOf, failure, startProxy, type Harness } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** A call as the peer of each era sees it. */
interface Call {
  readonly message: Message;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly result: () => void;
  /** Begins the answer's stream, or is within the stream that all answers come in. */
  readonly openStream: () => ServerResponse;
}

interface Peer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly inbox: Inbox;
  pause(): Promise<void>;
  resume(): Promise<void>;
}

const ERAS = ['modern', 'legacy', 'sse'] as const;

/** A server of that era that treats tools/call and tools/list in this way, and counts. */
async function startPeer(era: (typeof ERAS)[number], onCall: (call: Call) => void): Promise<Peer> {
  if (era === 'sse') {
    const mode: HttpSseMode = call =>
      onCall({
        message: call.message,
        request: call.request,
        response: call.response,
        result: () => call.result(),
        openStream: () => {
          call.accept();
          return call.session.response;
        },
      });
    return startHttpSse({ modes: { 'tools/call': mode, 'tools/list': mode } });
  }
  const peer = await startHostile({
    era,
    modes: {
      m: call =>
        onCall({
          message: call.message,
          request: call.request,
          response: call.response,
          result: () => call.result(OK),
          openStream: () => call.response.writeHead(200, { 'content-type': 'text/event-stream' }),
        }),
    },
  });
  const { port, inbox } = peer;
  return {
    url: peer.url('m'),
    port,
    inbox,
    pause: () => peer.pause(),
    resume: () => peer.resume(),
    [Symbol.asyncDispose]: () => peer[Symbol.asyncDispose](),
  };
}

/** A proxy that knows the old transport from the catalogue, so that it need not look for it. */
function startFor(
  era: (typeof ERAS)[number],
  url: string,
  options?: Parameters<typeof startProxy>[1],
): Harness {
  const harness = startProxy(url, options);
  if (era === 'sse') harness.catalogue('s', url, { transport: 'sse' });
  return harness;
}

const status =
  (code: number) =>
  ({ response }: Call) =>
    void response.writeHead(code).end();

/** Kinds of failure after which the call may have run, or was refused; and the code they become. */
const FAULTS: [name: string, fault: (call: Call) => void, code: string][] = [
  ['no answer in time', () => {}, 'upstream_timeout'],
  [
    'an open stream without an answer in time',
    ({ openStream }) => void openStream().write(': x\n\n'),
    'upstream_timeout',
  ],
  ['HTTP 500', status(500), 'upstream_http_error'],
  ['HTTP 502', status(502), 'upstream_http_error'],
  ['HTTP 503', status(503), 'upstream_http_error'],
  ['HTTP 504', status(504), 'upstream_http_error'],
  ['HTTP 429', status(429), 'upstream_rate_limited'],
  ['HTTP 400', status(400), 'upstream_http_error'],
  ['HTTP 403', status(403), 'upstream_forbidden'],
  ['HTTP 401', status(401), 'upstream_unauthorized'],
  [
    'a broken stream',
    ({ openStream }) => {
      const stream = openStream();
      stream.write('data: {"jso', () => stream.destroy());
    },
    'upstream_protocol',
  ],
  ['a stream that ends', ({ openStream }) => void openStream().end(': bye\n\n'), 'upstream_protocol'],
  [
    'a connection cut before its answer',
    ({ request }) => void request.socket.resetAndDestroy(),
    'upstream_unreachable',
  ],
];

const HEADERS_ONLY = ({ response }: Call) => {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' });
  response.flushHeaders();
  response.write('{', () => response.destroy());
};

const RAN = new Set(['upstream_timeout', 'upstream_protocol', 'upstream_unreachable']);

describe.each(ERAS)('%s: a tools/call never runs twice', era => {
  it.each([
    ...FAULTS,
    ['a connection cut after its headers', HEADERS_ONLY, 'upstream_protocol'] as (typeof FAULTS)[number],
  ])('%s', async (_name, fault, code) => {
    await using peer = await startPeer(era, fault);
    await using harness = startFor(era, peer.url, { limits: { totalTimeoutMs: 1_500 } });
    const error = await failure(harness.tool());
    expect(error.code).toBe(code);
    if (RAN.has(code) || /HTTP 50\d/.test(error.detail)) {
      expect(error.retryable).toBe(false);
      expect(error.detail).toMatch(/; the call may have run\.(?: The header Switchboard-Timeout-Ms .*)?$/);
    }
    // Whatever was going to be sent again would have been by the time this other call is through.
    await harness.proxy.call(caller(), { serverId: 's', method: 'x/other' }).catch(() => {});
    expect(peer.inbox.count('tools/call')).toBe(1);
  });

  it('a silent server has all the time that its caller allows, though others wait for less', async () => {
    const held: Call[] = [];
    await using peer = await startPeer(era, call => void held.push(call));
    await using harness = startFor(era, peer.url, { limits: { totalTimeoutMs: 1_000 } });
    const patient = harness.proxy.callTool(caller({ timeoutMs: 60_000 }), { serverId: 's', name: 'tool' });
    await peer.inbox.firstOf('tools/call');
    expect(await failure(harness.tool('echo'))).toMatchObject({ code: 'upstream_timeout', retryable: false });
    if (era !== 'modern') await peer.inbox.firstOf('notifications/cancelled');
    held[0]?.result();
    expect(await patient).toMatchObject(OK);
    expect(peer.inbox.count('tools/call')).toBe(2);
  });

  it('a read that fails in the same way says that it can be made again', async () => {
    await using peer = await startPeer(era, ({ request }) => void request.socket.resetAndDestroy());
    await using harness = startFor(era, peer.url);
    const error = await failure(harness.proxy.listTools(caller(), { serverId: 's' }));
    expect(error).toMatchObject({ code: 'upstream_unreachable', retryable: true });
    expect(error.detail).not.toMatch(/may have run/);
    expect(peer.inbox.count('tools/list')).toBe(1);
  });
});

/** A name for the peer, and what happens before its n-th connection. */
function named(peer: { url: string; port: number }, before: (nth: number) => Promise<void> | undefined) {
  let connections = 0;
  const resolve: Resolve = (_name, done) => {
    void Promise.resolve(before(++connections)).then(() => done(null, [{ address: '127.0.0.1', family: 4 }]));
  };
  const url = new URL(peer.url);
  url.hostname = 'peer.test';
  return { url: url.href, resolve, count: () => connections, restart: () => (connections = 0) };
}

describe.each(ERAS)('%s: a connection that is refused', era => {
  it('is tried once more: a server that is just restarting gets the call, once', async () => {
    await using peer = await startPeer(era, call => call.result());
    let down = false;
    const name = named(peer, nth => (down && nth === 2 ? peer.resume() : undefined));
    await using harness = startFor(era, name.url, { resolve: name.resolve });
    await harness.tool('a');
    await peer.pause();
    down = true;
    name.restart();
    expect(await harness.tool('b')).toMatchObject(OK);
    expect(peer.inbox.of('tools/call').map(({ message }) => message.params.name)).toEqual(['a', 'b']);
  });

  it('is not tried a third time', async () => {
    const port = await refusedPort();
    const name = named({ url: `http://127.0.0.1:${port}/mcp`, port }, () => undefined);
    await using harness = startFor(era, name.url, { resolve: name.resolve });
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_unreachable',
      detail: expect.stringMatching(/^The MCP server refused the connection\. Nothing was sent\. Try again/),
      retryable: true,
    });
    expect(name.count()).toBe(2);
  });
});

/** Answers a tools/call with JSON or, where it says something first, with events. */
const answering =
  (httpStatus: number, answer: object, { before, ownId = true }: { before?: object; ownId?: boolean } = {}) =>
  ({ message, response }: Call) => {
    if (message.method !== 'tools/call') {
      const result = { resultType: 'complete', tools: [{ name: 'tool', inputSchema: { type: 'object' } }] };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
      return;
    }
    const text = JSON.stringify({ jsonrpc: '2.0', id: ownId ? message.id : null, ...answer });
    response.writeHead(httpStatus, { 'content-type': before ? 'text/event-stream' : 'application/json' });
    response.end(before ? `data: ${JSON.stringify(before)}\n\ndata: ${text}\n\n` : text);
  };

const PROGRESS = {
  jsonrpc: '2.0',
  method: 'notifications/progress',
  params: { progressToken: 1, progress: 1 },
};
const PING = { jsonrpc: '2.0', id: 'p', method: 'ping' };
const refusal = (code: number, message = 'refused') => ({ error: { code, message } });

describe('an answer to the call is taken for one, whatever its HTTP status', () => {
  it.each(
    (['modern', 'legacy'] as const).flatMap(era =>
      [200, 400, 401, 403, 404, 410, 429].map(httpStatus => [era, httpStatus] as const),
    ),
  )('%s: a result with HTTP %i', async (era, httpStatus) => {
    await using peer = await startPeer(era, answering(httpStatus, { result: OK }));
    let renewals = 0;
    await using harness = startProxy(peer.url, {
      credentials: {
        forCall: () => Promise.resolve(credentialOf('c')),
        renewAfterRefusal: () => {
          renewals++;
          return Promise.resolve(credentialOf('c', 2));
        },
      },
    });
    expect(await harness.tool()).toMatchObject(OK);
    expect(peer.inbox.count('tools/call')).toBe(1);
    expect(renewals).toBe(0);
  });

  it.each([
    ['modern', 200, -32_020, undefined],
    ['modern', 200, -32_022, undefined],
    ['modern', 404, -32_022, undefined],
    ['modern', 200, -32_020, PROGRESS],
    ['modern', 400, -32_022, PROGRESS],
    ['legacy', 200, -32_022, undefined],
    ['legacy', 200, -32_022, PROGRESS],
    ['legacy', 400, -32_020, PING],
    ['legacy', 404, -32_002, undefined],
    ['legacy', 404, -32_601, undefined],
    ['legacy', 404, -32_001, PROGRESS],
  ] as const)('%s: an error with HTTP %i and code %i after %j', async (era, httpStatus, code, before) => {
    await using peer = await startPeer(era, answering(httpStatus, refusal(code), before ? { before } : {}));
    await using harness = startProxy(peer.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_error', detail: 'refused' });
    expect(peer.inbox.count('tools/call')).toBe(1);
  });
});

describe('a call that provably was not run is sent again exactly once', () => {
  it.each(['legacy', 'sse'] as const)('%s: a dead session (404)', async era => {
    let refusals = 0;
    await using peer = await startPeer(era, call => {
      refusals++;
      call.response.writeHead(404).end();
    });
    await using harness = startFor(era, peer.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_http_error' });
    expect(refusals).toBe(2);
    expect(peer.inbox.count('tools/call')).toBe(2);
  });

  it.each([
    ['in our name: -32001', refusal(-32_001), true],
    ['in our name, about the session', refusal(-32_600, 'Session not found'), true],
    ['in nobody`s name', refusal(-32_000), false],
  ])('legacy: a dead session (404) %s', async (_name, answer, ownId) => {
    await using peer = await startPeer('legacy', answering(404, answer, { ownId }));
    await using harness = startProxy(peer.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_error' });
    expect(peer.inbox.count('tools/call')).toBe(2);
  });

  it.each([-32_020, -32_022])('modern: %i', async code => {
    await using peer = await startPeer('modern', ({ message, response }) => {
      const result = { resultType: 'complete', tools: [{ name: 'tool', inputSchema: { type: 'object' } }] };
      const answer =
        message.method === 'tools/list' ? { result } : { error: { code, message: 'refused', data: {} } };
      response.writeHead('error' in answer ? 400 : 200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...answer }));
    });
    await using harness = startProxy(peer.url);
    expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_error', detail: 'refused' });
    expect(peer.inbox.count('tools/call')).toBe(2);
  });

  it('a name that does not resolve, an address that is not allowed: not at all', async () => {
    for (const [host, error] of [
      ['nowhere.test', Object.assign(new Error('no such host'), { code: 'ENOTFOUND' })],
      ['metadata.test', null],
    ] as const) {
      let lookups = 0;
      await using harness = startProxy(`http://${host}/mcp`, {
        resolve: (_name, done) => {
          lookups++;
          done(error, error ? [] : [{ address: '169.254.169.254', family: 4 }]);
        },
      });
      await failure(harness.tool());
      expect(lookups).toBe(1);
    }
  });
});
