import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuthSpec, Server } from '../../../src/core/catalogue/entry.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { outcomeOf } from '../../../src/core/health/policy.ts';
import { createProxy, type McpProxy } from '../../../src/core/proxy/proxy.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { startChangeable, type Conduct } from '../../support/upstreams/changeable.ts';
import { startEverything } from '../../support/upstreams/everything.ts';
import { listen, readBody, refusedPort } from '../../support/upstreams/http.ts';
import { startV1Server, startV1SseServer } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';

const endless = new AbortController().signal;

const proxyWith = (limits = {}, allowPrivateNetwork = true) => {
  const never = () => {
    throw new Error('an inspection needs no catalogue and no credential');
  };
  return createProxy({
    catalogue: { readCalled: never },
    credentials: { forCall: never, renewAfterRefusal: never },
    sealing: { seal: never, open: never },
    guard: new Guard({ allowPrivateNetwork, connectTimeoutMs: 5_000 }),
    log: createLog('silent'),
    limits,
  });
};

let proxy: McpProxy;
beforeAll(() => void (proxy = proxyWith()));
afterAll(() => proxy.close());

const at = (remoteUrl: string, more: Partial<Server> = {}): Server => ({
  id: 's',
  name: 's',
  description: 's',
  remoteUrl,
  auth: { kind: 'none' },
  categories: [],
  tools: [],
  origin: 'operator',
  active: true,
  ...more,
});
/** Inspects the server and says what that means for its health. */
async function inspect(url: string, more: Partial<Server> = {}, by = proxy) {
  const server = at(url, more);
  const inspection = await by.inspect(server, endless);
  return { ...inspection, outcome: outcomeOf(server, inspection), reason: inspection.error?.detail };
}
const namesOf = (tools: readonly { name: string }[] = []) => tools.map(({ name }) => name);

describe('the inspection of a server that works', () => {
  it('asks server/discover and tools/list of the stateless revision, and nothing else', async () => {
    await using server = await startV2Server();
    const { outcome, latencyMs, tools, reason } = await inspect(server.url);
    expect({ outcome, reason }).toEqual({ outcome: 'ok', reason: undefined });
    expect(latencyMs).toBeGreaterThanOrEqual(0);
    expect(namesOf(tools)).toEqual(['echo', 'region', 'fail', 'wait']);
    expect(server.inbox.methods()).toEqual(['server/discover', 'tools/list']);
  });

  it('makes the handshake, lists the tools and ends the session of a server with sessions', async () => {
    await using server = await startV1Server();
    const { outcome, tools } = await inspect(server.url);
    expect(outcome).toBe('ok');
    expect(namesOf(tools)).toContain('echo');
    await server.inbox.firstOf('DELETE');
    expect(server.inbox.methods().slice(1)).toEqual([
      'initialize',
      'notifications/initialized',
      'tools/list',
      'DELETE',
    ]);
    expect(server.sessionIds).toEqual([]);
  });

  it('lists the tools over HTTP+SSE and leaves no stream open', async () => {
    await using server = await startV1SseServer();
    const { outcome, tools } = await inspect(server.url);
    expect(outcome).toBe('ok');
    expect(namesOf(tools)).toContain('echo');
    while (server.sessionIds.length > 0) await new Promise(resolve => setImmediate(resolve));
  });

  it('lists the tools of the reference server', async () => {
    await using server = await startEverything();
    const { outcome, tools } = await inspect(server.url);
    expect(outcome).toBe('ok');
    expect(namesOf(tools)).toContain('echo');
  });

  it('negotiates from scratch each time', async () => {
    await using server = await startV2Server();
    await inspect(server.url);
    await inspect(server.url);
    expect(server.inbox.count('server/discover')).toBe(2);
  });
});

