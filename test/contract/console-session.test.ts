import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eq, sql } from 'drizzle-orm';
import { consoleSessions } from '../../src/core/access/schema.ts';
import type { OpenDatabase } from '../../src/platform/database/database.ts';
import { openTestDatabase } from '../support/database.ts';
import {
  exchange,
  startTestSwitchboard,
  type Answer,
  type RunningSwitchboard,
} from '../support/switchboard.ts';

let database: OpenDatabase;
let sb: RunningSwitchboard;

beforeAll(async () => {
  database = await openTestDatabase();
  sb = await startTestSwitchboard({
    database: () => Promise.resolve(database),
    env: { SWITCHBOARD_RATE_LIMIT: 'admin=5000/60' },
  });
});
afterAll(() => sb[Symbol.asyncDispose]());

const OURS = { 'x-switchboard-console': '1' };

const keyWith = async (scopes: string[], more: object = {}): Promise<{ id: string; key: string }> =>
  (await sb.admin.request('POST', '/keys', { name: `with ${scopes.join()}`, scopes, ...more })).json;

const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  exchange(sb.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...OURS, ...headers },
    body: JSON.stringify(body),
  });
const signIn = (body: unknown, headers: Record<string, string> = {}) =>
  post('/console/session', body, headers);
const cookieOf = ({ headers }: Answer): string => headers.getSetCookie()[0]?.split(';')[0] ?? '';
const signedIn = async (key: string) => cookieOf(await signIn({ key }));
const linkOf = async (body: object = {}): Promise<string> => {
  const { json } = await sb.admin.request('POST', '/console/link', body);
  return new URL(json.url).hash.replace('#link=', '');
};

const ask = (path: string, cookie: string, headers: Record<string, string> = OURS, method = 'GET') =>
  exchange(sb.url + path, {
    method,
    headers: { cookie, ...headers, ...(method === 'GET' ? {} : { 'content-type': 'application/json' }) },
    ...(method === 'GET' ? {} : { body: '{}' }),
  });
const keysWith = (cookie: string, headers?: Record<string, string>) => ask('/v1/admin/keys', cookie, headers);

