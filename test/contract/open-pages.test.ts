import { createServer, request as send } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { browserMissing, newVisitor, startBrowser, type Visitor } from '../support/browser.ts';
import { expectNothingStrayed, expectWellMade } from '../support/pages.ts';
import { startTestSwitchboard, type RunningSwitchboard } from '../support/switchboard.ts';

/** A proxy that serves a Switchboard under a path, as many do. */
async function startPrefixed(prefix: string) {
  let target = '';
  const proxy = createServer((request, response) => {
    const { url = '', method, headers } = request;
    if (!url.startsWith(`${prefix}/`)) {
      response.writeHead(404).end();
      return;
    }
    const sent = send(target + url.slice(prefix.length), { method, headers }, answer => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    request.pipe(sent);
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}${prefix}`;
  const sb = await startTestSwitchboard({ env: { PUBLIC_URL: url } });
  target = sb.url;
  return {
    url,
    async [Symbol.asyncDispose]() {
      proxy.closeAllConnections();
      proxy.close();
      await sb[Symbol.asyncDispose]();
    },
  };
}

describe.skipIf(browserMissing !== undefined)(`pages without a key ${browserMissing ?? ''}`, () => {
  let sb: RunningSwitchboard;
  let prefixed: Awaited<ReturnType<typeof startPrefixed>>;
  let browser: Browser;
  beforeAll(async () => {
    [browser, sb, prefixed] = await Promise.all([
      startBrowser(),
      startTestSwitchboard(),
      startPrefixed('/tools'),
    ]);
  });
  afterAll(async () => {
    await browser.close();
    await prefixed[Symbol.asyncDispose]();
    await sb[Symbol.asyncDispose]();
  });

  const places = [
    ['at the root', () => sb.url],
    ['under a path', () => prefixed.url],
  ] as const;

  /** All requests of a page went to its own origin, and nothing broke its policy. */
  function expectAtHome(visitor: Visitor, requested: readonly string[], base: string) {
    expect(requested.filter(url => !url.startsWith(`${base}/`))).toEqual([]);
    expectNothingStrayed(visitor, base);
    expect(visitor.complaints).toEqual([]);
  }

  function requestsOf(page: Page): readonly string[] {
    const requested: string[] = [];
    page.on('request', request => void requested.push(request.url()));
    return requested;
  }

  describe.each(places)('%s', (_place, baseOf) => {
    it('/ copies the settings of each client', async () => {
      const base = baseOf();
      const permissions = ['clipboard-read', 'clipboard-write'];
      await using visitor = await newVisitor(browser, { permissions });
      const page = await visitor.context.newPage();
      const requested = requestsOf(page);
      await page.goto(`${base}/`);
      await expectWellMade(page, 'Switchboard');
      const clients = ['Claude Code', 'Cursor', 'VS Code', 'Codex', 'Gemini CLI'];
      expect(await page.locator('summary').allInnerTexts()).toEqual(clients);
      for (const name of clients) {
        if (name !== clients[0]) await page.getByText(name, { exact: true }).click();
        const button = page.getByRole('button', { name: `Copy the settings of ${name}` });
        await button.click();
        await page.getByText(`Copied the settings of ${name}.`).waitFor({ state: 'attached' });
        // Runs in the browser; the types of this project know no DOM.
        const copied = await page.evaluate(() => (globalThis as any).navigator.clipboard.readText());
        expect(copied).toContain(`${base}/mcp`);
      }
      await page.getByRole('link', { name: 'API reference' }).click();
      await page.waitForURL(`${base}/docs`);
      await page.getByRole('heading', { name: 'Switchboard API' }).waitFor();
      expectAtHome(visitor, requested, base);
    });

    it('/docs lists all endpoints, and tries a search with a key that is entered once', async () => {
      const base = baseOf();
      await using visitor = await newVisitor(browser);
      const page = await visitor.context.newPage();
      const requested = requestsOf(page);
      await page.goto(`${base}/docs`);
      await page.locator('.opblock').first().waitFor();
      const { paths } = JSON.parse(await (await fetch(`${sb.url}/openapi.json`)).text());
      const operations = Object.values<object>(paths).flatMap(Object.keys);
      expect(await page.locator('.opblock').count()).toBe(operations.length);
      await page.getByRole('button', { name: 'Authorize', exact: true }).click();
      const dialog = page.locator('.dialog-ux');
      await dialog.getByRole('textbox').first().fill(sb.key);
      await dialog.locator('button.authorize').first().click();
      await dialog.getByRole('button', { name: 'Close' }).first().click();
      const search = page.locator('#operations-Search-search');
      await search.getByRole('button').first().click();
      await search.getByRole('button', { name: 'Try it out' }).click();
      await search.locator('textarea').fill('{"query":"filler"}');
      await search.getByRole('button', { name: 'Execute' }).click();
      const answer = search.locator('.live-responses-table');
      await answer.getByText('query_log_id').first().waitFor();
      expect(await answer.innerText()).toMatch(/200[\s\S]*filler\.example/);
      expect(requested).toContain(`${base}/v1/search`);
      expect(await page.evaluate(() => Object.keys((globalThis as any).localStorage))).toEqual([]);
      expectAtHome(visitor, requested, base);
    });
  });

  it('/docs leads to everything without scripts as well', async () => {
    await using visitor = await newVisitor(browser, { javaScriptEnabled: false });
    const page = await visitor.context.newPage();
    await page.goto(`${sb.url}/docs`);
    await page.getByText('needs JavaScript').waitFor();
    for (const text of ['search_servers', 'call_remote_tool', '/mcp/{server_id}'])
      expect(await page.locator('#mcp').innerText()).toContain(text);
    await page.getByRole('link', { name: 'The OpenAPI document' }).click();
    await page.waitForURL(`${sb.url}/openapi.json`);
  });

  it('/docs follows the colours of the system', async () => {
    await using visitor = await newVisitor(browser, { colorScheme: 'dark' });
    const page = await visitor.context.newPage();
    await page.goto(`${sb.url}/docs`);
    await page.locator('html.dark-mode').waitFor({ state: 'attached' });
  });

  it('/ is readable and whole without scripts, on a phone', async () => {
    await using visitor = await newVisitor(browser, {
      javaScriptEnabled: false,
      viewport: { width: 360, height: 700 },
    });
    const page = await visitor.context.newPage();
    await page.goto(`${sb.url}/`);
    await expectWellMade(page, 'Switchboard');
    expect(await page.getByRole('button').count()).toBe(0);
    expect(await page.getByText('claude mcp add').innerText()).toContain(`${sb.url}/mcp`);
    const overflow = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = (globalThis as any).document.documentElement;
      return scrollWidth - clientWidth;
    });
    expect(overflow).toBe(0);
  });
});
