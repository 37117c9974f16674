import * as oidc from 'openid-client';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { IdTokenRewrite } from '../support/identity-provider-faults.ts';
import { startIdentityProvider, type IdentityProvider } from '../support/identity-provider.ts';
import { UserAgent } from '../support/user-agent.ts';

const CALLBACK = 'http://127.0.0.1:1/oauth/callback/local';
const stopAt = (url: string) => url.startsWith(CALLBACK);

let idp: IdentityProvider;
let client: oidc.Configuration;

beforeAll(async () => {
  idp = await startIdentityProvider();
  idp.allowRedirect(CALLBACK);
  client = await oidc.discovery(new URL(idp.issuer), idp.clientId, idp.clientSecret, undefined, {
    execute: [oidc.allowInsecureRequests, oidc.enableNonRepudiationChecks],
  });
});
afterEach(() => void (idp.faults.token = {}));
afterAll(() => idp[Symbol.asyncDispose]());

async function authorization(login: string, deny = false) {
  const checks = {
    pkceCodeVerifier: oidc.randomPKCECodeVerifier(),
    expectedState: oidc.randomState(),
    expectedNonce: oidc.randomNonce(),
    idTokenExpected: true,
  };
  const url = oidc.buildAuthorizationUrl(client, {
    redirect_uri: CALLBACK,
    scope: 'openid email offline_access calendar.read',
    prompt: 'consent',
    code_challenge: await oidc.calculatePKCECodeChallenge(checks.pkceCodeVerifier),
    code_challenge_method: 'S256',
    state: checks.expectedState,
    nonce: checks.expectedNonce,
  });
  const callback = await new UserAgent().authorize(url.href, { login, deny, stopAt });
  return { checks, callback: new URL(callback) };
}

async function signIn(login: string) {
  const { callback, checks } = await authorization(login);
  const tokens = await oidc.authorizationCodeGrant(client, callback, checks);
  return { ...tokens, refresh: tokens.refresh_token ?? '', claims: tokens.claims(), callback, checks };
}

describe('the identity provider of the tests', () => {
  it('publishes its endpoints and its support of RFC 9207', () => {
    expect(client.serverMetadata()).toMatchObject({
      issuer: idp.issuer,
      revocation_endpoint: `${idp.issuer}/token/revocation`,
      authorization_response_iss_parameter_supported: true,
    });
  });

  it('signs a user in, and remembers every secret that went over the wire', async () => {
    const { callback, checks, claims, ...tokens } = await signIn('alice');
    expect(claims).toMatchObject({ sub: 'alice', email: 'alice@example.test' });
    expect(tokens.scope?.split(' ')).toContain('calendar.read');
    const secrets = [
      callback.searchParams.get('code'),
      checks.pkceCodeVerifier,
      tokens.access_token,
      tokens.refresh,
      tokens.id_token,
    ];
    for (const secret of secrets) expect(idp.secretsSeen).toContain(secret);
    expect(idp.hits.token.authorization_code).toBeGreaterThan(0);
  });

  it('reports a user who cancels', async () => {
    const { callback, checks } = await authorization('alice', true);
    await expect(oidc.authorizationCodeGrant(client, callback, checks)).rejects.toMatchObject({
      error: 'access_denied',
    });
  });

  it('rotates refresh tokens, with the lifetime set while it runs', async () => {
    const { refresh } = await signIn('bob');
    idp.accessTokenTtlSec = 7;
    const refreshed = await oidc.refreshTokenGrant(client, refresh);
    idp.accessTokenTtlSec = 3600;
    expect(refreshed.expires_in).toBe(7);
    expect(refreshed.refresh_token).not.toBe(refresh);
    await expect(oidc.refreshTokenGrant(client, refresh)).rejects.toMatchObject({ error: 'invalid_grant' });
  });

  it('ends the access token with a revoked refresh token', async () => {
    const { access_token: accessToken, refresh } = await signIn('carol');
    expect(await idp.introspect(accessToken)).toMatchObject({ active: true });
    await oidc.tokenRevocation(client, refresh);
    expect(await idp.introspect(accessToken)).toEqual({ active: false });
  });

  it('ends the grants of one user and no other, who can then sign in again', async () => {
    const [dave, erin] = await Promise.all([signIn('dave'), signIn('erin')]);
    idp.revokeEverythingOf('dave');
    await expect(oidc.refreshTokenGrant(client, dave.refresh)).rejects.toMatchObject({
      error: 'invalid_grant',
    });
    await oidc.refreshTokenGrant(client, erin.refresh);
    await signIn('dave');
  });
});

