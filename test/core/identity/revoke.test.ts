import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { startIdentityProvider } from '../../support/identity-provider.ts';
import {
  DATABASES,
  startIdentity,
  type DatabaseKind,
  type IdentityUnderTest,
  type StartIdentity,
} from '../../support/identity.ts';
import { eventually, parallel, statusesOf } from '../../support/processes.ts';
import type { Answer } from '../../support/switchboard.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';

interface WithServer extends IdentityUnderTest {
  /** A call that carries the user's token of the provider. */
  callTool(
    tokens: { access_token: string },
    headers?: Record<string, string>,
    server?: string,
  ): Promise<Answer>;
}

async function start(
  kind: DatabaseKind,
  optionsFor: (serverOrigin: string) => StartIdentity = () => ({}),
): Promise<WithServer> {
  await using opened = new AsyncDisposableStack();
  const upstream = opened.use(await startV2Server());
  const { origin } = new URL(upstream.url);
  const entry = (id: string, provider: string) => ({
    id,
    remote_url: upstream.url,
    auth: { kind: 'user_oauth', provider, scopes: ['email'] },
  });
  const sb = opened.use(
    await startIdentity({
      database: kind,
      catalogue: [entry('mail', 'local'), entry('files', 'second')],
      allowedOrigins: [origin],
      ...optionsFor(origin),
    }),
  );
  const all = opened.move();
  return {
    ...sb,
    callTool: (tokens, headers, server = 'mail') =>
      sb.post(
        '/v1/mcp/call',
        { server_id: server, method: 'tools/call', params: { name: 'echo', arguments: { message: 'hi' } } },
        { ...sb.as(tokens), ...headers },
      ),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

const countOf = async (sb: IdentityUnderTest, table: 'connections' | 'revocation_outbox') =>
  (await rows<{ count: number }>(sb.db, sql`select count(*)::int as count from ${sql.identifier(table)}`))[0]
    ?.count;

/** What the provider gave out since. */
const newTokens = (sb: IdentityUnderTest, before: ReadonlySet<string>) =>
  [...sb.idp.secretsSeen].filter(secret => !before.has(secret));

const anyActive = async (sb: IdentityUnderTest, tokens: readonly string[]) =>
  (await Promise.all(tokens.map(token => sb.idp.introspect(token)))).some(({ active }) => active);

const eventuallyInactive = (sb: IdentityUnderTest, tokens: readonly string[]) =>
  eventually('the provider has forgotten the tokens', async () => !(await anyActive(sb, tokens)));

const eventuallyEmptied = (sb: IdentityUnderTest) =>
  eventually('the outbox is empty', async () => (await countOf(sb, 'revocation_outbox')) === 0);

async function connectExpired(sb: WithServer, userId: string) {
  sb.idp.accessTokenTtlSec = 1;
  const tokens = await sb.connect(userId);
  sb.idp.accessTokenTtlSec = 3600;
  return tokens;
}

async function expectNothingLeft(
  sb: WithServer,
  tokens: { access_token: string; refresh_token: string },
): Promise<void> {
  const call = await sb.callTool(tokens);
  expect([call.status, call.json.code]).toEqual([401, 'identity_token_invalid']);
  const refresh = await sb.refresh(tokens.refresh_token);
  expect([refresh.status, refresh.json.error]).toEqual([400, 'invalid_grant']);
}

/** No link for a user whose access was just ended. */
async function expectRefused(call: Promise<Answer>): Promise<void> {
  const { status, json } = await call;
  expect([status, json.code]).toEqual([401, 'identity_token_invalid']);
}

const toldOnce = async (sb: IdentityUnderTest, sessionId: string) => {
  const { json } = await sb.poll(sessionId);
  expect((await sb.poll(sessionId)).status).toBe(410);
  return json;
};

describe.each(DATABASES)('POST /v1/identity/revoke on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('what it ends', () => {
    let sb: WithServer;
    beforeAll(async () => void (sb = await start(kind)));
    afterAll(() => sb[Symbol.asyncDispose]());

    it('93: everything of the user: tokens here and at the provider, sign-ins under way, links [identity.revoke]', async () => {
      const before = new Set(sb.idp.secretsSeen);
      const tokens = await sb.connect('user-93');
      expect((await sb.callTool(tokens)).status).toBe(200);
      const granted = newTokens(sb, before);
      expect(await anyActive(sb, granted)).toBe(true);
      const pending = (await sb.createSession('user-93')).json;
      const onPage = (await sb.createSession('user-93', { mode: 'page' })).json;
      const callback = await sb.authorize(pending.auth_url, { login: 'user-93' });
      const manage = (await sb.post('/v1/identity/manage', { user_id: 'user-93' })).json;

      const revoked = await sb.revoke('user-93');
      expect([revoked.status, revoked.json]).toEqual([200, { success: true }]);
      await expectNothingLeft(sb, tokens);
      expect(await rows(sb.db, sql`select id from connections`)).toEqual([]);
      expect(await toldOnce(sb, pending.session_id)).toEqual({
        status: 'error',
        error: expect.stringMatching(/^revoked: /),
      });
      expect(await toldOnce(sb, onPage.session_id)).toMatchObject({ status: 'error' });
      const dead = [callback, onPage.auth_url, manage.url];
      for (const url of dead) {
        const { status } = await fetch(url, { redirect: 'manual' });
        expect(status, url).toBeGreaterThanOrEqual(400);
      }
      await eventuallyInactive(sb, granted);
      await eventuallyEmptied(sb);
      expect(await countOf(sb, 'connections')).toBe(0);
    });

    it('93: a completed session whose tokens were not fetched yet', async () => {
      const { session_id, auth_url } = (await sb.createSession('user-93b')).json;
      await sb.signIn(auth_url, { login: 'user-93b' });
      await sb.revoke('user-93b');
      const { status, json } = await sb.token(session_id);
      expect([status, json.error]).toEqual([400, 'invalid_grant']);
    });

    it('94: an unknown user is 200, twice is 200', async () => {
      expect((await sb.revoke('nobody')).json).toEqual({ success: true });
      await sb.connect('user-94');
      expect((await sb.revoke('user-94')).json).toEqual({ success: true });
      expect((await sb.revoke('user-94')).json).toEqual({ success: true });
      const again = await sb.connect('user-94');
      expect((await sb.callTool(again)).status).toBe(200);
    });

    it.each([
      ['missing', '{}'],
      ['empty', '{"user_id":""}'],
      ['a number', '{"user_id":7}'],
      ['an object', '{"user_id":{"$ne":1}}'],
      ['a list', '{"user_id":["a"]}'],
      ['too long', JSON.stringify({ user_id: 'x'.repeat(1025) })],
      ['with NUL', '{"user_id":"a\\u0000"}'],
      ['half a surrogate pair', '{"user_id":"\\ud800"}'],
    ])('94: a user_id that is %s is 400 [identity.revoke.user-id]', async (_what, body) => {
      const { status, json } = await sb.post('/v1/identity/revoke', body);
      expect([status, json.code]).toEqual([400, 'invalid_request']);
    });

    it('94: the same user_id of another tenant is another user', async () => {
      const other = { 'x-api-key': sb.otherKey };
      const ours = await sb.connect('user-both');
      const created = (await sb.createSession('user-both', {}, other)).json;
      await sb.signIn(created.auth_url, { login: 'user-both' });
      const theirs = (await sb.token(created.session_id, other)).json;
      const pending = (await sb.createSession('user-both', {}, other)).json;

      await sb.revoke('user-both');
      expect((await sb.callTool(theirs, other)).status).toBe(200);
      expect((await sb.poll(pending.session_id, other)).json).toEqual({ status: 'pending' });
      await expectNothingLeft(sb, ours);
      expect((await sb.revoke('user-both', other)).status).toBe(200);
      expect((await sb.callTool(theirs, other)).status).toBe(401);
    });
  });

  describe.skipIf(skipped)('in a race', () => {
    it('92: with a provider refresh: nothing is stored, and what came of it is revoked at the provider', async () => {
      await using sb = await start(kind);
      const tokens = await connectExpired(sb, 'user-92');
      const before = new Set(sb.idp.secretsSeen);
      const hold = sb.idp.hold('token', 'after');
      const call = sb.callTool(tokens);
      await hold.arrived;
      const orphans = newTokens(sb, before);
      expect(orphans.length).toBeGreaterThanOrEqual(2);
      // The old tokens stay in the outbox meanwhile: with them the provider would end the orphans, too.
      sb.idp.faults.revocation = { status: 500 };
      expect((await sb.revoke('user-92')).status).toBe(200);
      expect(await anyActive(sb, orphans)).toBe(true);
      hold.release();
      await expectRefused(call);
      expect(await countOf(sb, 'connections')).toBe(0);
      expect(await countOf(sb, 'revocation_outbox')).toBe(2);

      sb.idp.faults.revocation = {};
      await sb.elapse(20_000);
      await eventuallyEmptied(sb);
      await eventuallyInactive(sb, orphans);
      expect(await countOf(sb, 'connections')).toBe(0);
      expect((await sb.callTool(tokens)).status).toBe(401);
    });

    it('92: with a provider refresh that the provider has not seen yet: the same', async () => {
      await using sb = await start(kind);
      const tokens = await connectExpired(sb, 'user-92');
      const hold = sb.idp.hold('token', 'before');
      const call = sb.callTool(tokens);
      await hold.arrived;
      await sb.revoke('user-92');
      hold.release();
      await expectRefused(call);
      expect(await countOf(sb, 'connections')).toBe(0);
      await eventuallyEmptied(sb);
      expect(await anyActive(sb, [...sb.idp.secretsSeen])).toBe(false);
    });

    it.each(['before', 'after'] as const)(
      'with a callback held %s the exchange: no connection, the session says revoked, the grant is given back',
      async when => {
        await using sb = await start(kind);
        const { session_id, auth_url } = (await sb.createSession('user-callback')).json;
        const callback = await sb.authorize(auth_url, { login: 'user-callback' });
        const hold = sb.idp.hold('token', when);
        const answer = fetch(callback, { redirect: 'manual' });
        await hold.arrived;
        expect((await sb.revoke('user-callback')).status).toBe(200);
        hold.release();
        expect((await answer).status).toBe(303);
        expect(await toldOnce(sb, session_id)).toEqual({
          status: 'error',
          error: expect.stringMatching(/^revoked: /),
        });
        expect(await countOf(sb, 'connections')).toBe(0);
        expect((await sb.token(session_id)).json.error).toBe('invalid_grant');
        await eventuallyEmptied(sb);
        await eventuallyInactive(sb, [...sb.idp.secretsSeen]);
      },
    );

    it('with 50 refreshes: nothing of them is alive afterwards', async () => {
      await using sb = await start(kind);
      const tokens = await sb.connect('user-race');
      const [replies, revoked] = await Promise.all([
        parallel(50, () => sb.refresh(tokens.refresh_token)),
        sb.revoke('user-race'),
      ]);
      expect(revoked.status).toBe(200);
      const won = replies.filter(({ status }) => status === 200);
      expect(won.length).toBeLessThanOrEqual(1);
      expect(statusesOf(replies)[400]).toBe(50 - won.length);
      for (const { json } of won) await expectNothingLeft(sb, json);
      await expectNothingLeft(sb, tokens);
      const families = await rows(sb.db, sql`select id from token_families where revoked_at is null`);
      expect(families).toEqual([]);
    });

    it('with 20 redemptions: nothing of them is alive afterwards', async () => {
      await using sb = await start(kind);
      const { session_id, auth_url } = (await sb.createSession('user-race')).json;
      await sb.signIn(auth_url, { login: 'user-race' });
      const [replies] = await Promise.all([parallel(20, () => sb.token(session_id)), sb.revoke('user-race')]);
      for (const { json } of replies.filter(({ status }) => status === 200))
        await expectNothingLeft(sb, json);
      const families = await rows(sb.db, sql`select id from token_families where revoked_at is null`);
      expect(families).toEqual([]);
    });
  });

  describe.skipIf(skipped)('and a provider that does not take revocations', () => {
    it('95: 200 without waiting for the provider', async () => {
      await using sb = await start(kind);
      await sb.connect('user-95');
      const hold = sb.idp.hold('revocation', 'before');
      expect((await sb.revoke('user-95')).json).toEqual({ success: true });
      await hold.arrived;
      hold.release();
      await eventuallyEmptied(sb);
    });

    it('95: tried again until it works, then forgotten', async () => {
      await using sb = await start(kind);
      await sb.connect('user-95');
      sb.idp.faults.revocation = { status: 500 };
      expect((await sb.revoke('user-95')).json).toEqual({ success: true });
      const attempts = async () =>
        (await rows<{ attempts: number }>(sb.db, sql`select attempts from revocation_outbox`))[0]?.attempts ??
        0;
      for (const tries of [1, 2]) {
        await eventually(
          `attempt ${tries}`,
          async () => (await attempts()) >= tries && sb.idp.hits.revocation >= tries,
        );
        await sb.elapse(300_000);
      }
      sb.idp.faults.revocation = {};
      await sb.elapse(300_000);
      await eventuallyEmptied(sb);
      expect(await anyActive(sb, [...sb.idp.secretsSeen])).toBe(false);
      expect(
        await rows(sb.db, sql`select outcome, meta from audit_log where event = 'provider_revocation'`),
      ).toEqual([{ outcome: 'ok', meta: { provider: 'local', result: 'revoked' } }]);
    });

    it('95: abandoned after an hour', async () => {
      await using sb = await start(kind);
      await sb.connect('user-95');
      sb.idp.faults.revocation = { status: 500 };
      await sb.revoke('user-95');
      await eventually('the first attempt', () => sb.idp.hits.revocation > 0);
      await sb.elapse(3_601_000);
      await eventuallyEmptied(sb);
      const [entry] = await rows(
        sb.db,
        sql`select outcome, meta from audit_log where event = 'provider_revocation'`,
      );
      expect(entry).toEqual({ outcome: 'failed', meta: { provider: 'local', result: 'abandoned' } });
    });
  });

  describe.skipIf(skipped)('with provider', () => {
    const second = async () => {
      const idp = await startIdentityProvider();
      const { issuer, clientId: client_id, clientSecret: client_secret } = idp;
      return { idp, settings: { issuer, client_id, client_secret, scopes: ['openid', 'email'] } };
    };

    it('disconnects that one; the other and the identity tokens stay', async () => {
      const { idp, settings } = await second();
      await using _idp = idp;
      await using sb = await start(kind, origin => ({
        providers: { second: { ...settings, allowed_origins: [origin] } },
      }));
      idp.allowRedirect(`${sb.url}/oauth/callback/second`);
      const tokens = await sb.connect('user-two');
      await sb.connect('user-two', { session: { provider: 'second' } });
      const granted = [...sb.idp.secretsSeen];
      const pendingHere = (await sb.createSession('user-two')).json;
      const pendingThere = (await sb.createSession('user-two', { provider: 'second' })).json;
      const calls = async () => [
        (await sb.callTool(tokens)).status,
        (await sb.callTool(tokens, {}, 'files')).status,
      ];
      expect(await calls()).toEqual([200, 200]);

      const revoked = await sb.post('/v1/identity/revoke', { user_id: 'user-two', provider: 'local' });
      expect(revoked.json).toEqual({ success: true });
      expect(await calls()).toEqual([403, 200]);
      expect((await sb.callTool(tokens)).json).toMatchObject({
        code: 'connection_required',
        provider: 'local',
        reason: 'not_connected',
      });
      expect(await toldOnce(sb, pendingHere.session_id)).toMatchObject({ status: 'error' });
      expect((await sb.poll(pendingThere.session_id)).json).toEqual({ status: 'pending' });
      expect((await sb.refresh(tokens.refresh_token)).status).toBe(200);
      await eventuallyInactive(sb, granted);
    });

    it('ends a sign-in under way there, also where no connection was made yet', async () => {
      await using sb = await start(kind);
      const { session_id, auth_url } = (await sb.createSession('user-first')).json;
      const callback = await sb.authorize(auth_url, { login: 'user-first' });
      const hold = sb.idp.hold('token', 'after');
      const answer = fetch(callback, { redirect: 'manual' });
      await hold.arrived;
      const revoked = await sb.post('/v1/identity/revoke', { user_id: 'user-first', provider: 'local' });
      expect(revoked.status).toBe(200);
      hold.release();
      await answer;
      expect(await toldOnce(sb, session_id)).toMatchObject({ status: 'error' });
      expect(await countOf(sb, 'connections')).toBe(0);
    });
  });
});
