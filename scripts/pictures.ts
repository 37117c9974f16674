/**
 * `npm run pictures [-- NAME…]`: takes the pictures of the console and of the user's page in docs/images again, or only those named. It needs
 * Chromium. The shipped catalogue is shown with use and checks that are made up; its servers are not asked.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { asc, eq } from 'drizzle-orm';
import type { Page } from 'playwright-core';
import { startSwitchboard } from '../src/app.ts';
import { readConfig } from '../src/config/index.ts';
import { apiKeys, keyUse } from '../src/core/access/schema.ts';
import { ensureUser } from '../src/core/access/tenants.ts';
import { serverHealth, servers, serverUsage } from '../src/core/catalogue/schema.ts';
import { connections, userCalls } from '../src/core/identity/schema.ts';
import type { Database, OpenDatabase } from '../src/platform/database/database.ts';
import { randomBase62 } from '../src/platform/ids.ts';
import { createLog } from '../src/platform/telemetry/log.ts';
import { startBrowser } from '../test/support/browser.ts';
import { openConsole } from '../test/support/console.ts';
import { openTestDatabase } from '../test/support/database.ts';
import { startEverything } from '../test/support/upstreams/everything.ts';

const FOLDER = path.resolve(import.meta.dirname, '../docs/images');
const KEY = 'a-key-for-pictures-of-at-least-32-characters';
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const DAYS = 30;
const TENANT = 'planner';
const USER = 'anna@example.com';

/** Servers with many calls, and their share of those of a day. */
const USED = [
  ['aws-knowledge', 0.4],
  ['gh-github-github-mcp-server', 0.25],
  ['ai-exa-exa', 0.2],
  ['context7', 0.15],
] as const;

const ago = (ms: number) => new Date(Date.now() - ms);
const daysAgo = (days: number) =>
  ago(days * DAY_MS)
    .toISOString()
    .slice(0, 10);
/** Fewer on weekends, and more from day to day. */
const callsOn = (days: number) => {
  const isWeekend = [0, 6].includes(ago(days * DAY_MS).getUTCDay());
  return Math.round((1_700 - 33 * days) * (isWeekend ? 0.35 : 1) * (0.92 + 0.08 * Math.cos(5 * days)));
};

/** Stores calls of the last days, and what checks of the catalogue's servers may have found. */
async function storePast(db: Database): Promise<void> {
  for (let days = 0; days < DAYS; days++)
    for (const [serverId, share] of USED) {
      const calls = Math.round(share * callsOn(days));
      const failures = Math.round(calls * (days === 8 ? 0.2 : 0.012));
      const row = { serverId, tenantId: 'local', day: daysAgo(days), successes: calls - failures, failures };
      await db.insert(serverUsage).values(row);
    }
  const all = await db
    .select({ serverId: servers.id, remoteUrl: servers.remoteUrl, auth: servers.auth })
    .from(servers)
    .orderBy(asc(servers.id));
  const used = new Set<string>(USED.map(([serverId]) => serverId));
  const checked = all.flatMap(({ serverId, remoteUrl, auth }, at) => {
    if (at % 11 === 3) return [];
    const isOpen = auth.kind === 'none';
    const state: (typeof serverHealth.$inferInsert)['state'] = used.has(serverId)
      ? 'ok'
      : at % 33 === 6
        ? 'unreachable'
        : at % 57 === 7
          ? 'not_mcp'
          : isOpen
            ? 'ok'
            : 'needs_sign_in';
    const isAlive = state === 'ok' || state === 'needs_sign_in';
    const checkedAt = ago((12 + 7 * at) * MINUTE_MS);
    return { serverId, remoteUrl, state, checkedAt, latencyMs: 120 + (at % 90), failures: isAlive ? 0 : 1 };
  });
  await db.insert(serverHealth).values(checked);
}

type Post = (at: string, body: unknown) => Promise<any>;

