import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import type { IdTokenRewrite } from '../../support/identity-provider-faults.ts';
import { closeNow } from '../../support/close-now.ts';
import { startIdentityProvider } from '../../support/identity-provider.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

const LIMITS = { SWITCHBOARD_RATE_LIMIT: 'refresh=100000/60,sessions=100000/60' };

/** What only a caller or a provider can do wrong on the way from the callback to the tokens. */
describe.each(DATABASES)('the exchange on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('with one provider', () => {
    let sb: IdentityUnderTest;
    let users = 0;
    beforeAll(async () => void (sb = await startIdentity({ database: kind, env: LIMITS })));
    afterAll(() => sb[Symbol.asyncDispose]());

    const begin = async () => {
      const user = `user-${++users}`;
      const { json } = await sb.createSession(user);
      const callback = await sb.authorize(json.auth_url, { login: user });
      return { user, sessionId: json.session_id as string, callback: new URL(callback) };
    };
    const visit = (url: URL) => fetch(url, { redirect: 'manual' });
    /** The session ends in this error, is delivered once, and there is no connection. */
    const expectError = async ({ user, sessionId }: { user: string; sessionId: string }, error: string) => {
      const polled = await sb.poll(sessionId);
      expect(polled.json).toEqual({
        status: 'error',
        error: expect.stringMatching(new RegExp(`^${error}: `)),
      });
      expect((await sb.poll(sessionId)).status).toBe(410);
      expect((await sb.get(`/v1/identity/connections?user_id=${user}`)).json).toEqual({ connections: [] });
    };

    const expectRefused = async (rewriteIdToken: IdTokenRewrite) => {
      const session = await begin();
      sb.idp.faults.token = { rewriteIdToken };
      await visit(session.callback);
      sb.idp.faults.token = {};
      await expectError(session, 'exchange_failed');
    };

    it("39: a victim's code in an attacker's session fails, for PKCE", async () => {
      const [attacker, victim] = [await begin(), await begin()];
      victim.callback.searchParams.set('state', attacker.callback.searchParams.get('state') ?? '');
      await visit(victim.callback);
      await expectError(attacker, 'exchange_failed');
    });

    it.each<IdTokenRewrite>([
      'wrong-nonce',
      'alg-none',
      'other-key',
      'wrong-audience',
      'expired',
      'empty-sub',
    ])('40: an id_token with %s fails', expectRefused);

    it.each<IdTokenRewrite>(['clock-ahead', 'clock-behind'])(
      '102: a provider whose clock is 10 minutes off (%s) is an error',
      expectRefused,
    );

    it('41: a code that was used before fails in another session', async () => {
      const first = await begin();
      const second = await begin();
      await visit(first.callback);
      second.callback.searchParams.set('code', first.callback.searchParams.get('code') ?? '');
      await visit(second.callback);
      await expectError(second, 'exchange_failed');
    });

    it.each([
      ['500', { status: 500 }],
      ['no answer', { hang: true }],
      ['HTML', { html: true }],
      ['10 MB', { tooLarge: true }],
      ['cut JSON', { truncated: true }],
      ['no access_token', { omitAccessToken: true }],
    ])(
      '44: a token endpoint that answers with %s is exchange_failed within seconds',
      async (_what, fault) => {
        const session = await begin();
        sb.idp.faults.token = fault;
        const startedAt = performance.now();
        const { status } = await visit(session.callback);
        expect(performance.now() - startedAt).toBeLessThan(20_000);
        sb.idp.faults.token = {};
        expect(status).toBe(303);
        await expectError(session, 'exchange_failed');
      },
    );

    it("48: another tenant's poll is 404 and takes nothing [identity.sessions.poll]", async () => {
      const session = await begin();
      await visit(session.callback);
      expect((await sb.poll(session.sessionId, { 'x-api-key': sb.otherKey })).status).toBe(404);
      expect((await sb.poll(session.sessionId)).json).toEqual({ status: 'complete' });
    });

    it('49: of 50 polls at once one is told, the others are 410 [identity.sessions.single-use]', async () => {
      const session = await begin();
      await visit(session.callback);
      const answers = await Promise.all(Array.from({ length: 50 }, () => sb.poll(session.sessionId)));
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      expect(answers.filter(({ status }) => status === 410)).toHaveLength(49);
    });

    it('HEAD at a session is 405 and takes nothing', async () => {
      const session = await begin();
      await visit(session.callback);
      const headers = { 'x-api-key': sb.key };
      const head = await fetch(`${sb.url}/v1/identity/sessions/${session.sessionId}`, {
        method: 'HEAD',
        headers,
      });
      expect([head.status, head.headers.get('allow')]).toEqual([405, 'GET']);
      expect((await sb.poll(session.sessionId)).json).toEqual({ status: 'complete' });
    });

    it('an unknown or malformed session id is 404', async () => {
      for (const id of ['x', `ses_${'A'.repeat(43)}`, '%00', 'a'.repeat(10_000)]) {
        expect((await sb.poll(id)).status).toBe(404);
      }
    });

    it('polling too fast is 429', async () => {
      const { sessionId } = await begin();
      const answers = await Promise.all(Array.from({ length: 80 }, () => sb.poll(sessionId)));
      expect(
        answers.some(({ status, headers }) => status === 429 && Number(headers.get('retry-after')) > 0),
      ).toBe(true);
    });

    it('narrower scopes than asked for are stored as granted', async () => {
      const { user, callback } = await begin();
      sb.idp.faults.token = { narrowScope: 'openid email' };
      await visit(callback);
      sb.idp.faults.token = {};
      const { json } = await sb.get(`/v1/identity/connections?user_id=${user}`);
      expect(json.connections).toMatchObject([
        { scopes: ['openid', 'email'], account: `${user}@example.test` },
      ]);
    });
  });

  it.skipIf(skipped)(
    '101: metadata that point into other networks, or to files, are never asked',
    async () => {
      const hosts = [
        'http://169.254.169.254/token',
        'file:///etc/passwd',
        'http://[fe80::1]/token',
        'ftp://127.0.0.1/',
      ];
      for (const token_endpoint of hosts) {
        await using sb = await startIdentity({ database: kind });
        sb.idp.faults.discovery = { metadata: { token_endpoint } };
        const { status, json } = await sb.createSession('user');
        expect(status).toBe(200);
        const callback = await sb.authorize(json.auth_url);
        await fetch(callback, { redirect: 'manual' });
        expect((await sb.poll(json.session_id)).json.error).toMatch(/^exchange_failed/);
        expect(await rows(sb.db, sql`select id from connections`)).toEqual([]);
      }
    },
  );
});

