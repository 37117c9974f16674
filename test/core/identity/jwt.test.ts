import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { eq } from 'drizzle-orm';
import {
  base64url,
  decodeJwt,
  decodeProtectedHeader,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  importJWK,
  SignJWT,
  type CryptoKey,
  type JWK,
  type JWTHeaderParameters,
  type JWTPayload,
} from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { signingKeys } from '../../../src/core/identity/schema.ts';
import { bindingOf } from '../../../src/core/identity/tokens/identity-token.ts';
import { Vault } from '../../../src/core/identity/vault/vault.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

const MINUTE = 60_000;

let sb: IdentityUnderTest;
/** A token as Switchboard gave it, its parts, and the key it is signed with, stolen from the vault. */
let token: string;
let header: JWTHeaderParameters;
let claims: JWTPayload;
let signer: CryptoKey;
let published: JWK;

beforeAll(async () => {
  sb = await startIdentity();
  token = (await sb.connect('alice')).access_token;
  header = decodeProtectedHeader(token) as JWTHeaderParameters;
  claims = decodeJwt(token);
  signer = await stolenKey();
  published = (await jwks(sb)).find(({ kid }) => kid === header['kid']) ?? {};
});
afterAll(() => sb[Symbol.asyncDispose]());

const jwks = async (at: IdentityUnderTest): Promise<JWK[]> =>
  (await at.get('/.well-known/jwks.json', { 'x-api-key': '' })).json.keys;

async function stolenKey(): Promise<CryptoKey> {
  const kid = header['kid'] as string;
  const file = (await readFile(path.join(sb.dataDir, 'vault.key'), 'utf8')).trim();
  const [id = '', key = ''] = file.split(':');
  const vault = await Vault.create([{ id, key: new Uint8Array(Buffer.from(key, 'base64')) }]);
  const [row] = await sb.db.select().from(signingKeys).where(eq(signingKeys.kid, kid));
  return importJWK(
    JSON.parse(await vault.open(bindingOf(kid), row?.sealed ?? '')),
    'ES256',
  ) as Promise<CryptoKey>;
}

const use = (bearer: string, headers: Record<string, string> = {}, at = sb) =>
  at.post('/v1/search', { query: 'x' }, { authorization: `Bearer ${bearer}`, ...headers });

async function expectRefused(bearer: string, headers?: Record<string, string>): Promise<void> {
  const { status, headers: answered, json } = await use(bearer, headers);
  expect([status, json?.code, json?.error]).toEqual([401, 'identity_token_invalid', 'invalid_token']);
  expect(answered.get('www-authenticate')).toBe('Bearer realm="switchboard", error="invalid_token"');
}

const sign = (
  change: { header?: Record<string, unknown>; claims?: Record<string, unknown> } = {},
  key: CryptoKey | Uint8Array = signer,
) =>
  new SignJWT({ ...claims, ...change.claims }).setProtectedHeader({ ...header, ...change.header }).sign(key);

const encode = (part: object) => base64url.encode(JSON.stringify(part));