/** Creates keys, and says that they were used. */
async function storeKeys(db: Database, post: Post): Promise<void> {
  const keys = [
    [{ name: 'Planner app', tenant: TENANT, monthly_quota: { calls: 40_000, searches: 20_000 } }, 14_029],
    [{ name: 'Claude Code of Ada', user_id: 'ada' }, 5_102],
    [{ name: 'Nightly reports', scopes: ['search'], monthly_quota: { searches: 2_000 } }, 0],
    [{ name: 'Support bot', tenant: 'support', monthly_quota: { calls: 9_000 } }, 5_102],
    [{ name: 'Board in the office', scopes: ['admin_read'] }, undefined],
    [{ name: 'CI', scopes: ['admin'] }, undefined],
  ] as const;
  for (const [at, [body, calls]] of keys.entries()) {
    const { id: keyId } = await post('/v1/admin/keys', body);
    await db
      .update(apiKeys)
      .set({ lastUsedAt: ago((19 + 31 * at) * MINUTE_MS), createdAt: ago((6 - at) * DAY_MS) })
      .where(eq(apiKeys.id, keyId));
    if (calls === undefined) continue;
    const searches = calls === 0 ? 533 : Math.round(calls * 0.42);
    await db.insert(keyUse).values({ keyId, day: daysAgo(1), calls, searches });
  }
  await db.insert(keyUse).values({ keyId: 'environment', day: daysAgo(0), calls: 0, searches: 607 });
  await post(`/v1/admin/tenants/${TENANT}`, { name: 'Planner' });
}

/** Stores connections of users, without tokens, and what was called for one of them. */
async function storeUsers(db: Database, post: Post): Promise<void> {
  const laptop = await post('/v1/admin/keys', { name: 'laptop', tenant: TENANT, user_id: USER });
  await db
    .update(apiKeys)
    .set({ createdAt: ago(9 * DAY_MS) })
    .where(eq(apiKeys.id, laptop.id));
  const [app] = await db.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.name, 'Planner app'));
  const connect = async (
    user: string,
    hours: number,
    one: Pick<typeof connections.$inferInsert, 'provider' | 'subject'> &
      Partial<typeof connections.$inferInsert>,
  ) => {
    const { id: userId } = await ensureUser(db, TENANT, user);
    await db.insert(connections).values({
      id: `con_${randomBase62(22)}`,
      tenantId: TENANT,
      userId,
      scopes: [],
      sealed: 'none',
      hasRefreshToken: false,
      askedBy: app?.id ?? null,
      createdAt: ago(hours * HOUR_MS),
      lastUsedAt: ago((hours * HOUR_MS) / 9),
      ...one,
    });
  };
  await connect(USER, 30, {
    provider: 'server:weather',
    resource: 'https://weather.example/mcp',
    subject: '709164f8',
    status: 'rejected',
    rejectedAt: ago(HOUR_MS),
  });
  await connect(USER, 52, {
    provider: 'acme',
    subject: '4711',
    account: 'anna@acme.example',
    hasRefreshToken: true,
    scopes: ['openid', 'email', 'offline_access'],
  });
  await connect('margaret@example.com', 2, { provider: 'server:buffer', subject: '40e712be' });
  await connect('margaret@example.com', 3, { provider: 'server:coinmarketcap', subject: '708680d4' });
  const calls = [
    ['letters', 'search_letters', 'worked', 1],
    ['notes', 'create_note', 'not_connected', 1],
    ['weather', 'alerts', 'failed', 1],
    ['weather', 'forecast', 'worked', 2],
  ] as const;
  const { id: userId } = await ensureUser(db, TENANT, USER);
  for (const [at, [serverId, tool, outcome, times]] of calls.entries()) {
    const lastAt = ago((3 + 9 * at) * MINUTE_MS);
    const when = { minute: lastAt, lastAt, times };
    const keyId = at === 0 ? (app?.id ?? '') : laptop.id;
    await db.insert(userCalls).values({ tenantId: TENANT, userId, serverId, tool, outcome, keyId, ...when });
  }
}

const only = new Set(process.argv.slice(2));

async function take(page: Page, name: string, { whole = false } = {}): Promise<void> {
  if (only.size > 0 && !only.has(name)) return;
  await page.mouse.move(0, 0);
  await page.screenshot({ path: path.join(FOLDER, `${name}.png`), fullPage: whole, animations: 'disabled' });
  console.log(`docs/images/${name}.png`);
}

