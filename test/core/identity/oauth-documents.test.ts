import { describe, expect, it } from 'vitest';
import { readChallenge, withoutSecrets } from '../../../src/core/identity/oauth/challenge.ts';
import { MetadataReader } from '../../../src/core/identity/oauth/metadata.ts';
import { isOfAnotherDomain } from '../../../src/core/identity/oauth/server-authorization.ts';
import { Guard } from '../../../src/platform/outbound/guard.ts';

describe('a challenge', () => {
  it.each<[string, string | string[] | undefined, object]>([
    ['nothing', undefined, {}],
    ['an empty header', '', {}],
    ['Bearer alone', 'Bearer', {}],
    ['one parameter', 'Bearer scope="a b"', { scopes: ['a', 'b'] }],
    ['a scheme in capitals', 'BEARER scope=a', { scopes: ['a'] }],
    ['a name in capitals', 'Bearer Scope="a"', { scopes: ['a'] }],
    ['blanks around the sign', 'Bearer scope = "a" , error = x', { scopes: ['a'], error: 'x' }],
    ['names twice', 'Bearer scope="a a b"', { scopes: ['a', 'b'] }],
    ['a parameter twice: the first counts', 'Bearer scope="a", scope="b"', { scopes: ['a'] }],
    ['a comma in quotes', 'Bearer realm="a, Bearer scope=\\"x\\"", scope="b"', { scopes: ['b'] }],
    ['another scheme before', 'Basic realm="x", Bearer error="invalid_token"', { error: 'invalid_token' }],
    ['another scheme behind', 'Bearer scope="a", DPoP scope="b", algs="ES256"', { scopes: ['a'] }],
    ['a token68 before', 'Negotiate YWJj==, Bearer scope="a"', { scopes: ['a'] }],
    ['only another scheme', 'Basic scope="a"', {}],
    ['two headers', ['Basic realm="x"', 'Bearer scope="a"'], { scopes: ['a'] }],
    ['a scope with a quote', 'Bearer scope="a b\\"c d"', { scopes: ['a', 'd'] }],
    ['a scope that is empty', 'Bearer scope=""', {}],
    ['a quote that never ends', 'Bearer scope="a', {}],
    [
      'an address',
      'Bearer resource_metadata="https://a.example/x?y=1,2"',
      { resourceMetadata: 'https://a.example/x?y=1,2' },
    ],
    [
      'an address without quotes',
      'Bearer resource_metadata=https://a.example/x',
      { resourceMetadata: 'https://a.example/x' },
    ],
  ])('with %s is read', (_what, header, expected) => {
    expect(readChallenge(header)).toEqual(expected);
  });

  it.each([
    ['blanks', 'Bearer '.repeat(100_000)],
    ['quotes', `Bearer scope=${'"\\'.repeat(100_000)}`],
    ['commas', `Bearer ${','.repeat(100_000)}`],
    ['equals signs', `Bearer ${'a='.repeat(100_000)}`],
    [
      'names',
      `Bearer scope="${'a '.repeat(1_000)}${Array.from({ length: 3_000 }, (_, i) => `s${i}`).join(' ')}"`,
    ],
  ])('of many %s is read quickly, and not to its end', (_what, header) => {
    const startMs = performance.now();
    expect(readChallenge(header).scopes?.length ?? 0).toBeLessThanOrEqual(100);
    expect(performance.now() - startMs).toBeLessThan(1_000);
  });

  it('that repeats a secret is read without it', () => {
    const secret = 'at_secret/0123456789+=';
    const challenge = {
      scopes: ['a', `x${secret}`, encodeURIComponent(secret)],
      resourceMetadata: `https://a.example/?${encodeURIComponent(secret)}`,
      error: 'insufficient_scope',
    };
    expect(withoutSecrets(challenge, [secret])).toEqual({ scopes: ['a'], error: 'insufficient_scope' });
    expect(withoutSecrets(challenge, [])).toEqual(challenge);
    expect(withoutSecrets({ scopes: [secret] }, [secret])).toEqual({});
  });
});

