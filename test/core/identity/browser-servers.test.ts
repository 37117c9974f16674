import { eq } from 'drizzle-orm';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { tenants } from '../../../src/core/access/schema.ts';
import { startProtectedServer, type ProtectedServer } from '../../support/authorization/protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { browserMissing, newVisitor, startBrowser } from '../../support/browser.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { expectNothingStrayed, expectWellMade, press, tab } from '../../support/pages.ts';

const READ = 'notes:read';
const WRITE = 'notes:write';

describe.skipIf(browserMissing !== undefined)(`servers with sign-ins ${browserMissing ?? ''}`, () => {
  let sb: IdentityUnderTest;
  let browser: Browser;
  /** Of the same domain as its servers; those of `foreign` and `allowed` have another one. */
  let home: AuthorizationServer;
  let foreign: AuthorizationServer;
  let allowed: AuthorizationServer;
  let notes: ProtectedServer;
  let mail: ProtectedServer;
  let files: ProtectedServer;
  let users = 0;

  beforeAll(async () => {
    browser = await startBrowser();
    home = await startAuthorizationServer({ asks: true });
    foreign = await startAuthorizationServer({ asks: true, host: 'localhost' });
    allowed = await startAuthorizationServer({ asks: true, host: 'localhost' });
    notes = await startProtectedServer({
      authorizationServer: home,
      scopes: { 'server/discover': [READ], 'tools/list': [READ], 'tools/call': [READ] },
    });
    mail = await startProtectedServer({ authorizationServer: foreign });
    files = await startProtectedServer({ authorizationServer: allowed });
    const auth = { kind: 'oauth', issuer: foreign.issuer };
    sb = await startIdentity({
      env: { SWITCHBOARD_OAUTH_ISSUERS: allowed.issuer },
      catalogue: [
        { id: 'notes', name: 'Notes', remote_url: notes.url },
        { id: 'mail', name: 'Far Mail', remote_url: mail.url, auth },
        { id: 'unnamed', name: 'Unnamed', remote_url: mail.url },
        { id: 'files', name: 'Far Files', remote_url: files.url },
      ],
    });
    await sb.db.update(tenants).set({ name: 'Planner' }).where(eq(tenants.id, 'local'));
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    for (const server of [notes, mail, files, home, foreign, allowed]) await server[Symbol.asyncDispose]();
    await browser.close();
  });

  const open = (options = {}) => newVisitor(browser, { javaScriptEnabled: false, ...options });
  const hostOf = (url: string) => new URL(url).host;
  /** The definitions of a page's list, by term. */
  async function factsOn(page: Page): Promise<Record<string, string>> {
    const [terms, values] = [
      await page.locator('dt').allInnerTexts(),
      await page.locator('dd').allInnerTexts(),
    ];
    return Object.fromEntries(terms.map((term, at) => [term, values[at] ?? '']));
  }
  const listUnder = (page: Page, heading: string) =>
    page
      .getByRole('heading', { name: heading, exact: true })
      .locator('xpath=following-sibling::ul[1]/li')
      .allInnerTexts();

  async function newUser() {
    const user = `user-${++users}`;
    const headers = sb.as(await sb.connect(user));
    const call = (server: string) =>
      sb.post(
        '/v1/mcp/tools/call',
        { server_id: server, name: 'echo', arguments: { message: 'hello' } },
        headers,
      );
    const linkTo = async (server: string) => {
      const refused = await call(server);

      expect(refused.json).toMatchObject({ code: 'connection_required', kind: 'oauth' });
      return refused.json as { auth_url: string; session_id: string; reason: string; missing: string[] };
    };
    return { user, call, linkTo };
  }

  /** From our page over the authorization server's own to ours. */
  async function decide(page: Page, at: AuthorizationServer, decision: 'Allow' | 'Deny') {
    await page.getByRole('button').click();
    expect(page.url().startsWith(at.issuer)).toBe(true);
    await page.getByRole('link', { name: decision }).click();
    expect(new URL(page.url()).origin).toBe(sb.url);
  }

  it('lead from the link of connection_required to a call that works, by keyboard too', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 }, colorScheme: 'dark' });
    const page = await visitor.context.newPage();
    const { user, call, linkTo } = await newUser();
    const { auth_url, session_id } = await linkTo('notes');
    await page.goto(auth_url);
    await expectWellMade(page, 'Connect Notes');
    expect(await factsOn(page)).toEqual({
      App: 'Planner',
      'You, in the app': user,
      Server: 'Notes',
      'Its address': hostOf(notes.url),
      'You sign in at': hostOf(home.issuer),
    });
    expect(await listUnder(page, 'Planner will be able to')).toEqual([READ]);
    expect(await page.getByRole('alert').count()).toBe(0);
    await tab(page);
    expect(await page.locator(':focus').innerText()).toBe(`Continue to ${hostOf(home.issuer)}`);
    await press(page, 'Enter');
    expect((await sb.poll(session_id)).json).toEqual({ status: 'pending' });
    await page.getByRole('link', { name: 'Allow' }).click();
    await expectWellMade(page, 'Connected');
    expect(await page.getByRole('status').innerText()).toBe('Planner can now use Notes.');
    expect(await listUnder(page, 'What Planner may do there')).toEqual([READ]);
    expect((await sb.poll(session_id)).json).toEqual({ status: 'complete' });
    expect((await call('notes')).json.content).toEqual([{ type: 'text', text: 'Echo: hello' }]);
    await page.getByRole('button', { name: 'Undo' }).click();
    await expectWellMade(page, 'Undone');
    await linkTo('notes');
    expectNothingStrayed(visitor, sb.url);
  });

  it.each([
    { by: 'its entry', id: 'mail', name: 'Far Mail', at: () => foreign },
    { by: 'the operator', id: 'files', name: 'Far Files', at: () => allowed },
  ])('of another domain come with a warning where $by names it', async ({ id, name, at }) => {
    await using visitor = await open({ viewport: { width: 320, height: 640 } });
    const page = await visitor.context.newPage();
    const { call, linkTo } = await newUser();
    await page.goto((await linkTo(id)).auth_url);
    await expectWellMade(page, `Connect ${name}`);
    expect(await page.getByRole('alert').innerText()).toContain(hostOf(at().issuer));
    expect(await page.locator('main').innerText()).toContain('whatever your account there may do');
    await decide(page, at(), 'Allow');
    await expectWellMade(page, 'Connected');
    expect((await call(id)).status).toBe(200);
    expectNothingStrayed(visitor, sb.url);
  });

  it('of another domain that nobody names give no link', async () => {
    const { call } = await newUser();
    const refused = await call('unnamed');
    expect(refused).toMatchObject({
      status: 403,
      json: { code: 'operator_setup_needed', issuer: foreign.issuer },
    });
    expect(refused.json).not.toHaveProperty('auth_url');
  });

  it('that the user denies connect nothing', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const { linkTo } = await newUser();
    const { auth_url, session_id } = await linkTo('notes');
    await page.goto(auth_url);
    await decide(page, home, 'Deny');
    await expectWellMade(page, 'Not connected');
    expect(await page.getByRole('alert').innerText()).toBe(
      'Access to Notes was not granted, and nothing was connected.',
    );
    expect((await sb.poll(session_id)).json).toMatchObject({
      status: 'error',
      error: expect.stringMatching(/^access_denied: /),
    });
    expect((await linkTo('notes')).session_id).not.toBe(session_id);
  });

  it('that lack scopes are widened, and the page tells new scopes from old', async () => {
    await using visitor = await open();
    const page = await visitor.context.newPage();
    const { call, linkTo } = await newUser();
    await page.goto((await linkTo('notes')).auth_url);
    await decide(page, home, 'Allow');
    const before = notes.switches.scopes;
    notes.switches.scopes = { ...before, 'tools/call': [READ, WRITE] };
    try {
      const more = await linkTo('notes');
      expect(more).toMatchObject({ reason: 'missing_scopes', missing: [WRITE] });
      await page.goto(more.auth_url);
      await expectWellMade(page, 'Connect Notes');
      expect(await listUnder(page, 'Planner will also be able to')).toEqual([WRITE]);
      expect(await listUnder(page, 'As before, Planner will be able to')).toEqual([READ]);
      await decide(page, home, 'Allow');
      expect(await listUnder(page, 'What Planner may do there')).toEqual([READ, WRITE]);
      expect((await call('notes')).status).toBe(200);
    } finally {
      notes.switches.scopes = before;
    }
  });

  it('are seen and ended on the page of connections', async () => {
    await using visitor = await open({ viewport: { width: 320, height: 640 } });
    const page = await visitor.context.newPage();
    const { user, call, linkTo } = await newUser();
    await page.goto((await linkTo('notes')).auth_url);
    await decide(page, home, 'Allow');
    expect((await call('notes')).status).toBe(200);
    const revocations = home.sent('revoke').length;

    await page.goto((await sb.post('/v1/identity/manage', { user_id: user })).json.url as string);
    await page.getByRole('button', { name: 'Continue' }).click();
    await expectWellMade(page, 'Your connected accounts');
    const entry = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'Notes' }) });
    const text = await entry.innerText();
    for (const part of [hostOf(home.issuer), notes.url, READ]) expect(text).toContain(part);
    await page.getByRole('button', { name: 'Revoke Notes' }).click();
    await expectWellMade(page, 'Your connected accounts');
    expect(await page.getByRole('status').innerText()).toContain('Disconnected.');
    expect(await page.getByRole('heading', { name: 'Notes' }).count()).toBe(0);
    await linkTo('notes');
    await vi.waitUntil(() => home.sent('revoke').length > revocations, 20_000);
    expectNothingStrayed(visitor, sb.url);
  });

  it.each([
    { shared: 'only for keys', for_users: false },
    { shared: 'for users too', for_users: true },
  ])('of the operator are for the tenant, $shared', async ({ for_users }) => {
    await using visitor = await open({ viewport: { width: 320, height: 640 } });
    const page = await visitor.context.newPage();
    const made = await sb.admin.request('POST', '/connections/session', { server_id: 'notes', for_users });
    await page.goto(made.json.auth_url as string);
    await expectWellMade(page, 'Connect Notes');
    const intent = await page.locator('main > p').first().innerText();
    expect(intent).toContain('for everybody who uses the API keys of the tenant local');
    expect(intent.includes('for the users of that tenant')).toBe(for_users);
    expect(await factsOn(page)).toMatchObject({ Tenant: 'local', Server: 'Notes' });
    expect(await listUnder(page, 'They will be able to')).toEqual([READ]);
    await decide(page, home, 'Allow');
    await expectWellMade(page, 'Connected');
    expect(await page.getByRole('status').innerText()).toBe(
      'Everybody who uses the API keys of the tenant local can now use Notes.',
    );
    const body = { server_id: 'notes', name: 'echo', arguments: { message: 'hello' } };
    expect((await sb.post('/v1/mcp/tools/call', body)).status).toBe(200);
    const { call } = await newUser();
    expect((await call('notes')).status).toBe(for_users ? 200 : 403);
    expectNothingStrayed(visitor, sb.url);
    await sb.admin.request('POST', '/connections/revoke', { server_id: 'notes' });
  });
});
