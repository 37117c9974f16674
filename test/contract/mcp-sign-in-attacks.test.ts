import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows, type MigratedDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import { MCP_URL, PUBLIC_URL, startWithSignIn } from '../support/mcp-sign-in.ts';

const RACE_MS = 50;

let database: MigratedDatabase;
let on: Awaited<ReturnType<typeof startWithSignIn>>;
beforeAll(async () => {
  database = await openTestDatabase();
  on = await startWithSignIn({
    database: () => Promise.resolve(database),
    env: { SWITCHBOARD_RATE_LIMIT: 'off', SWITCHBOARD_REFRESH_RACE_MS: String(RACE_MS) },
  });
});
afterAll(() => on[Symbol.asyncDispose]());

const register = async (metadata = {}) => (await on.register(metadata)).json.client_id as string;

/** Signs in up to the redirect with the code. */
async function coded(user = 'alice', more: Record<string, string> = {}) {
  const agent = on.browser();
  const attempt = on.attempt(await register(), more);
  return { attempt, back: await on.answer(agent, await on.toConsent(agent, attempt.url, user)) };
}

describe('redirects', () => {
  it.each([
    'https://evil.example/callback',
    'http://127.0.0.1:5000/elsewhere',
    'http://127.0.0.1.evil.example/callback',
    'http://127.0.0.1:5000@evil.example/callback',
    'http://localhost:5000/callback',
    'http://127.0.0.1:5000/callback/../../x',
    'javascript:alert(1)',
    '//evil.example',
  ])('to %s are refused on a page, without going there', async redirect_uri => {
    const page = await on.browser().get(on.attempt(await register(), { redirect_uri }).url);
    expect([page.status, page.headers.get('location')]).toEqual([400, null]);
    expect(page.html).toContain('This app cannot be connected');
    expect(page.html).not.toContain('<script');
  });

  it('show no markup of the request', async () => {
    const page = await on.browser().get(on.attempt('<img src=x onerror=alert(1)>').url);
    expect(page.status).toBe(400);
    expect(page.html).not.toContain('<img');
  });
});

describe('PKCE', () => {
  it.each([{ code_challenge: '' }, { code_challenge_method: 'plain' }])(
    'is not to be left out: %j',
    async more => {
      const attempt = on.attempt(await register(), more);
      const page = await on.browser().get(attempt.url);
      const location = new URL(page.headers.get('location') ?? 'about:blank');
      expect(location.searchParams.get('error')).toBe('invalid_request');
    },
  );

  it('binds a code to its client and its browser', async () => {
    const { attempt, back } = await coded();
    const other = on.attempt(await register());
    expect((await on.redeem({ ...attempt, verifier: other.verifier }, back)).json.error).toBe(
      'invalid_grant',
    );
    expect((await on.redeem({ ...attempt, clientId: other.clientId }, back)).json.error).toBe(
      'invalid_grant',
    );
    expect((await on.redeem({ ...attempt, verifier: '' }, back)).json.error).toBe('invalid_grant');
  });
});

it('a resource that is named twice is refused', async () => {
  const { url } = on.attempt(await register(), { resource: `${MCP_URL}/a` });
  const agent = on.browser();
  const page = await agent.follow(await agent.get(`${url}&resource=${encodeURIComponent(`${MCP_URL}/b`)}`));
  expect([page.status, page.html.includes('Allow</button>')]).toEqual([400, false]);
});

describe('a code', () => {
  it('that is used twice ends what was issued for it', async () => {
    const { attempt, back } = await coded();
    const { json: tokens } = await on.redeem(attempt, back);
    expect((await on.rpc('/mcp', tokens.access_token)).status).toBe(200);
    expect((await on.redeem(attempt, back)).json.error).toBe('invalid_grant');
    expect((await on.rpc('/mcp', tokens.access_token)).status).toBe(401);
  });

  it('that is used by many at once is good for one at most', async () => {
    const { attempt, back } = await coded();
    const answers = await Promise.all(Array.from({ length: 8 }, () => on.redeem(attempt, back)));
    expect(answers.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1);
  });
});

describe('a refresh token', () => {
  it('that is used again ends the sign-in, with its access tokens', async () => {
    const reuses = async () =>
      (await on.sb.admin.request('GET', '/audit?event=client_token_reused')).json.audit.length as number;
    const before = await reuses();
    const first = await on.tokens();
    const { json: second } = await on.refresh(first);
    await delay(2 * RACE_MS);
    expect((await on.refresh(first)).json.error).toBe('invalid_grant');
    expect(await reuses()).toBe(before + 1);
    expect((await on.rpc('/mcp', second.access_token)).status).toBe(401);
    expect((await on.refresh({ ...second, clientId: first.clientId })).json.error).toBe('invalid_grant');
  });

  it('is of its client alone', async () => {
    const tokens = await on.tokens();
    expect((await on.refresh({ ...tokens, clientId: await register() })).json.error).toBe('invalid_grant');
  });

  it('cannot get more than was allowed, nor for another address', async () => {
    const tokens = await on.tokens('alice', { resource: `${MCP_URL}/filler` });
    const more = await on.refresh(tokens, { scope: 'mcp:call mcp:search' });
    expect([more.status, more.json.error]).toEqual([400, 'invalid_scope']);
    const elsewhere = await on.tokens('alice', { resource: `${MCP_URL}/filler` });
    expect((await on.refresh(elsewhere, { resource: MCP_URL })).status).toBe(400);
  });
});

