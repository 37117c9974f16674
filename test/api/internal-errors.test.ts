import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/index.ts';
import { SCOPES } from '../../src/core/access/caller.ts';
import type { Core } from '../../src/core/core.ts';
import { createApp } from '../../src/api/http/app.ts';
import { systemClock } from '../../src/platform/time.ts';
import { createLog } from '../../src/platform/telemetry/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { exchange } from '../support/switchboard.ts';

/** The faces over a core that breaks in a way nobody foresaw: real ones do not do so on command. */
async function startBroken() {
  const lines: string[] = [];
  const log = createLog(
    'info',
    new Writable({ write: (chunk: Buffer, _e, done) => (lines.push(chunk.toString()), done()) }),
  );
  const fail = () => Promise.reject(new TypeError('the secret inside'));
  const core = {
    apiKeys: {
      authenticate: () => Promise.resolve({ tenantId: 'local', keyId: 'k', scopes: new Set(SCOPES) }),
      use: { spend: () => Promise.resolve(undefined) },
    },
    rateLimits: {
      spend: () => Promise.resolve(undefined),
      isSpent: () => Promise.resolve(false),
      requireUnspent: () => Promise.resolve(),
    },
    proxy: { call: fail, callTool: fail, callToolInteractively: fail, listTools: fail },
    identity: { credentials: { requireLive: () => Promise.resolve() } },
    search: { search: fail },
    catalogue: {},
    indexed: Promise.resolve(),
    readiness: () => ({ status: 'ready', degraded: [] }),
    metrics: new Metrics(),
  } as unknown as Core;
  const server = createServer(
    createApp({ core, config: readConfig({}).http, log, clock: systemClock, version: '0' }),
  );
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const post = (path: string, body: object, headers: Record<string, string> = {}) =>
    exchange(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': 'k', ...headers },
      body: JSON.stringify(body),
    });
  return { post, logged: () => lines.join(''), [Symbol.asyncDispose]: async () => void server.close() };
}

describe('an internal error', () => {
  it.each([
    ['/v1/search', { query: 'x' }],
    ['/v1/mcp/tools/list', { server_id: 'a' }],
    ['/v1/mcp/tools/call', { server_id: 'a', name: 't' }],
  ])('on %s is 500 and reveals only the request id, which finds it in the log', async (path, body) => {
    await using broken = await startBroken();
    const { status, json, text } = await broken.post(path, body);
    expect(status).toBe(500);
    expect(json).toMatchObject({ code: 'internal', status: 500 });
    expect(text).not.toContain('secret');
    const line =
      broken
        .logged()
        .split('\n')
        .find(one => one.includes('the secret inside')) ?? '{}';
    expect(JSON.parse(line).requestId).toBe(json.request_id);
  });

  it('on the generic call is -32603 [call.internal]', async () => {
    await using broken = await startBroken();
    const { status, json, text } = await broken.post('/v1/mcp/call', {
      server_id: 'a',
      method: 'tools/list',
      id: 3,
    });
    expect(status).toBe(500);
    expect(json).toMatchObject({
      code: 'internal',
      jsonrpc: '2.0',
      id: 3,
      error: { code: -32603, data: { reason: 'internal' } },
    });
    expect(text).not.toContain('secret');
  });

  it('on /mcp is a tool result that reveals nothing about it', async () => {
    await using broken = await startBroken();
    const { text } = await broken.post('/mcp', {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'search_servers', arguments: { query: 'x' } },
    });
    expect(text).toContain('"isError":true');
    expect(text).not.toContain('secret');
    expect(broken.logged()).toContain('the secret inside');
  });
});