describe('metadata of a protected resource', () => {
  const SERVER = 'https://mcp.example.com/team/mcp';
  const read = (resource: unknown, server = SERVER) => {
    const document = JSON.stringify({ resource, authorization_servers: ['https://issuer.example.com'] });
    const reader = new MetadataReader({
      fetch: () => Promise.resolve(new Response(document)),
      guard: new Guard({ allowPrivateNetwork: false, connectTimeoutMs: 1_000 }),
    });
    return reader.resource(server, undefined);
  };

  it.each([
    SERVER,
    `${SERVER}/`,
    'https://mcp.example.com',
    'https://mcp.example.com/',
    'https://mcp.example.com/team',
    'https://mcp.example.com/team/',
    'https://MCP.example.com:443/team',
  ])('counts for the server and its parents, verbatim: %s', async resource => {
    expect((await read(resource))?.resource).toBe(resource);
  });

  it.each([
    'https://mcp.example.com/team/mcp/deeper',
    'https://mcp.example.com/tea',
    'https://mcp.example.com/other',
    'https://mcp.example.com/team/mcp?tenant=1',
    'https://mcp.example.com/team/mcp#x',
    'http://mcp.example.com/team/mcp',
    'https://mcp.example.com:8443/team/mcp',
    'https://example.com/team/mcp',
    'https://mcp.example.com.evil.example/team/mcp',
    'https://mcp.example.com@evil.example/team/mcp',
    '//mcp.example.com/team/mcp',
    '/team/mcp',
    'api://notes',
    '',
    7,
    null,
  ])('counts for nothing else: %s', async resource => {
    await expect(read(resource)).rejects.toMatchObject({ name: 'MetadataError', reason: 'invalid' });
  });
});

describe('metadata of an authorization server', () => {
  const ISSUER = 'https://issuer.example.com/tenant';
  const read = (
    members: object,
    guard = new Guard({ allowPrivateNetwork: false, connectTimeoutMs: 1_000 }),
  ) => {
    const asked: string[] = [];
    const reader = new MetadataReader({
      fetch: url => {
        asked.push(url);
        return Promise.resolve(Response.json({ ...WHOLE, ...members }));
      },
      guard,
    });
    return { asked, metadata: reader.issuer(ISSUER) };
  };
  const WHOLE = {
    issuer: ISSUER,
    authorization_endpoint: 'https://issuer.example.com/authorize',
    token_endpoint: 'https://issuer.example.com/token',
  };

  it('is asked for at the place of RFC 8414 first', async () => {
    const { asked, metadata } = read({});
    await metadata;
    expect(asked).toEqual(['https://issuer.example.com/.well-known/oauth-authorization-server/tenant']);
  });

  it.each(['authorization_endpoint', 'token_endpoint', 'registration_endpoint', 'revocation_endpoint'])(
    'is not used with an address in %s that we may not go to',
    async name => {
      for (const address of [
        'http://issuer.example.com/x',
        'https://169.254.169.254/x',
        'https://127.0.0.1/x',
        'https://[::1]/x',
        'https://10.0.0.1/x',
        'https://user:password@issuer.example.com/x',
        'https://issuer.example.com/x#y',
        'javascript:alert(1)',
        'data:text/html,x',
        '/x',
        '',
      ])
        await expect(read({ [name]: address }).metadata, address).rejects.toMatchObject({
          reason: 'invalid',
        });
    },
  );

  it.each([
    'https://issuer.example.com/tenant/',
    'https://ISSUER.example.com/tenant',
    'https://issuer.example.com:443/tenant',
    'https://issuer.example.com/Tenant',
    'https://issuer.example.com/t%65nant',
    'http://issuer.example.com/tenant',
  ])('is compared letter by letter: not %s', async issuer => {
    await expect(read({ issuer }).metadata).rejects.toMatchObject({ reason: 'invalid' });
  });
});

describe('a registrable domain', () => {
  it.each([
    ['https://mcp.example.com/mcp', 'https://auth.example.com', false],
    ['https://mcp.example.co.uk/mcp', 'https://other.co.uk', true],
    ['https://mcp.example.com/mcp', 'https://example.org', true],
    ['https://one.github.io/mcp', 'https://two.github.io', true],
    ['https://one.herokuapp.com/mcp', 'https://two.herokuapp.com', true],
    ['http://127.0.0.1:1/mcp', 'http://127.0.0.1:2', false],
    ['http://127.0.0.1:1/mcp', 'http://127.0.0.2:1', true],
    ['http://localhost:1/mcp', 'http://127.0.0.1:1', true],
    ['http://localhost:1/mcp', 'http://localhost:2', false],
    ['https://example.com.evil.example/mcp', 'https://example.com', true],
  ])('of %s and %s: another is %j', (one, other, isOther) => {
    expect([isOfAnotherDomain(one, other), isOfAnotherDomain(other, one)]).toEqual([isOther, isOther]);
  });
});
