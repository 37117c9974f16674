import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { eq } from 'drizzle-orm';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tenants } from '../../../src/core/access/schema.ts';
import { browserMissing, newVisitor, startBrowser, type Visitor } from '../../support/browser.ts';
import { expectNothingStrayed, expectWellMade, press, styleOf, tab } from '../../support/pages.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { listen } from '../../support/upstreams/http.ts';
import { startAuthorised, type AuthorisedServer } from '../../support/upstreams/authorised.ts';

describe.skipIf(browserMissing !== undefined)(`in a browser without script ${browserMissing ?? ''}`, () => {
  let sb: IdentityUnderTest;
  let browser: Browser;
  let keyed: AuthorisedServer;
  let users = 0;
  const newUser = () => `user-${++users}`;

  beforeAll(async () => {
    browser = await startBrowser();
    keyed = await startAuthorised(
      'modern',
      ({ authorization }) => authorization === 'Bearer key-of-alice-0123',
    );
    sb = await startIdentity({
      catalogue: [
        {
          id: 'weather',
          name: 'Weather Office',
          remote_url: keyed.url,
          auth: {
            kind: 'credentials',
            key_url: 'https://weather.example/keys',
            headers: [
              { name: 'Authorization', value: 'Bearer {token}', description: 'From your account page.' },
              { name: 'X-Region', required: false, secret: false, choices: ['eu', 'us'] },
            ],
          },
        },
      ],
    });
    await sb.db.update(tenants).set({ name: 'Planner' }).where(eq(tenants.id, 'local'));
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    await keyed[Symbol.asyncDispose]();
    await browser.close();
  });

  const open = (options = {}) => newVisitor(browser, { javaScriptEnabled: false, ...options });
  const create = async (more: object = {}, user = newUser()) =>
    (await sb.createSession(user, more)).json as { session_id: string; auth_url: string };
  const manageLink = async (user: string) =>
    (await sb.post('/v1/identity/manage', { user_id: user })).json.url as string;

  /** The provider's own pages: login, then consent. */
  async function signInAtProvider(page: Page, login: string) {
    expect(new URL(page.url()).origin).toBe(sb.idp.issuer);
    await page.locator('[name=login]').fill(login);
    await page.locator('[name=password]').fill('any');
    await page.locator('[type=submit]').click();
    await page.locator('[type=submit]').click();
    expect(new URL(page.url()).origin).toBe(sb.url);
  }

  const expectQuiet = (visitor: Visitor) => expectNothingStrayed(visitor, sb.url);

  it('the direct way ends on a page that can undo it', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const { auth_url, session_id } = await create();
    await page.goto(auth_url);
    await signInAtProvider(page, 'alice');
    await expectWellMade(page, 'Connected');
    expect(await page.getByRole('status').innerText()).toContain('Planner can now use alice@example.test');
    expect((await sb.poll(session_id)).json).toEqual({ status: 'complete' });
    await page.getByRole('button', { name: 'Undo' }).click();
    await expectWellMade(page, 'Undone');
    expect((await sb.token(session_id)).status).toBe(400);
    expectQuiet(visitor);
  });

  it('where the app confirms, the browser ends there, from the provider`s page and from ours', async () => {
    await using app = await listen((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Planner</title>');
    });
    const return_url = `${app.origin}/connected`;
    await sb.admin.request('POST', '/tenants/local', { return_urls: [return_url] });
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const arrived = () => Object.fromEntries(new URL(page.url()).searchParams);
    const user = newUser();
    const confirm = () => {
      const { session_id, code } = arrived();
      return sb.post(`/v1/identity/sessions/${session_id}/confirm`, { code, user_id: user });
    };

    const { auth_url } = await create({ mode: 'caller', return_url }, user);
    await page.goto(auth_url);
    await page.locator('[name=login]').fill(user);
    await page.locator('[name=password]').fill('any');
    await page.locator('[type=submit]').click();
    await page.locator('[type=submit]').click();
    await page.waitForURL(`${return_url}?**`);
    expect((await confirm()).json).toEqual({ status: 'complete' });

    const body = { user_id: user, server_id: 'weather', mode: 'caller', return_url };
    const { json } = await sb.post('/v1/identity/sessions', body);
    await page.goto(json.auth_url);
    await page.getByLabel('Key or token').fill('key-of-alice-0123');
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.waitForURL(`${return_url}?**`);
    expect((await confirm()).json).toEqual({ status: 'complete' });
    expect(visitor.complaints.filter(text => /security policy/i.test(text))).toEqual([]);
  });

  it('a key is entered on our page, at 320 pixels and in the dark too, and deleted on the page of connections', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 }, colorScheme: 'dark' });
    const page = await visitor.context.newPage();
    const user = newUser();
    const created = await sb.post('/v1/identity/sessions', { user_id: user, server_id: 'weather' });
    await page.goto(created.json.auth_url);
    await expectWellMade(page, 'Enter a key');
    const key = page.getByLabel('Key or token');
    expect(await key.getAttribute('type')).toBe('password');
    expect(await page.getByText('From your account page.').count()).toBe(1);
    await key.fill('key-that-is-wrong');
    await page.getByRole('button', { name: 'Connect' }).click();
    expect(await page.getByRole('alert').innerText()).toContain('refused');
    expect(await key.inputValue()).toBe('');
    await key.fill('key-of-alice-0123');
    await page.getByLabel('X-Region').selectOption('eu');
    await page.getByRole('button', { name: 'Connect' }).click();
    await expectWellMade(page, 'Connected');
    expect(await page.getByRole('status').innerText()).toContain('Planner can now use Weather Office');
    expect((await sb.poll(created.json.session_id)).json).toEqual({ status: 'complete' });

    await page.goto(await manageLink(user));
    await page.getByRole('button', { name: 'Continue' }).click();
    await expectWellMade(page, 'Your connected accounts');
    await page.getByRole('button', { name: /^Delete/ }).click();
    expect(await page.getByRole('status').innerText()).toContain('The key was deleted.');
    expectQuiet(visitor);
  });

  it('the way over our page needs the click, at 320 pixels and in the dark too', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 }, colorScheme: 'dark' });
    const page = await visitor.context.newPage();
    const user = newUser();
    const { auth_url, session_id } = await create({ mode: 'page' }, user);
    await page.goto(auth_url);
    await expectWellMade(page, 'Connect your Local Provider account');
    await page.getByRole('button', { name: 'Continue to Local Provider' }).click();
    await signInAtProvider(page, 'alice');
    await expectWellMade(page, 'Connect this account?');
    expect(await page.getByRole('heading', { level: 1 }).innerText()).toBe(
      `Connect alice@example.test to Planner as ${user}?`,
    );
    expect((await sb.poll(session_id)).json).toEqual({ status: 'pending' });
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await expectWellMade(page, 'Connected');
    // Going back and clicking again changes nothing more.
    await page.goBack();
    expect((await sb.poll(session_id)).json).toEqual({ status: 'complete' });
    expectQuiet(visitor);
  });

  it('declining connects nothing', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const { auth_url, session_id } = await create({ mode: 'page' });
    await page.goto(auth_url);
    await page.getByRole('button').click();
    await signInAtProvider(page, 'alice');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await expectWellMade(page, 'Not connected');
    expect(await page.getByRole('alert').innerText()).toContain('nothing was connected');
    expect((await sb.poll(session_id)).json).toMatchObject({ status: 'error' });
    expectQuiet(visitor);
  });

  it('53: a sign-in cannot be finished in another browser', async () => {
    await using first = await open();
    await using second = await open();
    const page = await first.context.newPage();
    const { auth_url, session_id } = await create({ mode: 'page' });
    await page.goto(auth_url);
    await page.getByRole('button').click();
    await signInAtProvider(page, 'alice');
    const elsewhere = await second.context.newPage();
    expect((await elsewhere.goto(page.url()))?.status()).toBe(404);
    await elsewhere.goto(auth_url);
    await expectWellMade(elsewhere, 'This link no longer works');
    expect((await sb.poll(session_id)).json).toEqual({ status: 'pending' });
    await page.getByRole('button', { name: 'Connect', exact: true }).click();
    await expectWellMade(page, 'Connected');
  });

  it('connections are seen and ended from a link on another site', async () => {
    const user = newUser();
    await sb.connect(user);
    // `localhost` is another site than 127.0.0.1, as the app is: SameSite=Strict must not lose the cookie.
    await using app = await startApp(await manageLink(user));
    await using visitor = await open();
    const page = await visitor.context.newPage();
    await page.goto(app.url);
    await page.getByRole('link').click();
    await expectWellMade(page, 'Your connected accounts');
    await page.getByRole('button', { name: 'Continue' }).click();
    await expectWellMade(page, 'Your connected accounts');
    expect(page.url()).toBe(`${sb.url}/manage`);
    await page.getByRole('link', { name: 'Disconnect everything' }).click();
    await expectWellMade(page, 'Disconnect everything?');
    await page.getByRole('link', { name: 'Keep them' }).click();
    await page.getByRole('button', { name: `Revoke Local Provider, ${user}@example.test` }).click();
    expect(await page.getByRole('status').innerText()).toContain('Disconnected.');
    await page.getByRole('link', { name: 'Disconnect everything' }).click();
    await page.getByRole('button', { name: 'Disconnect everything' }).click();
    await expectWellMade(page, 'All connections were removed');
    expectQuiet(visitor);
  });

  it('a form on another site is refused, with the cookies of the page or not', async () => {
    const user = newUser();
    await sb.connect(user);
    await using visitor = await open();
    const page = await visitor.context.newPage();
    await page.goto(await manageLink(user));
    await page.getByRole('button').click();
    await using app = await startApp(`${sb.url}/manage/revoke-all`, 'post');
    await page.goto(app.url);
    await page.getByRole('button').click();
    await expectWellMade(page, 'This request was refused');
    expect((await sb.get(`/v1/identity/connections?user_id=${user}`)).json.connections).toHaveLength(1);
  });

  it('works by keyboard alone, and shows where it is', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const { auth_url, session_id } = await create({ mode: 'page' });
    await page.goto(auth_url);
    const focused = page.locator(':focus');
    await tab(page);
    expect(await focused.innerText()).toBe('Continue to Local Provider');
    expect(await styleOf(focused, 'outlineWidth')).toBe('3px');
    await press(page, 'Enter');
    await signInAtProvider(page, 'alice');
    await tab(page);
    expect(await focused.innerText()).toBe('Connect');
    await tab(page);
    expect(await focused.innerText()).toBe('Cancel');
    await tab(page, 'Shift+Tab');
    await press(page, 'Space');
    await expectWellMade(page, 'Connected');
    expect((await sb.poll(session_id)).json).toEqual({ status: 'complete' });
    await tab(page);
    expect(await focused.innerText()).toBe('Undo');
    await press(page, 'Enter');
    await expectWellMade(page, 'Undone');
  });
});

/** A page of the app, on another site than Switchboard, with one link or one form. */
async function startApp(target: string, how: 'link' | 'post' = 'link') {
  const markup =
    how === 'link'
      ? `<a href="${target}">Your accounts</a>`
      : `<form method="post" action="${target}"><button>Win</button></form>`;
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'text/html').end(`<!doctype html><title>App</title>${markup}`);
  });
  await new Promise<void>(resolve => void server.listen(0, resolve));
  return {
    url: `http://localhost:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
  };
}