describe('a failed inspection', () => {
  it.each<[Conduct, string]>([
    [401, 'needs_sign_in'],
    [402, 'needs_sign_in'],
    [403, 'needs_sign_in'],
    [404, 'not_mcp'],
    [405, 'not_mcp'],
    [429, 'no_verdict'],
    [500, 'unreachable'],
    [503, 'unreachable'],
    ['html', 'not_mcp'],
  ])('answered with %s means %s', async (conduct, outcome) => {
    await using server = await startChangeable(conduct);
    const found = await inspect(server.url);
    expect(found).toMatchObject({ outcome, reason: expect.stringMatching(/\.$/) });
    expect(server.inbox.count('tools/call')).toBe(0);
  });

  it.each(['not json', '{"jsonrpc":"2.0"', '[]', '{"jsonrpc":"2.0","id":"other","result":{}}'])(
    'answered with broken JSON-RPC (%s) means not_mcp',
    async body => {
      await using server = await listen((_request, response) => {
        response.writeHead(200, { 'content-type': 'application/json' }).end(body);
      });
      expect(await inspect(server.origin)).toMatchObject({ outcome: 'not_mcp' });
    },
  );

  it('of a closed port or an unknown host name means unreachable', async () => {
    expect(await inspect(`http://127.0.0.1:${await refusedPort()}/`)).toMatchObject({
      outcome: 'unreachable',
    });
    expect(await inspect('https://nowhere.invalid/mcp')).toMatchObject({ outcome: 'unreachable' });
  });

  it('of a server that never answers means unreachable when the time is up', async () => {
    await using server = await startChangeable('silent');
    const impatient = proxyWith({ totalTimeoutMs: 50 });
    expect(await inspect(server.url, {}, impatient)).toMatchObject({ outcome: 'unreachable' });
    await impatient.close();
  });

  it('of a private address means unreachable, and the address is never asked', async () => {
    await using server = await startChangeable();
    const guarded = proxyWith({}, false);
    expect(await inspect(server.url, {}, guarded)).toMatchObject({ outcome: 'unreachable' });
    await guarded.close();
    expect(server.inbox.all).toEqual([]);
  });

  it.each<[AuthSpec['kind'], string]>([
    ['none', 'not_mcp'],
    ['static_header', 'needs_sign_in'],
    ['unknown', 'needs_sign_in'],
  ])('whose handshake is refused in JSON-RPC by a server with auth %s means %s', async (kind, outcome) => {
    await using server = await listen((request, response) => {
      void readBody(request).then(({ message }) => {
        const error = { code: -32_001, message: 'Unauthorized' };
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }));
      });
    });
    expect(await inspect(server.origin, { auth: { kind } })).toMatchObject({ outcome });
  });

  it.each([
    [404, 'not_mcp'],
    [410, 'not_mcp'],
    [500, 'unreachable'],
    [503, 'unreachable'],
  ])('whose handshake is refused in JSON-RPC with HTTP %i means %s', async (status, outcome) => {
    await using server = await listen((request, response) => {
      void readBody(request).then(({ message }) => {
        const error = { code: -32_001, message: 'Not found' };
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }));
      });
    });
    expect(await inspect(server.origin, { auth: { kind: 'unknown' } })).toMatchObject({
      outcome,
      reason: expect.stringContaining(String(status)),
    });
  });
});

describe('after the handshake', () => {
  it.each([
    ['a JSON-RPC error', { error: { code: -32_601, message: 'Method not found' } }],
    ['a list without tools', { result: {} }],
    ['a tool without a name', { result: { tools: [{}] } }],
  ])('%s in place of the tools means ok, as an MCP server is there', async (_what, answer) => {
    await using server = await listen((request, response) => {
      void readBody(request).then(({ message }) => {
        if (message.id === undefined) {
          response.writeHead(202).end();
          return;
        }
        const handshake = { result: { protocolVersion: '2025-06-18', capabilities: {}, serverInfo: {} } };
        const unknown = { error: { code: -32_601, message: 'Method not found' } };
        const given = { initialize: handshake, 'tools/list': answer }[message.method ?? ''] ?? unknown;
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...given }));
      });
    });
    const found = await inspect(server.origin);
    expect(found).toMatchObject({ outcome: 'ok' });
    expect(found.tools ?? []).toEqual([]);
  });
});

it('an inspection that is aborted rejects with the reason of the abort', async () => {
  await using server = await startChangeable('silent');
  const ending = new AbortController();
  const inspecting = proxy.inspect(at(server.url), ending.signal);
  await server.inbox.firstOf('server/discover');
  ending.abort(new Error('stopping'));
  await expect(inspecting).rejects.toThrow('stopping');
});