await using stack = new AsyncDisposableStack();
const dataDir = stack.adopt(await mkdtemp(path.join(tmpdir(), 'sb-pictures-')), folder =>
  rm(folder, { recursive: true }),
);
const everything = stack.use(await startEverything());
const database = await openTestDatabase();
stack.defer(() => database.close());
const config = readConfig({
  PORT: '0',
  SWITCHBOARD_DATA_DIR: dataDir,
  SWITCHBOARD_API_KEY: KEY,
  SWITCHBOARD_ALLOW_PRIVATE_NETWORK: 'true',
  SWITCHBOARD_RATE_LIMIT: 'off',
  SWITCHBOARD_PROVIDERS: JSON.stringify({
    acme: { issuer: 'https://acme.example', client_id: 'id', client_secret: 'no-secret', title: 'Acme' },
  }),
});
const open = async () => {
  const shared: OpenDatabase = { ...database, close: () => Promise.resolve() };
  const running = await startSwitchboard(config, {
    log: createLog('silent'),
    database: () => Promise.resolve(shared),
  });
  await running.indexed;
  return running;
};
// What checks have found is read at the start.
await (await open())[Symbol.asyncDispose]();
await storePast(database.db);
const running = stack.use(await open());
const url = running.url ?? '';
const send = async (method: string, at: string, body: unknown): Promise<any> => {
  const headers = { 'x-api-key': KEY, 'content-type': 'application/json' };
  const response = await fetch(url + at, { method, headers, body: JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${at}: ${JSON.stringify(answer)}`);
  return answer;
};
const post: Post = (at, body) => send('POST', at, body);
const added = [
  ['everything', 'Everything', 'Echo a message, add numbers, and try every feature of MCP.', everything.url],
  ['weather', 'Weather Office', 'Forecasts for your town.', 'https://weather.example/mcp'],
  ['notes', 'Notes', 'Writes and finds notes.', 'https://notes.example/mcp'],
  ['letters', 'Letters', 'Finds letters.', 'https://letters.example/mcp'],
] as const;
for (const [id, name, description, remote_url] of added) {
  const kind = { weather: 'credentials', notes: 'oauth' }[id as string] ?? 'none';
  await send('PUT', `/v1/admin/catalogue/${id}`, { name, description, remote_url, auth: { kind } });
}
await post('/v1/admin/catalogue/everything/tools', {});
await storeKeys(database.db, post);
await storeUsers(database.db, post);
for (let n = 0; n < 160; n++) {
  const isLong = n % 40 === 7;
  await post('/v1/mcp/tools/call', {
    server_id: 'everything',
    name: isLong ? 'trigger-long-running-operation' : 'echo',
    arguments: isLong ? { duration: 0.1 + n / 400, steps: 1 } : { message: 'x' },
  });
}
for (const query of ['read a web page', 'send an e-mail', 'weather in Oslo'])
  await post('/v1/search', { query });

const browser = await startBrowser();
stack.defer(() => browser.close());
const signedIn = (options = {}) => openConsole(browser, { url, key: KEY }, options);

{
  await using operator = await signedIn();
  const { page } = operator;
  await operator.settled();
  await page.locator('.plot canvas').first().waitFor();
  await take(page, 'console-overview');
  await operator.open('#/search?q=create+an+issue+in+our+bug+tracker&about=sentry');
  await take(page, 'console-search');
  await operator.open('#/catalogue');
  await take(page, 'console-catalogue');
  await operator.open('#/keys');
  await take(page, 'console-keys');
  await operator.open('#/catalogue/everything');
  await page.getByRole('button', { name: 'Try echo', exact: true }).click();
  await page.getByRole('dialog').getByLabel('message').fill('hello from the console');
  await page.getByRole('dialog').getByRole('button', { name: 'Call' }).click();
  await page.getByRole('dialog').getByText('Done', { exact: true }).waitFor();
  await operator.settled();
  await take(page, 'console-call');
}
{
  await using operator = await signedIn({ colorScheme: 'dark' });
  await operator.settled();
  await operator.page.locator('.plot canvas').first().waitFor();
  await take(operator.page, 'console-dark');
}
{
  await using operator = await signedIn({
    viewport: { width: 390, height: 800 },
    hasTouch: true,
    isMobile: true,
  });
  await operator.open('#/connections');
  await take(operator.page, 'console-phone');
}
{
  const planner = await post('/v1/admin/keys', { name: 'For the page', tenant: TENANT });
  const response = await fetch(`${url}/v1/identity/manage`, {
    method: 'POST',
    headers: { 'x-api-key': planner.key, 'content-type': 'application/json' },
    body: JSON.stringify({ user_id: USER }),
  });
  const page = await browser.newPage({ viewport: { width: 700, height: 800 } });
  await page.goto(((await response.json()) as { url: string }).url);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { level: 1 }).waitFor();
  await take(page, 'manage', { whole: true });
}
