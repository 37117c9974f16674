import { describe, expect, it } from 'vitest';
import { SwitchboardError } from '../../../src/errors.ts';
import type { Caller } from '../../../src/core/access/caller.ts';
import type { ProxyOptions } from '../../../src/core/proxy/proxy.ts';
import { startHostile, type Hostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { refusedPort } from '../../support/upstreams/http.ts';
import { caller, callerFor, failure, startProxy, type Harness } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

const callAs = (harness: Harness, who: Partial<Caller> = {}) =>
  harness.proxy.callTool(caller(who), { serverId: 's', name: 'a' });

async function failTimes(harness: Harness, times: number, who: Partial<Caller> = {}): Promise<string[]> {
  const codes: string[] = [];
  for (let i = 0; i < times; i++) codes.push((await failure(callAs(harness, who))).code);
  return codes;
}

/** A server whose mode can be changed on the way, at one URL. */
async function startChangeable(first: HostileMode | string = 'ok') {
  let mode = first;
  const upstream: Hostile = await startHostile({
    sessions: false,
    modes: {
      m: call => {
        if (typeof mode === 'function') mode(call);
        else if (mode === 'ok') call.result(OK);
        else call.response.writeHead(Number(mode)).end();
      },
    },
  });
  return {
    upstream,
    url: upstream.url('m'),
    become: (next: HostileMode | string) => void (mode = next),
    calls: () => upstream.inbox.count('tools/call'),
    [Symbol.asyncDispose]: () => upstream[Symbol.asyncDispose](),
  };
}

const hang: HostileMode = () => {};

const limited =
  (status: number, retryAfter: string): HostileMode =>
  call =>
    void call.response.writeHead(status, { 'retry-after': retryAfter }).end();

const linesOf = (harness: Harness, text: RegExp) =>
  harness.logged.filter(line => typeof line['msg'] === 'string' && text.test(line['msg']));

describe('a process without file descriptors', () => {
  it('says so, warns once, and holds it against no server', async () => {
    await using server = await startChangeable('ok');
    const noFiles = Object.assign(new Error('getaddrinfo EMFILE'), { code: 'EMFILE' });
    let isOut = true;
    await using harness = startProxy(server.url.replace('127.0.0.1', 'name.test'), {
      resolve: (_name, done) =>
        isOut ? done(noFiles, []) : done(null, [{ address: '127.0.0.1', family: 4 }]),
    });
    for (let call = 0; call < 10; call++)
      expect(await failure(callAs(harness))).toMatchObject({
        code: 'unavailable',
        status: 503,
        detail: expect.stringMatching(/^Switchboard has run out of file descriptors.* Nothing was sent\./),
      });
    expect(linesOf(harness, /ulimit -n/)).toMatchObject([{ level: 40, reason: 'getaddrinfo EMFILE' }]);
    expect(harness.outcomes).toEqual([]);
    isOut = false;
    expect(await callAs(harness)).toMatchObject(OK);
  });
});

describe('a server that fails again and again', () => {
  it('is not asked for 5 s after five failures, then by one call at a time, and again by all once that succeeds', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 5);
    const refused = await failure(callAs(harness));
    expect(refused).toMatchObject({
      code: 'upstream_unavailable',
      status: 502,
      retryable: true,
      retryAfterSec: 5,
    });
    expect(refused.detail).toMatch(
      /failed repeatedly, last with upstream_http_error, .* Try again in 5 s\.$/,
    );
    expect(server.calls()).toBe(5);

    harness.clock.advance(5_000);
    const asked = Promise.withResolvers<() => void>();
    server.become(call => asked.resolve(() => call.result(OK)));
    const probe = callAs(harness);
    const answer = await asked.promise;
    expect(await failTimes(harness, 3)).toEqual(Array(3).fill('upstream_unavailable'));
    server.become('ok');
    answer();
    expect(await probe).toMatchObject(OK);
    expect(await Promise.all([1, 2, 3].map(() => callAs(harness)))).toHaveLength(3);
    expect(server.calls()).toBe(9);
    const [closed, ...again] = linesOf(harness, /failed repeatedly/);
    const [open, ...others] = linesOf(harness, /answers again/);
    expect([...again, ...others]).toEqual([]);
    // Many servers share an origin: the operator is told which one it is.
    for (const line of [closed, open])
      expect(line).toMatchObject({ serverId: 's', url: new URL(server.url).origin, tenantId: 'local' });
  });

  it('a refused call does not count as usage: nothing is reported', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 8);
    expect(harness.outcomes).toHaveLength(5);
  });

  it('a probe whose caller disconnects leaves its place to the next call', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 5);
    harness.clock.advance(5_000);
    server.become(hang);
    const leaving = new AbortController();
    const probe = callAs(harness, { signal: leaving.signal });
    await server.upstream.inbox.first(() => server.calls() === 6);
    leaving.abort();
    await expect(probe).rejects.toMatchObject({ name: 'AbortError' });
    server.become('ok');
    expect(await callAs(harness)).toMatchObject(OK);
    expect(await callAs(harness)).toMatchObject(OK);
  });

  it('a probe that is refused before it goes out (no connection of the user) leaves its place, too', async () => {
    let refuse = false;
    const credentials: ProxyOptions['credentials'] = {
      forCall: () =>
        refuse
          ? Promise.reject(new SwitchboardError('connection_required', 'Connect an account first.'))
          : Promise.resolve(undefined),
      renewAfterRefusal: () => Promise.resolve(undefined),
    };
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url, { credentials });
    await failTimes(harness, 5);
    harness.clock.advance(5_000);
    refuse = true;
    expect(await failTimes(harness, 2)).toEqual(Array(2).fill('connection_required'));
    refuse = false;
    server.become('ok');
    expect(await callAs(harness)).toMatchObject(OK);
  });

  it('listings count and are refused as calls are', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    const list = () => failure(harness.proxy.listTools(caller(), { serverId: 's' }));
    for (let i = 0; i < 5; i++) expect((await list()).code).toBe('upstream_http_error');
    expect((await list()).code).toBe('upstream_unavailable');
    expect(await failTimes(harness, 1)).toEqual(['upstream_unavailable']);
    const generic = harness.proxy.call(caller(), { serverId: 's', method: 'prompts/list' });
    expect((await failure(generic)).code).toBe('upstream_unavailable');
  });

  it('is closed only to the tenant that may have caused the failures', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 6, { tenantId: 'a' });
    server.become('ok');
    expect(await callAs(harness, { tenantId: 'b' })).toMatchObject(OK);
    expect(await failTimes(harness, 1, { tenantId: 'a' })).toEqual(['upstream_unavailable']);
  });

  it.each([
    ['refuses connections', async () => `http://127.0.0.1:${await refusedPort()}/mcp`],
    ['has a name that does not resolve', () => 'http://nowhere.test/mcp'],
  ])('one that %s is closed to everybody', async (_name, url) => {
    await using harness = startProxy(await url(), {
      resolve: (_host, done) => done(Object.assign(new Error('no such host'), { code: 'ENOTFOUND' }), []),
    });
    expect(await failTimes(harness, 5, { tenantId: 'a' })).toEqual(Array(5).fill('upstream_unreachable'));
    expect(await failTimes(harness, 1, { tenantId: 'b' })).toEqual(['upstream_unavailable']);
  });

  it('does not close another server of the same origin', async () => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 6);
    harness.catalogue('other', server.upstream.url('ok'));
    const call = harness.proxy.callTool(caller(), { serverId: 'other', name: 'a' });
    expect(await call).toMatchObject(OK);
  });

  it.each([
    ['by the limit', {}],
    ['after most of it', { timeoutMs: 800 }],
  ])('calls that time out %s count', async (_name, who) => {
    await using server = await startChangeable();
    await using harness = startProxy(server.url, { limits: { totalTimeoutMs: 1_000 } });
    await callAs(harness);
    server.become(hang);
    const errors = await Promise.all([1, 2, 3, 4, 5].map(() => failure(callAs(harness, who))));
    expect(errors.map(error => error.code)).toEqual(Array(5).fill('upstream_timeout'));
    expect(await failTimes(harness, 1)).toEqual(['upstream_unavailable']);
  });
});

