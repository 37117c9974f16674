import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { browserMissing, startBrowser } from '../support/browser.ts';
import { openConsole, signInWith, type Operator } from '../support/console.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

const LOW_WINDOWS = [
  { width: 1280, height: 720 },
  { width: 390, height: 844 },
];

describe.skipIf(browserMissing !== undefined)(`the forms of the console ${browserMissing ?? ''}`, () => {
  let browser: Browser;
  let sb: RunningSwitchboard;

  beforeAll(async () => {
    browser = await startBrowser();
    sb = await startTestSwitchboard({
      env: { SWITCHBOARD_RATE_LIMIT: 'admin=10000/60' },
      catalogue: ['kept', 'retired'].map(id => ({
        id,
        name: `The ${id} one`,
        description: 'Reads the news.',
        remote_url: `https://${id}.example/mcp`,
      })),
    });
    await sb.post('/v1/admin/catalogue/retired/deactivate', {});
  });
  afterAll(async () => {
    await sb[Symbol.asyncDispose]();
    await browser.close();
  });

  const signedIn = (options = {}) => openConsole(browser, sb, options);
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true });
  const dialog = (page: Page) => page.getByRole('dialog');
  const alert = (page: Page) => dialog(page).getByRole('alert');

  async function opened({ page, open }: Operator, screen: string, verb: string): Promise<void> {
    await open(screen);
    await button(page, verb).first().click();
    await dialog(page).waitFor();
  }

  const fillServer = async (form: Locator, name: string) => {
    await form.getByLabel('Address').fill('https://new.example/mcp');
    await form.getByLabel('Name').fill(name);
    await form.getByLabel('What it can do').fill('Reads.');
  };

  /** Whether nothing lies above an element, so that it can be read. */
  const isInSight = (one: Locator) =>
    one.evaluate(element => {
      const { left, top, width, height } = element.getBoundingClientRect();
      const shown = (globalThis as any).document.elementFromPoint(left + width / 2, top + height / 2);
      return shown !== null && element.contains(shown);
    });

  it.each(LOW_WINDOWS)('show a refusal in a window of $width × $height', async viewport => {
    await using operator = await signedIn({ viewport });
    const { page } = operator;
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('App');
    await dialog(page).getByLabel('Tenant').fill('BAD TENANT');
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    await alert(page).waitFor();
    expect(await isInSight(alert(page))).toBe(true);
    expect(await alert(page).innerText()).toContain('Tenant:');
    // Nothing of the form is to be seen below the buttons.
    const gap = await dialog(page).evaluate(element => {
      const bottom = element.querySelector('footer')?.getBoundingClientRect().bottom ?? 0;
      element.scrollTop = 0;
      return element.getBoundingClientRect().bottom - bottom;
    });
    expect(gap).toBeLessThanOrEqual(2);
  });

  it('name fields as the form does', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('App');
    for (const scope of ['search', 'proxy', 'identity'])
      await dialog(page).getByLabel(scope).first().uncheck();
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    await alert(page)
      .getByText(/^It may:/)
      .waitFor();
  });

  it.each(['Escape', 'Close', 'Back'])('keep what was entered at the first %s, and say so', async way => {
    await using operator = await signedIn();
    const { page } = operator;
    const leave = {
      Escape: () => page.keyboard.press('Escape'),
      Close: () => button(page, 'Close').click(),
      // Nothing is loaded that this could wait for.
      Back: () => page.evaluate(() => (globalThis as any).history.back()),
    }[way]!;
    await operator.open('#/catalogue');
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('Typed');
    await leave();
    await alert(page).getByText('not saved').waitFor();
    expect(await dialog(page).getByLabel('Name').inputValue()).toBe('Typed');
    expect(new URL(page.url()).hash).toBe('#/keys');
    await dialog(page).getByLabel('Name').fill('Typed more');
    await alert(page).waitFor({ state: 'detached' });
    await leave();
    await alert(page).getByText('not saved').waitFor();
    await leave();
    await dialog(page).waitFor({ state: 'detached' });
    await page.getByRole('heading', { level: 1, name: way === 'Back' ? 'Catalogue' : 'Keys' }).waitFor();
  });

  it('say that nothing was saved when the session has ended', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('Typed');
    await sb.admin.request('POST', '/console/end');
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    await page.getByText('What you entered was not saved').waitFor();
    await signInWith(page, sb.key);
    await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  });

  it('say what to do if no id can be made from a name', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await opened(operator, '#/catalogue', 'Add a server');
    await fillServer(dialog(page), '日本語');
    await dialog(page).getByRole('button', { name: 'Add' }).click();
    await alert(page).getByText('No id can be made from this name').waitFor();
  });

  it('lead to the server that has the id, which is deactivated', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await opened(operator, '#/catalogue', 'Add a server');
    await fillServer(dialog(page), 'Retired');
    await dialog(page).getByRole('button', { name: 'Add' }).click();
    await alert(page).getByText('a deactivated server with the id retired').waitFor();
    const link = alert(page).getByRole('link', { name: 'Open The retired one' });
    await link.click();
    await link.click();
    await page.getByRole('heading', { level: 1, name: 'The retired one' }).waitFor();
  });

  it('say that nothing was done while the connection is lost', async () => {
    await using operator = await signedIn();
    const { page, context } = operator;
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('Typed');
    await context.setOffline(true);
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    await alert(page).getByText('Try again when the connection is back').waitFor();
    expect(await alert(page).innerText()).not.toContain('keeps trying');
  });

  it('give the focus to what follows: the new key, and the screen without the row', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    const focused = () => page.evaluate(() => (globalThis as any).document.activeElement.textContent);
    await opened(operator, '#/keys', 'Create a key');
    await dialog(page).getByLabel('Name').fill('Short-lived');
    await dialog(page).getByRole('button', { name: 'Create' }).click();
    await dialog(page).getByText('it is never shown again').waitFor();
    await vi.waitFor(async () => expect(await focused()).toBe('The key was created'), 60_000);
    await button(page, 'I have copied it').click();
    await button(page, 'Revoke Short-lived').click();
    await dialog(page).getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('row').filter({ hasText: 'Short-lived' }).waitFor({ state: 'detached' });
    await operator.settled();
    await vi.waitFor(async () => expect(await focused()).toBe('Keys'), 60_000);
  });

  it('the catalogue says that a deactivated server matches', async () => {
    await using operator = await signedIn();
    const { page } = operator;
    await operator.open('#/catalogue?q=retired');
    await page.getByText('1 deactivated server matches').getByRole('link', { name: 'Show it' }).click();
    await page.getByRole('link', { name: 'The retired one' }).waitFor();
    await operator.open('#/catalogue?q=no-such-server');
    await page.getByText('No server matches these filters').waitFor();
    expect(await page.getByText('deactivated server').count()).toBe(0);
  });

  it('a link that is pasted into an open sign-in signs in', async () => {
    await using operator = await openConsole(browser, { url: sb.url });
    const { page } = operator;
    await page.getByLabel('Admin key').waitFor();
    const { json } = await sb.admin.request('POST', '/console/link', {});
    await page.goto(json.url);
    await operator.settled();
    expect(page.url()).toBe(`${sb.url}/console/`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Admin key').waitFor();
    await page.goto(json.url);
    await page.getByRole('alert').getByText('was used or has expired').waitFor();
  });
});
