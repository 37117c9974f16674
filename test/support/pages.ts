import type { Locator, Page } from 'playwright-core';
import { expect, vi } from 'vitest';
import type { Visitor } from './browser.ts';

/** What must hold of each of our pages. */
export async function expectWellMade(page: Page, title: string) {
  // A click may return before the page that it leads to has come, and its title comes before its body.
  await vi.waitFor(async () => expect(await page.title()).toBe(title), 60_000);
  await page.waitForLoadState();
  expect(await page.getByRole('heading', { level: 1 }).count()).toBe(1);
  expect(await page.getByRole('main').count()).toBe(1);
  expect(await page.locator('html').getAttribute('lang')).toBe('en');
  const controls = await page.locator('button, a').filter({ visible: true }).all();
  for (const control of controls) {
    const { width, height } = (await control.boundingBox()) ?? { width: 0, height: 0 };
    expect(Math.min(width, height)).toBeGreaterThanOrEqual(44);
  }
  // Who hears the page instead of seeing it must be able to tell its controls apart.
  const names = await Promise.all(controls.map(control => control.textContent()));
  expect(new Set(names.map(name => name?.replaceAll(/\s+/g, ' ').trim())).size).toBe(controls.length);
  expect(await page.getByRole('button', { name: /^\s*$/ }).count()).toBe(0);
  for (const input of await page.locator('input:not([type=hidden]), select').all())
    expect(await page.locator(`label[for="${await input.getAttribute('id')}"]`).count()).toBe(1);
  expect(await page.locator('dl > :not(dt, dd)').count()).toBe(0);
  expect(await page.locator('main').innerText()).not.toContain('\u{fffd}');
  const { width = 0 } = page.viewportSize() ?? {};
  expect((await page.locator('main').boundingBox())?.width).toBeLessThanOrEqual(width);
  // The one style was applied: its hash is right.
  expect(await styleOf(page.locator('h1'), 'lineHeight')).toBe('30px');
}

/** None of our pages asked for anything elsewhere, and the browser found nothing wrong with them. */
export function expectNothingStrayed({ strayed, complaints }: Visitor, origin: string) {
  expect(strayed.filter(({ from }) => from.startsWith(origin))).toEqual([]);
  expect(complaints.filter(text => /Content.Security.Policy|Refused to|violates/i.test(text))).toEqual([]);
}

export const styleOf = (element: Locator, property: string): Promise<string> =>
  element.evaluate(
    // Runs in the browser; the types of this project know no DOM.
    (node, name) => (globalThis as any).getComputedStyle(node)[name],
    property,
  );

/** Chromium drops keys until a page has been painted, which a picture of it makes sure of; it takes none before. */
export async function tab(page: Page, key: 'Tab' | 'Shift+Tab' = 'Tab') {
  await vi.waitFor(() => page.screenshot(), { timeout: 20_000 });
  await page.keyboard.press(key);
}

/** A key that leads to another page. */
export const press = (page: Page, key: string) =>
  Promise.all([page.waitForEvent('framenavigated'), page.keyboard.press(key)]);
