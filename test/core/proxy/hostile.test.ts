import { describe, expect, it } from 'vitest';
import { refusedPort } from '../../support/upstreams/http.ts';
import { startHostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { caller, failure, startProxy } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** Modes whose answer reaches the caller as the server sent it. */
const ANSWERS: [mode: string, answer: object][] = [
  [
    'weird',
    {
      result: {
        content: [{ type: 'hologram', z: 1 }],
        extra: { deep: [1, 2] },
        resultType: 'complete',
        ttlMs: 5,
      },
    },
  ],
  ['weird-error', { error: { code: 7, message: 'custom', data: { trace: 'x' }, extra: 1 } }],
  ['error-400', { error: { code: -32_602, message: 'bad params', data: { a: 1 } } }],
  ['error-500', { error: { code: -32_603, message: 'inside' } }],
  ['error-no-id', { error: { code: -32_600, message: 'no id' } }],
  ['no-method', { error: { code: -32_601, message: 'Method not found' } }],
  ['string-id', { result: OK }],
  ['null-result', { result: null }],
  ['charset', { result: OK }],
  ['bom', { result: OK }],
  ['batch', { result: OK }],
  ['sse', { result: OK }],
  ['sse-open', { result: OK }],
  ['sse-crlf', { result: OK }],
  ['sse-lines', { result: OK }],
  ['sse-primed', { result: OK }],
  ['sse-other-event', { result: OK }],
  ['duplicate', { result: OK }],
  ['sse-endless-after', { result: OK }],
  ['sse-100k-events', { result: OK }],
  ['sse-big-event', { result: OK }],
  ['sse-batches', { result: OK }],
  ['http-1.0', { result: OK }],
  ['early-hints', { result: OK }],
  ['two-answers', { result: OK }],
  ['both-result-and-error', { error: { code: 1, message: 'both' } }],
  ['redirect-307', { result: OK }],
  ['redirect-308', { result: OK }],
];

/** Modes that are no answer: the error code and what its text says. */
const FAILURES: [mode: string, code: string, text: RegExp][] = [
  ['401', 'upstream_unauthorized', /HTTP 401/],
  ['401-rpc', 'upstream_unauthorized', /HTTP 401/],
  ['403', 'upstream_forbidden', /HTTP 403/],
  ['429', 'upstream_rate_limited', /Try again in 7 s/],
  ['429-bare', 'upstream_rate_limited', /HTTP 429/],
  ['500-html', 'upstream_http_error', /HTTP 500; the call may have run\.$/],
  ['503-text', 'upstream_http_error', /HTTP 503: down for maintenance .{0,200}…; the call may have run\.$/],
  ['410', 'upstream_http_error', /HTTP 410/],
  ['html-200', 'upstream_protocol', /HTTP 200 with text\/html/],
  ['no-type', 'upstream_protocol', /HTTP 200 with no content type/],
  ['empty-200', 'upstream_protocol', /HTTP 200 with an empty body/],
  ['202', 'upstream_protocol', /without a response \(HTTP 202\)/],
  ['204', 'upstream_protocol', /HTTP 204 with an empty body/],
  ['wrong-id', 'upstream_protocol', /responded to another request/],
  ['empty-batch', 'upstream_protocol', /not a JSON-RPC response/],
  ['nested-batch', 'upstream_protocol', /not a JSON-RPC response/],
  ['json-string', 'upstream_protocol', /not a JSON-RPC response/],
  ['json-null', 'upstream_protocol', /not a JSON-RPC response/],
  ['no-result', 'upstream_protocol', /not a JSON-RPC response/],
  ['bad-error', 'upstream_protocol', /not a JSON-RPC response/],
  ['bad-json', 'upstream_protocol', /invalid JSON/],
  ['bad-utf8', 'upstream_protocol', /not valid UTF-8/],
  ['gzip', 'upstream_protocol', /compressed/],
  ['sse-empty', 'upstream_protocol', /without a response/],
  ['sse-no-answer', 'upstream_protocol', /without a response/],
  ['sse-half', 'upstream_protocol', /in the middle of an event/],
  ['sse-bad-json', 'upstream_protocol', /invalid JSON/],
  ['sse-bad-utf8', 'upstream_protocol', /not valid UTF-8/],
  ['sse-cut', 'upstream_protocol', /closed the connection in the middle of the response/],
  ['sse-comments', 'upstream_too_large', /more than 8388608 bytes/],
  ['sse-one-line', 'upstream_too_large', /more than 8388608 bytes/],
  ['sse-pings', 'upstream_too_large', /too many requests/],
  ['huge', 'upstream_too_large', /more than 8388608 bytes/],
  ['huge-announced', 'upstream_too_large', /more than 8388608 bytes/],
  ['big-headers', 'upstream_protocol', /headers that are too large/],
  ['many-headers', 'upstream_protocol', /too many response headers/],
  ['endless-headers', 'upstream_protocol', /headers that are too large/],
  ['endless-trailers', 'upstream_protocol', /headers that are too large/],
  ['big-trailers', 'upstream_protocol', /headers that are too large/],
  ['endless-early-hints', 'upstream_protocol', /too many interim responses/],
  ['deep', 'upstream_protocol', /nest/],
  ['deep-objects', 'upstream_protocol', /nest/],
  ['gzip-bomb', 'upstream_protocol', /compressed/],
  ['null-id', 'upstream_protocol', /responded to another request/],
  ['http-0.9', 'upstream_protocol', /invalid HTTP response/],
  ['chunk-extensions', 'upstream_protocol', /invalid HTTP response/],
  ['chunk-size-huge', 'upstream_protocol', /invalid HTTP response/],
  ['header-folding', 'upstream_protocol', /invalid HTTP response/],
  ['length-too-long', 'upstream_protocol', /closed the connection in the middle of the response/],
  ['length-too-short', 'upstream_protocol', /invalid JSON/],
  ['length-twice', 'upstream_protocol', /length does not match/],
  ['length-and-chunked', 'upstream_protocol', /length does not match/],
  ['upgrade', 'upstream_unreachable', /closed the connection/],
  ['reset', 'upstream_unreachable', /the call may have run/],
  ['not-http', 'upstream_protocol', /invalid HTTP response/],
  ['redirect-302', 'upstream_http_error', /HTTP 302, which would turn the POST into a GET/],
  ['redirect-loop', 'upstream_http_error', /redirected more than once/],
  ['redirect-away', 'upstream_blocked', /another origin/],
  ['redirect-metadata', 'upstream_blocked', /another origin/],
  ['redirect-credentials', 'upstream_blocked', /credentials/],
  ['redirect-nowhere', 'upstream_http_error', /without a valid Location/],
];

/** What may be the caller's own doing is not held against the server. */
const SAYS_NOTHING = new Set(['401', '401-rpc', '403', '429', '429-bare']);

describe('a call to a server that misbehaves', () => {
  it.each(ANSWERS)('%s: the response is returned unchanged', async (mode, answer) => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url(mode));
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'x/y' })).toStrictEqual(answer);
    expect(upstream.inbox.count('x/y')).toBe(mode.startsWith('redirect') ? 2 : 1);
  });

  it.each(FAILURES)('%s: %s', async (mode, code, text) => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url(mode));
    const error = await failure(harness.tool());
    expect(error).toMatchObject({ code, detail: expect.stringMatching(text) });
    expect(error.detail).not.toMatch(/127\.0\.0\.1|localhost|secret|<html|bearer/i);
    expect(harness.outcomes).toEqual(
      SAYS_NOTHING.has(mode) ? [] : [{ serverId: 's', tenantId: 'local', ok: false }],
    );
    expect(upstream.inbox.count('tools/call')).toBe(mode === 'redirect-loop' ? 2 : 1);
    // The server lives on, and so does the proxy.
    harness.catalogue('s', upstream.url('ok'));
    expect(await harness.tool()).toEqual({ ...OK, isError: false });
  });

  it.each(['hang', 'slow-headers', 'sse-hang', 'drip', 'endless-chunk-extension'])(
    '%s: the call times out in the words of the contract',
    async mode => {
      await using upstream = await startHostile();
      await using harness = startProxy(upstream.url(mode), { limits: { totalTimeoutMs: 1_500 } });
      const error = await failure(harness.tool());
      expect(error).toMatchObject({ code: 'upstream_timeout', retryable: false });
      expect(error.detail).toBe(
        'The request to the MCP server timed out after 1.5 s; the call may have run.',
      );
      // A server of these revisions is told, too.
      const cancelled = await upstream.inbox.firstOf('notifications/cancelled');
      expect(cancelled.message.params.requestId).toBe(upstream.inbox.of('tools/call')[0]?.message.id);
    },
  );

  it('a call that waits its turn for longer than its time-out times out, and leaves no trace', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('ok'), {
      limits: { totalTimeoutMs: 2_000, connectionsPerOrigin: 1 },
    });
    await harness.tool();
    harness.catalogue('hang', upstream.url('hang'));
    const calls = ['hang', 'hang'].map(serverId =>
      failure(harness.proxy.callTool(caller(), { serverId, name: 'a' })),
    );
    expect((await Promise.all(calls)).map(error => error.code)).toEqual([
      'upstream_timeout',
      'upstream_timeout',
    ]);
    expect(await harness.tool()).toMatchObject(OK);
  });

  it('proto: members named like those of every object stay members of the answer', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('proto'));
    const answer = await harness.proxy.call(caller(), { serverId: 's', method: 'x/y' });
    expect(JSON.stringify(answer)).toBe(
      '{"result":{"content":[],"__proto__":{"polluted":true},"constructor":1}}',
    );
    expect({}).not.toHaveProperty('polluted');
    expect(JSON.stringify(await harness.tool())).toContain('"__proto__":{"polluted":true}');
  });

  it('nobody listens: unreachable', async () => {
    const port = await refusedPort();
    await using harness = startProxy(`http://127.0.0.1:${port}/mcp`);
    const error = await failure(harness.tool());
    expect(error).toMatchObject({
      code: 'upstream_unreachable',
      detail: expect.stringMatching(/^The MCP server refused the connection\. Nothing was sent\. Try again/),
    });
  });

  it('a name that does not resolve: unreachable', async () => {
    await using harness = startProxy('http://nowhere.test/mcp', {
      resolve: (_name, done) => done(Object.assign(new Error('no such host'), { code: 'ENOTFOUND' }), []),
    });
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_unreachable',
      detail: expect.stringMatching(/does not resolve/),
    });
  });

  it('a name that is never resolved: the connection times out', async () => {
    await using harness = startProxy('http://nowhere.test/mcp', {
      resolve: () => {},
      connectTimeoutMs: 50,
    });
    const error = await failure(harness.tool());
    expect(error).toMatchObject({ code: 'upstream_timeout' });
    expect(error.detail).toMatch(/^The request to the MCP server timed out/);
  });

  it('no TLS where TLS is due: unreachable', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(`https://127.0.0.1:${upstream.port}/ok`);
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_unreachable',
      detail: expect.stringMatching(/TLS handshake/),
    });
  });

  it('Retry-After as a date becomes seconds by our clock', async () => {
    await using upstream = await startHostile({
      modes: { limited: call => call.json({}, 429, { 'retry-after': 'Sat, 21 Nov 2026 00:01:30 GMT' }) },
    });
    await using harness = startProxy(upstream.url('limited'));
    expect(await failure(harness.tool())).toMatchObject({ retryAfterSec: 90, retryable: true });
  });
});

