import {
  discoverOAuthServerInfo,
  exchangeAuthorization,
  refreshAuthorization,
  registerClient,
  startAuthorization,
} from '@modelcontextprotocol/sdk/client/auth.js';
import { describe, expect, it } from 'vitest';
import { startProtectedServer } from '../support/authorization/protected.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../support/authorization/server.ts';
import { UserAgent } from '../support/user-agent.ts';

const CALLBACK = 'http://127.0.0.1:1/callback';

async function start() {
  await using opened = new AsyncDisposableStack();
  const issuer = opened.use(await startAuthorizationServer({ path: '/tenant' }));
  const mcp = opened.use(await startProtectedServer({ authorizationServer: issuer }));
  const stack = opened.move();
  return { issuer, mcp, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

/** What the official client does, step by step. */
async function signIn(url: string) {
  const found = await discoverOAuthServerInfo(url);
  const metadata = found.authorizationServerMetadata;
  const at = found.authorizationServerUrl;
  const clientInformation = await registerClient(at, {
    ...(metadata ? { metadata } : {}),
    clientMetadata: { redirect_uris: [CALLBACK], client_name: 'test' },
  });
  const resource = new URL(found.resourceMetadata?.resource ?? url);
  const parts = { ...(metadata ? { metadata } : {}), clientInformation, resource };
  const { authorizationUrl, codeVerifier } = await startAuthorization(at, {
    ...parts,
    redirectUrl: CALLBACK,
    scope: 'read',
    state: 'a-state',
  });
  const callback = await new UserAgent().authorize(authorizationUrl.href, {
    stopAt: to => to.startsWith(CALLBACK),
  });
  const { searchParams } = new URL(callback);
  const authorizationCode = searchParams.get('code') ?? '';
  const exchange = (more: { codeVerifier?: string } = {}) =>
    exchangeAuthorization(at, { ...parts, authorizationCode, codeVerifier, redirectUri: CALLBACK, ...more });
  const refresh = (refreshToken = '') => refreshAuthorization(at, { ...parts, refreshToken });
  return { searchParams, exchange, refresh };
}

const call = (url: string, token?: string) =>
  fetch(url, {
    method: 'POST',
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
    headers: {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
  });

const isSecretOf = ({ secrets }: AuthorizationServer, secret = '') => secrets.has(secret);

describe('the scriptable authorization server', () => {
  it('signs in the official client, and its MCP server takes the token and no other', async () => {
    await using servers = await start();
    const { issuer, mcp } = servers;
    const refused = await call(mcp.url);
    expect(refused.status).toBe(401);
    expect(refused.headers.get('www-authenticate')).toBe(
      `Bearer resource_metadata="${mcp.origin}/.well-known/oauth-protected-resource/mcp"`,
    );
    const { searchParams, exchange } = await signIn(mcp.url);
    expect(searchParams.get('iss')).toBe(issuer.issuer);
    expect(searchParams.get('state')).toBe('a-state');
    const tokens = await exchange();
    expect(tokens.scope).toBe('read');
    expect(issuer.introspect(tokens.access_token)).toMatchObject({ resource: mcp.url, scopes: ['read'] });
    expect((await call(mcp.url, tokens.access_token)).status).not.toBe(401);
    expect((await call(mcp.url, 'another')).status).toBe(401);
    await using other = await startProtectedServer({ authorizationServer: issuer });
    expect((await call(other.url, tokens.access_token)).status).toBe(401);
    mcp.switches.scopes = { 'tools/list': ['write'] };
    const narrow = await call(mcp.url, tokens.access_token);
    expect(narrow.status).toBe(403);
    expect(narrow.headers.get('www-authenticate')).toContain('error="insufficient_scope", scope="write"');
    for (const secret of [tokens.access_token, tokens.refresh_token, searchParams.get('code') ?? ''])
      expect(isSecretOf(issuer, secret)).toBe(true);
    expect(issuer.sent('token')[0]?.fields).toMatchObject({
      grant_type: 'authorization_code',
      resource: mcp.url,
    });
  });

  it('takes a code once, with its verifier only; a reused refresh token ends everything', async () => {
    await using servers = await start();
    const { issuer, mcp } = servers;
    const first = await signIn(mcp.url);
    await expect(first.exchange({ codeVerifier: 'another' })).rejects.toThrow(/verifier/);
    await expect(first.exchange()).rejects.toThrow(/used before/);
    const second = await signIn(mcp.url);
    const tokens = await second.exchange();
    const next = await second.refresh(tokens.refresh_token);
    expect(next.refresh_token).not.toBe(tokens.refresh_token);
    await expect(second.refresh(tokens.refresh_token)).rejects.toThrow(/used before/);
    expect(issuer.introspect(next.access_token)).toBeUndefined();
    await expect(second.refresh(next.refresh_token)).rejects.toThrow(/not valid/);
  });
});
