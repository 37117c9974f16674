import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sql } from 'drizzle-orm';
import { assert, property, string } from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../../src/config/index.ts';
import type { Core } from '../../../src/core/core.ts';
import { createApp } from '../../../src/api/http/app.ts';
import { isFormToken, formToken } from '../../../src/api/pages/cookies.ts';
import { html, Html, named, type Content } from '../../../src/api/pages/page.ts';
import { rows } from '../../../src/platform/database/database.ts';
import { systemClock } from '../../../src/platform/time.ts';
import { newSecret } from '../../../src/platform/ids.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import { startIdentity } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

describe('html', () => {
  it.each<[Content, string]>([
    ['<script>alert(1)</script>', '&#60;script&#62;alert(1)&#60;/script&#62;'],
    [`" onclick='x' \``, '&#34; onclick=&#39;x&#39; &#96;'],
    ['&lt;', '&#38;lt;'],
    ['a\r\nSet-Cookie: b', 'a\r\nSet-Cookie: b'],
    [7, '7'],
    [undefined, ''],
    [false, ''],
    [['<', html`<b>${'>'}</b>`], '&#60;<b>&#62;</b>'],
  ])('%j becomes %j', (value, expected) => {
    expect(html`<p title="${value}">${value}</p>`.text).toBe(`<p title="${expected}">${expected}</p>`);
  });

  it('lets no text out of its place, whatever it is', () => {
    assert(
      property(string({ unit: 'binary' }), text => {
        expect(html`${text}`.text).not.toMatch(/[<>"'`]/);
      }),
    );
  });

  it.each(['\u{202e}', '\u{2066}', '\u{200b}', '\u{0}', '\r\n', '\u{2028}', '\u{feff}', '\u{e0041}'])(
    'shows that a name hides %j',
    hidden => {
      expect(named(`a${hidden}b`)).toEqual(
        new Html(`<bdi>a${'\u{fffd}'.repeat(hidden === '\r\n' ? 2 : 1)}b</bdi>`),
      );
    },
  );
});

it('the token of a form is good for its own cookie alone', () => {
  expect(isFormToken(formToken('web_a'), 'web_a')).toBe(true);
  for (const other of [undefined, '', 'A'.repeat(43), formToken('web_b'), 'é'.repeat(43)])
    expect(isFormToken(other, 'web_a')).toBe(false);
});

/** The pages over a core that fails as told: a database is not lost on command. */
async function startFailing(error: Error) {
  const fail = () => Promise.reject(error);
  const core = {
    identity: {
      signIns: { view: fail, result: fail, callback: fail },
      manage: { viewLink: fail, view: fail },
      pageSignIns: { view: fail, returned: () => Promise.resolve() },
      signingKeys: { jwks: fail },
    },
    rateLimits: { take: () => Promise.resolve() },
    readiness: () => ({ status: 'ready', degraded: [] }),
    metrics: new Metrics(),
  } as unknown as Core;
  const app = createApp({
    core,
    config: readConfig({}).http,
    log: createLog('silent'),
    clock: systemClock,
    version: '0',
  });
  const server = createServer(app);
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, [Symbol.asyncDispose]: async () => void server.close() };
}

describe('what goes wrong on our side', () => {
  const lost = Object.assign(new Error('the secret inside'), { code: '57P01' });
  it.each([
    ['a lost database', lost, 503, 'Temporarily unavailable'],
    ['anything else', new TypeError('the secret inside'), 500, 'Something went wrong on our side'],
  ])('%s is a page that says nothing of it but where to ask', async (_what, error, status, title) => {
    await using failing = await startFailing(error);
    for (const path of ['/connect/x', '/oauth/callback/x?state=y', '/oauth/done/x', '/manage', '/manage/x']) {
      const headers = { cookie: `sb_manage=${newSecret('web')}` };
      const answer = await fetch(failing.url + path, { headers });
      const text = await answer.text();
      expect([answer.status, answer.headers.get('content-type')]).toEqual([
        status,
        'text/html; charset=utf-8',
      ]);
      expect(text).toContain(`<h1>${title}</h1>`);
      expect(text).toContain(answer.headers.get('x-request-id'));
      expect(text).not.toMatch(/secret|\.ts/);
    }
    // Read by programs.
    expect((await fetch(`${failing.url}/.well-known/jwks.json`)).headers.get('content-type')).toContain(
      'problem+json',
    );
  });
});

describe('Host and Origin', () => {
  let failing: Awaited<ReturnType<typeof startFailing>>;
  beforeAll(async () => void (failing = await startFailing(new Error('not reached'))));
  afterAll(() => failing[Symbol.asyncDispose]());

  it.each([
    // Past the guard: nothing of it takes a form.
    ['a page, sent from a page that hides its origin', '/manage/', 'null', 404],
    ['a page, sent from another site', '/manage/', 'https://evil.example', 403],
    ['the API, sent from a page that hides its origin', '/v1/search', 'null', 403],
    ['no page, only something with its name', '/managed', 'null', 403],
  ])('%s', async (_what, path, origin, status) => {
    const headers = { origin, 'content-type': 'application/x-www-form-urlencoded' };
    expect((await fetch(failing.url + path, { method: 'POST', headers })).status).toBe(status);
  });
});

it('reached by https below a path, it sets __Host- cookies that are Secure, and links to that path', async () => {
  const publicUrl = 'https://gate.example/switchboard';
  await using sb = await startIdentity({ env: { PUBLIC_URL: publicUrl } });
  const reached = (url: string) => url.replace(publicUrl, sb.url);
  const agent = new UserAgent();
  const session = (await sb.createSession('alice', { mode: 'page' })).json;
  const connect = await agent.get(reached(session.auth_url));
  expect(connect.html).toContain(`action="${new URL(session.auth_url).pathname}"`);
  const link = (await sb.post('/v1/identity/manage', { user_id: 'alice' })).json.url as string;
  const post = (url: string) =>
    fetch(reached(url), {
      method: 'POST',
      redirect: 'manual',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
  const cookiesOf = ({ headers }: { headers: Headers }) => headers.getSetCookie().join();
  expect(cookiesOf(connect)).toMatch(
    /^__Host-sb_browser=web_[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Lax$/,
  );
  expect(cookiesOf(await post(link))).toMatch(
    /^__Host-sb_manage=web_[\w-]{43}; .*Path=\/; .*HttpOnly; Secure; SameSite=Strict$/,
  );
});

it('a flood of callbacks from one address is a page that says when to come back', async () => {
  await using sb = await startIdentity();
  const flood = Array.from({ length: 130 }, () => fetch(`${sb.url}/oauth/callback/local?state=x`));
  const answers = await Promise.all(flood);
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused).toHaveLength(10);
  expect(Number(refused[0]?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(await refused[0]?.text()).toContain('<h1>Too many sign-ins at once</h1>');
});

it('a flood of guessed links from one address is refused before anything is looked up', async () => {
  await using sb = await startIdentity();
  const secret = 'A'.repeat(43);
  const form = {
    method: 'POST',
    redirect: 'manual',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  } as const;
  const guesses: (() => Promise<Response>)[] = [
    () => fetch(`${sb.url}/connect/link_${secret}`),
    () => fetch(`${sb.url}/connect/link_${secret}`, form),
    () => fetch(`${sb.url}/oauth/done/done_${secret}`),
    () => fetch(`${sb.url}/oauth/done/done_${secret}/undo`, form),
    () => fetch(`${sb.url}/manage/page_${secret}`, form),
    () => fetch(`${sb.url}/manage`, { headers: { cookie: `sb_manage=web_${secret}` } }),
  ];
  const link = (await sb.post('/v1/identity/manage', { user_id: 'alice' })).json.url as string;
  const flood = await Promise.all(Array.from({ length: 110 }, () => guesses.map(guess => guess())).flat());
  const refused = flood.filter(({ status }) => status === 429);
  expect(refused).toHaveLength(60);
  expect(Number(refused[0]?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(await refused[0]?.text()).toContain('<h1>Too many sign-ins at once</h1>');
  // A right link is refused as well, and is not used up.
  expect((await fetch(link, form)).status).toBe(429);
  expect(await rows(sb.db, sql`select used_at from manage_links`)).toEqual([{ used_at: null }]);
});
