import { describe, expect, it, beforeAll, afterAll } from 'vitest';
import { MCP_URL, PUBLIC_URL, startWithSignIn } from '../support/mcp-sign-in.ts';

let on: Awaited<ReturnType<typeof startWithSignIn>>;
beforeAll(async () => {
  on = await startWithSignIn();
});
afterAll(() => on[Symbol.asyncDispose]());

describe('a client that knows only the URL', () => {
  it('is led from the 401 to the sign-in, and acts as its user', async () => {
    const refused = await on.rpc('/mcp', undefined);
    expect(refused.status).toBe(401);
    const challenge = refused.headers.get('www-authenticate') ?? '';
    expect(challenge).toBe(
      `Bearer resource_metadata="${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp", scope="mcp:search mcp:call"`,
    );
    const metadata = await (await on.fetch(`${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp`)).json();
    expect(metadata).toMatchObject({ resource: MCP_URL, authorization_servers: [`${PUBLIC_URL}/auth`] });
    const server = await (await on.fetch(`${PUBLIC_URL}/.well-known/oauth-authorization-server/auth`)).json();
    expect(server).toMatchObject({
      issuer: `${PUBLIC_URL}/auth`,
      authorization_endpoint: `${PUBLIC_URL}/auth/authorize`,
      token_endpoint: `${PUBLIC_URL}/auth/token`,
      registration_endpoint: `${PUBLIC_URL}/auth/register`,
      code_challenge_methods_supported: ['S256'],
      client_id_metadata_document_supported: true,
      authorization_response_iss_parameter_supported: true,
    });

    const { access_token: token, scope } = await on.tokens('alice');
    expect(scope).toBe('mcp:search mcp:call');
    const listed = await on.rpc('/mcp', token);
    expect(listed.json.result.tools.map(({ name }: { name: string }) => name)).toContain('search_servers');
  });
});