describe('an access token', () => {
  it('is good at its own address alone', async () => {
    const whole = await on.tokens();
    const one = await on.tokens('alice', { resource: `${MCP_URL}/filler` });
    const statusOf = async (path: string, token: string) => (await on.rpc(path, token)).status;
    expect(await statusOf('/mcp', one.access_token)).toBe(401);
    expect(await statusOf('/mcp/filler', whole.access_token)).toBe(401);
    expect(await statusOf('/mcp/other', one.access_token)).toBe(401);
    const rest = await on.sb.post(
      '/v1/search',
      { query: 'x' },
      { authorization: `Bearer ${whole.access_token}` },
    );
    expect(rest.status).toBe(401);
    const asKey = await on.sb.post('/mcp', {}, { 'x-api-key': whole.access_token });
    expect(asKey.status).toBe(401);
    const asIdentity = await on.sb.post('/mcp', {}, { authorization: `Bearer ${whole.access_token}` });
    expect(asIdentity.status).toBe(401);
  });

  it('is refused when anything in it was changed', async () => {
    const { access_token } = await on.tokens();
    const [header = '', payload = '', signature = ''] = access_token.split('.');
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString());
    const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const forged = [
      `${header}.${encoded({ ...claims, key: 'AAAAAAAAAAAA' })}.${signature}`,
      `${encoded({ alg: 'none', typ: 'at+jwt' })}.${payload}.`,
      `${header}.${payload}.${signature.slice(0, -4)}AAAA`,
      `${header}.${payload}.${signature}${'A'.repeat(5_000)}`,
    ];
    for (const token of forged) expect((await on.rpc('/mcp', token)).status).toBe(401);
  });

  it('asks for no resource that is not ours', async () => {
    for (const resource of [
      'https://evil.example/mcp',
      `${PUBLIC_URL}/v1`,
      `${PUBLIC_URL}/mcp/a/b`,
      `${PUBLIC_URL}.evil.example/mcp`,
    ]) {
      const page = await on.browser().get(on.attempt(await register(), { resource }).url);
      const location = new URL(page.headers.get('location') ?? 'about:blank');
      expect(location.searchParams.get('error')).toBe('invalid_target');
    }
  });
});

describe('consent', () => {
  it('cannot be given for a request that another browser has begun', async () => {
    const victim = on.browser();
    const attacker = on.browser();
    const who = await attacker.follow(await attacker.get(on.attempt(await register()).url));
    const page = await victim.get(who.url);
    expect([page.status, page.html.includes('This request is over')]).toEqual([400, true]);
  });

  it('cannot be given by a form of another page', async () => {
    const agent = on.browser();
    const consent = await on.toConsent(agent, on.attempt(await register()).url);
    const forged = {
      ...consent,
      html: consent.html.replace(/name="token" value="[^"]+"/, 'name="token" value="x"'),
    };
    expect((await agent.submit(forged, { fields: { answer: 'allow' } })).status).toBe(403);
    const without = { ...consent, html: consent.html.replace(/<input[^>]+name="token"[^>]+>/, '') };
    expect((await agent.submit(without, { fields: { answer: 'allow' } })).status).toBe(403);
  });

  it('signs nobody in by a form of another page', async () => {
    const agent = on.browser();
    const who = await agent.follow(await agent.get(on.attempt(await register()).url));
    const forged = {
      ...who,
      html: who.html.replaceAll(/name="token" value="[^"]+"/g, 'name="token" value="x"'),
    };
    const link = await on.link('mallory');
    expect((await agent.submit(forged, { fields: { link } })).status).toBe(403);
    // The link is still good.
    expect((await agent.submit(who, { fields: { link } })).status).toBe(303);
  });

  it('is given once', async () => {
    const agent = on.browser();
    const consent = await on.toConsent(agent, on.attempt(await register()).url);
    await on.answer(agent, consent);
    const again = await agent.submit(consent, { fields: { answer: 'allow' } });
    expect(again.status).toBe(400);
  });

  it('is not withdrawn by a later answer, and one is good for one code', async () => {
    const agent = on.browser();
    const consent = await on.toConsent(agent, on.attempt(await register()).url);
    const denied = await agent.submit(consent, { fields: { answer: 'deny' } });
    const second = await agent.submit(consent, { fields: { answer: 'allow' } });
    expect(second.headers.get('location')).toBe(denied.headers.get('location'));
    const back = await agent.get(denied.headers.get('location') ?? '');
    expect(back.headers.get('location')).toContain('error=access_denied');

    const other = on.browser();
    const page = await on.toConsent(other, on.attempt(await register()).url);
    const allowed = await other.submit(page, { fields: { answer: 'allow' } });
    const resume = allowed.headers.get('location') ?? '';
    const backs = await Promise.all(Array.from({ length: 6 }, () => other.get(resume)));
    const codes = backs.filter(({ headers }) => headers.get('location')?.includes('code=') === true);
    expect(codes).toHaveLength(1);
  });

  it('can be given by somebody else than who is signed in to the pages', async () => {
    const agent = on.browser();
    const consent = await on.toConsent(agent, on.attempt(await register()).url, 'kim');
    const who = await agent.follow(await agent.submit(consent, { formIndex: 1 }));
    const again = await agent.follow(await agent.submit(who, { fields: { link: await on.link('lee') } }));
    expect([again.html.includes('lee'), again.html.includes('kim')]).toEqual([true, false]);
  });

  it('is not shown in a frame, and is kept by no cache', async () => {
    const page = await on.toConsent(on.browser(), on.attempt(await register()).url);
    expect(page.headers.get('content-security-policy')).toContain("frame-ancestors 'none'");
    expect(page.headers.get('cache-control')).toBe('no-store');
    expect(page.headers.get('referrer-policy')).toBe('no-referrer');
  });

  it('is void if the user was revoked while the page was open', async () => {
    const agent = on.browser();
    const consent = await on.toConsent(agent, on.attempt(await register()).url, 'helen');
    await on.sb.post('/v1/identity/revoke', { user_id: 'helen' });
    const page = await agent.submit(consent, { fields: { answer: 'allow' } });
    expect(page.headers.get('location')).toBeNull();
    const { attempt, back } = await coded('ida');
    await on.sb.post('/v1/identity/revoke', { user_id: 'ida' });
    expect((await on.redeem(attempt, back)).json.error).toBe('invalid_grant');
  });
});

