import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { SwitchboardError } from '../../../src/errors.ts';
import type { Caller } from '../../../src/core/access/caller.ts';
import type { Credential } from '../../../src/core/identity/connections/holdings.ts';
import { startHostile, type Hostile, type HostileMode } from '../../support/upstreams/hostile.ts';
import { listen } from '../../support/upstreams/http.ts';
import { callerFor, credentialOf, failure, startProxy } from './harness.ts';

const OK = { content: [{ type: 'text', text: 'ok' }] };

/** Which account each user has connected just now, and whether a newer token can be had. */
class Accounts {
  readonly current = new Map<string, Credential>();
  renewable = true;
  asked = 0;
  readonly refused: Credential[] = [];

  connect(userId: string, connectionKey = `con-${userId}`, version = 1): this {
    this.current.set(userId, credentialOf(connectionKey, version));
    return this;
  }

  forCall = async ({ subject }: Caller): Promise<Credential | undefined> => {
    this.asked++;
    return this.current.get(subject?.userId ?? '');
  };

  renewAfterRefusal = async ({ subject }: Caller, _server: unknown, refused: Credential) => {
    this.refused.push(refused);
    if (!this.renewable) return undefined;
    this.connect(subject?.userId ?? '', refused.connectionKey, refused.version + 1);
    return this.current.get(subject?.userId ?? '');
  };
}

const callAs = (proxy: ReturnType<typeof startProxy>['proxy'], userId: string, more: Partial<Caller> = {}) =>
  proxy.callTool(callerFor(userId, more), { serverId: 's', name: 'a' });

const authorizations = (upstream: Hostile, method?: string) =>
  (method === undefined ? upstream.inbox.all : upstream.inbox.of(method)).map(
    ({ headers }) => headers.authorization,
  );

/** Refuses every token but these, whatever the method. */
const only = (accepted: () => readonly string[]) => {
  const guarded: HostileMode = call => {
    if (accepted().includes(call.request.headers.authorization ?? '')) call.result(OK);
    else call.json({ error: 'invalid_token' }, 401, { 'www-authenticate': 'Bearer error="invalid_token"' });
  };
  return guarded;
};

describe('a credential', () => {
  it('goes with every request of a call to a server of 2025-xx: probe, handshake, call, cancellation, end', async () => {
    await using upstream = await startHostile();
    const accounts = new Accounts().connect('u');
    await using harness = startProxy(upstream.url('hang'), { credentials: accounts });
    const { signal, abort } = abortable();
    const call = callAs(harness.proxy, 'u', { signal });
    await upstream.inbox.firstOf('tools/call');
    abort();
    await expect(call).rejects.toThrow(/disconnected/);
    await harness.proxy.close();
    expect(upstream.inbox.methods()).toEqual([
      'server/discover',
      'initialize',
      'notifications/initialized',
      'tools/call',
      'notifications/cancelled',
      'DELETE',
    ]);
    expect(new Set(authorizations(upstream))).toEqual(new Set(['Bearer con-u-1']));
  });

  it('goes with every request of a call to a server of 2026-07-28, and with the look-up of a schema', async () => {
    const inputSchema = { properties: { q: { type: 'string', 'x-mcp-header': 'Q' } } };
    await using upstream = await startHostile({
      era: 'modern',
      modes: {
        'tools/list': call => call.result({ tools: [{ name: 'a', inputSchema }] }),
        'tools/call': ({ message, json, request, result }) =>
          request.headers['mcp-param-q'] === undefined
            ? json({ jsonrpc: '2.0', id: message.id, error: { code: -32_020, message: 'headers' } }, 400)
            : result(OK),
      },
    });
    await using harness = startProxy(upstream.url('ok'), { credentials: new Accounts().connect('u') });
    const call = { serverId: 's', name: 'a', arguments: { q: 'x' } };
    expect(await harness.proxy.callTool(callerFor('u'), call)).toMatchObject(OK);
    expect(authorizations(upstream)).toEqual(Array(4).fill('Bearer con-u-1'));
  });

  it('is asked for once, also for many pages', async () => {
    const pages: HostileMode = ({ message, result }) => {
      const page = Number(message.params?.cursor ?? 0);
      result({ tools: [{ name: `t${page}` }], ...(page < 4 ? { nextCursor: String(page + 1) } : {}) });
    };
    await using upstream = await startHostile({ modes: { pages } });
    const accounts = new Accounts().connect('u');
    await using harness = startProxy(upstream.url('pages'), { credentials: accounts });
    const { tools } = await harness.proxy.listTools(callerFor('u'), { serverId: 's' });
    expect(tools).toHaveLength(5);
    expect(accounts.asked).toBe(1);
    expect(authorizations(upstream, 'tools/list')).toEqual(Array(5).fill('Bearer con-u-1'));
  });

  it('follows a redirect within the origin, and never to another one', async () => {
    await using target = await startHostile();
    await using upstream = await startHostile({
      modes: {
        moved: ({ response }) => void response.writeHead(308, { location: '/ok' }).end(),
        away: ({ response }) => void response.writeHead(308, { location: target.url('ok') }).end(),
      },
    });
    await using harness = startProxy(upstream.url('moved'), { credentials: new Accounts().connect('u') });
    expect(await callAs(harness.proxy, 'u')).toMatchObject(OK);
    expect(authorizations(upstream, 'tools/call')).toEqual(['Bearer con-u-1', 'Bearer con-u-1']);
    harness.catalogue('s', upstream.url('away'));
    expect(await failure(callAs(harness.proxy, 'u'))).toMatchObject({ code: 'upstream_blocked' });
    expect(target.inbox.all).toHaveLength(0);
  });

  it('is in no log line, error or outcome, however the call ends', async () => {
    await using upstream = await startHostile();
    const accounts = new Accounts().connect('u', 'con-canary');
    await using harness = startProxy(upstream.url('ok'), {
      credentials: accounts,
      limits: { totalTimeoutMs: 300 },
    });
    const errors: unknown[] = [];
    for (const mode of ['ok', '401', '403', '429', '500', 'hang', 'reset', 'garbage', 'not-json']) {
      harness.catalogue('s', upstream.url(mode));
      await callAs(harness.proxy, 'u').catch((error: unknown) => errors.push(error));
    }
    expect(errors.length).toBeGreaterThan(4);
    const told = inspect([harness.logged, harness.outcomes, errors], { depth: 10, maxStringLength: null });
    expect(told).not.toContain('con-canary');
  });
});