describe('failures that do not count against a server', () => {
  const twenty = Array.from({ length: 20 });

  it.each(['401', '403', '404', '429'])('HTTP %s', async status => {
    await using server = await startChangeable(status);
    await using harness = startProxy(server.url);
    const codes = await failTimes(harness, 20);
    expect(new Set(codes).size).toBe(1);
    expect(codes[0]).not.toBe('upstream_unavailable');
    expect(server.calls()).toBe(20);
  });

  it('JSON-RPC errors', async () => {
    await using server = await startChangeable(call =>
      call.json({ jsonrpc: '2.0', id: call.message.id, error: { code: -32_602, message: 'no' } }),
    );
    await using harness = startProxy(server.url);
    expect(await failTimes(harness, 20)).toEqual(twenty.map(() => 'upstream_error'));
  });

  it('callers that go away', async () => {
    await using server = await startChangeable();
    await using harness = startProxy(server.url);
    await callAs(harness);
    server.become(hang);
    const leaving = new AbortController();
    const calls = twenty.map(() => callAs(harness, { signal: leaving.signal }));
    await server.upstream.inbox.first(() => server.calls() === 21);
    leaving.abort();
    await Promise.allSettled(calls);
    server.become('ok');
    expect(await callAs(harness)).toMatchObject(OK);
  });

  it('a time-out that the caller made much shorter', async () => {
    await using server = await startChangeable();
    await using harness = startProxy(server.url);
    await callAs(harness);
    server.become(hang);
    const errors = await Promise.all(twenty.map(() => failure(callAs(harness, { timeoutMs: 100 }))));
    expect(new Set(errors.map(error => error.code))).toEqual(new Set(['upstream_timeout']));
    server.become('ok');
    expect(await callAs(harness)).toMatchObject(OK);
  });

  it('addresses the outbound guard refuses', async () => {
    await using harness = startProxy('http://169.254.169.254/mcp');
    expect(await failTimes(harness, 20)).toEqual(twenty.map(() => 'upstream_blocked'));
  });
});

