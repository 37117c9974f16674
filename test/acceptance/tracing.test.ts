import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { startCollector, type Collector, type ExportedSpan } from '../support/otlp-collector.ts';
import { eventually } from '../support/processes.ts';
import { makeDataDir } from '../support/data-dir.ts';
import { begin, serve, temporaryFolder, type Program } from '../support/program.ts';
import { refusedPort } from '../support/upstreams/http.ts';
import { startV1SseServer, startV1Server } from '../support/upstreams/v1.ts';
import { startV2Server } from '../support/upstreams/v2.ts';

const KEY = 'a-key-for-tests-of-at-least-32-characters';
const CALLER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
const traceparent = (flags = '01') => `00-${CALLER.traceId}-${CALLER.spanId}-${flags}`;
const MODERN_META = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
};

interface Running extends AsyncDisposable {
  readonly program: Program;
  readonly dataDir: string;
  post(at: string, body: unknown, headers?: Record<string, string>): Promise<Response>;
  log(): Promise<Record<string, unknown>[]>;
}

/** The real program with servers of three kinds behind it, which sends its traces to the collector. */
async function start(
  endpoint: string | undefined,
  env: Record<string, string> = {},
): Promise<Running & Upstreams> {
  await using opened = new AsyncDisposableStack();
  const modern = opened.use(await startV2Server());
  const legacy = opened.use(await startV1Server());
  const sse = opened.use(await startV1SseServer());
  const folder = opened.use(temporaryFolder());
  const catalogue = path.join(folder.path, 'catalogue.jsonl');
  const tools = [{ name: 'echo', description: 'Echoes', input_schema: { type: 'object' } }];
  const lines = Object.entries({ modern, legacy, sse }).map(([id, { url }]) =>
    JSON.stringify({ id, name: id, description: `Echoes what it is told (${id}).`, remote_url: url, tools }),
  );
  await writeFile(catalogue, lines.join('\n'));
  const logFile = path.join(folder.path, 'log');
  const program = opened.use(
    await serve(
      {
        SWITCHBOARD_DATA_DIR: await makeDataDir(path.join(folder.path, 'data')),
        SWITCHBOARD_API_KEY: KEY,
        SWITCHBOARD_CATALOGUE: catalogue,
        SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
        LOG_LEVEL: 'info',
        OTEL_BSP_SCHEDULE_DELAY: '20',
        ...(endpoint === undefined ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }),
        ...env,
      },
      logFile,
    ),
  );
  await program.ready();
  const all = opened.move();
  return {
    modern,
    legacy,
    sse,
    program,
    dataDir: folder.path,
    post: (at, body, headers) =>
      fetch(program.url + at, {
        method: 'POST',
        headers: {
          'x-api-key': KEY,
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          ...headers,
        },
        body: JSON.stringify(body),
      }),
    log: async () =>
      (await readFile(logFile, 'utf8'))
        .split('\n')
        .filter(line => line !== '')
        .map(line => JSON.parse(line) as Record<string, unknown>),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

interface Upstreams {
  readonly modern: Awaited<ReturnType<typeof startV2Server>>;
  readonly legacy: Awaited<ReturnType<typeof startV1Server>>;
  readonly sse: Awaited<ReturnType<typeof startV1SseServer>>;
}

const call = (serverId: string, args: object = { message: 'hello' }) => ({
  server_id: serverId,
  name: 'echo',
  arguments: args,
});

/** Waits for a span of that name. */
async function span(
  collector: Collector,
  name: string,
  where: Partial<ExportedSpan> = {},
): Promise<ExportedSpan> {
  const find = () =>
    collector.spans.find(
      one =>
        one.name === name &&
        Object.entries(where).every(([key, value]) => one[key as keyof ExportedSpan] === value),
    );
  await eventually(`a span ${name} came`, () => find() !== undefined).catch((error: unknown) => {
    throw new Error(`only ${collector.spans.map(one => one.name).join(', ')}`, { cause: error });
  });
  return find() as ExportedSpan;
}

const parentOf = (traceparentHeader: unknown) => String(traceparentHeader).split('-')[2];

describe('traces', () => {
  it('go from the caller over a search and a call to the server that is called, as one', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint, {
      OTEL_SERVICE_NAME: 'my-switchboard',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-collector-key=from-the-settings',
    });
    const headers = { traceparent: traceparent(), tracestate: 'vendor=1', baggage: 'user=alice' };
    const found = await sb.post('/v1/search', { query: 'echo what I say', limit: 2 }, headers);
    expect(found.status).toBe(200);
    const called = await sb.post('/v1/mcp/tools/call', call('modern'), headers);
    expect(called.status).toBe(200);

    const searched = await span(collector, 'POST /v1/search');
    expect(searched).toMatchObject({
      ...CALLER,
      kind: 'server',
      spanId: searched.spanId,
      parentSpanId: CALLER.spanId,
    });
    expect(searched.attributes).toMatchObject({
      'http.request.method': 'POST',
      'http.route': '/v1/search',
      'http.response.status_code': 200,
    });
    expect(searched.resource).toMatchObject({
      'service.name': 'my-switchboard',
      'deployment.environment.name': 'test',
      'telemetry.sdk.name': 'opentelemetry',
    });
    const search = await span(collector, 'search', { parentSpanId: searched.spanId });
    expect(search.attributes).toMatchObject({ 'switchboard.search.cache_hit': false });
    for (const name of ['embed', 'index'])
      await span(collector, name, { parentSpanId: search.spanId, traceId: CALLER.traceId });

    const served = await span(collector, 'POST /v1/mcp/tools/call', { parentSpanId: CALLER.spanId });
    const client = await span(collector, 'tools/call echo', { parentSpanId: served.spanId });
    expect(client).toMatchObject({ kind: 'client', traceId: CALLER.traceId, isError: false });
    expect(client.attributes).toMatchObject({
      'mcp.method.name': 'tools/call',
      'gen_ai.tool.name': 'echo',
      'mcp.protocol.version': '2026-07-28',
      'switchboard.server.id': 'modern',
      'switchboard.transport': 'streamable-http',
      'switchboard.attempt': 1,
      'http.response.status_code': 200,
    });
    const [received] = sb.modern.inbox.of('tools/call');
    const expected = `00-${CALLER.traceId}-${client.spanId}-01`;
    expect(received?.headers).toMatchObject({ traceparent: expected, tracestate: 'vendor=1' });
    expect(received?.message.params._meta).toMatchObject({ traceparent: expected, tracestate: 'vendor=1' });
    expect(received?.headers['baggage']).toBeUndefined();
    expect(collector.requests[0]).toMatchObject({
      path: '/v1/traces',
      headers: { 'content-type': 'application/x-protobuf', 'x-collector-key': 'from-the-settings' },
    });
  });

  it('reach servers of the older revisions, with a session, over HTTP+SSE, and passed through', async () => {
    await using collector = await startCollector();
    // As compose.yaml passes them on.
    await using sb = await start(collector.endpoint, {
      OTEL_EXPORTER_OTLP_HEADERS: '',
      OTEL_EXPORTER_OTLP_CERTIFICATE: '',
      OTEL_SERVICE_NAME: '',
      OTEL_RESOURCE_ATTRIBUTES: '',
    });
    for (const id of ['legacy', 'sse'] as const) {
      expect((await sb.post('/v1/mcp/tools/call', call(id))).status).toBe(200);
      const received = await sb[id].inbox.firstOf('tools/call');
      const client = await span(collector, 'tools/call echo', {
        spanId: parentOf(received.headers['traceparent']) ?? '',
      });
      expect(client.attributes).toMatchObject({
        'switchboard.transport': id === 'sse' ? 'sse' : 'streamable-http',
        'switchboard.server.id': id,
      });
      expect(client.resource['service.name']).toBe('switchboard');
    }
    const params = { name: 'echo', arguments: { message: 'hi' }, _meta: MODERN_META };
    const passed = await sb.post(
      '/mcp/modern',
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params },
      {
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'echo',
        traceparent: traceparent(),
      },
    );
    expect(passed.status).toBe(200);
    await passed.text();
    const served = await span(collector, 'POST /mcp/:server_id', { parentSpanId: CALLER.spanId });
    const client = await span(collector, 'tools/call', { parentSpanId: served.spanId });
    const received = await sb.modern.inbox.firstOf('tools/call');
    expect(received.headers['traceparent']).toBe(`00-${CALLER.traceId}-${client.spanId}-01`);
    expect(received.message.params).toEqual(params);
  });

  it('go on at /mcp with the trace that a message names in _meta, and with what a tool fails with', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint);
    const ask = (name: string, args: object) =>
      sb.post('/mcp', {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name, arguments: args, _meta: { traceparent: traceparent() } },
      });
    const answer = await ask('call_remote_tool', {
      server_id: 'modern',
      tool_name: 'echo',
      arguments: { message: 'hi' },
    });
    expect(await answer.text()).toContain('Echo: hi');
    const http = await span(collector, 'POST /mcp');
    const served = await span(collector, 'tools/call call_remote_tool', { parentSpanId: CALLER.spanId });
    expect(served).toMatchObject({ kind: 'server', traceId: CALLER.traceId, isError: false });
    expect(served.links).toEqual([{ traceId: http.traceId, spanId: http.spanId }]);
    const client = await span(collector, 'tools/call echo', { parentSpanId: served.spanId });
    const received = await sb.modern.inbox.firstOf('tools/call');
    expect(received.headers['traceparent']).toBe(`00-${CALLER.traceId}-${client.spanId}-01`);

    await (await ask('call_remote_tool', { server_id: 'nobody', tool_name: 'x' })).text();
    await eventually('the failure was exported', () =>
      collector.spans.some(
        one =>
          one.attributes['error.type'] === 'server_not_found' && one.name === 'tools/call call_remote_tool',
      ),
    );
  });

  it('are not exported where the caller has decided so, and the server is told', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint);
    await sb.post('/v1/mcp/tools/call', call('modern'), { traceparent: traceparent('00') });
    const received = await sb.modern.inbox.firstOf('tools/call');
    expect(received.headers['traceparent']).toMatch(new RegExp(`^00-${CALLER.traceId}-[0-9a-f]{16}-00$`));
    // What comes later has been exported: what came before will not be any more.
    await sb.post('/v1/search', { query: 'anything' });
    await span(collector, 'POST /v1/search');
    expect(collector.spans.filter(one => one.traceId === CALLER.traceId)).toEqual([]);
  });

  it('do not name one request to every server that it visits', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint);
    const probed = await sb.post('/v1/admin/catalogue/probe', {}, { traceparent: traceparent() });
    expect(probed.status).toBe(200);
    await span(collector, 'POST /v1/admin/catalogue/probe', { traceId: CALLER.traceId });
    for (const id of ['modern', 'legacy', 'sse'] as const) {
      const received = await sb[id].inbox.firstOf('tools/list');
      expect(received.headers['traceparent']).toBeUndefined();
    }
  });

  it('are named in the lines of the log', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint);
    await sb.post('/v1/mcp/tools/call', call('modern', { wrong: 1 }), { traceparent: traceparent() });
    await sb.post(
      '/v1/mcp/tools/call',
      { ...call('modern'), name: 'nothing-like-it' },
      { traceparent: traceparent() },
    );
    const served = await span(collector, 'POST /v1/mcp/tools/call');
    await eventually('the lines are there', async () => {
      const lines = (await sb.log()).filter(line => line['trace_id'] === CALLER.traceId);
      return (
        lines.some(line => line['msg'] === 'request' && line['span_id'] === served.spanId) &&
        lines.some(line => line['msg'] !== 'request')
      );
    });
  });

  it('hold nothing of what was asked, with which key, for whom', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint);
    const secrets = [
      'the-query-of-mine',
      'the-argument-of-mine',
      'the-user-of-mine',
      'the-tool-of-mine',
      'the-method-of-mine',
    ];
    const [query, argument, userId, tool, method] = secrets;
    await sb.post('/v1/search', { query });
    await sb.post('/v1/mcp/tools/call', call('modern', { message: argument, [`${argument}-name`]: 1 }));
    await sb.post('/v1/mcp/tools/call', { ...call('modern'), name: tool });
    await sb.post('/v1/mcp/call', {
      jsonrpc: '2.0',
      id: argument,
      server_id: 'modern',
      method,
      params: { argument },
    });
    await sb.post('/v1/identity/revoke', { user_id: userId });
    await sb.post(`/v1/${userId}/${KEY}?q=${argument}`, {});
    await sb.post('/mcp', { jsonrpc: '2.0', id: 1, method, params: { argument } });
    await sb.post('/mcp', {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'search_servers', arguments: { query } },
    });
    await sb.post('/mcp/modern', { jsonrpc: '2.0', id: argument, method, params: { argument } });
    await span(collector, 'POST /mcp/:server_id');
    expect(await sb.program.stop()).toBe(0);
    for (const secret of [...secrets, KEY]) expect(collector.bytes).not.toContain(secret);
    const values = collector.spans.flatMap(one => Object.values(one.attributes).map(String));
    expect(Math.max(...values.map(value => value.length))).toBeLessThanOrEqual(200);
    expect(new Set(collector.spans.map(one => one.name))).toContain('_OTHER');
  });
});

