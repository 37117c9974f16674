import { exportJWK, generateKeyPair, SignJWT, type JWTPayload } from 'jose';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { MCP_URL, startWithSignIn } from '../support/mcp-sign-in.ts';
import { listen } from '../support/upstreams/http.ts';

/** The operator's authorization server: it publishes metadata and keys, and issues what a test asks for. */
async function startIssuer() {
  const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true });
  const other = await generateKeyPair('RS256');
  const key = { ...(await exportJWK(publicKey)), kid: 'one', alg: 'RS256', use: 'sig' };
  let isAway = false;
  const server = await listen((request, response) => {
    const { origin } = server;
    const documents: Record<string, object> = {
      '/.well-known/openid-configuration': {
        issuer: origin,
        authorization_endpoint: `${origin}/authorize`,
        token_endpoint: `${origin}/token`,
        jwks_uri: `${origin}/keys`,
      },
      '/keys': { keys: [key] },
    };
    const document = isAway ? undefined : documents[request.url ?? ''];
    response.writeHead(document ? 200 : isAway ? 503 : 404, { 'content-type': 'application/json' });
    response.end(JSON.stringify(document ?? {}));
  });
  const issue = (claims: JWTPayload, { typ = 'JWT', sign = privateKey, withAge = true } = {}) => {
    const token = new SignJWT({ iss: server.origin, sub: 'subject-1', ...claims })
      .setProtectedHeader({ alg: 'RS256', kid: 'one', typ })
      .setExpirationTime(claims.exp ?? '5m');
    return (withAge ? token.setIssuedAt(claims.iat) : token).sign(sign);
  };
  return {
    origin: server.origin,
    issue,
    forged: (claims: JWTPayload) => issue(claims, { sign: other.privateKey }),
    setAway: (value: boolean) => (isAway = value),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const SEARCH = { name: 'search_servers', arguments: { query: 'x' } };

type Issuer = Awaited<ReturnType<typeof startIssuer>>;

const startWith = (issuer: Issuer, settings: object) =>
  startWithSignIn({
    env: { SWITCHBOARD_MCP_SIGN_IN: JSON.stringify({ issuer: issuer.origin, ...settings }) },
  });

describe('an authorization server of the operator’s', () => {
  let issuer: Issuer;
  beforeAll(async () => {
    issuer = await startIssuer();
  });
  afterAll(() => issuer[Symbol.asyncDispose]());

  describe('like Keycloak', () => {
    let on: Awaited<ReturnType<typeof startWithSignIn>>;
    beforeAll(async () => {
      on = await startWith(issuer, { user_claim: 'preferred_username' });
    });
    afterAll(() => on[Symbol.asyncDispose]());

    const claims = {
      aud: [MCP_URL, 'account'],
      azp: 'claude',
      typ: 'Bearer',
      scope: 'openid mcp:search mcp:call',
      preferred_username: 'alice',
    };
    const askWith = async (token: string) => on.rpc('/mcp', token);

    it('is what clients are led to', async () => {
      const { json } = await on.ask(`${on.publicUrl}/.well-known/oauth-protected-resource/mcp`, {});
      expect(json).toMatchObject({
        authorization_servers: [issuer.origin],
        scopes_supported: ['mcp:search', 'mcp:call'],
      });
      expect((await on.fetch(`${on.publicUrl}/auth/authorize`)).status).toBe(404);
      const { headers } = await on.rpc('/mcp', undefined);
      expect(headers.get('www-authenticate')).toContain('resource_metadata=');
    });

    it('issues tokens that act as the user of a claim, by a key for each client', async () => {
      expect((await askWith(await issuer.issue(claims))).status).toBe(200);
      expect((await askWith(await issuer.issue({ ...claims, azp: 'cursor', nonce: 'n' }))).status).toBe(200);
      expect((await askWith(await issuer.issue(claims))).status).toBe(200);
      const { json } = await on.sb.admin.request('GET', '/keys');
      const keys = json.keys.filter(({ user }: { user: string }) => user === 'alice');
      expect(keys.map(({ client_id }: { client_id: string }) => client_id).sort()).toEqual([
        'claude',
        'cursor',
      ]);
    });

    it.each([
      ['for another audience', { aud: 'account' }, `not for ${MCP_URL}`],
      ['for another audience', { aud: 'account' }, 'set "audience" in SWITCHBOARD_MCP_SIGN_IN'],
      ['that tells who somebody is', { typ: 'ID' }, 'Sign in again'],
      ['that has expired', { exp: 1_000 }, 'Sign in again'],
      ['of another issuer', { iss: 'https://elsewhere.example' }, 'Sign in again'],
      ['that will be issued', { iat: Math.floor(Date.now() / 1000) + 3_600 }, 'Sign in again'],
      ['that tells who somebody is', { nonce: 'n', typ: undefined }, 'Sign in again'],
      ['without the claim', { preferred_username: undefined }, '"user_claim" in SWITCHBOARD_MCP_SIGN_IN'],
    ])('refuses a token %s (%j)', async (_what, change, why) => {
      const { status, json } = await askWith(await issuer.issue({ ...claims, ...change }));
      expect([status, json.error.message]).toEqual([401, expect.stringContaining(why)]);
    });

    it('refuses a token of unknown age, which a revocation could not end', async () => {
      const token = await issuer.issue(claims, { withAge: false });
      expect((await askWith(token)).status).toBe(401);
    });

    it('refuses a token with a wrong signature', async () => {
      expect((await askWith(await issuer.forged(claims))).status).toBe(401);
    });

    it('allows what the token’s scopes allow', async () => {
      const token = await issuer.issue({ ...claims, scope: 'openid' });
      const { json } = await on.rpc('/mcp', token, 'tools/call', SEARCH);
      expect(JSON.stringify(json)).toContain('insufficient_scope');
    });

    it('is not asked for tokens from before the user was revoked', async () => {
      const bob = { ...claims, preferred_username: 'bob' };
      const before = await issuer.issue({ ...bob, iat: Math.floor(Date.now() / 1000) - 10 });
      expect((await askWith(before)).status).toBe(200);
      await on.sb.post('/v1/identity/revoke', { user_id: 'bob' });
      expect((await askWith(before)).status).toBe(401);
      const stolen = await issuer.issue({ ...bob, iat: Math.floor(Date.now() / 1000) - 9 });
      const ofAnother = await issuer.issue({ ...bob, azp: 'new', iat: Math.floor(Date.now() / 1000) - 9 });
      const after = await issuer.issue({ ...bob, iat: Math.floor(Date.now() / 1000) + 2 });
      expect((await on.rpc('/mcp', after, 'tools/call', SEARCH)).json.result.isError).toBeUndefined();
      for (const old of [stolen, ofAnother]) expect((await askWith(old)).status).toBe(401);
    });
  });

  it('like Entra: scp, an application id as the audience, scopes with a prefix', async () => {
    await using on = await startWith(issuer, {
      audience: ['api://switchboard', '6f1c3c1e-0000-4000-8000-000000000000'],
      user_claim: 'oid',
      scopes: { 'mcp:search': 'api://switchboard/mcp.search', 'mcp:call': 'api://switchboard/mcp.call' },
    });
    const { json } = await on.ask(`${on.publicUrl}/.well-known/oauth-protected-resource/mcp`, {});
    expect(json.scopes_supported).toEqual(['api://switchboard/mcp.search', 'api://switchboard/mcp.call']);
    const claims = {
      aud: '6f1c3c1e-0000-4000-8000-000000000000',
      oid: 'object-1',
      appid: 'app-1',
      scp: 'mcp.search',
    };
    const searched = await on.rpc('/mcp', await issuer.issue(claims), 'tools/call', SEARCH);
    expect([searched.status, searched.json.result.isError]).toEqual([200, undefined]);
    // For an app that acts for nobody else.
    const byRole = await issuer.issue({ ...claims, scp: undefined, roles: ['mcp.search'] });
    expect((await on.rpc('/mcp', byRole, 'tools/call', SEARCH)).json.result.isError).toBeUndefined();
    const call = {
      name: 'call_remote_tool',
      arguments: { server_id: 'filler', tool_name: 'x', arguments: {} },
    };
    const called = await on.rpc('/mcp', await issuer.issue(claims), 'tools/call', call);
    expect(JSON.stringify(called.json)).toContain('insufficient_scope');
  });

  it('that is away is not the client’s fault', async () => {
    issuer.setAway(true);
    await using on = await startWith(issuer, {});
    const token = await issuer.issue({ aud: MCP_URL, scope: 'mcp:call' });
    expect((await on.rpc('/mcp', token)).status).toBe(503);
    issuer.setAway(false);
    await vi.waitFor(async () => expect((await on.rpc('/mcp', token)).status).toBe(200), 10_000);
  });
});