describe('signing in to the console', () => {
  it('turns an admin key into a cookie that no script reads and no other site sends [console.session]', async () => {
    const { id, key } = await keyWith(['admin']);
    const answer = await signIn({ key });
    expect(answer).toMatchObject({
      status: 200,
      json: { role: 'admin', key_id: id, key_name: 'with admin' },
    });
    expect(answer.headers.get('cache-control')).toBe('no-store');
    const [cookie = ''] = answer.headers.getSetCookie();
    expect(cookie).toMatch(/^sb_console=web_[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/);
    expect((await keysWith(cookieOf(answer))).status).toBe(200);
    expect((await ask('/console/session', cookieOf(answer))).json).toMatchObject({
      role: 'admin',
      key_id: id,
    });
  });

  it('over https the cookie is only for this host and never sent in clear [console.session]', async () => {
    await using other = await startTestSwitchboard({
      env: { PUBLIC_URL: 'https://console.example/sb', SWITCHBOARD_ALLOWED_HOSTS: '*' },
    });
    const answer = await exchange(`${other.url}/console/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...OURS },
      body: JSON.stringify({ key: other.key }),
    });
    expect(answer.headers.getSetCookie()[0]).toMatch(
      /^__Host-sb_console=web_[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Strict$/,
    );
    const { json } = await other.admin.request('POST', '/console/link', {});
    expect(json.url).toMatch(/^https:\/\/console\.example\/sb\/console\/#link=page_/);
  });

  it('stores neither the key nor the cookie nor the link in clear [console.session]', async () => {
    const { key } = await keyWith(['admin']);
    const cookie = (await signedIn(key)).split('=')[1] ?? '';
    const link = await linkOf();
    const rows = JSON.stringify(
      await database.db.select({ text: sql<string>`${consoleSessions}::text` }).from(consoleSessions),
    );
    for (const secret of [key, cookie, link, sb.key]) expect(rows).not.toContain(secret.slice(-20));
    const [row] = await database.db
      .select()
      .from(consoleSessions)
      .where(eq(consoleSessions.hash, createHash('sha256').update(cookie).digest()));
    expect(row).toMatchObject({ isLink: false, role: 'admin' });
    expect(sb.logged()).not.toContain(cookie);
  });

  it('refuses wrong keys, keys without the scope, and other bodies [console.session]', async () => {
    const plain = await keyWith(['search']);
    expect(await signIn({ key: 'sbk_live_wrong' })).toMatchObject({
      status: 401,
      json: { code: 'unauthorized', detail: 'This is not a valid API key.' },
    });
    const refused = await signIn({ key: plain.key });
    expect(refused).toMatchObject({ status: 403, json: { code: 'insufficient_scope' } });
    expect(refused.headers.getSetCookie()).toEqual([]);
    for (const body of [{}, { key: 1 }, { key: 'a', link: 'b' }, [], 'x', { key: 'x'.repeat(5_000) }])
      expect([400, 413], JSON.stringify(body)).toContain((await signIn(body)).status);
    const form = await exchange(`${sb.url}/console/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...OURS },
      body: 'key=x',
    });
    expect(form.status).toBe(415);
    expect((await ask('/console/session', '', OURS, 'PUT')).status).toBe(405);
  });

  it('is audited, also a refusal and the end [console.session]', async () => {
    const { id, key } = await keyWith(['admin']);
    const plain = await keyWith(['search']);
    const cookie = await signedIn(key);
    await signIn({ key: plain.key });
    await post('/console/session/end', {}, { cookie });
    const eventsOf = async (keyId: string) =>
      (await sb.admin.request('GET', `/audit?key_id=${keyId}`)).json.audit.map((one: any) => [
        one.event,
        one.outcome,
        one.details,
      ]);
    expect(await eventsOf(id)).toEqual([
      ['console_signed_out', 'ok', {}],
      ['console_signed_in', 'ok', { role: 'admin', by: 'key' }],
    ]);
    expect(await eventsOf(plain.id)).toEqual([['console_signed_in', 'refused', { by: 'key' }]]);
  });

  it('is audited for wrong keys and used links, the first of a minute [console.session]', async () => {
    let nowMs = Date.now();
    await using other = await startTestSwitchboard({ clock: { now: () => nowMs } });
    const guess = (body: object) =>
      exchange(`${other.url}/console/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...OURS },
        body: JSON.stringify(body),
      });
    const refused = async () =>
      (await other.admin.request('GET', '/audit?event=console_signed_in&outcome=refused')).json.audit.map(
        (one: any) => one.details,
      );
    const { json } = await other.admin.request('POST', '/console/link', {});
    const link = new URL(json.url).hash.replace('#link=', '');
    expect((await guess({ link })).status).toBe(200);
    for (let n = 0; n < 3; n++) expect((await guess({ link })).status).toBe(401);
    for (let n = 0; n < 2; n++) expect((await guess({ key: 'sbk_live_wrong' })).status).toBe(401);
    expect(await refused()).toEqual([{ by: 'key' }, { by: 'link' }]);
    nowMs += 61_000;
    await guess({ link });
    expect(await refused()).toEqual([{ by: 'link', further: 2 }, { by: 'key' }, { by: 'link' }]);
    const { traffic } = (await other.get('/v1/admin/overview')).json;
    expect(traffic.refusals).toEqual([{ code: 'unauthorized', limit: null, count: 6 }]);
  });

  it('limits guesses of one address, while those who are signed in go on [console.session]', async () => {
    await using other = await startTestSwitchboard();
    const send = (path: string, init: { method?: string; headers?: Record<string, string>; body?: string }) =>
      exchange(other.url + path, { ...init, headers: { ...OURS, ...init.headers } });
    const guess = (body: object) =>
      send('/console/session', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    const cookie = cookieOf(await guess({ key: other.key }));
    const guesses: object[] = [{ key: 'sbk_live_x' }, { link: `page_${'x'.repeat(43)}` }];
    const statuses: number[] = [];
    for (let round = 0; round < 31; round++)
      for (const body of guesses) statuses.push((await guess(body)).status);
    expect(statuses.slice(0, 60)).toEqual(statuses.slice(0, 60).map(() => 401));
    expect(statuses.slice(60)).toEqual([429, 429]);
    expect((await send('/v1/admin/keys', { headers: { cookie } })).status).toBe(200);
  });
});

describe('what strangers can do', () => {
  const start = (admin = '') =>
    startTestSwitchboard({ env: admin === '' ? {} : { SWITCHBOARD_RATE_LIMIT: `admin=${admin}` } });
  const statusesOf = async (at: RunningSwitchboard, rounds: number, path: string, init: object) => {
    const statuses: number[] = [];
    for (let round = 0; round < rounds; round++)
      statuses.push((await exchange(at.url + path, { headers: OURS, ...init })).status);
    return statuses;
  };

  it('a key signs in as often as it may ask the admin API, also one without the scope [console.session]', async () => {
    await using other = await start('5/60');
    const { json } = await other.admin.request('POST', '/keys', { name: 'plain', scopes: ['search'] });
    const send = (key: string) =>
      statusesOf(other, 7, '/console/session', {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...OURS },
        body: JSON.stringify({ key }),
      });
    expect(await send(json.key)).toEqual([403, 403, 403, 403, 403, 429, 429]);
    expect(await send(other.key)).toEqual([200, 200, 200, 200, 200, 429, 429]);
    const { audit } = (await other.admin.request('GET', '/audit?event=console_signed_in')).json;
    expect(audit).toHaveLength(10);
  });

  it('each session of a link has a limit of its own [console.session]', async () => {
    await using other = await start('5/60');
    const cookies: string[] = [];
    for (let n = 0; n < 2; n++) {
      const { json } = await other.admin.request('POST', '/console/link', {});
      const body = JSON.stringify({ link: new URL(json.url).hash.replace('#link=', '') });
      const headers = { 'content-type': 'application/json', ...OURS };
      cookies.push(
        cookieOf(await exchange(`${other.url}/console/session`, { method: 'POST', headers, body })),
      );
    }
    const [one = '', two = ''] = cookies;
    const askAs = (cookie: string) =>
      statusesOf(other, 6, '/v1/admin/tenants', { headers: { ...OURS, cookie } });
    expect(await askAs(one)).toEqual([200, 200, 200, 200, 200, 429]);
    expect(await askAs(two)).toEqual([200, 200, 200, 200, 200, 429]);
    expect((await other.admin.request('GET', '/tenants')).status).toBe(200);
  });

  it('a key has 100 sessions at most, and a further one ends the oldest [console.session]', async () => {
    const { id, key } = await keyWith(['admin']);
    const oldest = await signedIn(key);
    await database.db.execute(sql`
      insert into console_sessions (hash, is_link, key_id, role, expires_at, idle_until)
      select sha256(n::text::bytea), false, ${id}, 'admin', now() + interval '1 hour', now() + interval '1 hour'
      from generate_series(1, 99) n`);
    expect((await keysWith(oldest)).status).toBe(200);
    const newest = await signedIn(key);
    expect((await keysWith(oldest)).status).toBe(401);
    expect((await keysWith(newest)).status).toBe(200);
  });

  it.each([
    ['GET', '/console/session', 401],
    ['POST', '/console/session/end', 200],
    ['GET', '/v1/admin/keys', 401],
  ])(
    'an address that guesses cookies is stopped at %s %s [console.session]',
    async (method, path, status) => {
      await using other = await start();
      const signed = await exchange(`${other.url}/console/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...OURS },
        body: JSON.stringify({ key: other.key }),
      });
      const cookie = `sb_console=web_${'x'.repeat(43)}`;
      const statuses = await statusesOf(other, 62, path, { method, headers: { ...OURS, cookie } });
      expect(statuses).toEqual([...Array<number>(60).fill(status), 429, 429]);
      const mine = { headers: { ...OURS, cookie: cookieOf(signed) } };
      expect((await exchange(`${other.url}/v1/admin/keys`, mine)).status).toBe(200);
    },
  );
});