describe('Retry-After', () => {
  it('of HTTP 429: the user’s calls wait for the rest of the time; another user’s and tenant’s go on', async () => {
    await using server = await startChangeable(limited(429, '30'));
    await using harness = startProxy(server.url);
    const anna = callerFor('anna');
    expect(await failure(callAs(harness, anna))).toMatchObject({ retryAfterSec: 30 });
    server.become('ok');
    harness.clock.advance(10_000);
    const refused = await failure(callAs(harness, anna));
    expect(refused).toMatchObject({ code: 'upstream_rate_limited', retryAfterSec: 20, retryable: true });
    expect(refused.detail).toMatch(/Try again in 20 s\.$/);
    expect(server.calls()).toBe(1);
    for (const other of [callerFor('bert'), caller(), callerFor('anna', { tenantId: 'other' })])
      expect(await callAs(harness, other)).toMatchObject(OK);
    harness.clock.advance(20_000);
    expect(await callAs(harness, anna)).toMatchObject(OK);
    expect(harness.outcomes.filter(({ ok }) => !ok)).toEqual([]);
  });

  it('of HTTP 503: the tenant it was said to waits, and no other', async () => {
    await using server = await startChangeable(limited(503, '30'));
    await using harness = startProxy(server.url);
    const first = await failure(callAs(harness, { tenantId: 'a' }));
    expect(first).toMatchObject({ code: 'upstream_unavailable', retryAfterSec: 30, retryable: true });
    expect(first.detail).toMatch(/HTTP 503/);
    server.become('ok');
    harness.clock.advance(29_001);
    expect(await failure(callAs(harness, callerFor('anna', { tenantId: 'a' })))).toMatchObject({
      code: 'upstream_unavailable',
      retryAfterSec: 1,
    });
    expect(await callAs(harness, { tenantId: 'b' })).toMatchObject(OK);
    harness.clock.advance(1_000);
    expect(await callAs(harness, { tenantId: 'a' })).toMatchObject(OK);
  });

  it.each([
    [429, 'seconds', '86400', 300],
    [429, 'a date', 'Sun, 22 Nov 2026 00:00:00 GMT', 300],
    [503, 'seconds', '86400', 60],
    [503, 'a date', 'Sun, 22 Nov 2026 00:00:00 GMT', 60],
    [429, 'a date', 'Sat, 21 Nov 2026 00:00:07 GMT', 7],
    [503, 'a date', 'Sat, 21 Nov 2026 00:00:07 GMT', 7],
  ])('HTTP %i with %s (%s) blocks calls for %i s', async (status, _form, retryAfter, waitSec) => {
    await using server = await startChangeable(limited(status, retryAfter));
    await using harness = startProxy(server.url);
    await failure(callAs(harness));
    server.become('ok');
    harness.clock.advance(waitSec * 1_000 - 1);
    expect(await failure(callAs(harness))).toMatchObject({ retryAfterSec: 1 });
    harness.clock.advance(1);
    expect(await callAs(harness)).toMatchObject(OK);
  });

  it.each(['0', '-5', 'soon', '', 'Fri, 20 Nov 2026 00:00:00 GMT'])(
    'that is past or invalid (%j) blocks nothing',
    async retryAfter => {
      await using server = await startChangeable(limited(429, retryAfter));
      await using harness = startProxy(server.url);
      await failure(callAs(harness));
      server.become('ok');
      expect(await callAs(harness)).toMatchObject(OK);
    },
  );
});

