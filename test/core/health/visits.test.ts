import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuthSpec, Server } from '../../../src/core/catalogue/entry.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';
import { Visits } from '../../../src/core/health/visits.ts';
import { systemClock } from '../../../src/platform/clock.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { startChangeable, type Conduct } from '../../support/upstreams/changeable.ts';
import { startEverything } from '../../support/upstreams/everything.ts';
import { listen, readBody, refusedPort } from '../../support/upstreams/http.ts';
import { startV1Server, startV1SseServer } from '../../support/upstreams/v1.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';

const endless = new AbortController().signal;

const visitsWith = (limits = {}, allowPrivateNetwork = true) =>
  new Visits({
    guard: new Guard({ allowPrivateNetwork, connectTimeoutMs: 5_000 }),
    clock: systemClock,
    log: createLog('silent'),
    limits,
  });

let visits: Visits;
beforeAll(() => void (visits = visitsWith()));
afterAll(() => visits.close());

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
const visit = (url: string, more: Partial<Server> = {}) => visits.visit(at(url, more), endless);
const namesOf = (tools: readonly { name: string }[] = []) => tools.map(({ name }) => name);

describe('a visit of a server that works', () => {
  it('of the stateless revision asks server/discover and tools/list, and nothing else', async () => {
    await using server = await startV2Server();
    const { verdict, latencyMs, tools, reason } = await visit(server.url);
    expect({ verdict, reason }).toEqual({ verdict: 'ok', reason: undefined });
    expect(latencyMs).toBeGreaterThanOrEqual(0);
    expect(namesOf(tools)).toEqual(['echo', 'region', 'fail', 'wait']);
    expect(server.inbox.methods()).toEqual(['server/discover', 'tools/list']);
  });

  it('with sessions makes the handshake, lists, and ends the session', async () => {
    await using server = await startV1Server();
    const { verdict, tools } = await visit(server.url);
    expect(verdict).toBe('ok');
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

  it('over HTTP+SSE lists, and leaves no stream open', async () => {
    await using server = await startV1SseServer();
    const { verdict, tools } = await visit(server.url);
    expect(verdict).toBe('ok');
    expect(namesOf(tools)).toContain('echo');
    while (server.sessionIds.length > 0) await new Promise(resolve => setImmediate(resolve));
  });

  it('is the same for the reference server', async () => {
    await using server = await startEverything();
    const { verdict, tools } = await visit(server.url);
    expect(verdict).toBe('ok');
    expect(namesOf(tools)).toContain('echo');
  });

  it('finds out anew each time how it is to be spoken to', async () => {
    await using server = await startV2Server();
    await visit(server.url);
    await visit(server.url);
    expect(server.inbox.count('server/discover')).toBe(2);
  });
});

describe('what fails is', () => {
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
  ])('answered with %s: %s', async (conduct, verdict) => {
    await using server = await startChangeable(conduct);
    const found = await visit(server.url);
    expect(found).toMatchObject({ verdict, reason: expect.stringMatching(/\.$/) });
    expect(found.latencyMs === undefined).toBe(verdict === 'unreachable');
    expect(server.inbox.count('tools/call')).toBe(0);
  });

  it.each(['not json', '{"jsonrpc":"2.0"', '[]', '{"jsonrpc":"2.0","id":"other","result":{}}'])(
    'broken JSON-RPC (%s): not_mcp',
    async body => {
      await using server = await listen((_request, response) => {
        response.writeHead(200, { 'content-type': 'application/json' }).end(body);
      });
      expect(await visit(server.origin)).toMatchObject({ verdict: 'not_mcp' });
    },
  );

  it('a closed port, and a name that leads nowhere: unreachable', async () => {
    expect(await visit(`http://127.0.0.1:${await refusedPort()}/`)).toMatchObject({ verdict: 'unreachable' });
    expect(await visit('https://nowhere.invalid/mcp')).toMatchObject({ verdict: 'unreachable' });
  });

  it('a server that never answers: unreachable, when its time is up', async () => {
    await using server = await startChangeable('silent');
    const impatient = visitsWith({ totalTimeoutMs: 50 });
    expect(await impatient.visit(at(server.url), endless)).toMatchObject({ verdict: 'unreachable' });
    await impatient.close();
  });

  it('an address that is not public: unreachable, and never asked', async () => {
    await using server = await startChangeable();
    const guarded = visitsWith({}, false);
    expect(await guarded.visit(at(server.url), endless)).toMatchObject({ verdict: 'unreachable' });
    await guarded.close();
    expect(server.inbox.all).toEqual([]);
  });

  it.each<[AuthSpec['kind'], string]>([
    ['none', 'not_mcp'],
    ['static_header', 'needs_sign_in'],
    ['unknown', 'needs_sign_in'],
  ])(
    'a handshake that is refused in JSON-RPC, by a server whose entry says %s: %s',
    async (kind, verdict) => {
      await using server = await listen((request, response) => {
        void readBody(request).then(({ message }) => {
          const error = { code: -32_001, message: 'Unauthorized' };
          response.writeHead(200, { 'content-type': 'application/json' });
          response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, error }));
        });
      });
      expect(await visit(server.origin, { auth: { kind } })).toMatchObject({ verdict });
    },
  );
});

describe('after the handshake', () => {
  it.each([
    ['a JSON-RPC error', { error: { code: -32_601, message: 'Method not found' } }],
    ['a list without tools', { result: {} }],
    ['a tool without a name', { result: { tools: [{}] } }],
  ])('%s in the place of the tools says that a server is there: ok', async (_what, answer) => {
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
    const found = await visit(server.origin);
    expect(found).toMatchObject({ verdict: 'ok' });
    expect(found.tools ?? []).toEqual([]);
  });
});

it('a visit that is ended says nothing of the server', async () => {
  await using server = await startChangeable('silent');
  const ending = new AbortController();
  const visiting = visits.visit(at(server.url), ending.signal);
  await server.inbox.firstOf('server/discover');
  ending.abort(new Error('stopping'));
  await expect(visiting).rejects.toThrow('stopping');
});
