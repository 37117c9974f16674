import { desc, eq } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditLog, tenants, users } from '../../../src/core/access/schema.ts';
import { connections, manageLinks } from '../../../src/core/identity/schema.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

const MINUTE = 60_000;

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('the sign-in to the page of connections', () => {
    let sb: IdentityUnderTest;
    let count = 0;
    const start = () => `${sb.url}/manage/sign-in/local`;

    beforeAll(async () => {
      sb = await startIdentity({
        database: kind,
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
        providers: {
          hub: {
            authorization_endpoint: 'https://hub.example/authorize',
            token_endpoint: 'https://hub.example/token',
            client_id: 'one',
            client_secret: 'a secret of the hub',
          },
        },
      });
    });
    afterAll(() => sb[Symbol.asyncDispose]());
    beforeEach(async () => {
      sb.idp.faults.token = {};
      await setRule({ provider: 'local', user_id: 'email' });
    });

    const setRule = (sign_in: object | null) => sb.admin.request('POST', '/tenants/local', { sign_in });
    const newLogin = () => `person-${++count}`;
    const create = (user: string, headers?: Record<string, string>) =>
      sb.post('/v1/identity/manage', { user_id: user }, headers);
    const isOurs = (url: string) => url.startsWith(`${sb.url}/`);

    /** Up to the callback, which is not fetched. */
    async function arrive(login: string, agent = new UserAgent()) {
      const begun = await agent.submit(await agent.get(start()));
      expect(begun.status).toBe(303);
      const providerUrl = begun.headers.get('location') ?? '';
      const callback = await agent.authorize(providerUrl, { login, stopAt: isOurs });
      return { agent, providerUrl, callback, cookie: begun.headers.getSetCookie().join('; ') };
    }
    async function signIn(login: string) {
      const { agent, callback } = await arrive(login);
      const redirect = await agent.get(callback);
      expect([redirect.status, redirect.headers.get('location')]).toEqual([
        303,
        expect.stringMatching(/^\/manage\/signed-in/),
      ]);
      return { agent, callback, page: await agent.follow(redirect) };
    }
    const listOf = (agent: UserAgent) => agent.get(`${sb.url}/manage`);
    const lastAudited = async () =>
      (await sb.db.select().from(auditLog).orderBy(desc(auditLog.id)).limit(1))[0];

    it('opens the page of the user whose id is the verified address, and of nobody else', async () => {
      const login = newLogin();
      const user = `${login}@example.test`;
      await create(user);
      // A user of another tenant with the same id is somebody else.
      await create(user, { 'x-api-key': sb.otherKey });
      const before = await sb.db.$count(connections);
      const { agent, page } = await signIn(login);
      expect(page.html).toContain('You are signed in');
      const list = await listOf(agent);
      expect([list.status, list.html.includes(user)]).toEqual([200, true]);
      const [row] = await sb.db
        .select({ tenant: manageLinks.tenantId })
        .from(manageLinks)
        .innerJoin(users, eq(users.id, manageLinks.userId))
        .where(eq(users.externalId, user))
        .orderBy(desc(manageLinks.createdAt));
      expect(row?.tenant).toBe('local');
      expect(await sb.db.$count(connections)).toBe(before);
      expect(await lastAudited()).toMatchObject({
        event: 'manage_signed_in',
        outcome: 'ok',
        tenantId: 'local',
        meta: { provider: 'local' },
      });
      await sb.elapse(15 * MINUTE);
      expect((await listOf(agent)).status).toBe(400);
    });

    it('asks the provider for nothing but who it is', async () => {
      const { providerUrl } = await arrive(newLogin());
      const { searchParams } = new URL(providerUrl);
      expect(searchParams.get('scope')).toBe('openid email');
      for (const name of ['state', 'nonce', 'code_challenge']) expect(searchParams.get(name)).not.toBeNull();
    });

    it('with the rule sub goes by the id of the account', async () => {
      await setRule({ provider: 'local', user_id: 'sub' });
      const login = newLogin();
      await create(`${login}@example.test`);
      expect((await signIn(login)).page.status).toBe(400);
      await create(login);
      expect((await signIn(login)).page.status).toBe(200);
    });

    it.each([
      ['whose address is not verified', 'unverified-email'],
      ['with a token of another key', 'other-key'],
      ['with the nonce of another sign-in', 'wrong-nonce'],
      ['without a signature', 'alg-none'],
    ] as const)('refuses an account %s', async (_what, rewriteIdToken) => {
      const login = newLogin();
      await create(`${login}@example.test`);
      sb.idp.faults.token = { rewriteIdToken };
      const { agent, page } = await signIn(login);
      expect(page.status).toBe(400);
      expect((await listOf(agent)).status).toBe(400);
    });

    it('makes no user of somebody whom the app does not know', async () => {
      const login = newLogin();
      const before = await sb.db.$count(users);
      const { agent, page } = await signIn(login);
      expect([page.status, page.html.includes('Nothing is kept for this account')]).toEqual([400, true]);
      expect((await listOf(agent)).status).toBe(400);
      expect(await sb.db.$count(users)).toBe(before);
      expect(await lastAudited()).toMatchObject({
        event: 'manage_signed_in',
        outcome: 'refused',
        userId: null,
      });
    });

    it('opens one page, also at a provider that takes a code twice', async () => {
      const login = newLogin();
      await create(`${login}@example.test`);
      sb.idp.faults.token = { repeats: true };
      const { agent, callback, cookie } = await arrive(login);
      expect((await agent.follow(await agent.get(callback))).status).toBe(200);
      const again = await fetch(callback, { headers: { cookie }, redirect: 'manual' });
      expect(again.headers.get('location')).toMatch(/^\/manage\/signed-in\?refused=/);
      expect(again.headers.getSetCookie().join()).not.toContain('web_');
      expect(await lastAudited()).toMatchObject({ event: 'manage_signed_in', outcome: 'refused' });
    });

    it('can be finished only in its own browser, once, within five minutes', async () => {
      const login = newLogin();
      await create(`${login}@example.test`);
      const { agent, callback } = await arrive(login);
      // Another browser, with a sign-in of its own too: nobody is signed in as somebody else.
      const other = (await arrive(newLogin())).agent;
      for (const stranger of [new UserAgent(), other]) {
        expect((await stranger.get(callback)).status).toBe(400);
        expect((await listOf(stranger)).status).toBe(400);
      }
      await agent.follow(await agent.get(callback));
      expect((await listOf(agent)).status).toBe(200);
      const again = new UserAgent();
      expect((await again.get(callback)).status).toBe(400);

      const late = await arrive(login);
      await sb.elapse(5 * MINUTE);
      expect((await late.agent.get(late.callback)).status).toBe(400);
      expect((await listOf(late.agent)).status).toBe(400);
    });

    it('ends where the operator takes the rule away meanwhile, and where there is none', async () => {
      const login = newLogin();
      await create(`${login}@example.test`);
      const { agent, callback } = await arrive(login);
      await setRule(null);
      expect((await agent.follow(await agent.get(callback))).status).toBe(400);
      expect((await listOf(agent)).status).toBe(400);
      for (const tenant of ['local', 'other', 'nobody', '%00', '..%2f', 'a'.repeat(100)])
        expect((await new UserAgent().get(`${sb.url}/manage/sign-in/${tenant}`)).status).toBe(404);
    });

    it('is begun by its own form alone, and a sign-in that connects goes on beside it', async () => {
      const agent = new UserAgent();
      const page = await agent.get(start());
      expect((await agent.submit(page, { fields: { token: 'A'.repeat(43) } })).status).toBe(403);
      const foreign = { 'sec-fetch-site': 'cross-site' };
      expect((await fetch(start(), { method: 'POST', headers: foreign })).status).toBe(403);

      const user = newLogin();
      await agent.submit(page);
      const session = await sb.createSession(user);
      await sb.signIn(session.json.auth_url as string, { login: user, agent });
      expect((await sb.poll(session.json.session_id as string)).json).toEqual({ status: 'complete' });
    });

    it('keeps no token and no secret in the log', async () => {
      const login = newLogin();
      await create(`${login}@example.test`);
      const { callback } = await signIn(login);
      const logged = sb.logged();
      for (const name of ['code', 'state'])
        expect(logged).not.toContain(new URL(callback).searchParams.get(name) ?? '-');
      for (const secret of sb.idp.secretsSeen) expect(logged).not.toContain(secret);
      expect(logged).toContain('"path":"/manage/sign-in/local"');
    });

    it('is set for a provider that proves who somebody is', async () => {
      for (const provider of ['hub', 'unknown'])
        expect((await setRule({ provider, user_id: 'email' })).status).toBe(400);
      expect((await setRule({ provider: 'local', user_id: 'name' })).status).toBe(400);
      const { json } = await sb.admin.request('GET', '/tenants/local');
      expect(json.sign_in).toEqual({ provider: 'local', user_id: 'email' });
      const [row] = await sb.db.select().from(tenants).where(eq(tenants.id, 'local'));
      expect([row?.pageProvider, row?.pageClaim]).toEqual(['local', 'email']);
    });
  });
});
