import { eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { formToken } from '../../../src/api/pages/cookies.ts';
import { tenants } from '../../../src/core/access/schema.ts';
import { rows } from '../../../src/platform/database/database.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent, type Page } from '../../support/user-agent.ts';

const MINUTE = 60_000;
const BACK = 'https://planner.example/done';

const locationOf = ({ headers, url }: Page) => new URL(headers.get('location') ?? '', url).href;
const textOf = ({ html }: Page) =>
  html
    .replaceAll(/<style[\s\S]*?<\/style>|<[^>]+>/g, ' ')
    .replaceAll(/&#(\d+);/g, (_, code: string) => String.fromCodePoint(Number(code)))
    .replaceAll(/\s+/g, ' ');
const withQuery = (callback: string, change: (query: URLSearchParams) => void) => {
  const url = new URL(callback);
  change(url.searchParams);
  return url.href;
};

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('the pages', () => {
    let sb: IdentityUnderTest;
    let users = 0;
    const newUser = () => `user-${++users}`;

    beforeAll(async () => {
      sb = await startIdentity({ database: kind, env: { SWITCHBOARD_RATE_LIMIT: 'off' } });
      await sb.db
        .update(tenants)
        .set({ name: 'Planner', returnUrls: [BACK] })
        .where(eq(tenants.id, 'local'));
    });
    afterAll(() => sb[Symbol.asyncDispose]());

    const isOurs = (url: string) => url.startsWith(`${sb.url}/`);
    const statusOf = async (session: string) => (await sb.poll(session)).json;
    const create = async (user: string, more: object = {}) => {
      const { json } = await sb.createSession(user, more);
      return { session: json.session_id as string, authUrl: json.auth_url as string };
    };
    /** Signs in; the callback is not fetched yet. */
    const arrive = async (user = newUser(), more: object = {}, agent = new UserAgent(), login = user) => {
      const { session, authUrl } = await create(user, more);
      const start = 'mode' in more ? locationOf(await agent.submit(await agent.get(authUrl))) : authUrl;
      const callback = await agent.authorize(start, { login, stopAt: isOurs });
      return { user, session, agent, callback };
    };
    const finish = async (arrived: { agent: UserAgent; callback: string }) =>
      arrived.agent.follow(await arrived.agent.get(arrived.callback));
    /** A form sent by hand, as an attacker's page or a script would. */
    const post = (url: string, body: string | URLSearchParams = '', headers: Record<string, string> = {}) =>
      fetch(url, {
        method: 'POST',
        body,
        redirect: 'manual',
        headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      });
    const connections = async (user: string) =>
      (await sb.get(`/v1/identity/connections?user_id=${encodeURIComponent(user)}`)).json.connections;
    const holds = async (accessToken: string) =>
      (await sb.post('/v1/search', { query: 'x' }, { authorization: `Bearer ${accessToken}` })).status ===
      200;
    const exchanges = () => sb.idp.hits.token.authorization_code;

    describe('GET /oauth/callback/:provider', () => {
      it('32: after full consent the session is complete, once [identity.sessions.complete]', async () => {
        const arrived = await arrive();
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
        const page = await finish(arrived);
        expect(page.status).toBe(200);
        // Neither code nor state is left in the address of the page.
        expect(page.url).toMatch(/\/oauth\/done\/done_[\w-]{43}$/);
        for (const named of ['Planner', `${arrived.user}@example.test`, 'Local Provider', 'offline_access'])
          expect(textOf(page)).toContain(named);
        expect(textOf(page)).toContain('You can close this window.');
        expect(await statusOf(arrived.session)).toEqual({ status: 'complete' });
        expect((await sb.poll(arrived.session)).status).toBe(410);
      });

      it('33: after a refusal it is in error, once, and the page says that nothing was connected', async () => {
        const { session, authUrl } = await create(newUser());
        const page = await sb.signIn(authUrl, { deny: true });
        expect(page.status).toBe(400);
        expect(textOf(page)).toContain('was not granted, and nothing was connected');
        expect(await statusOf(session)).toMatchObject({
          status: 'error',
          error: expect.stringMatching(/^access_denied/),
        });
        expect((await sb.poll(session)).status).toBe(410);
      });

      it('34: the same callback again is 400 and changes nothing', async () => {
        const arrived = await arrive();
        await finish(arrived);
        const before = exchanges();
        const again = await arrived.agent.get(arrived.callback);
        expect([again.status, exchanges()]).toEqual([400, before]);
        expect(textOf(again)).toContain('already used or has expired');
        expect(await connections(arrived.user)).toHaveLength(1);
        expect(await statusOf(arrived.session)).toEqual({ status: 'complete' });
      });

      it('35: 50 at once exchange the code once', async () => {
        const { agent, callback } = await arrive();
        const before = exchanges();
        const answers = await Promise.all(Array.from({ length: 50 }, () => agent.get(callback)));
        const count = (wanted: number) => answers.filter(({ status }) => status === wanted).length;
        expect([count(303), count(400)]).toEqual([1, 49]);
        expect(exchanges()).toBe(before + 1);
      });

      it('36: a forged or absent state is 400, for a provider nobody knows too', async () => {
        const { agent, callback, session } = await arrive();
        const forged = withQuery(callback, query => query.set('state', 'A'.repeat(43)));
        const absent = withQuery(callback, query => query.delete('state'));
        const unknown = callback.replace('/callback/local', '/callback/nobody');
        for (const url of [forged, absent, unknown, `${sb.url}/oauth/callback/local`])
          expect((await agent.get(url)).status).toBe(400);
        expect(await statusOf(session)).toEqual({ status: 'pending' });
      });

      it('37: the state of one provider at the callback of another is 400', async () => {
        await using two = await startIdentity({
          providers: {
            second: { issuer: 'https://second.example', client_id: 'a', client_secret: 'b' },
          },
        });
        const { json } = await two.createSession(newUser());
        const callback = await two.authorize(json.auth_url);
        const crossed = await new UserAgent().get(callback.replace('/callback/local', '/callback/second'));
        expect(crossed.status).toBe(400);
        expect((await two.poll(json.session_id)).json).toEqual({ status: 'pending' });
      });

      it.each([
        ['a wrong iss', (query: URLSearchParams) => query.set('iss', 'https://evil.example')],
        ['no iss, which this provider always sends', (query: URLSearchParams) => query.delete('iss')],
        ['a parameter twice', (query: URLSearchParams) => query.append('code', 'another')],
      ])('38: %s ends the session without an exchange', async (_what, change) => {
        const { agent, callback, session } = await arrive();
        const before = exchanges();
        const page = await agent.follow(await agent.get(withQuery(callback, change)));
        expect([page.status, exchanges()]).toEqual([400, before]);
        expect((await statusOf(session)).status).toBe('error');
      });

      it('38: state twice is 400 and changes nothing', async () => {
        const { agent, callback, session } = await arrive();
        const doubled = withQuery(callback, query => query.append('state', 'another'));
        expect((await agent.get(doubled)).status).toBe(400);
        expect(await statusOf(session)).toEqual({ status: 'pending' });
      });

      it('42: after five minutes it is 400, nothing is exchanged, and the session is over', async () => {
        const { agent, callback, session } = await arrive();
        const before = exchanges();
        await sb.elapse(5 * MINUTE);
        expect([(await agent.get(callback)).status, exchanges()]).toEqual([400, before]);
        expect(await statusOf(session)).toMatchObject({ error: expect.stringMatching(/^session_expired/) });
        expect((await sb.poll(session)).status).toBe(410);
      });

      it.each(['HEAD', 'OPTIONS', 'POST', 'PUT'])('43: %s is 405 and claims nothing', async method => {
        const arrived = await arrive();
        const answer = await fetch(arrived.callback, { method, redirect: 'manual' });
        expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'GET']);
        expect((await finish(arrived)).status).toBe(200);
      });

      it("45: a provider's own words reach no page, no header and no log", async () => {
        const { agent, callback, session } = await arrive();
        const words = `<script>alert(1)</script>\r\nSet-Cookie: seeded=canary`;
        const refused = withQuery(callback, query => {
          query.delete('code');
          query.set('error', 'server_error');
          query.set('error_description', words);
          query.set('error_uri', 'https://canary.example');
        });
        const redirect = await agent.get(refused);
        const page = await agent.follow(redirect);
        expect(page.status).toBe(400);
        for (const text of [page.html, JSON.stringify([...redirect.headers]), sb.logged()])
          expect(text).not.toMatch(/alert\(1\)|canary/);
        expect(await statusOf(session)).toMatchObject({ error: expect.stringMatching(/^provider_error/) });
      });

      it('54: signing in to another account than the connected one is refused [identity.sessions.denied]', async () => {
        const first = await arrive();
        await finish(first);
        const second = await arrive(first.user, {}, new UserAgent(), 'mallory');
        const page = await finish(second);
        expect(page.status).toBe(400);
        expect(textOf(page)).toContain('another account');
        expect(await statusOf(second.session)).toMatchObject({
          error: expect.stringMatching(/^account_mismatch/),
        });
        expect(await connections(first.user)).toMatchObject([{ account: `${first.user}@example.test` }]);
      });
    });

    it('47: every page forbids everything but its own style, is kept nowhere and loads nothing', async () => {
      const { agent, callback } = await arrive(newUser(), { mode: 'page' });
      const link = (await sb.post('/v1/identity/manage', { user_id: newUser() })).json.url as string;
      const confirm = await agent.follow(await agent.get(callback));
      const pages = [
        await agent.get((await create(newUser(), { mode: 'page' })).authUrl),
        confirm,
        await agent.follow(await agent.submit(confirm, { fields: { decision: 'connect' } })),
        await agent.get(callback),
        await agent.get(link),
        await agent.follow(await agent.submit(await agent.get(link))),
        await agent.get(`${sb.url}/manage/revoke-all`),
        await agent.get(link),
        await agent.get(`${sb.url}/oauth/done/nothing`),
        await agent.get(`${sb.url}/connect`),
        await agent.get(`${sb.url}/oauth/done/%ff`),
      ];
      expect(pages.map(({ status }) => status)).toEqual([
        200, 200, 200, 400, 200, 200, 200, 400, 404, 404, 400,
      ]);
      for (const { headers, html } of pages) {
        expect(headers.get('content-type')).toBe('text/html; charset=utf-8');
        expect(headers.get('content-security-policy')).toMatch(
          /^default-src 'none'; style-src 'sha256-[\w+/]{43}='; form-action 'self'[^;]*; base-uri 'none'; frame-ancestors 'none'$/,
        );
        expect(headers.get('cache-control')).toBe('no-store');
        expect(headers.get('referrer-policy')).toBe('no-referrer');
        expect(headers.get('x-content-type-options')).toBe('nosniff');
        expect(html).not.toMatch(/<script|<link|<img|<iframe|\ssrc=|@import|url\(|\son\w+=|javascript:/i);
        expect(html.match(/<h1/g)).toHaveLength(1);
      }
    });

    describe('mode page', () => {
      it('looking at the link binds no browser, and names app, provider, user and scopes', async () => {
        const user = newUser();
        const { authUrl } = await create(user, { mode: 'page', scopes: ['calendar.read'] });
        const preview = await new UserAgent().get(authUrl);
        expect(preview.headers.getSetCookie()).toEqual([
          expect.stringMatching(/^sb_browser=web_[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/),
        ]);
        for (const named of ['Planner', 'Local Provider', user, 'calendar.read'])
          expect(textOf(preview)).toContain(named);
        expect((await fetch(authUrl, { method: 'HEAD' })).status).toBe(200);
        // Another browser can still begin.
        const agent = new UserAgent();
        const begun = await agent.submit(await agent.get(authUrl));
        expect([begun.status, new URL(locationOf(begun)).origin]).toEqual([303, sb.idp.issuer]);
      });

      it('a sign-in that another page begins in this browser is refused, if the browser says nothing of it too', async () => {
        const { session, authUrl } = await create(newUser(), { mode: 'page' });
        const agent = new UserAgent();
        const page = await agent.get((await create(newUser(), { mode: 'page' })).authUrl);
        const fields = { token: 'A'.repeat(43) };
        for (const forged of [
          await post(authUrl, '', { origin: 'null' }),
          // What everybody can compute for a browser without a cookie.
          await post(authUrl, new URLSearchParams({ token: formToken('') })),
          await agent.submit(
            { ...page, html: page.html.replace(/action="[^"]+"/, `action="${authUrl}"`) },
            { fields },
          ),
        ]) {
          expect(forged.status).toBe(403);
          expect(forged.headers.get('location')).toBeNull();
        }
        expect(await statusOf(session)).toEqual({ status: 'pending' });
        expect((await agent.submit(await agent.get(authUrl))).status).toBe(303);
      });

      it('is connected by the click, and not before', async () => {
        const arrived = await arrive(newUser(), { mode: 'page', return_url: BACK });
        const confirm = await finish(arrived);
        expect(textOf(confirm)).toContain(
          `Connect ${arrived.user}@example.test to Planner as ${arrived.user} ?`,
        );
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
        expect(await connections(arrived.user)).toEqual([]);
        const done = await arrived.agent.submit(confirm, { fields: { decision: 'connect' } });
        expect(done.status).toBe(303);
        const page = await arrived.agent.follow(done);
        expect(page.html).toContain(`href="${BACK}"`);
        expect(await statusOf(arrived.session)).toEqual({ status: 'complete' });
      });

      it('declined, nothing is connected and the provider is told', async () => {
        const arrived = await arrive(newUser(), { mode: 'page' });
        const confirm = await finish(arrived);
        const page = await arrived.agent.follow(
          await arrived.agent.submit(confirm, { fields: { decision: 'cancel' } }),
        );
        expect(page.status).toBe(400);
        expect(await statusOf(arrived.session)).toMatchObject({
          error: expect.stringMatching(/^access_denied/),
        });
        expect(await connections(arrived.user)).toEqual([]);
        // Too late for the other button.
        const late = await arrived.agent.submit(confirm, { fields: { decision: 'connect' } });
        expect(late.status).toBe(400);
        expect(await connections(arrived.user)).toEqual([]);
      });

      it('a click without a decision is 400 and decides nothing', async () => {
        const arrived = await arrive(newUser(), { mode: 'page' });
        const confirm = await finish(arrived);
        expect((await arrived.agent.submit(confirm)).status).toBe(400);
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
      });

      it('53: the callback in another browser is refused, and the first one can still finish', async () => {
        const arrived = await arrive(newUser(), { mode: 'page' });
        const foreign = await new UserAgent().get(arrived.callback);
        expect(foreign.status).toBe(400);
        expect(textOf(foreign)).toContain('Continue in the browser in which you started');
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
        expect((await finish(arrived)).status).toBe(200);
      });

      it('53: a sign-in begun again in another browser can be finished only there', async () => {
        const user = newUser();
        const { session, authUrl } = await create(user, { mode: 'page' });
        const [closed, other] = [new UserAgent(), new UserAgent()];
        const comeBack = async (agent: UserAgent) => {
          const start = locationOf(await agent.submit(await agent.get(authUrl)));
          return agent.authorize(start, { login: user, stopAt: isOurs });
        };
        const early = await comeBack(closed);
        const callback = await comeBack(other);
        const late = await closed.get(early);
        expect([late.status, textOf(late)]).toEqual([
          400,
          expect.stringContaining('Continue in the browser in which you started'),
        ]);
        expect(await statusOf(session)).toEqual({ status: 'pending' });
        expect((await finish({ agent: other, callback })).status).toBe(200);
      });

      it('53: the confirmation can be neither seen nor sent from another browser', async () => {
        const arrived = await arrive(newUser(), { mode: 'page' });
        const confirm = await finish(arrived);
        // One without a cookie, and one with a cookie and a token of its own.
        const bare = new UserAgent();
        const other = (await arrive(newUser(), { mode: 'page' })).agent;
        for (const agent of [bare, other]) expect((await agent.get(confirm.url)).status).toBe(404);
        expect((await bare.submit(confirm, { fields: { decision: 'connect' } })).status).toBe(400);
        expect((await other.submit(confirm, { fields: { decision: 'connect' } })).status).toBe(403);
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
      });

      it('a confirmation without its token, or sent from another site, is refused', async () => {
        const arrived = await arrive(newUser(), { mode: 'page' });
        const confirm = await finish(arrived);
        const fields = { decision: 'connect', token: 'A'.repeat(43) };
        expect((await arrived.agent.submit(confirm, { fields })).status).toBe(403);
        const foreign = { 'sec-fetch-site': 'cross-site' };
        expect((await post(`${confirm.url}/confirm`, 'decision=connect', foreign)).status).toBe(403);
        expect(await statusOf(arrived.session)).toEqual({ status: 'pending' });
      });
    });

    describe('undo', () => {
      it('ends the connection and the tokens issued for it, once', async () => {
        const arrived = await arrive();
        const page = await finish(arrived);
        const tokens = (await sb.token(arrived.session)).json;
        expect(await holds(tokens.access_token)).toBe(true);
        const undone = await arrived.agent.follow(await arrived.agent.submit(page));
        expect([undone.status, textOf(undone)]).toEqual([200, expect.stringContaining('Undone')]);
        expect(await holds(tokens.access_token)).toBe(false);
        expect((await sb.refresh(tokens.refresh_token)).status).toBe(400);
        expect(await connections(arrived.user)).toEqual([]);
        expect((await arrived.agent.submit(page)).status).toBe(400);
      });

      it('is over after ten minutes', async () => {
        const arrived = await arrive();
        const page = await finish(arrived);
        await sb.elapse(10 * MINUTE);
        expect((await arrived.agent.submit(page)).status).toBe(400);
        expect((await arrived.agent.get(page.url)).html).not.toContain('<form');
        expect(await connections(arrived.user)).toHaveLength(1);
      });

      it('is refused from another site, and for a result that is none', async () => {
        const arrived = await arrive();
        const { url } = await finish(arrived);
        for (const site of ['cross-site', 'same-site'])
          expect((await post(`${url}/undo`, '', { 'sec-fetch-site': site })).status).toBe(403);
        expect(await connections(arrived.user)).toHaveLength(1);
        expect((await post(`${sb.url}/oauth/done/done_${'A'.repeat(43)}/undo`)).status).toBe(400);
      });
    });

    describe('the page of connections', () => {
      /** The forms of the first connection: to make it again, and to end it. */
      const DISCONNECT = { formIndex: 1 };
      const manage = async (user: string, agent = new UserAgent()) => {
        const link = (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;
        const opened = await agent.submit(await agent.get(link));
        return { link, agent, opened, list: await agent.follow(opened) };
      };

      it('opens once, in one browser, for a quarter of an hour', async () => {
        const { link, agent, opened, list } = await manage(newUser());
        expect(opened.headers.getSetCookie()).toEqual([
          expect.stringMatching(
            /^sb_manage=web_[\w-]{43}; Max-Age=900; Path=\/; Expires=[^;]+; HttpOnly; SameSite=Strict$/,
          ),
        ]);
        expect([list.status, list.url]).toEqual([200, `${sb.url}/manage`]);
        const other = new UserAgent();
        expect((await other.get(link)).status).toBe(400);
        expect((await post(link)).status).toBe(400);
        expect((await other.get(`${sb.url}/manage`)).status).toBe(400);
        await sb.elapse(15 * MINUTE);
        const over = await agent.get(`${sb.url}/manage`);
        expect([over.status, textOf(over)]).toEqual([
          400,
          expect.stringContaining('Ask the app for a new link'),
        ]);
      });

      it('a link that was looked at still opens, and one that is five minutes old does not', async () => {
        const user = newUser();
        const link = (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;
        for (let look = 0; look < 3; look++) expect((await new UserAgent().get(link)).status).toBe(200);
        expect((await post(link)).status).toBe(303);
        const old = (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;
        await sb.elapse(5 * MINUTE);
        expect((await new UserAgent().get(old)).status).toBe(400);
        expect((await post(old)).status).toBe(400);
      });

      it('lists what is connected and ends one connection', async () => {
        const user = newUser();
        await sb.connect(user);
        const { agent, list } = await manage(user);
        for (const named of [
          'Planner',
          user,
          'Local Provider',
          `${user}@example.test`,
          'offline_access',
          'never',
        ])
          expect(textOf(list)).toContain(named);
        const after = await agent.follow(await agent.submit(list, DISCONNECT));
        expect(textOf(after)).toContain('Disconnected.');
        expect(textOf(after)).toContain('No account is connected.');
        expect(await connections(user)).toEqual([]);
        // The same form again, as by a second click.
        expect(textOf(await agent.follow(await agent.submit(list, DISCONNECT)))).toContain(
          'was already disconnected',
        );
      });

      it('says which connection must be made again', async () => {
        const user = newUser();
        await sb.connect(user);
        await sb.db.execute(
          sql`update connections set status = 'needs_reauth', sealed = null where account = ${`${user}@example.test`}`,
        );
        const { list } = await manage(user);
        expect(textOf(list)).toContain('Must be connected again');
      });

      it("ends everything after a second thought, and cannot end another user's", async () => {
        const [user, other] = [newUser(), newUser()];
        const tokens = await sb.connect(user);
        await sb.connect(other);
        const [{ id }] = await connections(other);
        const { agent, list } = await manage(user);
        const foreign = await agent.follow(
          await agent.submit(list, { ...DISCONNECT, fields: { connection: id } }),
        );
        expect(textOf(foreign)).toContain('was already disconnected');
        expect(await connections(other)).toHaveLength(1);
        const question = await agent.get(`${sb.url}/manage/revoke-all`);
        expect(await connections(user)).toHaveLength(1);
        const done = await agent.submit(question);
        expect([done.status, textOf(done)]).toEqual([
          200,
          expect.stringContaining('All connections were removed'),
        ]);
        expect(await connections(user)).toEqual([]);
        expect(await holds(tokens.access_token)).toBe(false);
        expect((await agent.get(`${sb.url}/manage`)).status).toBe(400);
      });

      it('refuses forms without its token or from another site, and shows no words from a link', async () => {
        const user = newUser();
        await sb.connect(user);
        const { agent, list, opened } = await manage(user);
        const cookie = opened.headers.getSetCookie()[0]?.split(';')[0] ?? '';
        const [{ id }] = await connections(user);
        const token = /name="token" value="([^"]+)"/.exec(list.html)?.[1] ?? '';
        const body = new URLSearchParams({ connection: id, token });
        const attempts = [
          await post(`${sb.url}/manage/disconnect`, new URLSearchParams({ connection: id }), { cookie }),
          await post(`${sb.url}/manage/disconnect`, body, { cookie, 'sec-fetch-site': 'cross-site' }),
          await post(`${sb.url}/manage/disconnect`, body, { cookie, origin: 'https://evil.example' }),
          await post(`${sb.url}/manage/revoke-all`, '', { cookie }),
        ];
        expect(attempts.map(({ status }) => status)).toEqual([403, 403, 403, 403]);
        expect(await connections(user)).toHaveLength(1);
        const worded = await agent.get(`${sb.url}/manage?note=Send+money&note=gone`);
        expect(worded.html).not.toMatch(/Send|role="status"/);
      });
    });

    it.each([
      ['JSON', '{}', { 'content-type': 'application/json' }, 415],
      ['no type', '', { 'content-type': '' }, 415],
      ['UTF-16', '', { 'content-type': 'application/x-www-form-urlencoded; charset=utf-16' }, 415],
      ['65 KiB', 'a='.padEnd(65 * 1024, 'a'), {}, 413],
      ['gzip', 'a=b', { 'content-encoding': 'gzip' }, 415],
    ] as const)('a form that is %s is refused with a page', async (_what, body, headers, status) => {
      const answer = await post(`${sb.url}/manage/page_${'A'.repeat(43)}`, body, headers);
      expect([answer.status, answer.headers.get('content-type')]).toEqual([
        status,
        'text/html; charset=utf-8',
      ]);
      expect(await answer.text()).not.toMatch(/ at .*\.[jt]s/);
    });

    it('a name that would disguise the page is shown with what it hides', async () => {
      const name = `x\u{202e}"><script>alert(1)</script>\u{2066}`;
      const { authUrl } = await create(name, { mode: 'page' });
      const { html } = await new UserAgent().get(authUrl);
      expect(html).not.toMatch(/<script|[\u202a-\u202e\u2066-\u2069]/);
      expect(html).toContain(
        '<bdi>x\u{fffd}&#34;&#62;&#60;script&#62;alert(1)&#60;/script&#62;\u{fffd}</bdi>',
      );
    });

    it('no secret of a link, a session or a provider is in the log or in clear in the database', async () => {
      const arrived = await arrive(newUser(), { mode: 'page' });
      await finish(arrived);
      await sb.get(`/oauth/done/x/y/done_${'B'.repeat(43)}`);
      await sb.poll(arrived.session);
      const logged = sb.logged();
      expect(logged).toContain('"path":"/connect/:secret"');
      expect(logged).toContain('"path":"/oauth/done/:secret"');
      expect(logged).toContain('"path":"/manage/:secret"');
      expect(logged).toContain('"path":"/manage/disconnect"');
      expect(logged).toContain('"path":"/v1/identity/sessions/:secret"');
      expect(logged).not.toMatch(/(?:ses|link|done|page|web)_[\w-]{43}/);
      const { searchParams } = new URL(arrived.callback);
      const [dump] = await rows<{ text: string }>(
        sb.db,
        sql`select string_agg(s::text, '') || (select string_agg(m::text, '') from manage_links m) as text from auth_sessions s`,
      );
      for (const secret of [
        ...sb.idp.secretsSeen,
        searchParams.get('code') ?? '',
        searchParams.get('state') ?? '',
      ]) {
        expect(logged).not.toContain(secret);
        expect(dump?.text).not.toContain(secret);
      }
    });

    it('/.well-known/jwks.json publishes the public keys alone, to be kept for ten minutes', async () => {
      const { status, headers, json } = await sb.get('/.well-known/jwks.json', { 'x-api-key': '' });
      expect(status).toBe(200);
      expect(headers.get('content-type')).toMatch(/^application\/jwk-set\+json/);
      expect(headers.get('cache-control')).toBe('public, max-age=600');
      expect(json.keys).toHaveLength(2);
      for (const key of json.keys)
        expect(Object.keys(key).sort()).toEqual(['alg', 'crv', 'kid', 'kty', 'use', 'x', 'y']);
    });
  });
});