describe('a deeply nested response', () => {
  const nested = (levels: number) => `${'{"a":['.repeat(levels / 2)}${']}'.repeat(levels / 2)}`;
  const answering =
    (json: string, type: string): HostileMode =>
    call => {
      call.response.writeHead(200, { 'content-type': type });
      const text = `{"jsonrpc":"2.0","id":${String(call.message.id)},"result":${json}}`;
      call.response.end(type === 'text/event-stream' ? `data: ${text}\n\n` : text);
    };
  it.each(['application/json', 'text/event-stream'])('%s: up to 200 levels are passed on', async type => {
    const json = nested(198);
    await using upstream = await startHostile({ modes: { m: answering(json, type) } });
    await using harness = startProxy(upstream.url('m'));
    const answer = await harness.proxy.call(caller(), { serverId: 's', method: 'x/y' });
    expect(JSON.stringify(answer)).toBe(`{"result":${json}}`);
  });

  it.each([
    ['application/json', 202],
    ['text/event-stream', 202],
    ['application/json', 200_000],
    ['text/event-stream', 200_000],
  ])('%s: %i levels break the protocol, and are no fault of ours', async (type, levels) => {
    await using upstream = await startHostile({ modes: { m: answering(nested(levels), type) } });
    await using harness = startProxy(upstream.url('m'));
    expect(await failure(harness.proxy.call(caller(), { serverId: 's', method: 'x/y' }))).toMatchObject({
      code: 'upstream_protocol',
      detail: 'The MCP server sent JSON that is nested too deeply; the call may have run.',
    });
  });

  it('many brackets beside each other are no depth', async () => {
    const json = JSON.stringify({ rows: Array.from({ length: 500 }, () => ({ a: [{}] })) });
    await using upstream = await startHostile({ modes: { m: answering(json, 'application/json') } });
    await using harness = startProxy(upstream.url('m'));
    expect(await harness.proxy.call(caller(), { serverId: 's', method: 'x/y' })).toEqual({
      result: JSON.parse(json),
    });
  });
});

