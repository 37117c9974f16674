import dns from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tokenHostOf } from '../../../src/core/identity/oauth/token-host.ts';
import { startProtectedServer } from '../../support/authorization/protected.ts';
import { addEntry, addScene, echo, newUser, type Scene } from '../../support/authorization/scene.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

const HOUR_MS = 3_600_000;
const ISSUER = 'mcp.dogs.example';
const REAL = dns.lookup;

/** Names below example, which no resolver knows, lead to this machine. */
function lookup(hostname: string, options: dns.LookupOptions, done: (...found: unknown[]) => void): void {
  if (!hostname.endsWith('.example')) REAL(hostname, options, done);
  else if (options.all) done(null, [{ address: '127.0.0.1', family: 4 }]);
  else done(null, '127.0.0.1', 4);
}

describe('a token endpoint whose host the callback names', () => {
  const opened = new AsyncDisposableStack();
  let sb: IdentityUnderTest;
  let issuer: AuthorizationServer;

  beforeAll(async () => {
    Object.assign(dns, { lookup });
    syncBuiltinESMExports();
    opened.defer(() => {
      Object.assign(dns, { lookup: REAL });
      syncBuiltinESMExports();
    });
    issuer = opened.use(await startAuthorizationServer({ host: ISSUER }));
    sb = opened.use(await startIdentity());
  });
  afterAll(() => opened.disposeAsync());

  const scene = (callback: Record<string, string>, auth: object = { token_host: 'api.{domain}' }) => {
    issuer.switches.callback = callback;
    return addScene(sb, { issuer, auth: { issuer: issuer.issuer, ...auth } });
  };
  const port = () => new URL(issuer.issuer).port;
  /** Returns the hosts that were asked, from a point on. */
  const hosts = (endpoint: 'token' | 'revoke', from: number) =>
    issuer
      .sent(endpoint)
      .slice(from)
      .map(({ headers, fields }) => [fields['grant_type'] ?? endpoint, headers.host]);
  const revoke = ({ user, serverId }: Scene) =>
    sb.post('/v1/identity/revoke', { user_id: user.id, server_id: serverId });

  it('gets the code, and later the refresh tokens and the revocation', async () => {
    const [tokens, revocations] = [issuer.sent('token').length, issuer.sent('revoke').length];
    await using one = await scene({ domain: 'US5.dogs.example', site: 'us5' });
    expect((await one.connect()).session).toEqual({ status: 'complete' });
    expect((await one.call()).status).toBe(200);
    await sb.elapse(HOUR_MS);
    expect((await one.call()).status).toBe(200);
    const there = `api.us5.dogs.example:${port()}`;
    expect(hosts('token', tokens)).toEqual([
      ['authorization_code', there],
      ['refresh_token', there],
    ]);
    await revoke(one);
    await expect
      .poll(() => hosts('revoke', revocations), { timeout: 10_000 })
      .toContainEqual(['revoke', there]);
    expect(sb.logged()).not.toContain('us5');
  });

  it("is never sent the secret of the operator's client: no sign-in begins", async () => {
    await using mcp = await startProtectedServer({ authorizationServer: issuer });
    const client = { client_id: 'by-hand', allowed_origins: [mcp.origin] };
    const begin = async (secret: object) => {
      const clients = JSON.stringify({ [issuer.issuer]: { ...client, ...secret } });
      await using own = await startIdentity({ env: { SWITCHBOARD_OAUTH_CLIENTS: clients } });
      await addEntry(own, 'dogs', mcp.url, { issuer: issuer.issuer, token_host: 'api.{domain}' });
      return (await echo(own, 'dogs', await newUser(own))).json;
    };
    const refused = await begin({ client_secret: 'operators-secret-0123456789' });
    expect(refused).toMatchObject({
      code: 'operator_setup_needed',
      detail: expect.stringContaining('has a secret'),
    });
    expect((await begin({})).code).toBe('connection_required');
  });

  it("is the metadata's where the entry says nothing", async () => {
    const from = issuer.sent('token').length;
    await using one = await scene({ domain: 'us5.dogs.example' }, {});
    await one.connect();
    expect(new Set(hosts('token', from).map(([, host]) => host))).toEqual(new Set([`${ISSUER}:${port()}`]));
  });

  it.each([
    ['no value', {}],
    ['an empty value', { domain: '' }],
    ['another domain', { domain: 'cats.example' }],
    ['a domain that ends alike', { domain: 'evildogs.example' }],
    ['a port', { domain: 'dogs.example:8080' }],
    ['a path', { domain: 'dogs.example/x' }],
  ])('with %s gets nothing, nor does anybody else', async (_what, callback) => {
    const from = issuer.sent('token').length;
    await using one = await scene(callback);
    const { session } = await one.connect();
    expect(session).toMatchObject({ status: 'error', error: expect.stringMatching(/^exchange_failed/) });
    expect(issuer.sent('token')).toHaveLength(from);
    expect(sb.logged()).toContain("the callback's domain names no host of the issuer's own domain");
  });

  it("is not asked for where the user said no, or where the answer is another issuer's", async () => {
    await using one = await scene({ error: 'access_denied', code: '' });
    expect((await one.connect()).session.error).toMatch(/^access_denied/);
    const from = issuer.sent('token').length;
    await using other = await scene({ domain: 'dogs.example', iss: 'https://cats.example' });
    expect((await other.connect()).session.status).toBe('error');
    expect(issuer.sent('token')).toHaveLength(from);
  });

  it.each(['api', '{domain}.example', 'api.{domain}:8080', 'https://{domain}', '{domain}/x'])(
    'is not taken from an entry as %j',
    async token_host => {
      const entry = { id: 'bad', name: 'b', description: 'b', remote_url: 'http://127.0.0.1:1/mcp' };
      const { json } = await sb.admin.request(
        'POST',
        '/catalogue/import',
        JSON.stringify({ ...entry, auth: { kind: 'oauth', token_host } }),
      );
      expect(json.problems?.[0]?.reason ?? json.detail).toContain('token_host: must be {domain}');
    },
  );
});