describe('sessions with upstreams', () => {
  it('belong to one connection: another account opens another one', async () => {
    await using upstream = await startHostile();
    const accounts = new Accounts().connect('u', 'con-1');
    await using harness = startProxy(upstream.url('ok'), { credentials: accounts });
    await callAs(harness.proxy, 'u');
    accounts.connect('u', 'con-2');
    await callAs(harness.proxy, 'u');
    expect(upstream.inbox.count('initialize')).toBe(2);
    const bySession = Map.groupBy(
      upstream.inbox.of('tools/call'),
      ({ headers }) => headers['mcp-session-id'],
    );
    expect([...bySession.values()].map(calls => calls.map(({ headers }) => headers.authorization))).toEqual([
      ['Bearer con-1-1'],
      ['Bearer con-2-1'],
    ]);
  });

  it('outlive a token: calls and side messages carry the newest one', async () => {
    await using upstream = await startHostile();
    const accounts = new Accounts().connect('u');
    await using harness = startProxy(upstream.url('ok'), { credentials: accounts });
    await callAs(harness.proxy, 'u');
    accounts.connect('u', 'con-u', 2);
    await callAs(harness.proxy, 'u');
    await harness.proxy.close();
    expect(upstream.inbox.count('initialize')).toBe(1);
    expect(authorizations(upstream, 'tools/call')).toEqual(['Bearer con-u-1', 'Bearer con-u-2']);
    expect(authorizations(upstream, 'DELETE')).toEqual(['Bearer con-u-2']);
  });
});