describe('without a collector that takes them', () => {
  it.each([
    ['refuses', async () => `http://127.0.0.1:${await refusedPort()}`],
    ['hangs', async (hanging: Collector) => Promise.resolve(hanging.endpoint)],
  ])(
    'one that %s costs no request, says so in the log now and then, and does not hold up a stop',
    async (_how, endpointOf) => {
      await using hanging = await startCollector('hang');
      await using sb = await start(await endpointOf(hanging), {
        OTEL_EXPORTER_OTLP_TIMEOUT: '1000',
        OTEL_BSP_MAX_QUEUE_SIZE: '10',
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '5',
      });
      for (let round = 0; round < 20; round++) {
        expect((await sb.post('/v1/mcp/tools/call', call('modern'))).status).toBe(200);
      }
      const warnings = async () =>
        (await sb.log()).filter(line => String(line['msg']).startsWith('tracing: failed to export traces'));
      await eventually('it warned', async () => (await warnings()).length > 0);
      for (let round = 0; round < 20; round++) await sb.post('/v1/mcp/tools/call', call('modern'));
      expect(await warnings()).toHaveLength(1);
      expect(await sb.program.stop()).toBe(0);
    },
  );

  it('a stop waits in bounded time for one that has never answered', async () => {
    await using hanging = await startCollector('hang');
    await using sb = await start(hanging.endpoint, { OTEL_EXPORTER_OTLP_TIMEOUT: '600000' });
    await sb.post('/v1/mcp/tools/call', call('modern'));
    await eventually('it has begun to export', () => hanging.requests.length > 0);
    // Far sooner than after the ten minutes that the exporter itself would wait: the test has three.
    expect(await sb.program.stop()).toBe(0);
  });

  it('what has been traced until the stop is exported', async () => {
    await using collector = await startCollector();
    await using sb = await start(collector.endpoint, { OTEL_BSP_SCHEDULE_DELAY: '600000' });
    await sb.post('/v1/mcp/tools/call', call('modern'));
    expect(collector.requests).toEqual([]);
    expect(await sb.program.stop()).toBe(0);
    expect(collector.spans.map(one => one.name)).toContain('POST /v1/mcp/tools/call');
  });
});

