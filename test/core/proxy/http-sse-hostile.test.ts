import { describe, expect, it } from 'vitest';
import { startHttpSse, type HttpSseMode, type HttpSseSession } from '../../support/upstreams/http-sse.ts';
import { startHostile } from '../../support/upstreams/hostile.ts';
import { caller, credentialOf, failure, startSse, type Harness } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

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
    expect(upstream.inbox.methods()).toEqual(['GET']);
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

  it('one that never responds to the GET times out', async () => {
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
    expect(upstream.inbox.methods()).toEqual(['GET', 'server/discover', 'initialize']);
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
    [
      'breaks its stream',
      ({ response }) => void response.destroy(),
      'upstream_protocol',
      /in the middle of the response/,
    ],
    ['sends broken JSON', ({ raw }) => raw('data: {"jsonrpc"\n\n'), 'upstream_protocol', /invalid JSON/],
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
      /too many requests/,
    ],
    [
      'floods us with small events',
      ({ raw }) => raw('data: {"method":"x"}\n\n'.repeat(12_000)),
      'upstream_protocol',
      /far more data in its event stream/,
    ],
    [
      'nests too deep',
      ({ raw }, id) =>
        raw(`data: {"jsonrpc":"2.0","id":${Number(id)},"result":${'['.repeat(300)}${']'.repeat(300)}}\n\n`),
      'upstream_protocol',
      /nested too deep/,
    ],
  ];
  it.each(streams)('one that %s fails only the waiting calls', async (_name, misbehave, code, text) => {
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
  });

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

describe('a server that works on a call and refuses its POST', () => {
  type Call = Parameters<HttpSseMode>[0];
  const LOST = /session with the server was lost.*may have run/;
  const progressOn = ({ message, session }: Call) =>
    session.send({
      jsonrpc: '2.0',
      method: 'notifications/progress',
      params: { progressToken: message.params._meta?.progressToken, progress: 1 },
    });
  const refuse = ({ response }: Call, status: number) =>
    void response.writeHead(status, { 'retry-after': '1' }).end();
  const callWithProgress = (harness: Harness, name = 'tool', onProgress = () => {}) =>
    harness.proxy.callTool(caller(), { serverId: 's', name, onProgress });

  const signs: [sign: string, send: (call: Call) => void][] = [
    ['progress', progressOn],
    ['a request of its own', ({ session }) => session.send({ jsonrpc: '2.0', id: 1, method: 'roots/list' })],
    ['a log message', ({ session }) => session.send({ jsonrpc: '2.0', method: 'notifications/message' })],
    ['a broken answer', ({ session, message }) => session.send({ id: message.id, error: 'x' })],
  ];
  it.each(signs.flatMap(([sign, send]) => [404, 410].map(status => ({ sign, send, status }))))(
    '$sign, then HTTP $status: the call is not sent again, and may have run',
    async ({ send, status }) => {
      await using upstream = await startHttpSse({
        modes: {
          'tools/call': call => {
            send(call);
            refuse(call, status);
          },
          reply: call => call.accept(),
        },
      });
      await using harness = startSse(upstream.url);
      const error = await failure(callWithProgress(harness));
      expect(error).toMatchObject({ retryable: false, detail: expect.stringMatching(LOST) });
      expect(upstream.inbox.count('tools/call')).toBe(1);
      expect(harness.proxy.sessionCount).toBe(0);
    },
  );

  it('a read is sent again all the same', async () => {
    let reads = 0;
    await using upstream = await startHttpSse({
      modes: {
        'resources/read': call => {
          if (++reads > 1) return call.result();
          call.session.send({ jsonrpc: '2.0', method: 'notifications/message' });
          refuse(call, 404);
        },
      },
    });
    await using harness = startSse(upstream.url);
    const read = harness.proxy.call(caller(), { serverId: 's', method: 'resources/read' });
    expect(await read).toEqual({ result: OK });
    expect(reads).toBe(2);
  });

  it('progress on another call says nothing of it: it is sent again', async () => {
    const calls: Call[] = [];
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          calls.push(call);
          const [slow] = calls;
          if (calls.length === 1) call.accept();
          else if (calls.length > 2) call.result();
          else if (slow) {
            progressOn(slow);
            refuse(call, 404);
          }
        },
      },
    });
    await using harness = startSse(upstream.url);
    const slow = callWithProgress(harness, 'slow');
    await upstream.inbox.firstOf('tools/call');
    expect(await callWithProgress(harness, 'next')).toMatchObject(OK);
    calls[0]?.session.send({ jsonrpc: '2.0', id: calls[0].message.id, result: OK });
    expect(await slow).toMatchObject(OK);
    expect(calls.map(({ message }) => message.params.name)).toEqual(['slow', 'next', 'next']);
  });

  it('an answer that came before the refusal counts', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          refuse(call, 404);
          call.session.send({ jsonrpc: '2.0', id: call.message.id, result: OK });
        },
      },
    });
    await using harness = startSse(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });

  it('a session whose stream ends with the refusal is lost, not broken: the call is sent again', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          if (call.session.id !== '1') return call.result();
          refuse(call, 404);
          call.session.response.end();
        },
      },
    });
    await using harness = startSse(upstream.url);
    expect(await harness.tool()).toMatchObject(OK);
    expect(upstream.inbox.count('tools/call')).toBe(2);
  });

  it.each([401, 403, 429, 503])(
    'progress, then HTTP %i: the error does not suggest a retry',
    async status => {
      await using upstream = await startHttpSse({
        modes: {
          'tools/call': call => {
            progressOn(call);
            refuse(call, status);
          },
        },
      });
      await using harness = startSse(upstream.url, {
        credentials: {
          forCall: () => Promise.resolve(credentialOf('con', 1)),
          renewAfterRefusal: () => Promise.resolve(credentialOf('con', 2)),
        },
      });
      expect(await failure(callWithProgress(harness))).toMatchObject({
        code: 'upstream_protocol',
        retryable: false,
        detail: `The MCP server started to process the request and then rejected it (HTTP ${status}); the call may have run.`,
      });
      expect(upstream.inbox.count('tools/call')).toBe(1);
    },
  );

  it('a read refused like that is what the status says', async () => {
    await using upstream = await startHttpSse({
      modes: {
        'resources/read': call => {
          call.session.send({ jsonrpc: '2.0', method: 'notifications/message' });
          refuse(call, 429);
        },
      },
    });
    await using harness = startSse(upstream.url);
    const read = harness.proxy.call(caller(), { serverId: 's', method: 'resources/read' });
    expect(await failure(read)).toMatchObject({ code: 'upstream_rate_limited', retryable: true });
  });

  it('progress, then a redirect: it is not followed', async () => {
    const progress = Promise.withResolvers<void>();
    await using upstream = await startHttpSse({
      modes: {
        'tools/call': call => {
          progressOn(call);
          const { response, request } = call;
          void progress.promise.then(() => response.writeHead(307, { location: request.url }).end());
        },
      },
    });
    await using harness = startSse(upstream.url);
    expect(await failure(callWithProgress(harness, 'tool', progress.resolve))).toMatchObject({
      code: 'upstream_protocol',
      retryable: false,
      detail: expect.stringMatching(/then redirected it; the call may have run/),
    });
    expect(upstream.inbox.count('tools/call')).toBe(1);
  });
});