describe('an identity token', () => {
  it('is the profile of RFC 9068, and names neither the user nor anything secret', () => {
    expect(header).toEqual({ alg: 'ES256', typ: 'at+jwt', kid: expect.any(String) });
    expect(claims).toEqual({
      iss: sb.url,
      aud: `${sb.url}/v1`,
      sub: expect.stringMatching(/^usr_/),
      client_id: 'environment',
      tid: 'local',
      fam: expect.stringMatching(/^fam_/),
      ver: 1,
      jti: expect.stringMatching(/^jti_/),
      iat: expect.any(Number),
      exp: Number(claims.iat) + 3600,
    });
  });

  it('is published with its public key alone', async () => {
    for (const key of await jwks(sb)) {
      expect(Object.keys(key).sort()).toEqual(['alg', 'crv', 'kid', 'kty', 'use', 'x', 'y']);
      expect(key).toMatchObject({ alg: 'ES256', crv: 'P-256', use: 'sig' });
    }
  });

  it('signed anew with the same key and claims works: what is refused below is refused for its fault', async () => {
    expect((await use(await sign())).status).toBe(200);
  });

  it.each(['none', 'None', 'NONE', ''])('75: with alg %j is refused', async alg => {
    const unsigned = `${encode({ ...header, alg })}.${token.split('.')[1]}`;
    await expectRefused(`${unsigned}.`);
    await expectRefused(`${unsigned}.${token.split('.')[2]}`);
    await expectRefused(unsigned);
  });

  it('76: signed by HMAC with the public key as its secret is refused', async () => {
    const publicKey = (await importJWK(published, 'ES256', { extractable: true })) as CryptoKey;
    const pem = await exportSPKI(publicKey);
    for (const secret of [pem, pem.trim(), JSON.stringify(published), String(published.x)]) {
      const forged = await sign({ header: { alg: 'HS256' } }, new TextEncoder().encode(secret.padEnd(32)));
      await expectRefused(forged);
    }
  });

  it.each([
    undefined,
    '',
    'unknown',
    '../../../../dev/null',
    "' or '1'='1",
    "x'; drop table signing_keys; --",
    '__proto__',
    'constructor',
    '\u0000',
    'k'.repeat(2000),
  ])('77: with the key id %j is refused', async kid => {
    const { privateKey } = await generateKeyPair('ES256');
    await expectRefused(await sign({ header: { kid } }, privateKey));
    await expectRefused(await sign({ header: { kid } }));
    expect((await use(token)).status).toBe(200);
  });

  it('78: that brings its own key, or says where to find one, is refused', async () => {
    const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
    const jwk = { ...(await exportJWK(publicKey)), kid: header['kid'], alg: 'ES256', use: 'sig' };
    const before = sb.idp.hits;
    const fetched = JSON.stringify(before);
    for (const more of [
      { jwk },
      { jku: `${sb.idp.issuer}/jwks` },
      { x5u: `${sb.idp.issuer}/jwks` },
      { x5c: [Buffer.from(JSON.stringify(jwk)).toString('base64')] },
      { jwk, kid: undefined },
      { crit: ['b64'], b64: true },
    ])
      await expectRefused(await sign({ header: more }, privateKey).catch(() => 'not signed'));
    expect(JSON.stringify(sb.idp.hits)).toBe(fetched);
  });

  it.each([
    ['another audience', { claims: { aud: 'https://elsewhere.example/v1' } }],
    ['no audience', { claims: { aud: undefined } }],
    ['another issuer', { claims: { iss: 'https://elsewhere.example' } }],
    ['no issuer', { claims: { iss: undefined } }],
    ['the type of an id token', { header: { typ: 'JWT' } }],
    ['no type', { header: { typ: undefined } }],
    ['no expiry', { claims: { exp: undefined } }],
    ['an expiry that is no number', { claims: { exp: '9999999999' } }],
    ['no subject', { claims: { sub: undefined } }],
    ['no family', { claims: { fam: undefined } }],
    ['no epoch', { claims: { ver: undefined } }],
    ['an epoch of another kind', { claims: { ver: '1' } }],
    ['an epoch to come', { claims: { ver: 2 } }],
    ['a family that does not exist', { claims: { fam: 'fam_0000000000000000000000' } }],
    ['a family that is an object', { claims: { fam: { $ne: null } } }],
    ['a user that does not exist', { claims: { sub: 'usr_0000000000000000000000' } }],
    ['a user that is a list', { claims: { sub: ['usr_x'] } }],
    ['another tenant', { claims: { tid: 'other' } }],
    ['a time before which it does not hold', { claims: { nbf: Math.floor(Date.now() / 1000) + 600 } }],
  ])('79: with %s is refused', async (_what, change) => {
    await expectRefused(await sign(change).catch(() => 'not signed'));
  });

  it('79: of the identity provider is refused, of every kind', async () => {
    const foreign = [...sb.idp.secretsSeen].filter(secret => secret.startsWith('eyJ'));
    expect(foreign.length).toBeGreaterThan(0);
    for (const one of foreign) await expectRefused(one);
  });

  it('80: is good for five seconds after its end, and no longer', async () => {
    const ended = (secondsAgo: number) =>
      sign({ claims: { exp: Math.floor(Date.now() / 1000) - secondsAgo } });
    expect((await use(await ended(2))).status).toBe(200);
    await expectRefused(await ended(7));
  });

  it('80: ends after an hour', async () => {
    await using own = await startIdentity();
    const { access_token } = await own.connect('alice');
    await own.elapse(59 * MINUTE);
    expect((await use(access_token, {}, own)).status).toBe(200);
    await own.elapse(2 * MINUTE);
    expect((await use(access_token, {}, own)).status).toBe(401);
  });

  it('81: of one tenant with the key of another is refused', async () => {
    await expectRefused(token, { 'x-api-key': sb.otherKey });
  });

  it('82: with a bit turned over is refused, wherever it is', async () => {
    const [head = '', body = '', signature = ''] = token.split('.');
    const turn = (part: string) => {
      const bytes = base64url.decode(part);
      const middle = Math.floor(bytes.length / 2);
      bytes[middle] = (bytes[middle] ?? 0) ^ 1;
      return base64url.encode(bytes);
    };
    for (const parts of [
      [turn(head), body, signature],
      [head, turn(body), signature],
      [head, body, turn(signature)],
      [head, body, signature.slice(0, -2)],
      [head, body, ''],
      [head, body],
      [head, body, signature, signature],
    ])
      await expectRefused(parts.join('.'));
  });

  it.each([
    ['100 kB', 'x'.repeat(100_000)],
    ['100 kB with two dots', `${'x'.repeat(50_000)}.${'y'.repeat(50_000)}.z`],
    ['4097 characters', 'x'.repeat(4097)],
    ['a refresh token', 'sbr_x'],
    ['a dot', '.'],
  ])('82: of %s is refused', async (_what, bearer) => {
    await expectRefused(bearer);
  });

  it('82: padded with claims beyond its size is refused though it is signed', async () => {
    await expectRefused(await sign({ claims: { padding: 'x'.repeat(8_000) } }));
  });

  it.each(['Basic YTpi', 'Bearer', 'Bearer a b', 'Token x'])(
    'in an Authorization header %j is never silently ignored',
    async authorization => {
      const { status, json } = await sb.post('/v1/search', { query: 'x' }, { authorization });
      expect([status, json.code]).toEqual([401, 'identity_token_invalid']);
    },
  );
});

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  it.skipIf(skipped)(
    '83: after a rotation the old key`s tokens go on, and both keys are published',
    async () => {
      await using own = await startIdentity({ database: kind });
      const rotate = () => own.admin.request('POST', '/signing-keys/rotate');
      const early = await rotate();
      expect([early.status, early.json.detail]).toEqual([400, expect.stringMatching(/Try again in \d+ s/)]);

      await own.elapse(10 * MINUTE);
      const before = await own.connect('alice');
      const rotated = await rotate();
      expect(rotated.json).toEqual({
        active: expect.any(String),
        retired: decodeProtectedHeader(before.access_token).kid,
      });
      const after = await own.connect('bob');
      expect(decodeProtectedHeader(after.access_token).kid).toBe(rotated.json.active);
      expect((await jwks(own)).map(({ kid }) => kid)).toEqual(
        expect.arrayContaining([rotated.json.active, rotated.json.retired]),
      );
      for (const { access_token } of [before, after])
        expect((await use(access_token, {}, own)).status).toBe(200);

      // Until the last token of the old key has ended, and no longer.
      await own.elapse(59 * MINUTE);
      expect((await use(before.access_token, {}, own)).status).toBe(200);
      await own.elapse(3 * MINUTE);
      expect((await use(before.access_token, {}, own)).status).toBe(401);
      expect((await jwks(own)).map(({ kid }) => kid)).not.toContain(rotated.json.retired);
    },
  );

  it.skipIf(skipped)('84: after a revocation it is refused on the very next call', async () => {
    await using own = await startIdentity({ database: kind });
    const mine = await own.connect('alice');
    const others = await own.connect('bob');
    expect((await use(mine.access_token, {}, own)).status).toBe(200);
    await own.revoke('alice');
    expect((await use(mine.access_token, {}, own)).status).toBe(401);
    expect((await use(others.access_token, {}, own)).status).toBe(200);
  });
});
