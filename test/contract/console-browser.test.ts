import { readFileSync } from 'node:fs';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { startProtectedServer, type ProtectedServer } from '../support/authorization/protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../support/authorization/server.ts';
import { browserMissing, startBrowser } from '../support/browser.ts';
import {
  expectFits,
  expectUsable,
  openConsole,
  screenSettled,
  signInWith,
  type Operator,
} from '../support/console.ts';
import { isFullRun } from '../support/full-run.ts';
import { startIdentity, type IdentityUnderTest } from '../support/identity.ts';
import { expectNothingStrayed } from '../support/pages.ts';
import { startTestSwitchboard } from '../support/switchboard.ts';
import { startAuthorised, type AuthorisedServer } from '../support/upstreams/authorised.ts';

/** A text that runs as a script wherever it is taken for markup. */
const HOSTILE = `"'><img src=x onerror="globalThis.hacked=1;alert(1)"><script>globalThis.hacked=1</script>`;
/** The API takes ids of users as they are. */
const HOSTILE_USER = `\u{202e}\u{200b}${HOSTILE}`;
const SCRIPT_URL = 'javascript:globalThis.hacked=1';

/** Storing more takes too long for every run. */
const MANY = isFullRun ? 10_000 : 2_000;

/** A dialog that closes gives the focus back once it is gone. */
const expectFocused = (one: Locator) =>
  vi.waitFor(async () => {
    const isFocused = (element: unknown) => (globalThis as any).document.activeElement === element;
    expect(await one.evaluate(isFocused)).toBe(true);
  }, 60_000);

const SCREENS = [
  '#/',
  '#/search?q=weather&about=filler',
  '#/catalogue',
  '#/catalogue/hostile',
  '#/connections',
  '#/setup',
  '#/keys',
  '#/keys/tenants',
  '#/keys/usage',
  '#/activity',
];

describe('the filter of the activity', () => {
  it('offers every event that is audited', () => {
    const namesIn = (file: string, list: RegExp) =>
      (list.exec(readFileSync(file, 'utf8'))?.[0] ?? '').match(/'\w+'/g)?.sort((a, b) => a.localeCompare(b));
    const audited = namesIn('src/core/access/audit.ts', /type AuditEvent =[^;]*;/);
    const offered = namesIn('src/api/console/static/screens/activity.js', /const EVENTS = \[[^\]]*\]/);
    expect(audited).toContain("'key_created'");
    expect(offered).toEqual(audited);
  });
});