describe('a link of the command line', () => {
  it('signs one browser in, once [console.link]', async () => {
    const link = await linkOf();
    const answer = await signIn({ link });
    expect(answer).toMatchObject({
      status: 200,
      json: { role: 'admin', key_id: 'operator', key_name: null },
    });
    expect((await keysWith(cookieOf(answer))).status).toBe(200);
    expect(await signIn({ link })).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
    expect((await keysWith(`sb_console=${link}`)).status).toBe(401);
  });

  it('names the console as the one who acts, not the command line [console.link]', async () => {
    const cookie = cookieOf(await signIn({ link: await linkOf() }));
    await ask('/console/session/end', cookie, OURS, 'POST');
    const { audit } = (await sb.get('/v1/admin/audit?key_id=console&limit=2')).json;
    expect(audit.map(({ event }: any) => event)).toEqual(['console_signed_out', 'console_signed_in']);
  });

  it('of two browsers at the same time, one is signed in [console.link]', async () => {
    const link = await linkOf();
    const answers = await Promise.all(Array.from({ length: 8 }, () => signIn({ link })));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      200,
      ...Array<number>(7).fill(401),
    ]);
  });

  it('expires after five minutes, and is no cookie [console.link]', async () => {
    const link = await linkOf();
    await age(link, 5);
    expect((await signIn({ link })).status).toBe(401);
    const other = await linkOf();
    expect((await keysWith(`sb_console=${other}`)).status).toBe(401);
  });

  it('can be for looking only [console.role]', async () => {
    const answer = await signIn({ link: await linkOf({ read_only: true }) });
    expect(answer.json).toMatchObject({ role: 'admin_read', key_id: 'operator' });
  });
});

