import type { IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { open } from '../../support/raw-http.ts';
import { listen, type Listening } from '../../support/upstreams/http.ts';
import { startHostile, type Hostile } from '../../support/upstreams/hostile.ts';
import { caller, startProxy, type Harness } from './harness.ts';

let upstream: Hostile;
let closing: Listening;
beforeAll(async () => {
  upstream = await startHostile({ era: 'modern', modes: { hang: () => {} } });
  closing = await listen((_request, response) => void response.destroy());
});
afterAll(() => Promise.all([upstream[Symbol.asyncDispose](), closing[Symbol.asyncDispose]()]));

/** One passed-through POST, over a real connection whose client reads the whole answer. */
async function pass(at: Harness, method: string, signal?: AbortSignal): Promise<number> {
  const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 1, method }));
  const request = {
    serverId: 's',
    method: 'POST',
    headers: { 'mcp-protocol-version': '2026-07-28' },
    body,
  } as const;
  let failure: unknown;
  await using front = await listen((_request, response) => {
    at.proxy.passThrough(caller(signal ? { signal } : {}), request, response).catch((error: unknown) => {
      failure = error;
      response.destroy();
    });
  });
  const answer = await open(front.origin, '/').catch(() => undefined as IncomingMessage | undefined);
  answer?.on('error', () => {}).resume();
  if (answer) await new Promise(resolve => answer.once('close', resolve));
  if (failure instanceof Error) throw failure;
  return answer?.statusCode ?? 0;
}

describe('what a passed-through request says of the server', () => {
  it.each(['tools/call', 'resources/read', 'prompts/get', 'completion/complete'])(
    '%s is a use, a good one with any 2xx',
    async method => {
      await using at = startProxy(upstream.url('ok'));
      expect(await pass(at, method)).toBe(200);
      expect(at.outcomes).toEqual([{ serverId: 's', tenantId: 'local', ok: true }]);
    },
  );

  it.each(['tools/list', 'server/discover', 'notifications/cancelled'])('%s is none', async method => {
    await using at = startProxy(upstream.url('ok'));
    await pass(at, method);
    expect(at.outcomes).toEqual([]);
  });

  it.each(['error-400', '500-html', '429', '401', '403', 'gzip'])('%s is a bad use', async mode => {
    await using at = startProxy(upstream.url(mode));
    await pass(at, 'tools/call').catch(() => {});
    expect(at.outcomes).toEqual([{ serverId: 's', tenantId: 'local', ok: false }]);
  });

  it('a broken connection is a bad use, a client that went away says nothing', async () => {
    await using broken = startProxy(closing.origin);
    await expect(pass(broken, 'tools/call')).rejects.toMatchObject({ code: 'upstream_unreachable' });
    expect(broken.outcomes).toMatchObject([{ ok: false }]);

    await using left = startProxy(upstream.url('hang'));
    const leave = new AbortController();
    const passing = pass(left, 'tools/call', leave.signal);
    await upstream.inbox.first(({ path }) => path === 'hang');
    leave.abort();
    await expect(passing).rejects.toThrow();
    expect(left.outcomes).toEqual([]);
  });

  it('a proxy that is closing refuses', async () => {
    const at = startProxy(upstream.url('ok'));
    await at.proxy.close();
    await expect(pass(at, 'tools/call')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('the total time ends what is not idle', async () => {
    await using dripping = await listen((_request, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write('x'), 20);
      response.once('close', () => clearInterval(timer));
    });
    await using at = startProxy(dripping.origin, { limits: { passTotalMs: 300 } });
    await expect(pass(at, 'tools/call')).rejects.toMatchObject({ code: 'upstream_timeout' });
  });
});