describe('what anybody may send', () => {
  const post = (path: string, body: object) =>
    on.ask(`${PUBLIC_URL}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });

  it('has one spelling, so that its limit holds', async () => {
    for (const path of ['/auth/register/', '/auth/REGISTER', '/auth//register', '/auth/token/'])
      expect((await post(path, { redirect_uris: ['https://app.example/'] })).status).toBe(404);
  });

  it('is short, because it is kept', async () => {
    expect((await on.register({ client_uri: `https://app.example/${'x'.repeat(9_000)}` })).status).toBe(413);
    const { url } = on.attempt(await register(), { state: 'x'.repeat(9_000) });
    expect((await on.browser().get(url)).status).toBe(413);
  });

  it('does not lead to places of others', async () => {
    for (const scheme of ['ftp:', 'ms-msdt:', 'view-source:', 'mailto:'])
      expect((await on.register({ redirect_uris: [`${scheme}//x/y`] })).status).toBe(400);
  });

  it('cannot hide what it is named', async () => {
    const { json } = await on.register({ client_name: 'a\u0000b\u202e\u001bc' });
    expect(json.client_name).not.toMatch(/\p{Cc}|\p{Cf}/u);
  });

  it('cannot ask for a form that the page does not send', async () => {
    const attempt = on.attempt(await register(), { response_mode: 'form_post' });
    const agent = on.browser();
    const back = await on.answer(agent, await on.toConsent(agent, attempt.url));
    expect((await on.redeem(attempt, back)).status).toBe(200);
  });
});

it('nothing that opens anything is in the database, nor in the log', async () => {
  const { json: client } = await on.register({
    redirect_uris: ['https://app.example/callback'],
    token_endpoint_auth_method: 'client_secret_post',
  });
  const agent = on.browser();
  const attempt = on.attempt(client.client_id, { redirect_uri: 'https://app.example/callback' });
  const back = await on.answer(agent, await on.toConsent(agent, attempt.url, 'jane'));
  const code = back.searchParams.get('code') ?? '';
  const { json: tokens } = await on.redeem(attempt, back, { client_secret: client.client_secret });
  const secrets = [code, client.client_secret, tokens.access_token, tokens.refresh_token, attempt.verifier];
  const bearers =
    [...agent.trace, '']
      .join(' ')
      .match(/consent\/[\w-]{20,}/g)
      ?.map(path => path.slice(8)) ?? [];
  expect(secrets.every(secret => typeof secret === 'string' && secret.length >= 20)).toBe(true);
  expect(bearers.length).toBeGreaterThan(0);
  const { db } = database;
  const named = sql`select table_name as name from information_schema.tables where table_schema = 'public'`;
  const dumped = [];
  for (const { name } of await rows<{ name: string }>(db, named))
    dumped.push(JSON.stringify(await rows(db, sql.raw(`select *, ${name}::text from "${name}"`))));
  const dump = dumped.join('\n');
  expect(dump).toContain('RefreshToken');
  for (const secret of [...secrets, ...bearers]) {
    expect(dump).not.toContain(secret);
    expect(dump).not.toContain(Buffer.from(secret).toString('hex'));
  }
  for (const secret of secrets) expect(on.sb.logged()).not.toContain(secret);
});
