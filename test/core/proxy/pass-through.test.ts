import type { IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PassedRequest } from '../../../src/core/proxy/pass-through.ts';
import { open } from '../../support/raw-http.ts';
import { listen, type Listening } from '../../support/upstreams/http.ts';
import { startHostile, type Hostile } from '../../support/upstreams/hostile.ts';
import { startHttpSse } from '../../support/upstreams/http-sse.ts';
import { bearer, caller, failure, startProxy, type Harness } from './harness.ts';

let upstream: Hostile;
let closing: Listening;
beforeAll(async () => {
  upstream = await startHostile({ era: 'modern', modes: { hang: () => {} } });
  closing = await listen((_request, response) => void response.destroy());
});
afterAll(() => Promise.all([upstream[Symbol.asyncDispose](), closing[Symbol.asyncDispose]()]));

const message = (method: string) => JSON.stringify({ jsonrpc: '2.0', id: 1, method });

/** One passed-through POST. */
const pass = (at: Harness, method: string, signal?: AbortSignal) =>
  passRequest(at, { method: 'POST', body: Buffer.from(message(method)) }, signal);

/** One passed-through request, over a real connection whose client reads the whole answer. */
async function passRequest(
  at: Harness,
  asked: Pick<PassedRequest, 'method' | 'body'>,
  signal?: AbortSignal,
): Promise<number> {
  const request = { serverId: 's', headers: { 'mcp-protocol-version': '2026-07-28' }, ...asked };
  let thrown: unknown;
  await using front = await listen((_request, response) => {
    at.proxy.passThrough(caller(signal ? { signal } : {}), request, response).catch((error: unknown) => {
      thrown = error;
      response.destroy();
    });
  });
  const answer = await open(front.origin, '/').catch(() => undefined as IncomingMessage | undefined);
  answer?.on('error', () => {}).resume();
  if (answer) await new Promise(resolve => answer.once('close', resolve));
  if (thrown instanceof Error) throw thrown;
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

  it.each(['error-400', '429', '401', '403'])('%s says nothing about the server', async mode => {
    await using at = startProxy(upstream.url(mode));
    await pass(at, 'tools/call').catch(() => {});
    expect(at.outcomes).toEqual([]);
  });

  it.each(['500-html', 'html-200', 'no-type', 'gzip'])('%s is a bad use', async mode => {
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
      response.writeHead(200, { 'content-type': 'application/json' });
      const timer = setInterval(() => response.write('x'), 20);
      response.once('close', () => clearInterval(timer));
    });
    await using at = startProxy(dripping.origin, { limits: { passTotalMs: 300 } });
    await expect(pass(at, 'tools/call')).rejects.toMatchObject({ code: 'upstream_timeout' });
  });
});

describe('a request that was sent without a response', () => {
  it.each([
    ['tools/list', message('tools/list'), true],
    ['initialize', message('initialize'), true],
    ['server/discover', message('server/discover'), true],
    ['prompts/get', message('prompts/get'), true],
    ['tools/call', message('tools/call'), false],
    ['a method of its own', message('x/y'), false],
    ['a batch', `[${message('tools/call')}]`, false],
    ['what is no JSON', '{', false],
  ])('%s: can be sent again unseen where it changes nothing', async (_what, body, retryable) => {
    await using at = startProxy(closing.origin);
    const passing = passRequest(at, { method: 'POST', body: Buffer.from(body) });
    await expect(passing).rejects.toMatchObject({
      code: 'upstream_unreachable',
      retryable,
      message: retryable ? expect.not.stringMatching('may have run') : expect.stringMatching('may have run'),
    });
  });

  it.each(['GET', 'DELETE'] as const)('a %s too', async method => {
    await using at = startProxy(closing.origin);
    await expect(passRequest(at, { method })).rejects.toMatchObject({ retryable: true });
  });

  it('neither can one that took too long', async () => {
    await using total = startProxy(upstream.url('hang'), { limits: { passTotalMs: 300 } });
    await using idle = startProxy(upstream.url('hang'), { limits: { passIdleMs: 300 } });
    for (const at of [total, idle]) {
      await expect(pass(at, 'tools/call')).rejects.toMatchObject({
        code: 'upstream_timeout',
        retryable: false,
        message: expect.stringMatching('the call may have run'),
        timeLimitMs: 300,
      });
    }
  });

  it('what was never written can be sent again', async () => {
    await using at = startProxy(upstream.url('hang'), {
      limits: { passTotalMs: 300 },
      credentials: {
        forCall: () => new Promise(() => {}),
        renewAfterRefusal: () => Promise.resolve(undefined),
      },
    });
    await expect(pass(at, 'tools/call')).rejects.toMatchObject({ code: 'upstream_timeout', retryable: true });
  });
});

describe('a server that refuses access', () => {
  const token = `ya29.${'t'.repeat(2_000)}`;
  const credentials = {
    forCall: () => Promise.resolve(bearer(token)),
    renewAfterRefusal: () => Promise.resolve(undefined),
  };

  it.each([
    ['text/plain', `no access with ${token}`, 'no access with [redacted]'],
    ['application/json', JSON.stringify({ error: 'x'.repeat(180), token }), '"token"'],
  ])('in %s is quoted without the token it repeats, however long that is', async (type, body, quoted) => {
    await using refusing = await startHostile({
      era: 'modern',
      modes: { m: ({ response }) => void response.writeHead(403, { 'content-type': type }).end(body) },
    });
    await using at = startProxy(refusing.url('m'), { credentials });
    const error = await failure(pass(at, 'tools/call'));
    expect(error).toMatchObject({ code: 'upstream_forbidden', detail: expect.stringContaining(quoted) });
    expect(error.detail).not.toMatch(/ya29|ttt/);
  });
});

describe('a server that has turned out to speak HTTP+SSE', () => {
  it('is refused with the other ways, and its GET stream does not give out an endpoint', async () => {
    await using old = await startHttpSse();
    await using at = startProxy(old.url);
    // Nothing is known of it yet.
    await expect(pass(at, 'tools/list')).rejects.toMatchObject({
      code: 'upstream_http_error',
      httpStatus: 405,
      message: expect.stringMatching('supports only the old'),
    });
    await at.proxy.call(caller(), { serverId: 's', method: 'tools/list' });
    const before = old.inbox.all.length;
    for (const asked of [
      { method: 'POST', body: Buffer.from(message('tools/list')) },
      { method: 'GET' },
    ] as const) {
      await expect(passRequest(at, asked)).rejects.toMatchObject({
        code: 'upstream_protocol',
        retryable: false,
        message: expect.stringMatching('uses the old .* POST /v1/mcp/call, or with call_remote_tool at /mcp'),
      });
    }
    expect(old.inbox.all).toHaveLength(before);
  });
});