describe.skipIf(browserMissing !== undefined)(`the console in a browser ${browserMissing ?? ''}`, () => {
  let browser: Browser;
  let keyed: AuthorisedServer;
  let accounts: AuthorizationServer;
  let notes: ProtectedServer;
  let sb: IdentityUnderTest;
  let readKey: string;

  beforeAll(async () => {
    browser = await startBrowser();
    keyed = await startAuthorised('modern', ({ authorization }) => authorization === 'Bearer key-0123456789');
    accounts = await startAuthorizationServer({ asks: true });
    notes = await startProtectedServer({ authorizationServer: accounts });
    sb = await startIdentity({
      // All tests share one key, within a minute or two.
      env: { SWITCHBOARD_RATE_LIMIT: 'admin=10000/60' },
      catalogue: [
        {
          id: 'filler',
          name: 'Filler',
          description: 'Reads the news.',
          remote_url: 'https://filler.example/mcp',
        },
        {
          id: 'hostile',
          name: `Weather ${HOSTILE}`,
          description: `Weather of a city. ${HOSTILE}`,
          remote_url: `https://hostile.example/mcp?${encodeURIComponent(HOSTILE)}`,
          homepage: `https://hostile.example/${encodeURIComponent(SCRIPT_URL)}`,
          categories: [HOSTILE.slice(0, 60)],
          tools: [
            {
              name: `weather ${HOSTILE}`,
              description: `Weather. ${HOSTILE}`,
              input_schema: { title: HOSTILE },
            },
          ],
        },
        { id: 'notes', name: 'Notes', remote_url: notes.url, auth: { kind: 'oauth' } },
        {
          id: 'keyed',
          name: 'Keyed',
          description: 'Echoes a message.',
          remote_url: keyed.url,
          auth: { kind: 'credentials' },
        },
      ],
    });
    await sb.post('/v1/admin/keys', { name: HOSTILE, tenant: 'planner', monthly_quota: { calls: 10 } });
    await sb.post('/v1/admin/tenants/planner', { name: HOSTILE.slice(0, 100) });
    const made = await sb.post('/v1/admin/keys', { name: 'Looks only', scopes: ['admin_read'] });
    readKey = made.json.key;
    const values = { values: { token: 'key-0123456789' }, server_id: 'keyed' };
    await sb.put('/v1/identity/connections', { ...values, user_id: HOSTILE_USER });
    await sb.put('/v1/identity/connections', { ...values, user_id: 'ada' });
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    for (const server of [keyed, notes, accounts]) await server[Symbol.asyncDispose]();
    await browser.close();
  });

  const signedIn = (options = {}) => openConsole(browser, sb, options);
  const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true });
  const dialog = (page: Page) => page.getByRole('dialog');
  const said = (page: Page, text: string | RegExp) =>
    page.locator('.messages').getByText(text).first().waitFor();

  /** No text has become a script or an element, and nothing came from elsewhere. */
  async function expectHarmless({ page, ...visitor }: Operator) {
    expect(await page.evaluate(() => 'hacked' in globalThis)).toBe(false);
    expect(await page.locator('#console').innerText()).not.toMatch(/[\u{200b}\u{202e}]/u);
    expect(await page.locator('#console img, #console script, a[href^="javascript"]').count()).toBe(0);
    expectNothingStrayed(visitor, sb.url);
  }

  it.each(['light', 'dark'] as const)(
    'shows texts of others as texts, accessibly, in %s colours',
    async colorScheme => {
      await using operator = await signedIn({ colorScheme });
      for (const screen of SCREENS) {
        await operator.open(screen);
        await expectUsable(operator.page);
        await expectHarmless(operator);
      }
      await operator.open('#/catalogue');
      expect(await operator.page.locator('table').innerText()).toContain('<img src=x');
    },
  );

  it('fits a phone', async () => {
    await using operator = await signedIn({
      viewport: { width: 360, height: 740 },
      hasTouch: true,
      isMobile: true,
    });
    const { page } = operator;
    for (const screen of SCREENS) {
      await operator.open(screen);
      await expectFits(page);
    }
    await button(page, 'Menu').click();
    await page.getByRole('link', { name: 'Connections', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'Connections' }).waitFor();
    await operator.settled();
    await button(page, 'Revoke Keyed, ada').click();
    await expectFits(page);
  });

  it('adds a server, stores its key, and calls a tool of it', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/catalogue');
    await page.keyboard.press('/');
    await page.keyboard.type('Added');
    await page.getByText('No server matches these filters.').waitFor();
    await button(page, 'Add a server').click();
    await dialog(page).waitFor();
    await page.keyboard.press('Escape');
    await dialog(page).waitFor({ state: 'detached' });
    await expectFocused(button(page, 'Add a server'));
    await button(page, 'Add a server').click();
    const form = dialog(page);
    await expectUsable(page);
    await form.getByLabel('Address').fill(keyed.url);
    await form.getByLabel('Name').fill('Added here');
    await form.getByLabel('Id (optional)').fill('Not An Id');
    await form.getByLabel('What it can do').fill('Echoes a message.');
    await form.getByLabel('Requires').selectOption('A key');
    await form.getByRole('button', { name: 'Add' }).click();
    expect(await form.isVisible()).toBe(true);
    await form.getByLabel('Id (optional)').fill('filler');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByText('There is a server with the id filler').waitFor();
    expect((await sb.get('/v1/admin/catalogue/filler')).json.name).toBe('Filler');
    await form.getByLabel('Id (optional)').fill('');
    await form.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('heading', { level: 1, name: 'Added here' }).waitFor();

    await button(page, 'Connect').click();
    await dialog(page).getByLabel('token').fill('key-0123456789');
    await dialog(page).getByRole('button', { name: 'Store' }).click();
    await said(page, /Stored the key of Added here/);
    await button(page, 'Refresh tools').click();
    await button(page, 'Try echo').click();
    await button(page, 'Write JSON').click();
    await dialog(page).getByLabel('Arguments as JSON').fill('{"message": }');
    await dialog(page).getByRole('button', { name: 'Call' }).click();
    await dialog(page).getByText('The arguments must be JSON').waitFor();
    await button(page, 'Use the form').click();
    await dialog(page).getByLabel('message').fill('hello from the console');
    await dialog(page).getByRole('button', { name: 'Call' }).click();
    await dialog(page).getByText('Done', { exact: true }).waitFor();
    expect(await dialog(page).locator('section pre').first().innerText()).toContain('hello from the console');
    await expectUsable(page);
    await page.keyboard.press('Escape');

    await button(page, 'Deactivate').click();
    await dialog(page).getByRole('button', { name: 'Deactivate', exact: true }).click();
    await button(page, 'Activate').waitFor();
    expect((await sb.get('/v1/admin/catalogue/added-here')).json.active).toBe(false);
    await expectHarmless(operator);
  });

  it('shows what an added server requires as soon as it has refused to list its tools', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/catalogue');
    await button(page, 'Add a server').click();
    const form = dialog(page);
    await form.getByLabel('Address').fill(keyed.url);
    await form.getByLabel('Name').fill('Finds out');
    await form.getByLabel('What it can do').fill('Echoes.');
    await form.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('heading', { level: 1, name: 'Finds out' }).waitFor();
    await said(page, /Finds out lists its tools only .* “Connect”/);
    await page.locator('.facts').getByText('Connect first').waitFor();
  });

  it('connects a server by a sign-in in another tab, also after a lost connection', async () => {
    await using operator = await signedIn();
    const { page, context } = operator;
    await operator.open('#/catalogue/notes');
    await button(page, 'Connect').click();
    await dialog(page).getByLabel('Users without a connection').check();
    await dialog(page).getByRole('button', { name: 'Continue' }).click();
    const link = page.getByRole('link', { name: 'Open the sign-in' });
    const address = await link.getAttribute('href');
    await context.setOffline(true);
    await page.getByText('The connection to Switchboard is lost').waitFor();
    await context.setOffline(false);
    await page.getByText('The connection to Switchboard is lost').waitFor({ state: 'detached' });
    await operator.settled();
    expect(await link.getAttribute('href')).toBe(address);
    const opened = context.waitForEvent('page');
    await link.click();
    const tab = await opened;
    await tab.getByRole('button').click();
    await tab.getByRole('link', { name: 'Allow' }).click();
    await said(page, 'Connected.');
    await button(page, 'Connect again').waitFor();
    await operator.open('#/connections?shared=yes');
    await page.getByRole('row').filter({ hasText: 'Whole tenant' }).first().waitFor();
    const { connections } = (await sb.get('/v1/admin/connections')).json;
    expect(connections.filter((one: any) => one.server_id === 'notes')).toMatchObject([{ for_users: true }]);
  });

  it('an edit in the form keeps what the form does not show', async () => {
    const auth = { scopes: ['read'], issuer: 'https://issuer.example' };
    const entry = {
      id: 'edited',
      name: 'Edited',
      description: 'Keeps it.',
      remote_url: 'https://edited.example/mcp',
      examples: ['keep what I have'],
      integrations: ['Quixo'],
    };
    for (const [kind, requires] of [
      ['unknown', 'Find out'],
      ['credentials', 'A key'],
    ] as const) {
      const put = await sb.put('/v1/admin/catalogue/edited', { ...entry, auth: { kind, ...auth } });
      expect(put.status, put.text).toBe(200);
      await using operator = await signedIn();
      const { page } = operator;
      await operator.open('#/catalogue/edited');
      await button(page, 'Edit').click();
      expect(await dialog(page).getByLabel('Requires').locator('option:checked').innerText()).toBe(requires);
      await dialog(page).getByLabel('Name').fill('Edited here');
      await dialog(page).getByRole('button', { name: 'Save' }).click();
      await page.getByRole('heading', { level: 1, name: 'Edited here' }).waitFor();
      const { json } = await sb.get('/v1/admin/catalogue/edited');
      expect(json).toMatchObject({ ...entry, name: 'Edited here', auth });
    }
  });

  it('makes a key with a quota, which is shown once, and rotates and revokes it', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/keys');
    await button(page, 'Create a key').click();
    await expectUsable(page);
    await dialog(page).getByLabel('Name').fill('Limited app');
    await dialog(page).getByLabel('Calls per month').fill('500');
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    const key = await dialog(page).locator('code').innerText();
    for (const leave of [
      () => page.keyboard.press('Escape'),
      () => page.keyboard.press('Escape'),
      () => page.mouse.click(5, 5),
      () => button(page, 'Close').click(),
    ]) {
      await leave();
      expect(await dialog(page).locator('code').innerText()).toBe(key);
    }
    await dialog(page).getByRole('alert').getByText('The key is lost if you leave now').waitFor();
    await expectUsable(page);
    expect((await sb.post('/v1/search', { query: 'news' }, { 'x-api-key': key })).status).toBe(200);
    await button(page, 'I have copied it').click();
    await expectFocused(button(page, 'Create a key'));
    const row = page.getByRole('row').filter({ hasText: 'Limited app' });
    await row.getByText('0 of 500 calls').waitFor();
    expect(await page.content()).not.toContain(key);
    await row.getByRole('button', { name: 'Rotate Limited app' }).click();
    await dialog(page).getByLabel('The old key ends').selectOption('at once');
    await dialog(page).getByRole('button', { name: 'Rotate' }).click();
    const next = await dialog(page).locator('code').innerText();
    await button(page, 'I have copied it').click();
    await row.getByRole('button', { name: 'Revoke Limited app' }).click();
    await dialog(page).getByRole('button', { name: 'Revoke' }).click();
    await row.waitFor({ state: 'detached' });
    for (const ended of [key, next])
      expect((await sb.post('/v1/search', { query: 'news' }, { 'x-api-key': ended })).status).toBe(401);
  });

  it('has users of a tenant sign in to their page with a provider', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    const signIn = async () => (await sb.get('/v1/admin/tenants/planner')).json.sign_in;
    for (const [provider, expected] of [
      ['local', { provider: 'local', user_id: 'sub' }],
      ['', null],
    ] as const) {
      await operator.open('#/keys');
      await operator.open('#/keys/tenants');
      await button(page, 'Edit planner').click();
      await dialog(page).getByLabel('Users sign in with').fill(provider);
      await dialog(page).getByLabel('Their id is').selectOption('The id at the provider');
      await dialog(page).getByRole('button', { name: 'Save' }).click();
      await dialog(page).waitFor({ state: 'detached' });
      expect(await signIn()).toEqual(expected);
    }
  });

  it('finds the connections of a user, and revokes everything of the user', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    const { json } = await sb.post('/v1/admin/keys', { name: 'Of a user', user_id: 'ada' });
    await operator.open('#/keys?q=ada');
    await page.getByRole('row').filter({ hasText: 'Of a user' }).getByRole('link', { name: 'ada' }).click();
    await page.getByRole('heading', { level: 1, name: 'Connections' }).waitFor();
    await operator.settled();
    await button(page, 'Revoke everything of this user').click();
    await dialog(page).getByText('Ends 1 connection and 1 key of ada').waitFor();
    await dialog(page).getByRole('button', { name: 'Revoke everything' }).click();
    await said(page, 'Ended 1 connection and 1 key of ada.');
    await page.getByText('No connection matches these filters.').waitFor();
    // Users without a connection have tokens and keys, too.
    expect(await button(page, 'Revoke everything of this user').isVisible()).toBe(true);
    expect((await sb.get('/v1/identity/connections?user_id=ada')).json.connections).toEqual([]);
    await operator.open('#/activity?event=user_revoked');
    const record = page.getByRole('row').filter({ hasText: 'User revoked' }).first();
    await record.getByRole('link', { name: 'ada', exact: true }).click();
    await page.getByRole('row').filter({ hasText: 'Key revoked' }).filter({ hasText: json.id }).waitFor();
    await operator.open('#/connections?user_id=nobody');
    await button(page, 'Revoke everything of this user').click();
    await dialog(page).getByText('Nothing was found for nobody in tenant local.').waitFor();
    await dialog(page).getByRole('button', { name: 'Close' }).last().click();
    await dialog(page).waitFor({ state: 'detached' });
  });

  it('shows the redirect URI of an OAuth app, enters its client, and removes it', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/setup');
    await button(page, 'Enter an app').click();
    await dialog(page).getByLabel('Authorization server').fill('https://auth.example');
    const redirectUri = await dialog(page).locator('.copyable code').innerText();
    await dialog(page).getByLabel('Client ID').fill('client-1');
    await dialog(page).getByLabel('Client secret').fill('secret-0123456789');
    await dialog(page).getByRole('button', { name: 'Store' }).click();
    await said(page, `Its redirect URI must be ${redirectUri}.`);
    await page.getByRole('row').filter({ hasText: 'client-1' }).waitFor();
    const settings = { token_auth_method: 'client_secret_post', scopes: ['read'] };
    await sb.put('/v1/admin/setup/oauth-clients', {
      issuer: 'https://auth.example',
      client_id: 'client-1',
      ...settings,
    });
    await operator.open('#/keys');
    await operator.open('#/setup');
    await button(page, 'Replace https://auth.example').click();
    await dialog(page).getByLabel('Other origins').fill('https://mcp.example');
    await dialog(page).getByRole('button', { name: 'Store' }).click();
    // The message of the first time starts with the same words, and may still be there.
    await said(page, /^Stored the app for https:\/\/auth\.example\.$/);
    const { oauth_clients: clients } = (await sb.get('/v1/admin/setup')).json;
    expect(clients.find((one: any) => one.client_id === 'client-1')).toMatchObject({
      ...settings,
      has_secret: true,
      allowed_origins: ['https://mcp.example'],
    });
    expect((await sb.get('/v1/admin/setup')).text).not.toContain('secret-0123456789');
    await button(page, 'Remove https://auth.example').click();
    await dialog(page).getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('row').filter({ hasText: 'client-1' }).waitFor({ state: 'detached' });
  });

  it('follows the audit log live', async () => {
    await using operator = await signedIn();
    await operator.open('#/activity?follow=yes');
    const { json } = await sb.post('/v1/admin/keys', { name: 'Seen at once' });
    await operator.page.getByRole('row').filter({ hasText: json.id }).first().waitFor();
  });

  it('names keys in the audit log, and finds what concerns a key or a user', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    const quota = { monthly_quota: { calls: 77 }, user_id: 'linus' };
    const { json } = await sb.post('/v1/admin/keys', { name: 'Named in the log', ...quota });
    await operator.open('#/activity?event=key_created');
    const row = page.getByRole('row').filter({ hasText: json.id });
    await row.getByText('Named in the log').waitFor();
    await row.getByText('calls per month 77').waitFor();
    await operator.open('#/activity');
    await page.getByLabel('User').fill('linus');
    await page.getByRole('row').nth(2).waitFor({ state: 'detached' });
    await row.getByText('linus').waitFor();
    await operator.open('#/activity');
    await page.getByLabel('Done by or to the key').fill(json.id);
    await page.getByRole('row').nth(2).waitFor({ state: 'detached' });
    await row.waitFor();
  });

  it('shows which requests were refused', async () => {
    await sb.post('/v1/admin/keys', { name: 'y' }, { 'x-api-key': readKey });
    await using operator = await signedIn();
    const { page } = operator;
    await page.getByRole('row').filter({ hasText: 'the key lacks the scope' }).waitFor();
    await page.getByRole('link', { name: 'By key' }).click();
    const row = page.getByRole('row').filter({ hasText: 'Looks only' });
    await row.getByText('the key lacks the scope').waitFor();
  });

  it('says what is wrong with an entry in the words of its form', async () => {
    await using operator = await signedIn({ viewport: { width: 1280, height: 757 } });
    const { page } = operator;
    await operator.open('#/catalogue');
    await button(page, 'Add a server').click();
    const form = dialog(page);
    // In view without scrolling.
    const add = await form.getByRole('button', { name: 'Add' }).boundingBox();
    expect((add?.y ?? Infinity) + (add?.height ?? 0)).toBeLessThan(757);
    await form.getByLabel('Address').fill('https://name:password@server.example/mcp');
    await form.getByLabel('Name').fill('Wrong');
    await form.getByLabel('What it can do').fill('Nothing.');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByText('Address: must not contain a user name or password').waitFor();
    await button(page, 'Edit as JSON').click();
    await form.getByLabel('Entry').fill('{\n  "id": }');
    await form.getByRole('button', { name: 'Add' }).click();
    await form.getByText('The entry must be JSON').waitFor();
    await form.getByText('Look near { "id": }').waitFor();
  });

  it('keeps ids of keys in one line', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/keys');
    const heights = await page
      .locator('td.ids code')
      .evaluateAll(found => found.map(one => (one as any).getClientRects().length));
    expect(heights.length).toBeGreaterThan(1);
    expect(new Set(heights)).toEqual(new Set([1]));
  });

  it('says which keys have used up their quota', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    const { json } = await sb.post('/v1/admin/keys', { name: 'Spent app', monthly_quota: { searches: 1 } });
    await sb.post('/v1/search', { query: 'news' }, { 'x-api-key': json.key });
    await vi.waitFor(async () => {
      const { keys } = (await sb.get('/v1/admin/keys?q=Spent')).json;
      expect(keys).toMatchObject([{ used_this_month: { searches: 1 } }]);
    }, 20_000);
    await operator.open('#/keys');
    const row = page.getByRole('row').filter({ hasText: 'Spent app' });
    await row.getByText('Quota used up').waitFor();
    await row.getByText('1 of 1 search', { exact: true }).waitFor();
    await operator.open('#/');
    await page.getByText('The quota of “Spent app” is used up.').waitFor();
  });

  it('warns before the key of the own session ends, and then says why nobody is signed in', async () => {
    const { json } = await sb.post('/v1/admin/keys', { name: 'Own key', scopes: ['admin'] });
    await using operator = await openConsole(browser, { url: sb.url, key: json.key });
    const { page } = operator;
    await operator.open('#/keys');
    await button(page, 'Rotate Own key').click();
    await dialog(page).getByText('you will be signed out').waitFor();
    await dialog(page).getByLabel('The old key ends').selectOption('at once');
    await dialog(page).getByRole('button', { name: 'Rotate' }).click();
    const next = await dialog(page).locator('code').innerText();
    await button(page, 'I have copied it').click();
    await page.getByText('Your session has ended').waitFor();
    await signInWith(page, next);
    await button(page, 'Revoke Own key').click();
    await dialog(page).getByText('you will be signed out').waitFor();
    await dialog(page).getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('Your session has ended').waitFor();
  });

  it('explains why a search missed a server, at an address to share', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/search');
    await page.getByRole('searchbox').fill('weather of a city');
    await page.keyboard.press('Enter');
    await page.getByRole('listitem').filter({ hasText: 'hostile' }).first().waitFor();
    await page.getByText('Why is a server not there?').click();
    const server = page.getByLabel('Name or id of the server');
    await server.fill('weather');
    await button(page, 'Explain').click();
    await page.getByText('It is in the list').waitFor();
    expect(new URL(page.url()).hash).toBe('#/search?q=weather+of+a+city&about=hostile');
    await page.goBack();
    await page.getByText('It is in the list').waitFor({ state: 'detached' });
    await page.getByText('Why is a server not there?').click();
    await server.fill('no-such-server');
    await button(page, 'Explain').click();
    await page.getByText('Not in the catalogue').waitFor();
    const address = new URL(page.url()).hash;
    expect(address).toBe('#/search?q=weather+of+a+city&about=no-such-server');
    await page.goBack();
    await page.getByText('Not in the catalogue').waitFor({ state: 'detached' });
    expect(new URL(page.url()).hash).toBe('#/search?q=weather+of+a+city');
  });

  it('changes nothing with a read-only key, and says why', async () => {
    await using operator = await openConsole(browser, { url: sb.url, key: readKey });
    const { page } = operator;
    await page.getByText('This session is read-only').first().waitFor();
    await operator.open('#/keys');
    expect(await button(page, 'Create a key').isDisabled()).toBe(true);
    expect(await page.getByRole('row').getByRole('button').count()).toBeGreaterThan(0);
    expect(await page.getByRole('row').getByRole('button').and(page.locator(':enabled')).count()).toBe(0);
    await operator.open('#/search?q=weather');
    await page.getByRole('listitem').filter({ hasText: 'hostile' }).first().waitFor();
  });

  it('tells of a lost connection, and loads the screen again by itself', async () => {
    await using operator = await signedIn();
    const { page, context } = operator;
    await operator.open('#/keys');
    await context.setOffline(true);
    await operator.open('#/keys?state=all');
    await page.getByText('The connection to Switchboard is lost').waitFor();
    // What was there stays readable.
    expect(await page.getByRole('row').count()).toBeGreaterThan(1);
    await sb.post('/v1/admin/keys', { name: 'Made meanwhile' });
    await context.setOffline(false);
    await page.getByRole('row').filter({ hasText: 'Made meanwhile' }).waitFor();
    expect(await page.getByText('The connection to Switchboard is lost').count()).toBe(0);
  });

  it('opens a screen whose code was asked for while the connection was lost', async () => {
    await using operator = await signedIn();
    const { page, context } = operator;
    await context.setOffline(true);
    await page.getByRole('link', { name: 'Setup', exact: true }).click();
    await page.getByText('The connection to Switchboard is lost').waitFor();
    await context.setOffline(false);
    await page.getByRole('heading', { level: 1, name: 'Setup' }).waitFor();
    await page.getByText('No app is missing').waitFor();
  });

  it('a link from the terminal signs in once, and does not stay in the address', async () => {
    const { json } = await sb.admin.request('POST', '/console/link', { read_only: true });
    await using operator = await openConsole(browser, { url: sb.url, hash: new URL(json.url).hash });
    const { page } = operator;
    await page.getByText('its link was made with --read-only').first().waitFor();
    expect(page.url()).toBe(`${sb.url}/console/`);
    await using second = await openConsole(browser, { url: sb.url, hash: new URL(json.url).hash });
    await second.page.getByRole('alert').waitFor();
    expect(await second.page.getByLabel('Admin key').isVisible()).toBe(true);
  });

  it('an ended session leads to the sign-in and back to the same screen, in each tab', async () => {
    await using operator = await signedIn();
    const { page, context } = operator;
    await operator.open('#/catalogue?q=filler');
    const second = await context.newPage();
    await second.goto(`${sb.url}/console/#/keys`);
    await screenSettled(second);
    await sb.elapse(13 * 3_600_000);
    await page.getByRole('link', { name: 'Filler' }).click();
    await page.getByLabel('Admin key').waitFor();
    await signInWith(page, 'no key of this server');
    await page.getByRole('alert').waitFor();
    await signInWith(page, sb.key);
    await page.getByRole('heading', { level: 1, name: 'Filler' }).waitFor();
    await screenSettled(second);
    expect(await second.getByRole('heading', { level: 1 }).innerText()).toBe('Keys');
    await button(second, 'Sign out').click();
    await page.getByText('You signed out in another tab').waitFor();
    expect(await page.getByLabel('Admin key').isVisible()).toBe(true);
  });

  it('says what to do next where there is nothing yet', async () => {
    await using empty = await startTestSwitchboard();
    await using operator = await openConsole(browser, empty);
    const { page } = operator;
    for (const [screen, next] of [
      ['#/', 'Servers that were never checked'],
      ['#/keys', 'Give each app a key of its own'],
      ['#/connections', 'Users connect when a call needs it'],
      ['#/setup', 'No app is missing'],
      ['#/keys/usage', 'No use in this time'],
      ['#/catalogue?q=nothing', 'Clear the filters'],
      ['#/nothing', 'Go to the overview'],
    ] as const) {
      await operator.open(screen);
      await page.getByText(next).first().waitFor();
    }
  });

  it('pages and filters a large catalogue on the server', async () => {
    const catalogue = Array.from({ length: MANY }, (_line, at) => ({
      id: `server-${String(at).padStart(5, '0')}`,
      name: `Server ${at}`,
      remote_url: `https://server-${at}.example/mcp`,
    }));
    await using large = await startTestSwitchboard({ catalogue });
    await using operator = await openConsole(browser, large);
    const { page } = operator;
    await operator.open('#/catalogue');
    await page.getByText(`50 of ${MANY.toLocaleString('en')} servers`).waitFor();
    await page.getByRole('link', { name: 'Next page' }).click();
    await page.getByText('server-00050').waitFor();
    await page.goBack();
    await page.getByText('server-00000').waitFor();
    await page.keyboard.press('/');
    await page.keyboard.type('server-01999');
    await page.getByText('1 of 1 server', { exact: true }).waitFor();
    // Leaving and coming back keeps the filter.
    await page.getByRole('link', { name: 'Server 1999' }).click();
    await page.getByRole('heading', { level: 1, name: 'Server 1999' }).waitFor();
    await page.goBack();
    await page.getByText('1 of 1 server', { exact: true }).waitFor();
  });
});