describe('the host that a callback names', () => {
  it.each([
    ['api.{domain}', 'datadoghq.com', 'https://mcp.datadoghq.com', 'api.datadoghq.com'],
    ['{domain}', 'eu.shop.co.uk', 'https://shop.co.uk/oauth', 'eu.shop.co.uk'],
  ])('%s with %s is taken', (tokenHost, named, issuer, host) => {
    expect(tokenHostOf(tokenHost, named, issuer)).toBe(host);
  });

  it.each([
    ['{domain}', null, 'https://shop.com'],
    ['{domain}', 'com', 'https://shop.com'],
    ['{domain}', 'co.uk', 'https://shop.co.uk'],
    ['{domain}', 'other.co.uk', 'https://shop.co.uk'],
    // On a suffix that people share, such as github.io, everybody has a domain of their own.
    ['{domain}', 'mallory.github.io', 'https://alice.github.io'],
    ['{domain}', 'shop.com.evil.net', 'https://shop.com'],
    ['{domain}', 'user@shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net#.shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net\\.shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net/.shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net?.shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net%2f.shop.com', 'https://shop.com'],
    ['{domain}', 'evil.net\n.shop.com', 'https://shop.com'],
    ['{domain}', 'shop.com\n', 'https://shop.com'],
    ['{domain}', 'shop.com.', 'https://shop.com'],
    ['{domain}', '.shop.com', 'https://shop.com'],
    ['{domain}', 'ſhop.com', 'https://shop.com'],
    ['{domain}', 'shop.com:443', 'https://shop.com'],
    ['{domain}', `${'a.'.repeat(130)}shop.com`, 'https://shop.com'],
    ['{domain}', '127.0.0.1', 'https://127.0.0.1'],
    ['{domain}', '169.254.169.254', 'https://shop.com'],
    ['{domain}', '[::1]', 'https://shop.com'],
    ['{domain}', 'localhost', 'http://localhost'],
    ['api.{domain}', 'com', 'https://api.com.shop.com'],
  ])('%s with %j is refused for %s', (tokenHost, named, issuer) => {
    expect(() => tokenHostOf(tokenHost, named, issuer)).toThrow(/names no host of the issuer's own domain/);
  });
});
