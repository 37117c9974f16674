import { eq, sql } from 'drizzle-orm';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tenants } from '../../../src/core/access/schema.ts';
import { formToken } from '../../../src/api/pages/cookies.ts';
import { authSessions } from '../../../src/core/identity/schema.ts';
import { newSecret } from '../../../src/platform/ids.ts';
import { startProtectedServer, type ProtectedServer } from '../../support/authorization/protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { browserMissing, newVisitor, startBrowser } from '../../support/browser.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { expectNothingStrayed, expectWellMade, press, tab } from '../../support/pages.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';
import { listen } from '../../support/upstreams/http.ts';

const TITLE = 'Your connected accounts';
const MINUTE = 60_000;
const KEY = 'key-of-alice-0123';
const HOSTILE = `"><script>globalThis.pwned=1</script><img src=x onerror="globalThis.pwned=1">`;

describe.skipIf(browserMissing !== undefined)(`a user's page ${browserMissing ?? ''}`, () => {
  let sb: IdentityUnderTest;
  let browser: Browser;
  let home: AuthorizationServer;
  let notes: ProtectedServer;
  let keyed: AuthorisedServer;
  let mail: AuthorisedServer;
  let users = 0;

  beforeAll(async () => {
    browser = await startBrowser();
    home = await startAuthorizationServer({ asks: true });
    notes = await startProtectedServer({ authorizationServer: home });
    keyed = await startAuthorised('modern', ({ authorization }) => authorization === `Bearer ${KEY}`);
    mail = await startAuthorised('legacy');
    sb = await startIdentity({
      allowedOrigins: [mail.origin],
      env: { SWITCHBOARD_RATE_LIMIT: 'off' },
      catalogue: [
        { id: 'notes', name: 'Notes', remote_url: notes.url },
        {
          id: 'weather',
          name: 'Weather Office',
          description: `Forecasts for your town, ${'every hour '.repeat(50)}`,
          remote_url: keyed.url,
          auth: { kind: 'credentials' },
        },
        {
          id: 'hostile',
          name: HOSTILE,
          description: HOSTILE,
          remote_url: keyed.url,
          auth: { kind: 'credentials' },
        },
        { ...actingForUsers('mail', mail.url), name: 'Letters' },
      ],
    });
    await sb.db.update(tenants).set({ name: 'Planner' }).where(eq(tenants.id, 'local'));
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    for (const server of [notes, keyed, mail, home]) await server[Symbol.asyncDispose]();
    await browser.close();
  });

  const open = (options = {}) => newVisitor(browser, { javaScriptEnabled: false, ...options });
  const newUser = () => `user-${++users}`;
  const newLink = async (user: string) =>
    (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;
  const connections = async (user: string) =>
    (await sb.get(`/v1/identity/connections?user_id=${encodeURIComponent(user)}`)).json.connections;
  const call = (user: { readonly key: string }, server: string, tool = 'echo') =>
    sb.post(
      '/v1/mcp/tools/call',
      { server_id: server, name: tool, arguments: { message: 'a secret' } },
      { 'x-api-key': user.key },
    );
  const sessions = () => sb.db.$count(authSessions);

  /** A user with a key of their own, as an IDE has one. */
  async function newKeyUser(name = 'laptop', user = newUser()) {
    const made = await sb.admin.request('POST', '/keys', { name, user_id: user });
    return { user, key: made.json.key as string };
  }

  async function enter(page: Page, user: string) {
    await page.goto(await newLink(user));
    await page.getByRole('button', { name: 'Continue' }).click();
    await expectWellMade(page, TITLE);
  }

  const entryOf = (page: Page, name: string) =>
    page.getByRole('listitem').filter({ has: page.getByRole('heading', { name }) });
  const callsOn = (page: Page) =>
    page
      .locator('li.call > p:first-child')
      .allInnerTexts()
      .then(all => all.map(text => text.replaceAll(/\s+/g, ' ')));

  it('leads from a call that was refused to one that works, at 320 pixels and in the dark too', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 }, colorScheme: 'dark' });
    const page = await visitor.context.newPage();
    const user = await newKeyUser();
    await enter(page, user.user);
    const empty = await page.locator('main').innerText();
    for (const text of ['No account is connected.', 'Nothing was called for you'])
      expect(empty).toContain(text);
    expect((await call(user, 'notes')).status).toBe(403);

    await page.reload();
    await expectWellMade(page, TITLE);
    expect(await callsOn(page)).toEqual(['Notes echo refused: not connected']);
    await page.getByRole('button', { name: 'Connect Notes (notes)' }).click();
    await expectWellMade(page, 'Connect Notes');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('link', { name: 'Allow' }).click();
    await expectWellMade(page, 'Connected');
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    await expectWellMade(page, TITLE);
    expect(page.url()).toBe(`${sb.url}/manage`);
    const entry = await entryOf(page, 'Notes').innerText();
    for (const text of ['works', 'you, on this page', 'Whatever the account may do there'])
      expect(entry).toContain(text);
    expect(await page.getByRole('button', { name: 'Connect Notes' }).count()).toBe(0);

    expect((await call(user, 'notes')).status).toBe(200);
    expect((await call(user, 'notes', 'no-such-tool')).status).not.toBe(200);
    await page.reload();
    expect(await callsOn(page)).toEqual(
      expect.arrayContaining(['Notes echo worked', 'Notes echo refused: not connected']),
    );
    expect(await page.locator('main').innerText()).toContain('your own key “laptop”');
    expect(await page.locator('main').innerText()).not.toContain('a secret');
    expectNothingStrayed(visitor, sb.url);
  });

  it('renews an account at an identity provider that must be connected again', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = newUser();
    await sb.connect(user);
    await sb.db.execute(
      sql`update connections set status = 'needs_reauth', sealed = null where account = ${`${user}@example.test`}`,
    );
    await enter(page, user);
    expect(await entryOf(page, 'Local Provider').innerText()).toContain('Must be connected again');
    await page.getByRole('button', { name: `Connect again Local Provider, ${user}@example.test` }).click();
    await expectWellMade(page, 'Connect your Local Provider account');
    await page.getByRole('button', { name: 'Continue to Local Provider' }).click();
    await page.locator('[name=login]').fill(user);
    await page.locator('[name=password]').fill('any');
    await page.locator('[type=submit]').click();
    await page.locator('[type=submit]').click();
    await expectWellMade(page, 'Connect this account?');
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    await expectWellMade(page, TITLE);
    const entry = await entryOf(page, 'Local Provider').innerText();
    expect(entry).toContain('works');
    expect(entry).toContain('you, on this page');
    expect(await connections(user)).toMatchObject([{ status: 'active' }]);
    expectNothingStrayed(visitor, sb.url);
  });

  it('offers the account that a server of an identity provider needs', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = await newKeyUser();
    expect((await call(user, 'mail')).status).toBe(403);
    await enter(page, user.user);
    await page.getByRole('button', { name: 'Connect Letters (mail)' }).click();
    await expectWellMade(page, 'Connect your Local Provider account');
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    await expectWellMade(page, TITLE);
  });

  it('finds a server by a search without script, by keyboard, and takes its key', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = newUser();
    await page.goto(`${sb.url}/manage`);
    await expectWellMade(page, 'You need a link from your app');
    await page.goto(await newLink(user));
    expect(await page.locator('main').innerText()).toContain('asked Planner for this link');
    await enter(page, user);
    await page.getByLabel('Find a server').fill('weather office');
    await press(page, 'Enter');
    await expectWellMade(page, TITLE);
    expect(await page.locator('.offer').first().innerText()).toContain('Forecasts for your town');
    expect(new URL(page.url()).hash).toBe('#connect');
    await page.getByRole('button', { name: 'Connect Weather Office (weather)' }).click();
    await expectWellMade(page, 'Enter a key');
    await page.getByLabel('Key or token').fill('wrong');
    await page.getByRole('button', { name: 'Connect' }).click();
    expect(await page.getByRole('alert').innerText()).toContain('refused');
    await page.getByLabel('Key or token').fill(KEY);
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    await expectWellMade(page, TITLE);
    expect(await connections(user)).toMatchObject([{ server_id: 'weather', status: 'active' }]);
    // The server refuses it later, and the user enters another one.
    await sb.db.execute(sql`update connections set status = 'rejected' where provider = 'server:weather'`);
    await page.reload();
    expect(await entryOf(page, 'Weather Office').innerText()).toContain('Refused by the server');
    await page.getByRole('button', { name: /^Enter another key/ }).click();
    await page.getByLabel('Key or token').fill(KEY);
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    expect(await entryOf(page, 'Weather Office').innerText()).toContain('works');
    await page.getByLabel('Find a server').fill('weather office');
    await press(page, 'Enter');
    expect(await page.getByRole('button', { name: 'Connect Weather' }).count()).toBe(0);
    await tab(page);
    // What the user has ended can be connected again at once.
    await page.getByRole('button', { name: /^(Revoke|Delete).* Weather Office/ }).click();
    await page.getByLabel('Find a server').fill('weather office');
    await press(page, 'Enter');
    expect(await page.getByRole('button', { name: 'Connect Weather' }).count()).toBe(1);
    expectNothingStrayed(visitor, sb.url);
  });

  it('shows the newest hundred of ten thousand calls, page by page', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = await newKeyUser();
    await sb.db.execute(sql`
      insert into user_calls (tenant_id, user_id, minute, server_id, tool, key_id, outcome, times, last_at)
      select tenant_id, id, now() - make_interval(mins => n), 'notes', 'tool-' || n, 'environment', 'failed', 2,
        now() - make_interval(mins => n)
      from users, generate_series(1, 10000) n where external_id = ${user.user}`);
    await enter(page, user.user);
    expect(await callsOn(page)).toHaveLength(5);
    await page.getByRole('link', { name: 'All 100 entries…' }).click();
    await expectWellMade(page, 'Called for you lately');
    const seen: string[] = await callsOn(page);
    for (const at of [2, 3, 4]) {
      await page.getByRole('link', { name: 'Older' }).click();
      await expectWellMade(page, 'Called for you lately');
      expect(page.url()).toBe(`${sb.url}/manage/calls?page=${at}`);
      seen.push(...(await callsOn(page)));
    }
    expect(seen).toEqual(Array.from({ length: 100 }, (_, at) => `Notes tool-${at + 1} failed`));
    expect(await page.getByRole('link', { name: 'Older' }).count()).toBe(0);
    await page.goto(`${sb.url}/manage/calls?page=99999&page=x`);
    expect(await callsOn(page)).toHaveLength(25);
    await page.getByRole('link', { name: 'Back to your connections' }).click();
    await expectWellMade(page, TITLE);
    expectNothingStrayed(visitor, sb.url);
  });

  it('runs no script that a name, a key or a tool holds', async () => {
    await using visitor = await open({ javaScriptEnabled: true });
    const page = await visitor.context.newPage();
    const user = await newKeyUser(HOSTILE, `${HOSTILE}-${newUser()}`);
    await sb.put('/v1/identity/connections', {
      user_id: user.user,
      server_id: 'hostile',
      values: { token: KEY },
    });
    await call(user, 'hostile', HOSTILE);
    await call(user, 'notes', HOSTILE);
    await sb.db.update(tenants).set({ name: HOSTILE }).where(eq(tenants.id, 'local'));
    try {
      await enter(page, user.user);
      await page.getByLabel('Find a server').fill(HOSTILE);
      await press(page, 'Enter');
      await page.goto(
        `${sb.url}/manage?find=${encodeURIComponent(HOSTILE)}&note=${encodeURIComponent(HOSTILE)}`,
      );
      await expectWellMade(page, TITLE);
      expect(await page.getByLabel('Find a server').inputValue()).toBe(HOSTILE);
      expect(await page.locator('main').innerText()).toContain('globalThis.pwned');
      expect(await page.locator('main script, main img').count()).toBe(0);
      await page.goto(`${sb.url}/manage/calls`);
      expect(await page.locator('main script, main img').count()).toBe(0);
      expect(await page.evaluate(() => 'pwned' in globalThis)).toBe(false);
    } finally {
      await sb.db.update(tenants).set({ name: 'Planner' }).where(eq(tenants.id, 'local'));
    }
    expectNothingStrayed(visitor, sb.url);
  });

  it('refuses to connect anything from another site, without its token, or by GET', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = await newKeyUser();
    await call(user, 'notes');
    await enter(page, user.user);
    const before = await sessions();
    await using evil = await listen((_request, response) => {
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end(
          `<!doctype html><form method="post" action="${sb.url}/manage/connect"><input name="server" value="notes"><button>Win</button></form>`,
        );
    });
    await page.goto(evil.origin.replace('127.0.0.1', 'localhost'));
    await page.getByRole('button').click();
    await expectWellMade(page, 'This request was refused');
    const cookie = (await visitor.context.cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
    const headers = { cookie, 'content-type': 'application/x-www-form-urlencoded' };
    const forged = await fetch(`${sb.url}/manage/connect`, { method: 'POST', headers, body: 'server=notes' });
    expect(forged.status).toBe(403);
    expect((await fetch(`${sb.url}/manage/connect?server=notes`, { headers: { cookie } })).status).toBe(405);
    expect(await sessions()).toBe(before);
  });

  it('keeps two tabs apart: what one has ended the other cannot use, nor can one user`s tab act for another', async () => {
    await using visitor = await open();
    const [one, other] = [await visitor.context.newPage(), await visitor.context.newPage()];
    const user = newUser();
    await sb.connect(user);
    await enter(one, user);
    await other.goto(`${sb.url}/manage`);
    await other.getByRole('button', { name: /^Revoke/ }).click();
    await one.getByRole('button', { name: /^Sign in again/ }).click();
    await expectWellMade(one, 'This cannot be connected now');
    await one.goBack();
    await one.goto(`${sb.url}/manage`);
    expect(await one.locator('main').innerText()).toContain('No account is connected.');

    await sb.connect(user);
    await one.reload();
    const second = newUser();
    await sb.connect(second);
    await enter(other, second);
    await one.getByRole('button', { name: /^Revoke/ }).click();
    await expectWellMade(one, 'This request was refused');
    for (const name of [user, second]) expect(await connections(name)).toHaveLength(1);
  });

  it('starts sign-ins that only its own browser can go on with, whoever gets the link', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    await using victim = await open();
    const stranger = await victim.context.newPage();
    const user = await newKeyUser();
    await enter(page, user.user);
    for (const [server, title, button] of [
      ['notes', 'Connect Notes', 'Continue'],
      ['weather', 'Enter a key', 'Connect'],
    ] as const) {
      await call(user, server);
      await page.goto(`${sb.url}/manage`);
      await page.getByRole('button', { name: `(${server})` }).click();
      await expectWellMade(page, title);
      await stranger.goto(page.url());
      await expectWellMade(stranger, 'This link no longer works');
      const secret = newSecret('web');
      const fields = { token: formToken(secret), 'value.token': KEY };
      const sent = await fetch(page.url(), {
        method: 'POST',
        redirect: 'manual',
        headers: { cookie: `sb_browser=${secret}` },
        body: new URLSearchParams(fields),
      });
      expect(sent.status).toBe(400);
      expect(await connections(user.user)).toEqual([]);
      expect(await page.getByRole('button', { name: button }).count()).toBe(1);
    }
    await page.getByLabel('Key or token').fill(KEY);
    await page.getByRole('button', { name: 'Connect' }).click();
    await expectWellMade(page, 'Connected');
    expect(await connections(user.user)).toMatchObject([{ server_id: 'weather' }]);
  });

  it('expires after a quarter of an hour, with everything on it', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const user = await newKeyUser();
    await call(user, 'notes');
    await enter(page, user.user);
    const before = await sessions();
    await sb.elapse(15 * MINUTE);
    await page.getByRole('button', { name: 'Connect Notes (notes)' }).click();
    await expectWellMade(page, 'This page has expired');
    for (const path of ['/manage/calls', '/manage?find=notes']) {
      await page.goto(`${sb.url}${path}`);
      await expectWellMade(page, 'This page has expired');
    }
    expect(await sessions()).toBe(before);
  });

  it('is reached by a sign-in with a provider on another site', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 } });
    const page = await visitor.context.newPage();
    const user = `${newUser()}@example.test`;
    await newLink(user);
    const sign_in = { provider: 'local', user_id: 'email' };
    await sb.admin.request('POST', '/tenants/local', { sign_in });
    await page.goto(`${sb.url}/manage/sign-in/local`);
    await expectWellMade(page, TITLE);
    const [asked] = await Promise.all([
      page.waitForRequest(request => request.url().includes('client_id=')),
      page.getByRole('button', { name: 'Sign in with Local Provider' }).click(),
    ]);
    expect(new URL(page.url()).origin).toBe(sb.idp.issuer);
    // The provider of this test is on our site; a page on another one stands for its redirect.
    const callback = await sb.authorize(asked.url(), { login: user });
    await using elsewhere = await listen((_request, response) => {
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end(`<!doctype html><a href="${callback.replaceAll('&', '&amp;')}">Back</a>`);
    });
    await page.goto(elsewhere.origin.replace('127.0.0.1', 'localhost'));
    await page.getByRole('link', { name: 'Back' }).click();
    await expectWellMade(page, 'You are signed in');
    expect(page.url()).toBe(`${sb.url}/manage/signed-in`);
    await page.getByRole('link', { name: 'Show your connections' }).click();
    await expectWellMade(page, TITLE);
    expect(await page.locator('main').innerText()).toContain(user);
    expectNothingStrayed(visitor, sb.url);
  });

  it('leaves it to the app to confirm, where the tenant demands that', async () => {
    await using app = await listen((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Planner</title>');
    });
    const return_url = `${app.origin}/connected`;
    await sb.admin.request('POST', '/tenants/local', { return_urls: [return_url], mode: 'caller' });
    try {
      await using visitor = await open();
      const page = await visitor.context.newPage();
      const user = await newKeyUser();
      await call(user, 'mail');
      const confirm = () => {
        const { session_id, code } = Object.fromEntries(new URL(page.url()).searchParams);
        return sb.post(`/v1/identity/sessions/${session_id}/confirm`, { code, user_id: user.user });
      };
      await enter(page, user.user);
      await page.getByRole('button', { name: 'Connect Letters (mail)' }).click();
      await expectWellMade(page, 'Connect an account');
      await page.getByRole('link', { name: 'Continue to' }).click();
      await page.locator('[name=login]').fill(user.user);
      await page.locator('[name=password]').fill('any');
      await page.locator('[type=submit]').click();
      await page.locator('[type=submit]').click();
      await page.waitForURL(`${return_url}?**`);
      expect(await connections(user.user)).toEqual([]);
      expect((await confirm()).json).toEqual({ status: 'complete' });
      expect(await connections(user.user)).toMatchObject([{ provider: 'local' }]);
    } finally {
      await sb.admin.request('POST', '/tenants/local', { return_urls: [], mode: 'direct' });
    }
  });
});
