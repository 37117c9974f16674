import { existsSync } from 'node:fs';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions } from 'playwright-core';

const CHROMIUM = '/usr/bin/chromium';

/** Why there can be no test in a browser; undefined when there can. Where one is required, that is for the test to fail on. */
export const browserMissing: string | undefined =
  existsSync(CHROMIUM) || process.env['SWITCHBOARD_TEST_REQUIRE_BROWSER'] === '1'
    ? undefined
    : `${CHROMIUM} is not installed (SWITCHBOARD_TEST_REQUIRE_BROWSER=1 makes that a failure)`;

/** A Chromium without a window. */
export const startBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });

export interface Visitor extends AsyncDisposable {
  readonly context: BrowserContext;
  /** URLs of other machines that were asked for, with the page that asked. All of them were refused. */
  readonly strayed: readonly { readonly url: string; readonly from: string }[];
  /** What the browser complained about, such as a breach of a page's content security policy. */
  readonly complaints: readonly string[];
}

/** A browser with cookies of its own, that reaches this machine alone. */
export async function newVisitor(browser: Browser, options: BrowserContextOptions = {}): Promise<Visitor> {
  const context = await browser.newContext(options);
  const strayed: { url: string; from: string }[] = [];
  const complaints: string[] = [];
  await context.route(
    url => !['127.0.0.1', 'localhost'].includes(url.hostname),
    async route => {
      const request = route.request();
      strayed.push({ url: request.url(), from: request.frame().url() });
      await route.abort();
    },
  );
  context.on('console', message => {
    if (message.type() === 'error' || message.type() === 'warning')
      complaints.push(`${message.location().url}: ${message.text()}`);
  });
  context.on('weberror', error => void complaints.push(String(error.error())));
  return { context, strayed, complaints, [Symbol.asyncDispose]: () => context.close() };
}