describe('memory', () => {
  it('an endless body holds no more than the limit', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('huge'), { limits: { maxResponseBytes: 1024 * 1024 } });
    await failure(harness.tool());
    const before = process.memoryUsage().arrayBuffers;
    for (let i = 0; i < 20; i++) await failure(harness.tool());
    // What was let go may not have been collected yet; without the limit, one call alone would take gigabytes.
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(256 * 1024 * 1024);
  });
});

describe('tools/call results', () => {
  const results: [name: string, result: unknown, outcome: object][] = [
    ['isError absent is false', { content: [] }, { content: [], isError: false }],
    ['isError true is a result', { content: [], isError: true }, { content: [], isError: true }],
    [
      'unknown fields stay',
      { content: [], structuredContent: { a: 1 }, x: 1 },
      { structuredContent: { a: 1 }, x: 1 },
    ],
  ];
  it.each(results)('%s', async (_name, result, outcome) => {
    await using upstream = await startHostile({ modes: { ok: call => call.result(result) } });
    await using harness = startProxy(upstream.url('ok'));
    expect(await harness.tool()).toMatchObject(outcome);
  });

  it.each([[{}], [{ content: 'text' }], [null], [[]], ['text']])(
    'a result without a content array breaks the protocol: %j',
    async result => {
      await using upstream = await startHostile({ modes: { ok: call => call.result(result) } });
      await using harness = startProxy(upstream.url('ok'));
      // More often than a server may fail: this one has answered.
      for (let time = 0; time < 6; time++)
        expect(await failure(harness.tool())).toMatchObject({ code: 'upstream_protocol' });
      expect(upstream.inbox.count('tools/call')).toBe(6);
    },
  );

  it('a tool that asks for input, of a caller that cannot be asked, is no failure of its server: the caller gets what it asks', async () => {
    const result = {
      resultType: 'input_required',
      inputRequests: { name: { method: 'elicitation/create', params: { message: 'Name?' } } },
      requestState: 's',
    };
    await using upstream = await startHostile({ era: 'modern', modes: { ok: call => call.result(result) } });
    await using harness = startProxy(upstream.url('ok'));
    for (let time = 0; time < 6; time++) {
      const error = await failure(harness.tool());
      expect(error).toMatchObject({
        code: 'upstream_input_required',
        status: 502,
        retryable: false,
        members: { input_required: result },
      });
      expect(error.detail).toMatch(
        /POST \/v1\/mcp\/call.*_meta\["io\.modelcontextprotocol\/clientCapabilities"\].*inputResponses.*requestState/,
      );
    }
    expect(upstream.inbox.count('tools/call')).toBe(6);
  });

  it('a server that misses a capability (-32021) is explained to a caller that could not declare one', async () => {
    const error = { code: -32_021, message: 'Missing capability: elicitation' };
    await using upstream = await startHostile({
      era: 'modern',
      modes: { ok: call => call.json({ jsonrpc: '2.0', id: call.message.id, error }, 400) },
    });
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_input_required',
      detail: expect.stringMatching(/^Missing capability: elicitation\. Use POST \/v1\/mcp\/call: declare/),
      upstreamError: error,
    });
    const asked = harness.proxy.callToolInteractively(caller(), {
      serverId: 's',
      name: 'a',
      capabilities: {},
    });
    expect(await failure(asked)).toMatchObject({ code: 'upstream_error', detail: error.message });
  });

  it('an upstream JSON-RPC error keeps its object and lends its message', async () => {
    await using upstream = await startHostile();
    await using harness = startProxy(upstream.url('weird-error'));
    expect(await failure(harness.tool())).toMatchObject({
      code: 'upstream_error',
      detail: 'custom',
      upstreamError: { code: 7, message: 'custom', data: { trace: 'x' }, extra: 1 },
    });
    expect(harness.outcomes).toEqual([]);
  });

  it('a success and a tool error are reported as such, by call and by callTool', async () => {
    await using upstream = await startHostile({
      modes: { bad: call => call.result({ content: [], isError: true }) },
    });
    await using harness = startProxy(upstream.url('ok'));
    await harness.tool();
    await harness.proxy.call(caller(), { serverId: 's', method: 'tools/call', params: { name: 'a' } });
    harness.catalogue('s', upstream.url('bad'));
    await harness.tool();
    await harness.proxy.call(caller(), { serverId: 's', method: 'tools/call', params: { name: 'a' } });
    expect(harness.outcomes.map(outcome => outcome.ok)).toEqual([true, true, false, false]);
  });
});

