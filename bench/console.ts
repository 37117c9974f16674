/**
 * How long the console's first view takes: npm run bench:console -- [--servers 5000] [--views 15] [--json]
 *
 * Switchboard in this process with a made-up catalogue and vectors of n-grams, and Chromium. Each view is that of a browser that is signed in
 * and has nothing in its cache: from the navigation until the screen shows its data.
 */
import { loadavg } from 'node:os';
import type { Browser, BrowserContext, Request } from 'playwright-core';
import { startBrowser } from '../test/support/browser.ts';
import { screenSettled, signInWith } from '../test/support/console.ts';
import { startTestSwitchboard } from '../test/support/switchboard.ts';
import { printFacts, readSizes } from './command-line.ts';
import { percentile } from './measures.ts';

const SCREENS = ['', 'catalogue', 'keys'];

/** Opens a screen in a browser without a cache, and measures until it is there. */
async function view(
  browser: Browser,
  url: string,
  state: Awaited<ReturnType<BrowserContext['storageState']>>,
) {
  const context = await browser.newContext({ storageState: state });
  const page = await context.newPage();
  const scripts: Request[] = [];
  page.on('requestfinished', request => {
    if (request.url().endsWith('.js')) scripts.push(request);
  });
  const startedAt = performance.now();
  await page.goto(url);
  await screenSettled(page);
  const tookMs = performance.now() - startedAt;
  const read = await Promise.all(scripts.map(script => script.sizes()));
  await context.close();
  return { tookMs, scriptBytes: read.reduce((sum, { responseBodySize }) => sum + responseBodySize, 0) };
}

const { sizes, json } = readSizes('bench:console', { servers: 5_000, views: 15 });
const catalogue = Array.from({ length: sizes.servers }, (_, n) => ({
  id: `server-${n}`,
  remote_url: `https://server-${n}.example/mcp`,
}));
await using switchboard = await startTestSwitchboard({ catalogue, env: { SWITCHBOARD_RATE_LIMIT: 'off' } });
const at = `${switchboard.url}/console/`;
const browser = await startBrowser();
const first = await browser.newContext();
const page = await first.newPage();
await page.goto(at);
await signInWith(page, switchboard.key);
await screenSettled(page);
const state = await first.storageState();

const facts: Record<string, string | number> = { servers: sizes.servers };
for (const screen of SCREENS) {
  const times: number[] = [];
  let bytes = 0;
  for (let n = 0; n < sizes.views; n++) {
    const { tookMs, scriptBytes } = await view(browser, `${at}#/${screen}`, state);
    times.push(tookMs);
    bytes = scriptBytes;
  }
  const name = screen === '' ? 'overview' : screen;
  facts[`${name}: median ms`] = Math.round(percentile(times, 0.5));
  facts[`${name}: slowest ms`] = Math.round(Math.max(...times));
  facts[`${name}: KB of scripts`] = Math.round(bytes / 100) / 10;
}
facts['load of the machine'] = loadavg()[0]?.toFixed(1) ?? '';
if (json) console.log(JSON.stringify(facts));
else printFacts(facts);
await browser.close();
