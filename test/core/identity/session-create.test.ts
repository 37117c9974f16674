import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { sql } from 'drizzle-orm';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

describe.each(DATABASES)('POST /v1/identity/sessions on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('a session', () => {
    let sb: IdentityUnderTest;
    beforeAll(
      async () =>
        void (sb = await startIdentity({
          database: kind,
          env: { SWITCHBOARD_RATE_LIMIT: 'sessions=10000/60' },
        })),
    );
    afterAll(() => sb[Symbol.asyncDispose]());

    it('13: has exactly three fields and lives for 300 s [identity.sessions.create] [identity.sessions.lifetime]', async () => {
      const before = Date.now();
      const { status, json, headers } = await sb.createSession('user-13');
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-store');
      expect(Object.keys(json).sort()).toEqual(['auth_url', 'expires_at', 'session_id']);
      expect(json.session_id).toMatch(/^ses_[\w-]{43}$/);
      const lifeMs = Date.parse(json.expires_at) - before;
      expect(lifeMs).toBeGreaterThan(299_000);
      expect(lifeMs).toBeLessThan(301_000 + (Date.now() - before));
    });

    it.each([
      ['14: missing', undefined],
      ['14: empty', ''],
      ['16: number', 7],
      ['16: object', { id: 1 }],
      ['16: array', ['a']],
      ['16: null', null],
      ['17: 1025 bytes', 'x'.repeat(1025)],
      ['17: 1025 bytes in 513 characters', 'ä'.repeat(513)],
      ['18: NUL', 'a\u0000b'],
      ['18: other control character', 'a\nb'],
      ['21: an operator object', { $ne: 1 }],
    ])('%s user_id is 400', async (_case, user_id) => {
      const { status, json } = await sb.post('/v1/identity/sessions', { user_id, provider: 'local' });
      expect(status).toBe(400);
      expect(json).toMatchObject({ code: 'invalid_request', detail: expect.stringContaining('user_id') });
    });

    it('17: 1024 bytes are fine', async () => {
      expect((await sb.createSession('x'.repeat(1024))).status).toBe(200);
      expect((await sb.createSession('ä'.repeat(512))).status).toBe(200);
    });

    it('19: lone surrogates are 400 and never merged', async () => {
      for (const half of ['\\ud800', '\\ud801', 'a\\udc00']) {
        const answer = await sb.post('/v1/identity/sessions', `{"user_id":"${half}","provider":"local"}`);
        expect(answer.status).toBe(400);
      }
      const stored = await rows(sb.db, sql`select id from users where external_id like '%\ufffd%'`);
      expect(stored).toEqual([]);
    });

    it('15: an unknown provider is 400 and says which there are [identity.sessions.provider]', async () => {
      const { status, json } = await sb.createSession('user-15', { provider: 'nobody' });
      expect(status).toBe(400);
      expect(json.detail).toContain('local');
    });

    it('a known provider without credentials says what to configure', async () => {
      const { status, json } = await sb.createSession('user-15', { provider: 'google' });
      expect(status).toBe(503);
      expect(json).toMatchObject({
        code: 'provider_not_configured',
        detail: expect.stringContaining('GOOGLE_CLIENT_ID'),
      });
    });

    it('20: a byte that is not UTF-8 is 400', async () => {
      const body = Buffer.concat([
        Buffer.from('{"user_id":"a'),
        Buffer.from([0xff]),
        Buffer.from('","provider":"local"}'),
      ]);
      const { status, json } = await sb.post('/v1/identity/sessions', new Uint8Array(body));
      expect([status, json.code]).toEqual([400, 'invalid_json']);
    });

    it('21: hostile strings are stored inert, each as its own user', async () => {
      const hostile = [
        "'; drop table users; --",
        '__proto__',
        '${7*7}',
        '{{7*7}}',
        '%00',
        '../../etc/passwd',
        'constructor',
      ];
      for (const userId of hostile) expect((await sb.createSession(userId)).status).toBe(200);
      const stored = await rows<{ external_id: string }>(sb.db, sql`select external_id from users`);
      expect(stored.map(row => row.external_id)).toEqual(expect.arrayContaining(hostile));
    });

    it('22: users differ by case and by normal form', async () => {
      const names = ['Bob', 'bob', 'Bo\u0301b', 'B\u00f3b'];
      for (const name of names) await sb.createSession(name);
      const stored = await rows<{ external_id: string }>(sb.db, sql`select external_id from users`);
      for (const name of names) expect(stored.filter(row => row.external_id === name)).toHaveLength(1);
    });

    it('23: __proto__ and constructor as keys pollute nothing and are refused', async () => {
      for (const key of ['__proto__', 'constructor']) {
        const body = `{"user_id":"a","provider":"local","${key}":{"polluted":true}}`;
        const { status } = await sb.post('/v1/identity/sessions', body);
        expect(status === 400 || status === 200).toBe(true);
      }
      expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    });

    it('24-28: bodies that are no JSON, too large, of another type, too deep, or a bomb', async () => {
      const send = (body: string | Uint8Array, headers?: Record<string, string>) =>
        sb.post('/v1/identity/sessions', body, headers).then(({ status }) => status);
      expect(await send('{"user_id":')).toBe(400);
      expect(await send(JSON.stringify({ user_id: 'x'.repeat(200_000), provider: 'local' }))).toBe(413);
      expect(await send('user_id=a', { 'content-type': 'text/plain' })).toBe(415);
      expect(await send('{}', { 'content-type': 'application/json; charset=utf-16' })).toBe(415);
      expect([400, 413]).toContain(await send(`${'['.repeat(30_000)}${']'.repeat(30_000)}`));
      const bomb = gzipSync(Buffer.alloc(20_000_000, 0x20));
      expect([400, 413]).toContain(await send(new Uint8Array(bomb), { 'content-encoding': 'gzip' }));
    });

    it('29: auth_url carries PKCE, state, nonce and our callback; two sessions share nothing', async () => {
      const [first, second] = await Promise.all([sb.createSession('user-29'), sb.createSession('user-29')]);
      const all: string[] = [];
      for (const { json } of [first, second]) {
        const { searchParams } = new URL(json.auth_url);
        expect(searchParams.get('code_challenge_method')).toBe('S256');
        expect(searchParams.get('redirect_uri')).toBe(`${sb.url}/oauth/callback/local`);
        expect(searchParams.get('response_type')).toBe('code');
        all.push(json.session_id);
        for (const name of ['state', 'nonce', 'code_challenge']) all.push(searchParams.get(name) ?? '');
      }
      expect(all.every(part => part.length >= 43)).toBe(true);
      expect(new Set(all).size).toBe(8);
    });

    it('31: the 11th session of one user within a minute is 429, other users go on', async () => {
      for (let i = 0; i < 10; i++) expect((await sb.createSession('user-31')).status).toBe(200);
      const refused = await sb.createSession('user-31');
      expect(refused.status).toBe(429);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
      expect((await sb.createSession('user-31b')).status).toBe(200);
      await sb.elapse(61_000);
      expect((await sb.createSession('user-31')).status).toBe(200);
    });

    it('46: a return_url that is not registered is 400', async () => {
      const tricks = [
        'https://evil.example',
        '//evil.example',
        '\\evil',
        'https://app.example@evil.example',
        'https://app.example.evil.example/',
      ];
      for (const return_url of tricks)
        expect((await sb.createSession('user-46', { return_url })).status).toBe(400);
    });

    it.each([
      ['an unknown field', { nonsense: 1 }],
      ['an unknown mode', { mode: 'browser' }],
      ['scopes that are none', { scopes: ['two words'] }],
      ['a resource with a fragment', { resource: 'https://a.example/#x' }],
    ])('refuses %s', async (_what, more) => {
      expect((await sb.createSession('user-more', more)).status).toBe(400);
    });
  });

  it.skipIf(skipped)(
    '30: a provider that cannot be discovered is 503 with Retry-After within seconds, and works again later',
    async () => {
      await using sb = await startIdentity({ database: kind });
      for (const fault of [{ status: 500 }, { hang: true }, { html: true }, { tooLarge: true }]) {
        sb.idp.faults.discovery = fault;
        const startedAt = performance.now();
        const { status, headers, json } = await sb.createSession('user-30');
        expect([status, json.code]).toEqual([503, 'unavailable']);
        expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
        expect(performance.now() - startedAt).toBeLessThan(20_000);
      }
      sb.idp.faults.discovery = {};
      expect((await sb.createSession('user-30')).status).toBe(200);
    },
  );

  it.skipIf(skipped)(
    'a provider whose metadata names no page to sign in on is 503, and works again once it does',
    async () => {
      await using sb = await startIdentity({ database: kind });
      for (const authorization_endpoint of [undefined, '', 7, 'sign-in', 'javascript:alert(1)', 'data:,x']) {
        sb.idp.faults.discovery = { metadata: { authorization_endpoint } };
        for (const mode of ['direct', 'page']) {
          const { status, json } = await sb.createSession(`user of ${authorization_endpoint}`, { mode });
          expect([authorization_endpoint, status, json.code]).toEqual([
            authorization_endpoint,
            503,
            'unavailable',
          ]);
          expect(json.detail).toContain('The identity provider local is unavailable');
        }
      }
      sb.idp.faults.discovery = {};
      expect((await sb.createSession('user')).status).toBe(200);
    },
  );
});