/** Makes the row of a secret as old as if the minutes had passed. */
async function age(secret: string, minutes: number): Promise<void> {
  const hash = createHash('sha256').update(secret).digest();
  const earlier = sql`make_interval(mins => ${minutes})`;
  const changed = await database.db
    .update(consoleSessions)
    .set({
      expiresAt: sql`${consoleSessions.expiresAt} - ${earlier}`,
      idleUntil: sql`${consoleSessions.idleUntil} - ${earlier}`,
    })
    .where(eq(consoleSessions.hash, hash))
    .returning({ hash: consoleSessions.hash });
  expect(changed).toHaveLength(1);
}

describe('a refusal', () => {
  it('tells the console what the operator has to do, and others whom to ask [console.session]', async () => {
    const entry = { name: 'Keyed', description: 'Reads.', remote_url: 'https://keyed.example/mcp' };
    const put = await sb.put('/v1/admin/catalogue/keyed', { ...entry, auth: { kind: 'credentials' } });
    expect(put.status).toBe(200);
    const call = { server_id: 'keyed', name: 'read' };
    const byCookie = await post('/v1/admin/call', call, { cookie: await signedIn(sb.key) });
    const byKey = await sb.post('/v1/admin/call', call);
    for (const { json } of [byCookie, byKey]) expect(json.code).toBe('connection_required');
    expect(byKey.json.detail).toContain('Ask the operator');
    expect(byCookie.json.detail).not.toContain('Ask the operator');
  });
});