describe('a clock that is set', () => {
  const HOUR_MS = 3_600_000;

  it.each([-HOUR_MS, HOUR_MS])('by %i ms does not change how long a circuit stays open', async byMs => {
    await using server = await startChangeable('500');
    await using harness = startProxy(server.url);
    await failTimes(harness, 5);
    harness.clock.setWrongBy(byMs);
    expect(await failure(callAs(harness))).toMatchObject({ retryAfterSec: 5 });
    server.become('ok');
    harness.clock.advance(5_000);
    expect(await callAs(harness)).toMatchObject(OK);
    server.become('500');
    harness.clock.setWrongBy(0);
    await failTimes(harness, 5);
    expect(await failure(callAs(harness))).toMatchObject({ code: 'upstream_unavailable', retryAfterSec: 5 });
  });

  it.each([-HOUR_MS, HOUR_MS])('by %i ms does not change how long a Retry-After holds', async byMs => {
    await using server = await startChangeable(limited(429, '30'));
    await using harness = startProxy(server.url);
    await failure(callAs(harness));
    server.become('ok');
    harness.clock.setWrongBy(byMs);
    expect(await failure(callAs(harness))).toMatchObject({ retryAfterSec: 30 });
    harness.clock.advance(30_000);
    expect(await callAs(harness)).toMatchObject(OK);
  });
});

describe('turns', () => {
  it('one tenant’s hanging calls do not keep another tenant out', async () => {
    await using server = await startChangeable();
    await using harness = startProxy(server.url, { limits: { connectionsPerOrigin: 4 } });
    await callAs(harness);
    server.become(call => (call.message.params?.name === 'hang' ? undefined : call.result(OK)));
    const leaving = new AbortController();
    const who = caller({ tenantId: 'greedy', signal: leaving.signal });
    const hanging = Array.from({ length: 20 }, () =>
      harness.proxy.callTool(who, { serverId: 's', name: 'hang' }),
    );
    await server.upstream.inbox.first(() => server.calls() === 5);
    for (let i = 0; i < 10; i++) expect(await callAs(harness, { tenantId: 'other' })).toMatchObject(OK);
    expect(server.calls()).toBe(15);
    leaving.abort();
    await Promise.allSettled(hanging);
  });
});
