import { describe, expect, it } from 'vitest';
import { startProtectedServer } from '../../support/authorization/protected.ts';
import { addEntry, addScene, echo, newUser, type Scene } from '../../support/authorization/scene.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { DATABASES, startIdentity, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { listen, readBody } from '../../support/upstreams/http.ts';
import { UserAgent } from '../../support/user-agent.ts';

const GIGABYTE = 2 ** 30;
/** Far above the limit of a document, far below what would hurt. */
const MUCH = 8 * 2 ** 20;

// CONNECTIONS 7: servers, authorization servers and browsers that mean harm.
describe.each(DATABASES)('on $name: hostile', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  const UNUSABLE = /^(provider_unavailable|upstream_protocol)$/;

  describe('metadata', () => {
    it.each([
      ['1 GB', { endless: true, contentLength: GIGABYTE }],
      ['without an end', { endless: true }],
    ] as const)('of %s are cut off', async (_what, fault) => {
      await using atServer = await addScene(sb);
      atServer.mcp.faults.metadata = fault;
      expect((await atServer.call()).json.code).toMatch(UNUSABLE);
      await using atIssuer = await addScene(sb);
      atIssuer.issuer.faults.metadata = fault;
      expect((await atIssuer.call()).json.code).toMatch(UNUSABLE);
      expect(atServer.mcp.bytesSent()).toBeLessThan(MUCH);
      expect(atIssuer.issuer.bytesSent()).toBeLessThan(MUCH);
    });

    it.each(['hang', 'drip'] as const)('that %s hold up nobody for long', async fault => {
      await using scene = await addScene(sb);
      scene.issuer.faults.metadata = fault;
      const startMs = performance.now();
      expect((await scene.call()).json.code).toMatch(UNUSABLE);
      expect(performance.now() - startMs).toBeLessThan(25_000);
    });

    it.each(['metadata', 'register', 'token', 'revoke'] as const)(
      'that lead elsewhere are not followed: %s',
      async endpoint => {
        await using elsewhere = await startElsewhere();
        await using scene = await addScene(sb);
        if (endpoint === 'revoke') {
          await scene.connect();
          expect((await scene.call()).status).toBe(200);
        }
        for (const location of ['http://169.254.169.254/latest/meta-data/', `${elsewhere.origin}/x`])
          for (const status of [302, 307]) {
            scene.issuer.faults[endpoint] = { status, headers: { location } };
            await tryEverything(scene);
          }
        expect(elsewhere.heard).toEqual([]);
        expect(scene.issuer.sent(endpoint).length).toBeGreaterThan(0);
      },
    );

    it('of the server that lead elsewhere are not followed', async () => {
      await using elsewhere = await startElsewhere();
      await using scene = await addScene(sb);
      scene.mcp.faults.metadata = { status: 302, headers: { location: `${elsewhere.origin}/x` } };
      const { json } = await scene.call();
      expect(json.code).toBe('upstream_protocol');
      expect(json.detail).toContain('another origin');
      expect(elsewhere.heard).toEqual([]);
    });

    it.each([
      ['another issuer', { issuer: 'https://attacker.example' }],
      ['no issuer', { issuer: undefined }],
      ['an authorization endpoint that is a script', { authorization_endpoint: 'javascript:alert(1)' }],
      ['an authorization endpoint that is no address', { authorization_endpoint: 'authorize' }],
      ['an endpoint with a fragment', { token_endpoint: 'http://127.0.0.1:1/token#x' }],
      ['a token endpoint at a metadata service', { token_endpoint: 'http://169.254.169.254/token' }],
      ['no token endpoint', { token_endpoint: undefined }],
      ['a list where a text belongs', { token_endpoint: ['http://127.0.0.1:1/'] }],
    ])('with %s are not used', async (_what, metadata) => {
      await using scene = await addScene(sb, { issuer: { metadata } });
      const refused = await scene.call();
      expect(refused).toMatchObject({ status: 502, json: { code: 'upstream_protocol' } });
      expect(refused.json).not.toHaveProperty('auth_url');
      for (const endpoint of ['register', 'authorize', 'token'] as const)
        expect(scene.issuer.sent(endpoint)).toEqual([]);
    });

    it.each([
      ['of another resource', { resource: 'https://evil.example/mcp' }],
      ['of a resource beside it', { resource: 'http://127.0.0.1:1/mcp' }],
      ['with a resource that is no text', { resource: ['x'] }],
      ['with issuers that are no list', { authorization_servers: 'http://127.0.0.1:1' }],
      ['with an issuer that is no address', { authorization_servers: ['not an address'] }],
      ['with an issuer that has a query', { authorization_servers: ['http://127.0.0.1:1/?x=1'] }],
    ])('of the server are not used: %s', async (_what, metadata) => {
      for (const auth of [{}, null]) {
        await using scene = await addScene(sb, { mcp: { metadata }, auth });
        const refused = await scene.call();
        expect(refused).toMatchObject({ status: 502, json: { code: 'upstream_protocol' } });
        expect(refused.json.detail).toContain('is not trustworthy');
        expect(scene.issuer.all()).toEqual([]);
      }
    });

    it('that name a metadata service as an authorization server lead nowhere', async () => {
      const authorization_servers = ['http://169.254.169.254', 'http://[fd00:ec2::254]/latest'];
      await using scene = await addScene(sb, { mcp: { metadata: { authorization_servers } } });
      expect((await scene.call()).json.code).toMatch(UNUSABLE);
    });

    it('that name a thousand authorization servers make no thousand requests', async () => {
      await using scene = await addScene(sb);
      const { mcp, issuer } = scene;
      mcp.switches.metadata = {
        authorization_servers: Array.from({ length: 1_000 }, (_, index) => `${issuer.issuer}/none-${index}`),
      };
      const refused = await scene.call();
      expect(refused.status).toBeGreaterThanOrEqual(400);
      expect(issuer.sent('other').length).toBeLessThanOrEqual(9);
    });
  });

  describe('a server that names the issuer of another', () => {
    it('of another domain is refused; the operator may vouch for it, in the entry or for all', async () => {
      await using foreign = await startAuthorizationServer({ host: 'localhost', resource: 'ignored' });
      await using scene = await addScene(sb, { issuer: foreign, mcp: { checksResource: false } });
      const refused = await scene.call();
      expect(refused).toMatchObject({ status: 403, json: { code: 'operator_setup_needed' } });
      expect(refused.json.detail).toContain('SWITCHBOARD_OAUTH_ISSUERS');
      expect(refused.json.detail).toContain(foreign.issuer);
      for (const endpoint of ['register', 'authorize', 'token'] as const)
        expect(foreign.sent(endpoint)).toEqual([]);
      const vouched = `${scene.serverId}-vouched`;
      await addEntry(sb, vouched, scene.mcp.url, { issuer: foreign.issuer });
      const required = await echo(sb, vouched, scene.user);
      const link = await new UserAgent().get(required.json.auth_url);
      expect(link.html).toContain(new URL(foreign.issuer).host);
      await new UserAgent().connect(required.json.auth_url);
      expect((await echo(sb, vouched, scene.user)).status).toBe(200);

      await using allowing = await startIdentity({
        database: database.kind,
        env: { SWITCHBOARD_OAUTH_ISSUERS: `https://other.example, ${foreign.issuer}` },
      });
      await using allowed = await addScene(allowing, { issuer: foreign, mcp: { checksResource: false } });
      await allowed.connect();
      expect((await allowed.call()).status).toBe(200);
    });

    it('or sends users to the page of another is refused: the tokens would be made there', async () => {
      await using elsewhere = await startAuthorizationServer({ host: 'localhost' });
      await using scene = await addScene(sb, {
        issuer: { metadata: { authorization_endpoint: `${elsewhere.issuer}/authorize` } },
      });
      expect((await scene.call()).json.code).toBe('operator_setup_needed');
      expect(scene.issuer.sent('register')).toEqual([]);
      expect(elsewhere.all()).toEqual([]);
    });

    it('never gets a token that was made for the other, not even where the tokens would do', async () => {
      await using honest = await addScene(sb, { issuer: { resource: 'ignored' } });
      await using thief = await addScene(sb, { issuer: honest.issuer, mcp: { checksResource: false } });
      await honest.connect();
      expect((await honest.call()).status).toBe(200);
      expect((await echo(sb, thief.serverId, honest.user)).json.code).toBe('connection_required');
      // And if it says that it is the other one.
      await using liar = await addScene(sb, {
        issuer: honest.issuer,
        mcp: { metadata: { resource: honest.mcp.url } },
      });
      expect((await echo(sb, liar.serverId, honest.user)).json.code).toBe('upstream_protocol');
      expect([thief.mcp.tokens(), liar.mcp.tokens()]).toEqual([[], []]);
    });

    it('cannot take over a token by moving the entry to its address', async () => {
      await using honest = await addScene(sb);
      await using thief = await startProtectedServer({
        authorizationServer: honest.issuer,
        checksResource: false,
      });
      await honest.connect();
      expect((await honest.call()).status).toBe(200);
      await addEntry(sb, honest.serverId, thief.url);
      expect((await honest.call()).json.code).toBe('connection_required');
      expect(thief.tokens()).toEqual([]);
    });
  });

  it('a server that redirects a call does not take the token along', async () => {
    await using elsewhere = await startElsewhere();
    await using scene = await addScene(sb);
    await scene.connect();
    scene.mcp.switches.refusesTokens = () => ({
      status: 307,
      headers: { location: `${elsewhere.origin}/mcp` },
    });
    expect((await scene.call()).status).toBeGreaterThanOrEqual(400);
    expect(elsewhere.heard).toEqual([]);
  });

  describe('authorization responses', () => {
    it.each([
      [
        'no iss where one is announced',
        { iss: 'missing', metadata: { authorization_response_iss_parameter_supported: true } },
      ],
      ['a wrong iss', { iss: 'https://attacker.example' }],
      [
        'a wrong iss that is not announced',
        {
          iss: 'https://attacker.example',
          metadata: { authorization_response_iss_parameter_supported: undefined },
        },
      ],
    ])('with %s: the code goes nowhere', async (_what, switches) => {
      await using scene = await addScene(sb, { issuer: switches });
      const { page, session } = await scene.connect();
      expect([page.status, session.status]).toEqual([400, 'error']);
      expect(scene.issuer.sent('token')).toEqual([]);
      expect((await scene.call()).json.reason).toBe('not_connected');
    });

    it('without iss where none is announced go through', async () => {
      await using scene = await addScene(sb, { issuer: { iss: 'missing' } });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('that are errors with a wrong iss are not believed', async () => {
      await using scene = await addScene(sb, { issuer: { denies: true, iss: 'https://attacker.example' } });
      const { page, session } = await scene.connect();
      expect(page.status).toBe(400);
      expect(session.error).not.toMatch(/^access_denied/);
    });

    it('of another user, put in place of the own: the code is not exchanged', async () => {
      await using scene = await addScene(sb);
      const attacker = await newUser(sb);
      const stolen = await callbackOf(scene, attacker);
      const own = await callbackOf(scene, scene.user);
      const injected = new URL(own.callback);
      injected.searchParams.set('code', new URL(stolen.callback).searchParams.get('code') ?? '');
      const page = await own.agent.follow(await own.agent.get(injected.href));
      expect(page.status).toBe(400);
      expect((await scene.call()).json.reason).toBe('not_connected');
      expect(scene.issuer.sent('token').map(({ fields }) => fields['code'])).toEqual([
        injected.searchParams.get('code'),
      ]);
      expect(scene.mcp.tokens()).toEqual([]);
    });

    it('in another browser than the one that began are refused, and spoil nothing', async () => {
      await using scene = await addScene(sb);
      const { callback, agent } = await callbackOf(scene, scene.user);
      const other = await new UserAgent().get(callback);
      expect(other.status).toBe(400);
      expect(scene.issuer.sent('token')).toEqual([]);
      // Whose sign-in it is can go on.
      const page = await agent.follow(await agent.get(callback));
      expect(page.status, page.html).toBe(200);
      expect((await agent.get(callback)).status).toBe(400);
      expect(scene.issuer.sent('token')).toHaveLength(1);
    });

    it.each([
      ['an unknown state', (url: URL) => url.searchParams.set('state', 'x'.repeat(43))],
      ['no state', (url: URL) => url.searchParams.delete('state')],
      ['two states', (url: URL) => url.searchParams.append('state', 'x'.repeat(43))],
      ['the address of another issuer', (url: URL) => void (url.pathname = '/oauth/return/AAAAAAAAAAAAAAAA')],
      ['the shared address', (url: URL) => void (url.pathname = '/oauth/return')],
      ['the address of a provider', (url: URL) => void (url.pathname = '/oauth/callback/local')],
    ])('with %s exchange nothing', async (_what, spoil) => {
      await using scene = await addScene(sb);
      const { callback, agent } = await callbackOf(scene, scene.user);
      const spoilt = new URL(callback);
      spoil(spoilt);
      const page = await agent.follow(await agent.get(spoilt.href));
      expect(page.status).toBe(400);
      expect(scene.issuer.sent('token')).toEqual([]);
      expect((await scene.call()).json.code).toBe('connection_required');
    });

    it.each(['code', 'iss'])('with %s twice exchange nothing', async name => {
      await using scene = await addScene(sb);
      const { callback, agent } = await callbackOf(scene, scene.user);
      const page = await agent.follow(await agent.get(`${callback}&${name}=another`));
      expect(page.status).toBe(400);
      expect(scene.issuer.sent('token')).toEqual([]);
    });
  });

  describe('a mix-up between two issuers', () => {
    it('ends at the honest one, which does not know the address, where each has its own', async () => {
      await using honest = await addScene(sb);
      await honest.connect();
      await using evil = await addScene(sb);
      evil.issuer.switches.forwardsTo = { issuer: honest.issuer.issuer, clientId: clientAt(honest.issuer) };
      const required = await evil.call();
      const page = await new UserAgent().connect(required.json.auth_url);
      expect([page.status, page.html]).toEqual([400, expect.stringContaining('not registered')]);
      expect(evil.issuer.sent('token')).toEqual([]);
      expect(honest.issuer.sent('token')).toHaveLength(1);
    });

    it('is noticed by the issuer of the response, even if the honest one takes any address', async () => {
      await using honest = await addScene(sb);
      await honest.connect();
      await using evil = await addScene(sb);
      await evil.call();
      const client = honest.issuer.preregister({
        redirect_uris: evil.issuer.sent('register')[0]?.fields['redirect_uris'],
        client_id: 'takes-any-address',
      });
      evil.issuer.switches.forwardsTo = { issuer: honest.issuer.issuer, clientId: client.client_id };
      const { page, session } = await evil.connect();
      expect([page.status, session.status]).toEqual([400, 'error']);
      expect(evil.issuer.sent('token')).toEqual([]);
      expect(honest.issuer.sent('token')).toHaveLength(1);
      expect((await evil.call()).json.reason).toBe('not_connected');
    });

    describe('on the address that all share', () => {
      const document = 'https://clients.example/switchboard.json';
      const shares = (shared: IdentityUnderTest, { issuer }: Scene) =>
        issuer.documents.set(document, {
          client_id: document,
          redirect_uris: [`${shared.url}/oauth/return`],
        });
      let shared: IdentityUnderTest;
      useIdentity(database, started => (shared = started), {
        env: { SWITCHBOARD_CLIENT_METADATA_URL: document },
      });

      it('is noticed by the issuer of the response', async () => {
        await using honest = await addScene(shared, { issuer: { clientDocuments: true } });
        await using evil = await addScene(shared, { issuer: { clientDocuments: true } });
        for (const scene of [honest, evil]) shares(shared, scene);
        await honest.connect();
        expect((await honest.call()).status).toBe(200);
        evil.issuer.switches.forwardsTo = { issuer: honest.issuer.issuer, clientId: document };
        const { page, session } = await evil.connect();
        expect([page.status, session.status]).toEqual([400, 'error']);
        expect(evil.issuer.sent('token')).toEqual([]);
        expect(honest.issuer.sent('token')).toHaveLength(1);
      });

      it('is noticed where the honest one names no issuer, and the other takes back that it does', async () => {
        await using honest = await addScene(shared, { issuer: { clientDocuments: true, iss: 'missing' } });
        await using evil = await addScene(shared, { issuer: { clientDocuments: true } });
        for (const scene of [honest, evil]) shares(shared, scene);
        const required = await evil.call();
        evil.issuer.switches.iss = 'missing';
        const reads = evil.issuer.sent('metadata').length;
        await shared.elapse(11_000);
        const again = { user_id: (await newUser(shared)).id, server_id: evil.serverId };
        await shared.post('/v1/identity/sessions', again);
        expect(evil.issuer.sent('metadata').length).toBeGreaterThan(reads);
        evil.issuer.switches.forwardsTo = { issuer: honest.issuer.issuer, clientId: document };
        const page = await new UserAgent().connect(required.json.auth_url);
        expect(page.status, page.html).toBe(400);
        expect(honest.issuer.sent('authorize')).toHaveLength(1);
        expect(evil.issuer.sent('token')).toEqual([]);
      });
    });
  });

  describe('secrets that are repeated', () => {
    it('by the token endpoint are in no page, session, answer or log', async () => {
      await using scene = await addScene(sb, { issuer: { echo: true } });
      await scene.connect();
      const attacker = await newUser(sb);
      const { callback, agent } = await callbackOf(scene, attacker);
      const spoilt = new URL(callback);
      spoilt.searchParams.set('code', 'a-code-that-nobody-made');
      const failed = await agent.follow(await agent.get(spoilt.href));
      expect(failed.status).toBe(400);
      await sb.elapse(3_600_000);
      scene.issuer.endAll();
      const ended = await scene.call();
      expect(ended.json.reason).toBe('needs_reauth');
      const told = [failed.html, ended.text, sb.logged()].join('\n');
      expect(scene.issuer.secrets.size).toBeGreaterThan(4);
      expect(leaksIn(told, scene.issuer)).toEqual([]);
    });

    it.each(['insufficient_scope', 'invalid_token'])(
      'by the server in the scopes of a challenge are in no answer, page or log: %s',
      async error => {
        await using scene = await addScene(sb);
        await scene.connect();
        await scene.call();
        scene.mcp.switches.refusesTokens = token => ({
          status: error === 'invalid_token' ? 401 : 403,
          headers: { 'www-authenticate': `Bearer error="${error}", scope="write ${token}"` },
        });
        const refused = await scene.call();
        expect(refused.json.code).toBe('connection_required');
        const page = await new UserAgent().get(refused.json.auth_url);
        expect(leaksIn([refused.text, page.html, sb.logged()].join('\n'), scene.issuer)).toEqual([]);
      },
    );

    it.each([400, 401, 403, 404, 500])('by the server are in no answer or log: HTTP %i', async status => {
      await using scene = await addScene(sb);
      await scene.connect();
      await scene.call();
      scene.mcp.switches.refusesTokens = token => ({
        status,
        headers: {
          'content-type': 'application/json',
          'www-authenticate': `Bearer error="invalid_token", error_description="${token}", scope="${token}"`,
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: -32_000, message: `no: ${token}` } }),
      });
      const told = [(await scene.call()).text, (await scene.call()).text, sb.logged()].join('\n');
      expect(scene.issuer.secrets.has(scene.mcp.tokens()[0] ?? '')).toBe(true);
      expect(leaksIn(told, scene.issuer)).toEqual([]);
    });
  });

  it('the host of a page of theirs adds nothing to the policy of ours', async () => {
    await using issuer = await startAuthorizationServer({
      metadata: { authorization_endpoint: 'https://a;script-src,*.example/authorize' },
    });
    await using scene = await addScene(sb, { issuer, auth: { issuer: issuer.issuer } });
    const { headers } = await new UserAgent().get((await scene.call()).json.auth_url);
    expect(headers.get('content-security-policy')).toMatch(
      /^default-src 'none'; style-src '[^;,]+'; form-action 'self' https:; base-uri 'none'; frame-ancestors 'none'$/,
    );
  });

  it('names and scopes are text on the page, not markup', async () => {
    const scope = '<img/src=x/onerror=alert(1)>';
    await using scene = await addScene(sb, { mcp: { metadata: { scopes_supported: [scope] } } });
    const { json } = await scene.call();
    // A name that is no scope may be refused; shown it is as text.
    if (json.code === 'connection_required') {
      const { html } = await new UserAgent().get(json.auth_url);
      expect(html).not.toContain(scope);
    } else expect(json.code).toBe('upstream_protocol');
  });

  /** A sign-in of the user up to the address that the authorization server sends the browser back to. */
  async function callbackOf(scene: Scene, user: { headers: Readonly<Record<string, string>>; id: string }) {
    const agent = new UserAgent();
    const { json } = await scene.call(user);
    const page = await agent.open(json.auth_url);
    const callback = await agent.authorize(page, { stopAt: url => url.startsWith(`${sb.url}/`) });
    return { agent, callback };
  }

  /** Whatever can make a request to an endpoint. */
  async function tryEverything(scene: Scene): Promise<void> {
    const { json } = await scene.call();
    if (json.code === 'connection_required') await new UserAgent().connect(json.auth_url);
    await sb.post('/v1/identity/revoke', { user_id: scene.user.id, server_id: scene.serverId });
  }
});

/** With what is around them, which says where it is. */
const leaksIn = (text: string, { secrets }: AuthorizationServer): string[] =>
  [...secrets].flatMap(secret => {
    const at = text.indexOf(secret);
    return at === -1 ? [] : [text.slice(Math.max(0, at - 300), at + 20)];
  });

const clientAt = ({ clients }: AuthorizationServer): string => [...clients.keys()][0] ?? '';

/** A server that nothing should ever come to. */
async function startElsewhere() {
  const heard: string[] = [];
  const listening = await listen((request, response) => {
    void readBody(request).then(({ text }) => {
      heard.push(`${request.method} ${request.url} ${text}`);
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  return { ...listening, heard };
}