describe('tools/list', () => {
  const pages = (next: (page: number) => unknown) => {
    let page = 0;
    return startHostile({
      modes: {
        ok: call => {
          page++;
          const tools = [{ name: `t${page}`, inputSchema: { type: 'object' }, annotations: { a: 1 } }];
          call.result({ tools, nextCursor: next(page) });
        },
      },
    });
  };

  it('follows the cursor to the end; a missing description is empty; other fields stay', async () => {
    await using upstream = await pages(page => (page < 3 ? `c${page}` : undefined));
    await using harness = startProxy(upstream.url('ok'));
    const { tools } = await harness.proxy.listTools(caller(), { serverId: 's' });
    expect(tools.map(tool => tool.name)).toEqual(['t1', 't2', 't3']);
    expect(tools[0]).toEqual({
      name: 't1',
      description: '',
      inputSchema: { type: 'object' },
      annotations: { a: 1 },
    });
    expect(upstream.inbox.of('tools/list').map(({ message }) => message.params?.cursor)).toEqual([
      undefined,
      'c1',
      'c2',
    ]);
  });

  it('a cursor that comes again ends the listing with an error', async () => {
    await using upstream = await pages(page => `c${page % 3}`);
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.proxy.listTools(caller(), { serverId: 's' }))).toMatchObject({
      code: 'upstream_protocol',
    });
    expect(upstream.inbox.count('tools/list')).toBe(4);
  });

  it('pages without end stop at 50', async () => {
    await using upstream = await pages(page => `c${page}`);
    await using harness = startProxy(upstream.url('ok'));
    expect(await failure(harness.proxy.listTools(caller(), { serverId: 's' }))).toMatchObject({
      code: 'upstream_too_large',
    });
    expect(upstream.inbox.count('tools/list')).toBe(50);
  });

  it('the pages together stay under the size limit', async () => {
    await using upstream = await pages(page => `c${page}`.padEnd(1000, '.'));
    await using harness = startProxy(upstream.url('ok'), { limits: { maxResponseBytes: 5000 } });
    expect(await failure(harness.proxy.listTools(caller(), { serverId: 's' }))).toMatchObject({
      code: 'upstream_too_large',
    });
    expect(upstream.inbox.count('tools/list')).toBe(5);
  });

  it.each([{}, { tools: 'x' }, { tools: [{}] }, { tools: [1] }, null])(
    '%j is no list of tools',
    async result => {
      await using upstream = await startHostile({ modes: { ok: call => call.result(result) } });
      await using harness = startProxy(upstream.url('ok'));
      expect(await failure(harness.proxy.listTools(caller(), { serverId: 's' }))).toMatchObject({
        code: 'upstream_protocol',
      });
    },
  );
});