describe('off', () => {
  /** The packages whose scripts were run: V8 writes at the end which those were. */
  const packagesIn = async (folder: string) => {
    const packages = new Set<string | undefined>();
    for (const file of await readdir(folder)) {
      const text = await readFile(path.join(folder, file), 'utf8');
      for (const found of text.matchAll(/"url":"[^"]*\/node_modules\/((?:@[^/"]+\/)?[^/"]+)/g))
        packages.add(found[1]);
    }
    return packages;
  };

  it.each([
    ['nothing is set', {}],
    ['it is disabled', { OTEL_SDK_DISABLED: 'true', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }],
    [
      'no exporter is wanted',
      { OTEL_TRACES_EXPORTER: 'none', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' },
    ],
  ])('where %s: no package of it is loaded, and no server hears of a trace', async (_why, env) => {
    await using scripts = temporaryFolder();
    await using sb = await start(undefined, { ...env, NODE_V8_COVERAGE: scripts.path });
    const meta = { traceparent: traceparent() };
    await sb.post('/v1/mcp/tools/call', call('modern'), { traceparent: traceparent() });
    await sb.post('/v1/mcp/call', {
      server_id: 'modern',
      method: 'tools/list',
      params: { _meta: meta },
    });
    const received = await sb.modern.inbox.firstOf('tools/call');
    expect(received.headers['traceparent']).toBeUndefined();
    // A caller's own message stays as it is.
    const listed = await sb.modern.inbox.first(
      ({ message }) => message.params?._meta?.traceparent !== undefined,
    );
    expect(listed.message.params._meta).toMatchObject(meta);
    expect(await sb.program.stop()).toBe(0);
    const packages = await packagesIn(scripts.path);
    expect(packages).toContain('pino');
    // What prom-client, which can note a trace beside a figure, asks for the trace by.
    packages.delete('@opentelemetry/api');
    expect([...packages].filter(name => name?.startsWith('@opentelemetry/'))).toEqual([]);
  });

  it('a setting that cannot be done as it is asked stops the start with one line', async () => {
    await using refused = begin([], {
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    });
    expect(await refused.finished).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /^switchboard: OTEL_EXPORTER_OTLP_PROTOCOL: only http\/protobuf is supported/,
      ),
    });
  });
});