describe('a server that refuses the token', () => {
  it.each(['legacy', 'modern'] as const)('%s: is asked once more with a newer one', async era => {
    await using upstream = await startHostile({ era, modes: { guarded: only(() => ['Bearer con-u-2']) } });
    const accounts = new Accounts().connect('u');
    await using harness = startProxy(upstream.url('guarded'), { credentials: accounts });
    expect(await callAs(harness.proxy, 'u')).toMatchObject(OK);
    expect(authorizations(upstream, 'tools/call')).toEqual(['Bearer con-u-1', 'Bearer con-u-2']);
    expect(upstream.inbox.count('initialize')).toBe(era === 'legacy' ? 1 : 0);
    expect(harness.outcomes).toMatchObject([{ ok: true }]);
  });

  it.each(['server/discover', 'initialize'])(
    'is asked once more when it refuses the token at %s',
    async method => {
      const reply = only(() => ['Bearer con-u-2']);
      let refusals = 0;
      const guarded: HostileMode = call => {
        if (call.request.headers.authorization === 'Bearer con-u-1') {
          refusals++;
          reply(call);
        } else if (method === 'initialize')
          call.json(
            {
              jsonrpc: '2.0',
              id: call.message.id,
              result: {
                protocolVersion: '2025-06-18',
                capabilities: {},
                serverInfo: { name: 'x', version: '1' },
              },
            },
            200,
          );
        else call.response.writeHead(404).end();
      };
      await using upstream = await startHostile({ sessions: false, modes: { [method]: guarded } });
      await using harness = startProxy(upstream.url('ok'), { credentials: new Accounts().connect('u') });
      expect(await callAs(harness.proxy, 'u')).toMatchObject(OK);
      expect(refusals).toBe(1);
      expect(authorizations(upstream, 'tools/call')).toEqual(['Bearer con-u-2']);
    },
  );

  it('is not asked a third time, and not again without a newer one', async () => {
    await using upstream = await startHostile({ modes: { guarded: only(() => []) } });
    const accounts = new Accounts().connect('u');
    await using harness = startProxy(upstream.url('guarded'), { credentials: accounts });
    expect(await failure(callAs(harness.proxy, 'u'))).toMatchObject({ code: 'upstream_unauthorized' });
    expect(upstream.inbox.count('tools/call')).toBe(2);
    // The second refusal may be one that the user must be told of.
    expect(accounts.refused).toHaveLength(2);
    accounts.renewable = false;
    expect(await failure(callAs(harness.proxy, 'u'))).toMatchObject({ code: 'upstream_unauthorized' });
    expect(upstream.inbox.count('tools/call')).toBe(3);
    expect(harness.outcomes).toEqual([]);
  });

  it('page after page is asked once more in all', async () => {
    let pages = 0;
    const accounts = new Accounts().connect('u');
    await using upstream = await startHostile({
      modes: {
        // Every second request is refused, whatever it carries.
        picky: ({ json, result }) =>
          ++pages % 2 === 1 ? json({}, 401) : result({ tools: [], nextCursor: `${pages}` }),
      },
    });
    await using harness = startProxy(upstream.url('picky'), { credentials: accounts });
    const listing = harness.proxy.listTools(callerFor('u'), { serverId: 's' });
    expect(await failure(listing)).toMatchObject({ code: 'upstream_unauthorized' });
    expect(accounts.refused).toHaveLength(2);
    expect(pages).toBe(3);
  });

  it('does so for one user: another one`s first call at the same time is not refused with it', async () => {
    const { promise: bothAsk, resolve: bothAsked } = Promise.withResolvers<void>();
    let probes = 0;
    await using upstream = await startHostile({
      modes: {
        'server/discover': call => {
          if (++probes === 2) bothAsked();
          void bothAsk.then(() => {
            if (call.request.headers.authorization === 'Bearer con-bad-1') call.json({}, 401);
            else call.json({}, 404);
          });
        },
      },
    });
    const accounts = new Accounts().connect('bad').connect('good');
    accounts.renewable = false;
    await using harness = startProxy(upstream.url('ok'), { credentials: accounts });
    const [bad, good] = await Promise.all([
      failure(callAs(harness.proxy, 'bad')),
      callAs(harness.proxy, 'good'),
    ]);
    expect(bad.code).toBe('upstream_unauthorized');
    expect(good).toMatchObject(OK);
  });
});

describe('a call that may not be made', () => {
  it.each([
    'identity_token_required',
    'identity_token_invalid',
    'connection_required',
    'provider_not_configured',
    'provider_unavailable',
  ] as const)('%s: nothing goes upstream, and the server is not blamed', async code => {
    await using upstream = await startHostile();
    const refusal = new SwitchboardError(code, 'no');
    const credentials = {
      forCall: () => Promise.reject(refusal),
      renewAfterRefusal: () => Promise.reject(refusal),
    };
    await using harness = startProxy(upstream.url('ok'), { credentials });
    await expect(callAs(harness.proxy, 'u')).rejects.toBe(refusal);
    expect(upstream.inbox.all).toHaveLength(0);
    expect(harness.outcomes).toEqual([]);
    expect(harness.logged).toMatchObject([{ msg: 'proxied call refused', code }]);
  });

  it('because the user must sign in again, as a refused token shows: neither is the server blamed', async () => {
    await using upstream = await startHostile({ modes: { guarded: only(() => []) } });
    const credentials = {
      forCall: () => Promise.resolve(credentialOf('con-u')),
      renewAfterRefusal: () => Promise.reject(new SwitchboardError('connection_required', 'again')),
    };
    await using harness = startProxy(upstream.url('guarded'), { credentials });
    expect(await failure(callAs(harness.proxy, 'u'))).toMatchObject({ code: 'connection_required' });
    expect(harness.outcomes).toEqual([]);
  });

  it('is not made if its caller disconnects while the provider is called', async () => {
    await using listening = await listen(() => {});
    const { signal, abort } = abortable();
    const never = new Promise<never>(() => {});
    const credentials = { forCall: () => never, renewAfterRefusal: () => never };
    await using harness = startProxy(`${listening.origin}/mcp`, { credentials });
    const call = callAs(harness.proxy, 'u', { signal });
    abort();
    await expect(call).rejects.toThrow(/disconnected/);
  });
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}
