import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { accountOf } from '../../../src/core/identity/connections/provider.ts';
import { rows } from '../../../src/platform/database/database.ts';
import { addScene } from '../../support/authorization/scene.ts';
import { DATABASES, startIdentity, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { parallel, statusesOf } from '../../support/processes.ts';
import { startAuthorised, type AuthorisedServer } from '../../support/upstreams/authorised.ts';
import { UserAgent } from '../../support/user-agent.ts';

const APP = 'https://app.example/connected?from=switchboard';
const KEY = 'key-of-alice-0123456789';

interface Started {
  readonly session_id: string;
  readonly auth_url: string;
}

describe.each(DATABASES)('on $name: a session of mode caller', ({ kind, skipped }) => {
  let weather: AuthorisedServer;
  let sb: IdentityUnderTest;
  let users = 0;
  let user: string;
  beforeAll(async () => {
    if (skipped) return;
    weather = await startAuthorised('modern', ({ 'x-api-key': key }) => key === KEY);
    sb = await startIdentity({
      database: kind,
      catalogue: [
        {
          id: 'weather',
          remote_url: weather.url,
          auth: { kind: 'credentials', headers: [{ name: 'X-Api-Key', value: '{api_key}' }] },
        },
      ],
      env: { SWITCHBOARD_RATE_LIMIT: 'off' },
    });
    await sb.admin.request('POST', '/tenants/local', { return_urls: [APP, 'https://app.example/other'] });
  });
  afterAll(async () => {
    await sb?.[Symbol.asyncDispose]();
    await weather?.[Symbol.asyncDispose]();
  });
  beforeEach(ctx => {
    if (skipped) ctx.skip();
    user = `confirm-${++users}`;
  });

  async function begin(more: object = {}): Promise<Started> {
    const { status, text, json } = await sb.createSession(user, { mode: 'caller', return_url: APP, ...more });
    expect(status, text).toBe(200);
    return json;
  }
  const at = (address: string | null) => Object.fromEntries(new URL(address ?? '').searchParams);
  /** Signs in at the provider, and goes on to where the callback leads: the app. */
  async function signIn({ auth_url }: Started, options: { login?: string; deny?: boolean } = {}) {
    const callback = await sb.authorize(auth_url, { login: user, ...options });
    const { status, headers } = await new UserAgent().get(callback);
    expect(status).toBe(303);
    return { callback, url: headers.get('location') ?? '', ...at(headers.get('location')) } as {
      callback: string;
      url: string;
      session_id: string;
      code: string;
      error?: string;
    };
  }
  const confirm = (sessionId: string, body: object, headers: Record<string, string> = {}) =>
    sb.post(`/v1/identity/sessions/${sessionId}/confirm`, { user_id: user, ...body }, headers);
  const connected = async () =>
    (await sb.get(`/v1/identity/connections?user_id=${user}`)).json.connections as {
      kind: string;
      account: string;
    }[];
  const exchanges = () => sb.idp.hits.token.authorization_code;

  it('52: is complete only after the app has said whose browser came back, and only then is the code exchanged', async () => {
    const before = exchanges();
    const session = await begin();
    expect(session.auth_url).toContain(sb.idp.issuer);
    const back = await signIn(session);
    expect(back.url).toMatch(/^https:\/\/app\.example\/connected\?from=switchboard&/);
    expect(back.session_id).toBe(session.session_id);
    expect(exchanges()).toBe(before);
    expect((await sb.poll(session.session_id)).json).toEqual({ status: 'pending' });
    expect((await sb.token(session.session_id)).status).toBe(400);
    expect(await connected()).toEqual([]);

    const confirmed = await confirm(session.session_id, { code: back.code });
    expect([confirmed.status, confirmed.json]).toEqual([200, { status: 'complete' }]);
    expect(confirmed.headers.get('cache-control')).toBe('no-store');
    expect(exchanges()).toBe(before + 1);
    expect((await sb.poll(session.session_id)).json).toEqual({ status: 'complete' });
    expect((await sb.token(session.session_id)).status).toBe(200);
    expect(await connected()).toMatchObject([{ kind: 'provider', account: `${user}@example.test` }]);
  });

  it('52: never completes without that: it expires, and the code with it', async () => {
    const session = await begin();
    const back = await signIn(session);
    await sb.elapse(301_000);
    const late = await confirm(session.session_id, { code: back.code });
    expect([late.status, late.json.error]).toEqual([400, 'invalid_grant']);
    expect((await sb.poll(session.session_id)).json).toMatchObject({
      status: 'error',
      error: expect.stringMatching(/^session_expired/),
    });
    expect(await connected()).toEqual([]);
  });

  it('52: ends if another user of the app is in that browser', async () => {
    const before = exchanges();
    const session = await begin();
    const { code } = await signIn(session, { login: 'victim' });
    const refused = await confirm(session.session_id, { code, user_id: `${user}-victim` });
    expect([refused.status, refused.json]).toEqual([
      400,
      expect.objectContaining({ error: 'invalid_grant', detail: expect.stringMatching(/^user_id: /) }),
    ]);
    const again = await confirm(session.session_id, { code });
    expect([again.status, again.json.error]).toEqual([400, 'invalid_grant']);
    expect((await sb.poll(session.session_id)).json).toEqual({
      status: 'error',
      error: expect.stringMatching(/^user_mismatch: /),
    });
    expect(exchanges()).toBe(before);
    expect(await connected()).toEqual([]);
  });

  it('52: takes each code once, even of fifty at a time, and no other code', async () => {
    const before = exchanges();
    const session = await begin();
    const { code } = await signIn(session);
    const other = await begin();
    const { code: othersCode } = await signIn(other);
    for (const wrong of [othersCode, `code_${'A'.repeat(43)}`, 'code', session.session_id]) {
      const { status, json } = await confirm(session.session_id, { code: wrong });
      expect([status, json.error]).toEqual([400, 'invalid_grant']);
    }
    const replies = await parallel(50, () => confirm(session.session_id, { code }));
    expect(statusesOf(replies)).toEqual({ 200: 1, 400: 49 });
    expect(exchanges()).toBe(before + 1);
    // A wrong code has ended neither session.
    expect((await confirm(other.session_id, { code: othersCode })).json).toEqual({ status: 'complete' });
  });

  it('52: cannot be confirmed by another tenant, by another user`s id in another form, or before the sign-in', async () => {
    const session = await begin();
    const early = await confirm(session.session_id, { code: `code_${'A'.repeat(43)}` });
    expect([early.status, early.json.error]).toEqual([400, 'invalid_grant']);
    const { code } = await signIn(session);
    const foreign = await confirm(session.session_id, { code }, { 'x-api-key': sb.otherKey });
    expect([foreign.status, foreign.json.code]).toEqual([404, 'session_not_found']);
    const unknown = await confirm(`ses_${'A'.repeat(43)}`, { code });
    expect([unknown.status, unknown.json.code]).toEqual([404, 'session_not_found']);
    for (const user_id of ['', 7, null, `${user}\u0000`, ['x']])
      expect((await confirm(session.session_id, { code, user_id })).status).toBe(400);
    expect((await confirm(session.session_id, { code })).json).toEqual({ status: 'complete' });
  });

  it('sends the browser back to the app when the user refuses, and when the provider fails', async () => {
    const refused = await begin();
    const back = await signIn(refused, { deny: true });
    expect(at(back.url)).toEqual({
      from: 'switchboard',
      session_id: refused.session_id,
      error: 'access_denied',
    });
    expect((await sb.poll(refused.session_id)).json.error).toMatch(/^access_denied/);

    const failing = await begin();
    const { code } = await signIn(failing);
    sb.idp.faults.token = { status: 500 };
    const { status, json } = await confirm(failing.session_id, { code });
    sb.idp.faults.token = {};
    expect([status, json]).toEqual([
      200,
      { status: 'error', error: expect.stringMatching(/^exchange_failed/) },
    ]);
    expect(await connected()).toEqual([]);
  });

  it('takes a callback once, of 50 at a time', async () => {
    const session = await begin();
    const callback = await sb.authorize(session.auth_url, { login: user });
    const pages = await parallel(50, () => new UserAgent().get(callback));
    expect(statusesOf(pages)).toEqual({ 303: 1, 400: 49 });
  });

  it('ends with the user`s access', async () => {
    const session = await begin();
    const { code } = await signIn(session);
    await sb.revoke(user);
    expect((await confirm(session.session_id, { code })).status).toBe(400);
    expect((await sb.poll(session.session_id)).json.error).toMatch(/^revoked/);
    expect(await connected()).toEqual([]);
  });

  it('keeps what the browser brought sealed', async () => {
    const session = await begin();
    const { callback, code } = await signIn(session);
    const [row] = await rows<{ row: string }>(
      sb.db,
      sql`select t::text as row from auth_sessions t where status = 'confirm' order by created_at desc limit 1`,
    );
    const provider = new URL(callback).searchParams.get('code') ?? '';
    expect(provider).not.toBe('');
    for (const secret of [provider, code, session.session_id]) expect(row?.row).not.toContain(secret);
    expect(sb.logged()).not.toContain(provider);
    expect(sb.logged()).not.toContain(code);
  });

  it('requires a return_url that is registered', async () => {
    const missing = await sb.createSession(user, { mode: 'caller' });
    expect([missing.status, missing.json.detail]).toEqual([
      400,
      expect.stringMatching(/^return_url: is missing/),
    ]);
    const foreign = await sb.createSession(user, { mode: 'caller', return_url: 'https://evil.example/' });
    expect(foreign.status).toBe(400);
  });

  describe('with a server', () => {
    it("waits for the app after a sign-in at the server's own authorization server, too", async () => {
      await using scene = await addScene(sb);
      user = scene.user.id;
      const body = { user_id: user, server_id: scene.serverId, mode: 'caller', return_url: APP };
      const { json: session } = await sb.post('/v1/identity/sessions', body);
      const agent = new UserAgent();
      const callback = await agent.get(await agent.open(session.auth_url));
      const { headers } = await agent.get(callback.headers.get('location') ?? '');
      const { code = '', session_id } = at(headers.get('location'));
      expect(session_id).toBe(session.session_id);
      expect(scene.issuer.sent('token')).toEqual([]);
      expect((await scene.call()).status).toBe(403);
      expect((await confirm(session.session_id, { code })).json).toEqual({ status: 'complete' });
      expect((await scene.call()).status).toBe(200);
    });

    it('stays in one browser until it goes to the authorization server', async () => {
      await using scene = await addScene(sb);
      user = scene.user.id;
      const body = { user_id: user, server_id: scene.serverId, mode: 'caller', return_url: APP };
      const { json: session } = await sb.post('/v1/identity/sessions', body);
      const agent = new UserAgent();
      const callback = await agent.get(await agent.open(session.auth_url));
      const elsewhere = await new UserAgent().get(callback.headers.get('location') ?? '');
      expect(elsewhere.status).toBe(400);
    });

    it('waits for the app after a key was entered', async () => {
      const body = { user_id: user, server_id: 'weather', mode: 'caller', return_url: APP };
      const { json: session } = await sb.post('/v1/identity/sessions', body);
      const agent = new UserAgent();
      const form = await agent.get(session.auth_url);
      // Browsers apply it to the redirect after the form, too.
      expect(form.headers.get('content-security-policy')).toContain(
        "form-action 'self' https://app.example;",
      );
      const { headers, status } = await agent.submit(form, {
        fields: { 'value.api_key': KEY },
      });
      expect(status).toBe(303);
      const { code = '' } = at(headers.get('location'));
      expect(await connected()).toEqual([]);
      const [row] = await rows<{ row: string }>(
        sb.db,
        sql`select string_agg(t::text, '') as row from auth_sessions t`,
      );
      expect(row?.row).not.toContain(KEY);
      const refused = await confirm(session.session_id, { code, user_id: 'somebody-else' });
      expect(refused.status).toBe(400);
      expect(await connected()).toEqual([]);

      const { json: next } = await sb.post('/v1/identity/sessions', body);
      const entered = await agent.submit(await agent.get(next.auth_url), {
        fields: { 'value.api_key': KEY },
      });
      const given = at(entered.headers.get('location'));
      expect((await confirm(next.session_id, given)).json.detail).toMatch(/Unknown field/);
      expect((await confirm(next.session_id, { code: given['code'] })).json).toEqual({ status: 'complete' });
      expect(await connected()).toMatchObject([{ kind: 'credentials' }]);
    });
  });
});

describe.each(DATABASES)('on $name: a tenant of mode caller', ({ kind, skipped }) => {
  it.skipIf(skipped)(
    'has no session of another mode, and links that calls ask for end at its first return URL',
    async () => {
      await using mail = await startAuthorised('legacy');
      await using sb = await startIdentity({
        database: kind,
        catalogue: [{ id: 'mail', remote_url: mail.url, auth: { kind: 'user_oauth', provider: 'local' } }],
        allowedOrigins: [mail.origin],
      });
      const tenant = (body: object) => sb.admin.request('POST', '/tenants/local', body);
      const refused = await tenant({ mode: 'caller' });
      expect([refused.status, refused.json.detail]).toEqual([
        400,
        expect.stringMatching(/^mode: caller requires a return URL/),
      ]);
      expect((await sb.admin.request('GET', '/tenants/local')).json.mode).toBe('direct');
      expect((await tenant({ mode: 'caller', return_urls: [APP] })).status).toBe(200);
      expect((await tenant({ return_urls: [] })).status).toBe(400);

      for (const mode of ['direct', 'page'])
        expect((await sb.createSession('ada', { mode, return_url: APP })).status).toBe(400);
      expect((await sb.createSession('ada', { return_url: APP })).status).toBe(200);

      const { json } = await sb.admin.request('POST', '/keys', { name: 'ada', user_id: 'ada' });
      const call = { server_id: 'mail', name: 'echo', arguments: { message: 'hi' } };
      const required = await sb.post('/v1/mcp/tools/call', call, { 'x-api-key': json.key });
      expect(required.json).toMatchObject({ code: 'connection_required', reason: 'not_connected' });
      const callback = await sb.authorize(required.json.auth_url, { login: 'ada' });
      const { headers } = await new UserAgent().get(callback);
      const back = new URL(headers.get('location') ?? '');
      expect(back.href.startsWith(APP)).toBe(true);
      const { session_id, code } = Object.fromEntries(back.searchParams);
      const confirmed = await sb.post(`/v1/identity/sessions/${session_id}/confirm`, {
        code,
        user_id: 'ada',
      });
      expect(confirmed.json).toEqual({ status: 'complete' });
      expect((await sb.post('/v1/mcp/tools/call', call, { 'x-api-key': json.key })).status).toBe(200);
    },
  );
});

describe.each(DATABASES)('on $name: expected_account', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started), { env: { SWITCHBOARD_RATE_LIMIT: 'off' } });
  const end = async (user: string, more: object, login = 'ada') => {
    const { json } = await sb.createSession(user, more);
    await sb.signIn(json.auth_url, { login });
    return (await sb.poll(json.session_id)).json;
  };

  it.each([['ada@example.test'], ['ADA@Example.test'], ['ada']])(
    '%s is the e-mail address or the id of the account',
    async expected_account => {
      expect(await end(`expects-${expected_account}`, { expected_account })).toEqual({ status: 'complete' });
    },
  );

  it.each([['bob@example.test'], ['bob'], ['Ada'], ['ada@example.test.evil']])(
    '%s is another account: nothing is connected, and its tokens are revoked',
    async expected_account => {
      const user = `expects-${expected_account}`;
      expect(await end(user, { expected_account })).toMatchObject({
        status: 'error',
        error: expect.stringMatching(/^account_mismatch/),
      });
      expect((await sb.get(`/v1/identity/connections?user_id=${user}`)).json.connections).toEqual([]);
      const told = await rows<{ n: number }>(
        sb.db,
        sql`select count(*)::int as n from audit_log where event = 'session_failed' and meta->>'code' = 'account_mismatch'`,
      );
      expect(told[0]?.n).toBeGreaterThan(0);
    },
  );

  it('is checked in every mode: before the page asks, and when the app confirms', async () => {
    const paged = (await sb.createSession('paged', { expected_account: 'bob', mode: 'page' })).json;
    const agent = new UserAgent();
    const away = await agent.open(paged.auth_url);
    const page = await agent.signIn(away, { login: 'ada', stopAt: url => url.startsWith(`${sb.url}/`) });
    expect(page.html).toContain('another account');
    expect((await sb.poll(paged.session_id)).json.error).toMatch(/^account_mismatch/);

    await sb.admin.request('POST', '/tenants/local', { return_urls: [APP] });
    const more = { expected_account: 'bob', mode: 'caller', return_url: APP };
    const { session_id, auth_url } = (await sb.createSession('by-app', more)).json;
    const { headers } = await new UserAgent().get(await sb.authorize(auth_url, { login: 'ada' }));
    const code = new URL(headers.get('location') ?? '').searchParams.get('code');
    const { json } = await sb.post(`/v1/identity/sessions/${session_id}/confirm`, {
      code,
      user_id: 'by-app',
    });
    expect(json).toMatchObject({ status: 'error', error: expect.stringMatching(/^account_mismatch/) });
  });

  it('is preselected at the provider, unless a login_hint is given', async () => {
    const hint = async (more: object) =>
      new URL((await sb.createSession('hinted', more)).json.auth_url).searchParams.get('login_hint');
    expect(await hint({ expected_account: 'ada@example.test' })).toBe('ada@example.test');
    expect(await hint({ expected_account: 'ada', login_hint: 'ada@example.test' })).toBe('ada@example.test');
  });

  it.each([['\u212aim@example.test'], ['k\u0130m@example.test'], ['ki\u0301m@example.test']])(
    'is no address that only looks alike: %s',
    async expected_account => {
      const login = 'kim';
      const ended = await end(`expects-${expected_account}`, { expected_account, login_hint: login }, login);
      expect(ended).toMatchObject({ error: expect.stringMatching(/^account_mismatch/) });
    },
  );

  it('is no address that the provider does not call verified', () => {
    const emailOf = (more: object) => accountOf({ sub: '7', email: 'ada@example.test', ...more }).email;
    for (const email_verified of [true, 'true']) expect(emailOf({ email_verified })).toBe('ada@example.test');
    for (const email_verified of [false, 'false', 'True', 0, 1, null, undefined, {}])
      expect(emailOf({ email_verified })).toBeUndefined();
    expect(emailOf({})).toBeUndefined();
  });

  it.each([
    ['an empty one', { expected_account: '' }],
    ['no text', { expected_account: 7 }],
    ['321 characters', { expected_account: 'a'.repeat(321) }],
    ['one with server_id', { provider: undefined, server_id: 'filler', expected_account: 'ada' }],
  ])('refuses %s', async (_what, more) => {
    expect((await sb.createSession('refused', more)).status).toBe(400);
  });
});