describe('the end of a session', () => {
  it('comes after half an hour without use, and use puts it off [console.end]', async () => {
    const cookie = await signedIn(sb.key);
    const secret = cookie.split('=')[1] ?? '';
    for (let round = 0; round < 3; round++) {
      await age(secret, 29);
      expect((await keysWith(cookie)).status).toBe(200);
    }
    await age(secret, 30);
    expect(await keysWith(cookie)).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
    expect(await ask('/console/session', cookie)).toMatchObject({ status: 401 });
  });

  it('is put off in the database at most once a minute, so that most requests write nothing [console.end]', async () => {
    const cookie = await signedIn(sb.key);
    const secret = cookie.split('=')[1] ?? '';
    const version = async () =>
      (
        await database.db
          .select({ xmin: sql<string>`xmin::text` })
          .from(consoleSessions)
          .where(eq(consoleSessions.hash, createHash('sha256').update(secret).digest()))
      )[0]?.xmin;
    const before = await version();
    await keysWith(cookie);
    expect(await version()).toBe(before);
    await age(secret, 2);
    const aged = await version();
    await keysWith(cookie);
    expect(await version()).not.toBe(aged);
  });

  it('comes for all at once, of which only those that had not ended count [console.end]', async () => {
    await sb.admin.request('POST', '/console/end');
    const [live, gone] = [await signedIn(sb.key), await signedIn(sb.key)];
    await linkOf();
    await age(gone.split('=')[1] ?? '', 31);
    expect((await sb.admin.request('POST', '/console/end')).json).toEqual({ ended: 2 });
    expect((await keysWith(live)).status).toBe(401);
  });

  it('comes after twelve hours however much it is used [console.end]', async () => {
    const cookie = await signedIn(sb.key);
    const secret = cookie.split('=')[1] ?? '';
    for (let round = 0; round < 25; round++) {
      await age(secret, 28);
      expect((await keysWith(cookie)).status).toBe(200);
    }
    await age(secret, 20);
    expect((await keysWith(cookie)).status).toBe(401);
  });

  it('comes at once when its key is revoked or expires [console.end]', async () => {
    const { id, key } = await keyWith(['admin']);
    const cookie = await signedIn(key);
    await sb.admin.request('POST', `/keys/${id}/revoke`);
    expect((await keysWith(cookie)).status).toBe(401);
    const other = await keyWith(['admin']);
    const otherCookie = await signedIn(other.key);
    await sb.admin.request('POST', `/keys/${other.id}/rotate`, { overlap_sec: 0 });
    expect((await keysWith(otherCookie)).status).toBe(401);
  });

  it('comes with signing out, and with the next sign-in of the browser [console.end]', async () => {
    const cookie = await signedIn(sb.key);
    const again = await signIn({ key: sb.key }, { cookie });
    expect((await keysWith(cookie)).status).toBe(401);
    const ended = await post('/console/session/end', {}, { cookie: cookieOf(again) });
    expect(ended.headers.getSetCookie()[0]).toMatch(/^sb_console=; .*Expires=Thu, 01 Jan 1970/);
    expect((await keysWith(cookieOf(again))).status).toBe(401);
  });
});

