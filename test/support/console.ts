import axe from 'axe-core';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { expect } from 'vitest';
import { newVisitor, type Visitor } from './browser.ts';

/** An operator's browser that is signed in to the console, or about to be. */
export interface Operator extends Visitor {
  readonly page: Page;
  /** Opens a screen by its address, such as `#/keys`, and waits until its data is there. */
  open(screen: string): Promise<void>;
  /** Waits until a screen shows its data. */
  settled(): Promise<void>;
}

interface Signed {
  readonly url: string;
  /** Absent: nobody signs in. */
  readonly key?: string;
  readonly hash?: string;
}

/** Opens the console in a browser with cookies of its own. */
export async function openConsole(
  browser: Browser,
  { url, key, hash = '' }: Signed,
  options: BrowserContextOptions = {},
): Promise<Operator> {
  const visitor = await newVisitor(browser, { viewport: { width: 1280, height: 800 }, ...options });
  const page = await visitor.context.newPage();
  // Nothing in the console opens a dialog of the browser: only a script from a text would.
  page.on('dialog', dialog => {
    throw new Error(`a dialog opened: ${dialog.message()}`);
  });
  const settled = () => screenSettled(page);
  await page.goto(`${url}/console/${hash}`);
  if (key !== undefined) {
    await signInWith(page, key);
    await settled();
  }
  return {
    ...visitor,
    page,
    settled,
    async open(screen) {
      await page.evaluate(goTo, screen);
      await settled();
    },
  };
}

/** Runs in the page: goes to a screen, and resolves once the console has been told. */
async function goTo(screen: string): Promise<void> {
  const { location, addEventListener } = globalThis as any;
  if (location.hash === screen) return;
  const { promise: told, resolve } = Promise.withResolvers<void>();
  // Called after the console's own listener, which is older.
  addEventListener('hashchange', () => setTimeout(resolve), { once: true });
  location.hash = screen;
  await told;
}

export async function signInWith(page: Page, key: string): Promise<void> {
  await page.getByLabel('Admin key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

/** The screen has its heading, and nothing on it is still loading. */
export async function screenSettled(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    const { document } = globalThis as any;
    const isThere = document.querySelector('.screen h1') !== null;
    return isThere && document.querySelector('[aria-busy="true"], .loading') === null;
  });
}

/** Automatic checks of accessibility find nothing serious, and the page does not scroll sideways. */
export async function expectUsable(page: Page): Promise<void> {
  const where = new URL(page.url()).hash;
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe.source);
  const found = await page.evaluate(async () => {
    const { violations } = await (globalThis as any).axe.run({ resultTypes: ['violations'] });
    return violations
      .filter((one: any) => one.impact === 'serious' || one.impact === 'critical')
      .map((one: any) => `${one.id}: ${one.nodes.map((node: any) => node.html).join(' ')}`);
  });
  expect(found, where).toEqual([]);
  await expectFits(page);
}

export async function expectFits(page: Page): Promise<void> {
  const { wide, room } = await page.evaluate(() => {
    const { document } = globalThis as any;
    return { wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth };
  });
  expect(wide, new URL(page.url()).hash).toBeLessThanOrEqual(room);
}