describe('its faults', () => {
  const refusals: Record<
    Exclude<IdTokenRewrite, 'clock-ahead' | 'empty-sub' | 'other-sub' | 'unverified-email'>,
    RegExp
  > = {
    'alg-none': /unexpected JWT "alg" header/,
    'other-key': /JWT signature verification failed/,
    'wrong-audience': /unexpected JWT "aud"/,
    expired: /unexpected JWT "exp"/,
    'wrong-nonce': /unexpected ID Token "nonce"/,
    'clock-behind': /unexpected JWT "exp"/,
  };

  it.each(Object.entries(refusals))('make an id token that is refused: %s', async (how, reason) => {
    idp.faults.token = { rewriteIdToken: how as IdTokenRewrite };
    const error = await signIn('alice').catch((caught: unknown) => caught as Error);
    expect(`${(error as Error).message} ${String((error as Error).cause)}`).toMatch(reason);
  });

  it('make an id token of a clock that is ahead, which openid-client takes', async () => {
    idp.faults.token = { rewriteIdToken: 'clock-ahead' };
    const { claims } = await signIn('alice');
    expect(claims?.iat).toBeGreaterThan(Date.now() / 1000 + 500);
  });

  it.each([
    ['empty-sub', ''],
    ['other-sub', 'another-account'],
  ] as const)('make an id token of another account, which openid-client takes: %s', async (how, sub) => {
    idp.faults.token = { rewriteIdToken: how };
    expect((await signIn('alice')).claims?.sub).toBe(sub);
  });

  it('spoil an answer on the wire', async () => {
    const { refresh } = await signIn('frank');
    const spoilt = async (faults: (typeof idp.faults)['token']) => {
      idp.faults.token = faults;
      const body = new URLSearchParams({ grant_type: 'refresh_token', refresh_token: refresh });
      body.set('client_id', idp.clientId);
      body.set('client_secret', idp.clientSecret);
      const response = await fetch(`${idp.issuer}/token`, { method: 'POST', body });
      return { status: response.status, text: await response.text() };
    };
    expect(await spoilt({ status: 503 })).toMatchObject({ status: 503 });
    expect((await spoilt({ html: true })).text).toContain('<!doctype html>');
    const { text } = await spoilt({ truncated: true });
    expect(() => JSON.parse(text)).toThrow(SyntaxError);
  });

  it('hold a request before the provider sees it, and an answer after it has acted', async () => {
    const { access_token: accessToken, refresh } = await signIn('grace');
    const isActive = async () => (await idp.introspect(accessToken)).active;
    const before = idp.hold('revocation', 'before');
    const after = idp.hold('revocation', 'after');
    const revocation = oidc.tokenRevocation(client, refresh);
    await before.arrived;
    expect(await isActive()).toBe(true);
    before.release();
    await after.arrived;
    expect(await isActive()).toBe(false);
    after.release();
    await revocation;
  });

  it('leave nothing open: closing ends a request that hangs', async () => {
    const closing = await startIdentityProvider();
    closing.faults.jwks = { hang: true };
    const request = fetch(`${closing.issuer}/jwks`);
    request.catch(() => {});
    while (closing.hits.jwks === 0) await new Promise(setImmediate);
    await closing[Symbol.asyncDispose]();
    await expect(request).rejects.toThrow('fetch failed');
  });
});