describe('a sign-in by a link', () => {
  it('counts even if the earlier session of the browser cannot be ended [console.session]', async () => {
    const before = await signedIn(sb.key);
    await database.db.execute(
      sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`,
    );
    await database.db.execute(
      sql`create trigger refuse before delete on console_sessions for each row execute function refuse()`,
    );
    const answer = await signIn({ link: await linkOf() }, { cookie: before });
    await database.db.execute(sql`drop trigger refuse on console_sessions`);
    expect(answer.status).toBe(500);
    expect((await keysWith(cookieOf(answer))).status).toBe(200);
  });
});

describe('who may use the cookie', () => {
  it('only requests that carry the header of the console [console.csrf]', async () => {
    const cookie = await signedIn(sb.key);
    expect((await keysWith(cookie, {})).status).toBe(401);
    expect((await ask('/console/session', cookie, {})).status).toBe(403);
  });

  it.each([
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { 'sec-fetch-site': 'cross-site', origin: 'same' },
    { origin: 'http://127.0.0.1:1' },
    { origin: 'http://localhost' },
    { origin: 'null' },
    { origin: 'https://evil.example' },
  ])('no page of another origin: %j [console.csrf]', async ({ origin, ...more }) => {
    const cookie = await signedIn(sb.key);
    const headers: Record<string, string> = { ...more, ...OURS };
    if (origin !== undefined) headers['origin'] = origin === 'same' ? sb.url : origin;
    for (const [path, method] of [
      ['/v1/admin/keys', 'GET'],
      ['/v1/admin/catalogue/filler/deactivate', 'POST'],
      ['/console/session', 'GET'],
      ['/console/session', 'POST'],
      ['/console/session/end', 'POST'],
    ] as const)
      expect((await ask(path, cookie, headers, method)).json, `${method} ${path}`).toMatchObject({
        code: 'host_not_allowed',
      });
    expect((await keysWith(cookie)).status).toBe(200);
  });

  it('also behind a proxy with a password of its own; an API key comes first [console.csrf]', async () => {
    const cookie = await signedIn(sb.key);
    expect((await keysWith(cookie, { ...OURS, authorization: 'Basic b3BzOnB3' })).status).toBe(200);
    expect((await keysWith(cookie, { ...OURS, 'x-api-key': 'sbk_live_wrong' })).status).toBe(401);
  });

  it('pages of this origin may [console.csrf]', async () => {
    const cookie = await signedIn(sb.key);
    for (const headers of [{ origin: sb.url }, { origin: sb.url, 'sec-fetch-site': 'same-origin' }])
      expect((await keysWith(cookie, { ...OURS, ...headers })).status).toBe(200);
  });

  it('not for anything but the admin API [console.csrf]', async () => {
    const cookie = await signedIn(sb.key);
    for (const path of ['/v1/search', '/v1/mcp/tools/call', '/v1/identity/sessions', '/mcp', '/mcp/filler'])
      expect((await ask(path, cookie, OURS, 'POST')).status, path).toBe(401);
  });
});

describe('the role that only looks', () => {
  it('may read everything and search, and change nothing, by key as by cookie [console.role]', async () => {
    const { id, key } = await keyWith(['admin_read']);
    const cookie = await signedIn(key);
    const { paths } = (await sb.get('/openapi.json')).json;
    const asked: string[] = [];
    for (const [pattern, methods] of Object.entries<Record<string, unknown>>(paths)) {
      if (!pattern.startsWith('/v1/admin/')) continue;
      const path = pattern.replaceAll(/\{\w+\}/g, 'none');
      for (const method of Object.keys(methods).map(name => name.toUpperCase())) {
        const isRead =
          (method === 'GET' && path !== '/v1/admin/connections/session') || path === '/v1/admin/search';
        for (const headers of [{ cookie, ...OURS }, { 'x-api-key': key }]) {
          const { json } = await exchange(sb.url + path, {
            method,
            headers: { 'content-type': 'application/json', ...headers },
            ...(method === 'GET' ? {} : { body: '{}' }),
          });
          const isRefused = json.code === 'insufficient_scope';
          expect(isRefused, `${method} ${path}`).toBe(!isRead);
        }
        asked.push(`${method} ${path}`);
      }
    }
    expect(asked.length).toBeGreaterThan(25);
    expect((await ask('/console/session', cookie)).json).toMatchObject({ role: 'admin_read', key_id: id });
    expect((await sb.post('/v1/search', { query: 'x' }, { 'x-api-key': key })).status).toBe(403);
  });

  it('is only for keys of the tenant local [console.role]', async () => {
    const { status, json } = await sb.admin.request('POST', '/keys', {
      name: 'x',
      tenant: 'acme',
      scopes: ['admin_read'],
    });
    expect(status).toBe(400);
    expect(json.detail).toContain('admin_read covers the whole installation');
  });
});
