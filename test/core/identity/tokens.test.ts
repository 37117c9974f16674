import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sql } from 'drizzle-orm';
import { rows } from '../../../src/platform/database/database.ts';
import { openPostgres } from '../../../src/platform/database/postgres.ts';
import { providerSettings } from '../../support/identity-provider.ts';
import { BOTH_DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { startTestSwitchboard, type Answer } from '../../support/switchboard.ts';

const LIMITS = { SWITCHBOARD_RATE_LIMIT: 'refresh=100000/60,sessions=100000/60' };
const MINUTE = 60_000;
const DAY = 86_400_000;

const statuses = (answers: readonly Answer[]) =>
  Object.fromEntries(
    [...Map.groupBy(answers, ({ status }) => status)].map(([status, list]) => [status, list.length]),
  );

const parallel = <T>(count: number, act: () => Promise<T>) => Promise.all(Array.from({ length: count }, act));

describe.each(BOTH_DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('tokens', () => {
    let sb: IdentityUnderTest;
    let users = 0;
    const newUser = () => `user-${++users}`;
    beforeAll(async () => void (sb = await startIdentity({ database: kind, env: LIMITS })));
    afterAll(() => sb[Symbol.asyncDispose]());

    const completed = async (user = newUser()) => {
      const { json } = await sb.createSession(user);
      await sb.signIn(json.auth_url, { login: user });
      return json.session_id as string;
    };
    /** Whether an identity token still holds: any endpoint that takes one says so. */
    const holds = async (accessToken: string) =>
      (await sb.post('/v1/search', { query: 'anything' }, { authorization: `Bearer ${accessToken}` }))
        .status === 200;
    const audited = async (event: string) =>
      (await rows(sb.db, sql`select id from audit_log where event = ${event}`)).length;

    describe('POST /v1/identity/token', () => {
      it('55: before the sign-in is complete it is 400 authorization_pending', async () => {
        const { json } = await sb.createSession(newUser());
        const answer = await sb.token(json.session_id);
        expect(answer.status).toBe(400);
        expect(answer.json).toMatchObject({ code: 'authorization_pending', error: 'authorization_pending' });
      });

      it('56, 57: after it, once [identity.refresh]', async () => {
        const session = await completed();
        const first = await sb.token(session);
        expect(first.status).toBe(200);
        expect(first.headers.get('cache-control')).toBe('no-store');
        expect(first.json).toEqual({
          access_token: expect.stringMatching(/^eyJ/),
          refresh_token: expect.stringMatching(/^sbr_[\w-]{43}$/),
          expires_in: 3600,
          token_type: 'Bearer',
        });
        expect(await holds(first.json.access_token)).toBe(true);
        const second = await sb.token(session);
        expect([second.status, second.json.error]).toEqual([400, 'invalid_grant']);
        expect(await holds(first.json.access_token)).toBe(true);
      });

      it('works whether or not the final status was polled', async () => {
        const session = await completed();
        expect((await sb.poll(session)).json).toEqual({ status: 'complete' });
        expect((await sb.token(session)).status).toBe(200);
      });

      it('58: 50 at once give one token set', async () => {
        const session = await completed();
        expect(statuses(await parallel(50, () => sb.token(session)))).toEqual({ 200: 1, 400: 49 });
      });

      it("59: another tenant's session is 400 and stays usable", async () => {
        const session = await completed();
        const foreign = await sb.token(session, { 'x-api-key': sb.otherKey });
        expect([foreign.status, foreign.json.error]).toEqual([400, 'invalid_grant']);
        expect((await sb.token(session)).status).toBe(200);
      });

      it('60: 11 minutes after completion it is 400', async () => {
        const session = await completed();
        await sb.elapse(11 * MINUTE);
        expect((await sb.token(session)).json.error).toBe('invalid_grant');
      });

      it('61: a retry with the same Idempotency-Key gets the identical answer, another key none', async () => {
        const session = await completed();
        const [first, again] = [
          await sb.token(session, { 'idempotency-key': 'one' }),
          await sb.token(session, { 'idempotency-key': 'one' }),
        ];
        expect(first.status).toBe(200);
        expect(again.json).toEqual(first.json);
        expect((await sb.token(session, { 'idempotency-key': 'two' })).status).toBe(400);
        expect((await sb.refresh(first.json.refresh_token)).status).toBe(200);
        expect((await sb.token(session, { 'idempotency-key': 'one' })).status).toBe(400);
      });

      it('a failed session gives no tokens', async () => {
        const { json } = await sb.createSession(newUser());
        await sb.signIn(json.auth_url, { deny: true });
        expect((await sb.token(json.session_id)).json.error).toBe('invalid_grant');
      });
    });

    describe('POST /v1/identity/refresh', () => {
      it('62: gives a new pair [identity.refresh.single-use]', async () => {
        const first = await sb.connect(newUser());
        const { status, json, headers } = await sb.refresh(first.refresh_token);
        expect(status).toBe(200);
        expect(headers.get('cache-control')).toBe('no-store');
        expect(Object.keys(json).sort()).toEqual([
          'access_token',
          'expires_in',
          'refresh_token',
          'token_type',
        ]);
        expect(json.refresh_token).not.toBe(first.refresh_token);
        expect(await holds(json.access_token)).toBe(true);
      });

      it('63: a token used again after 3 s ends its whole family [identity.refresh.errors]', async () => {
        const first = await sb.connect(newUser());
        const second = (await sb.refresh(first.refresh_token)).json;
        await sb.elapse(3_000);
        const reused = await sb.refresh(first.refresh_token);
        expect([reused.status, reused.json.error]).toEqual([400, 'invalid_grant']);
        expect((await sb.refresh(second.refresh_token)).status).toBe(400);
        expect(await holds(second.access_token)).toBe(false);
        expect(await holds(first.access_token)).toBe(false);
        expect(await audited('refresh_reuse')).toBeGreaterThan(0);
      });

      it('64: of 50 at once one wins, and its token is usable', async () => {
        // On a slow machine the last of them may come more than the usual two seconds after the winner.
        const env = { SWITCHBOARD_REFRESH_RACE_MS: '10000' };
        await using patient = await startIdentity({ database: kind, env });
        for (let round = 0; round < 3; round++) {
          const { refresh_token } = await patient.connect(newUser());
          const answers = await parallel(50, () => patient.refresh(refresh_token));
          expect(statuses(answers)).toEqual({ 200: 1, 400: 49 });
          const winner = answers.find(({ status }) => status === 200);
          expect((await patient.refresh(winner?.json.refresh_token)).status).toBe(200);
        }
      });

      it('65: 50 at once with one Idempotency-Key get one and the same answer', async () => {
        const { refresh_token } = await sb.connect(newUser());
        const answers = await parallel(50, () => sb.refresh(refresh_token, { 'idempotency-key': 'same' }));
        expect(statuses(answers)).toEqual({ 200: 50 });
        expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
        expect((await sb.refresh(answers[0]?.json.refresh_token)).status).toBe(200);
      });

      it('66: another Idempotency-Key is 400, and theft after the window', async () => {
        const { refresh_token } = await sb.connect(newUser());
        const won = await sb.refresh(refresh_token, { 'idempotency-key': 'mine' });
        expect((await sb.refresh(refresh_token, { 'idempotency-key': 'guess' })).status).toBe(400);
        expect(await holds(won.json.access_token)).toBe(true);
        await sb.elapse(3_000);
        expect((await sb.refresh(refresh_token, { 'idempotency-key': 'guess' })).status).toBe(400);
        expect(await holds(won.json.access_token)).toBe(false);
      });

      it('67: no replay after the successor was used, nor after a minute', async () => {
        const first = await sb.connect(newUser());
        const second = await sb.refresh(first.refresh_token, { 'idempotency-key': 'k' });
        expect((await sb.refresh(second.json.refresh_token)).status).toBe(200);
        expect((await sb.refresh(first.refresh_token, { 'idempotency-key': 'k' })).status).toBe(400);

        const other = await sb.connect(newUser());
        await sb.refresh(other.refresh_token, { 'idempotency-key': 'k' });
        await sb.elapse(61_000);
        expect((await sb.refresh(other.refresh_token, { 'idempotency-key': 'k' })).status).toBe(400);
      });

      it('68: a grandparent used again ends the family at once, race window or not', async () => {
        const first = await sb.connect(newUser());
        const second = (await sb.refresh(first.refresh_token)).json;
        const third = (await sb.refresh(second.refresh_token)).json;
        expect((await sb.refresh(first.refresh_token)).status).toBe(400);
        expect((await sb.refresh(third.refresh_token)).status).toBe(400);
        expect(await holds(third.access_token)).toBe(false);
      });

      it('69: unused for 30 days, or 90 days after the sign-in, it is 400', async () => {
        const idle = await sb.connect(newUser());
        await sb.elapse(31 * DAY);
        expect((await sb.refresh(idle.refresh_token)).status).toBe(400);

        let last = await sb.connect(newUser());
        for (let month = 0; month < 3; month++) {
          await sb.elapse(29 * DAY);
          const { status, json } = await sb.refresh(last.refresh_token);
          expect(status).toBe(200);
          last = json;
        }
        await sb.elapse(4 * DAY);
        expect((await sb.refresh(last.refresh_token)).status).toBe(400);
      });

      it("70: another tenant's token is 400 and stays usable", async () => {
        const { refresh_token } = await sb.connect(newUser());
        expect((await sb.refresh(refresh_token, { 'x-api-key': sb.otherKey })).status).toBe(400);
        expect((await sb.refresh(refresh_token)).status).toBe(200);
      });

      it('71: garbage, a JWT and a session id are 400; a megabyte is 413', async () => {
        const tokens = await sb.connect(newUser());
        for (const token of ['x', '', `sbr_${'A'.repeat(43)}`, tokens.access_token, tokens.sessionId]) {
          expect((await sb.refresh(token)).status).toBe(400);
        }
        expect((await sb.refresh('x'.repeat(1_000_000))).status).toBe(413);
        expect((await sb.post('/v1/identity/refresh', {})).json).toMatchObject({ code: 'invalid_request' });
        expect((await sb.refresh(tokens.refresh_token, { 'idempotency-key': 'a b' })).status).toBe(400);
        expect((await sb.refresh(tokens.refresh_token)).status).toBe(200);
      });

      it('one user can have several families, and one ends without the others', async () => {
        const user = newUser();
        const [phone, laptop] = [await sb.connect(user), await sb.connect(user)];
        await sb.refresh(phone.refresh_token);
        await sb.elapse(3_000);
        await sb.refresh(phone.refresh_token);
        expect(await holds(phone.access_token)).toBe(false);
        expect(await holds(laptop.access_token)).toBe(true);
      });
    });
  });

  it.skipIf(skipped || kind === 'pglite')(
    'theft and race are told apart whatever the clock of each process says',
    async () => {
      const env = { SWITCHBOARD_KEKS: `k1:${Buffer.alloc(32, 'k').toString('base64')}` };
      await using sb = await startIdentity({ database: kind, env });
      await using ahead = await startTestSwitchboard({
        env,
        clock: { now: () => Date.now() + 10 * MINUTE },
        database: () => openPostgres(sb.databaseUrl ?? ''),
      });
      const refreshAhead = (refresh_token: string) => ahead.post('/v1/identity/refresh', { refresh_token });

      const stolen = await sb.connect('stolen');
      const thiefs = (await refreshAhead(stolen.refresh_token)).json;
      await sb.elapse(2_500);
      expect((await sb.refresh(stolen.refresh_token)).status).toBe(400);
      expect((await sb.refresh(thiefs.refresh_token)).status).toBe(400);

      const honest = await sb.connect('honest');
      const next = (await sb.refresh(honest.refresh_token)).json;
      expect((await refreshAhead(honest.refresh_token)).status).toBe(400);
      expect((await sb.refresh(next.refresh_token)).status).toBe(200);
    },
  );

  it.skipIf(skipped)('a request begun long before the token was used is no race with that use', async () => {
    await using sb = await startIdentity({ database: kind });
    const { refresh_token } = await sb.connect('u');
    const headers = { 'x-api-key': sb.key, 'content-type': 'application/json', expect: '100-continue' };
    const early = request(`${sb.url}/v1/identity/refresh`, { method: 'POST', headers });
    const answered = once(early, 'response');
    // The server has the headers, and waits for the body.
    await once(early, 'continue');
    await sb.elapse(3_000);
    const next = (await sb.refresh(refresh_token)).json;
    early.end(JSON.stringify({ refresh_token }));
    const [{ statusCode }] = (await answered) as [IncomingMessage];
    expect(statusCode).toBe(400);
    expect((await sb.refresh(next.refresh_token)).status).toBe(400);
  });

  it.skipIf(skipped)(
    'SWITCHBOARD_REFRESH_REUSE_ACTION=user: reuse ends every family of the user',
    async () => {
      await using sb = await startIdentity({
        database: kind,
        env: { ...LIMITS, SWITCHBOARD_REFRESH_REUSE_ACTION: 'user', SWITCHBOARD_REFRESH_RACE_MS: '0' },
      });
      const [phone, laptop] = [await sb.connect('u'), await sb.connect('u')];
      await sb.refresh(phone.refresh_token);
      await sb.refresh(phone.refresh_token);
      expect((await sb.refresh(laptop.refresh_token)).status).toBe(400);
      expect((await sb.get('/v1/identity/connections?user_id=u')).json.connections).toMatchObject([
        { status: 'active' },
      ]);
    },
  );

  it.skipIf(skipped)('a user has an account at each of several providers [identity.providers]', async () => {
    await using sb = await startIdentity({ database: kind });
    await sb.connect('u');
    const { json } = await sb.get('/v1/identity/connections?user_id=u');
    expect(json.connections).toHaveLength(1);
    const [first] = json.connections;
    // The same provider under another name is another provider.
    await using both = await startIdentity({
      database: kind,
      providers: { second: providerSettings(sb.idp) },
    });
    sb.idp.allowRedirect(`${both.url}/oauth/callback/second`);
    await both.connect('u');
    const session = await both.createSession('u', { provider: 'second' });
    await both.signIn(session.json.auth_url, { login: 'v' });
    const listed = await both.get('/v1/identity/connections?user_id=u');
    expect(listed.json.connections).toMatchObject([
      { provider: 'local', account: first.account },
      { provider: 'second', account: 'v@example.test' },
    ]);
    await both.post('/v1/identity/revoke', { user_id: 'u', provider: 'local' });
    expect((await both.get('/v1/identity/connections?user_id=u')).json.connections).toMatchObject([
      { provider: 'second', status: 'active' },
    ]);
  });
});