describe('a plain OAuth provider', () => {
  /** Two sign-ins of one user, with two accounts; the second must not change the account. */
  const twice = async (hasUserinfo: boolean) => {
    await using idp = await startIdentityProvider();
    let account = '';
    const userinfo = createServer((_request, response) => void response.end(JSON.stringify({ id: account })));
    await new Promise<void>(resolve => void userinfo.listen(0, '127.0.0.1', resolve));
    const userinfo_endpoint = `http://127.0.0.1:${(userinfo.address() as AddressInfo).port}/`;
    await using sb = await startIdentity({
      providers: {
        plain: {
          client_id: idp.clientId,
          client_secret: idp.clientSecret,
          scopes: ['calendar.read'],
          authorization_endpoint: `${idp.issuer}/auth`,
          token_endpoint: `${idp.issuer}/token`,
          ...(hasUserinfo ? { userinfo_endpoint } : {}),
        },
      },
    });
    idp.allowRedirect(`${sb.url}/oauth/callback/plain`);
    const outcomes: unknown[] = [];
    for (account of ['alice', 'mallory']) {
      const { json } = await sb.createSession('alice', { provider: 'plain' });
      await sb.signIn(json.auth_url, { login: account });
      const polled = (await sb.poll(json.session_id)).json;
      outcomes.push(polled.error ?? polled.status);
    }
    await closeNow(userinfo);
    return outcomes;
  };

  it('with a userinfo_endpoint: another account is refused', async () => {
    expect(await twice(true)).toEqual(['complete', expect.stringMatching(/^account_mismatch: /)]);
  });

  it('without one: nobody knows whose account it is, and the last sign-in counts', async () => {
    expect(await twice(false)).toEqual(['complete', 'complete']);
  });
});

describe('the HTTP server', () => {
  const send = (url: string, text: string) =>
    new Promise<string>((resolve, reject) => {
      const { hostname, port } = new URL(url);
      let answer = '';
      const socket = connect(Number(port), hostname, () => socket.write(text));
      socket.on('data', chunk => (answer += chunk.toString()));
      socket.on('error', reject);
      socket.on('close', () => resolve(answer));
    });

  it('103: refuses a request with Content-Length and Transfer-Encoding', async () => {
    await using sb = await startIdentity();
    const answer = await send(
      sb.url,
      'POST /v1/identity/refresh HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG',
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  });

  it('104: slow clients hold neither a database connection nor the others up', async () => {
    await using sb = await startIdentity();
    const { hostname, port } = new URL(sb.url);
    const slow = Array.from({ length: 200 }, (_, at) =>
      connect(Number(port), hostname)
        .on('error', () => {})
        .resume()
        .on('connect', function (this: ReturnType<typeof connect>) {
          // Half of them in their headers, half in the body.
          this.write('POST /v1/identity/refresh HTTP/1.1\r\nHost: 127.0.0.1\r\n');
          if (at % 2 === 0)
            this.write(
              `X-API-Key: ${sb.key}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
            );
        }),
    );
    expect((await sb.createSession('user')).status).toBe(200);
    // The headers' time-out ends the first of them; the rest is cut off here.
    await new Promise(resolve => slow[1]?.once('close', resolve));
    for (const socket of slow) socket.destroy();
  });
});
