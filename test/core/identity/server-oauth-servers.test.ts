import { describe, expect, it } from 'vitest';
import { addEntry, addScene, echo, newUser } from '../../support/authorization/scene.ts';
import { startProtectedServer } from '../../support/authorization/protected.ts';
import { startAuthorizationServer } from '../../support/authorization/server.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

// CONNECTIONS 6: what servers that are in use do.
describe.each(DATABASES)('on $name: real servers', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  describe('registration', () => {
    it('none is offered: the operator is told the redirect URI and the setting', async () => {
      await using scene = await addScene(sb, { issuer: { registration: 'none' } });
      const refused = await scene.call();
      expect(refused).toMatchObject({ status: 403, json: { code: 'operator_setup_needed' } });
      expect(refused.json.detail).toContain(`${sb.url}/oauth/return/`);
      expect(refused.json.detail).toContain('SWITCHBOARD_OAUTH_CLIENTS');
      expect(refused.json.detail).toContain(scene.issuer.issuer);
      expect(scene.issuer.sent('authorize')).toEqual([]);
    });

    it('an allowlist refuses, in plain text: the operator is told, and the text is kept in the log', async () => {
      await using scene = await addScene(sb, { issuer: { registration: 'allowlist' } });
      const refused = await scene.call();
      expect(refused).toMatchObject({ status: 403, json: { code: 'operator_setup_needed' } });
      expect(refused.json.detail).toMatch(/only pre-approved clients/);
      expect(refused.json.detail).toContain(`${sb.url}/oauth/return/`);
      expect(refused.text).not.toContain('is not on the list');
      expect(sb.logged()).toContain('is not on the list of approved clients');
      // It is not asked again by every call.
      await scene.call(await newUser(sb));
      expect(scene.issuer.sent('register')).toHaveLength(1);
    });

    it('422 is a refusal, too', async () => {
      await using scene = await addScene(sb, { issuer: { registration: 'unprocessable' } });
      expect((await scene.call()).json.code).toBe('operator_setup_needed');
    });

    it('500 and 429 are not: a call a little later tries again', async () => {
      await using scene = await addScene(sb);
      for (const status of [500, 429]) {
        scene.issuer.faults.register = { status };
        expect((await scene.call()).json.code).toBe('provider_unavailable');
        await sb.elapse(16_000);
      }
      delete scene.issuer.faults.register;
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it.each([
      ['200 instead of 201', { registrationStatus: 200 }],
      ['without client_secret_expires_at', { registered: { client_secret_expires_at: undefined } }],
      ['with an empty client_secret_expires_at', { registered: { client_secret_expires_at: '' } }],
      ['with client_secret_expires_at null', { registered: { client_secret_expires_at: null } }],
      ['with client_secret_expires_at in ages', { registered: { client_secret_expires_at: 1e18 } }],
      ['with client_secret_expires_at as words', { registered: { client_secret_expires_at: 'never' } }],
      ['with members of no meaning', { registered: { scope: 7, grant_types: 'x', client_name: null } }],
    ])('is read: %s', async (_what, switches) => {
      await using scene = await addScene(sb, { issuer: switches });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it.each([
      ['no client_id', '{}'],
      ['no JSON', 'registered'],
      ['a client_id of 1 MB', JSON.stringify({ client_id: 'x'.repeat(1_000_000) })],
    ])('with an answer of %s is no registration', async (_what, body) => {
      await using scene = await addScene(sb);
      scene.issuer.faults.register = { status: 201, headers: { 'content-type': 'application/json' }, body };
      expect((await scene.call()).json.code).toBe('provider_unavailable');
      delete scene.issuer.faults.register;
      await sb.elapse(16_000);
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it.each([
      ['client_secret_basic', ['client_secret_basic']],
      ['client_secret_post', ['client_secret_post']],
      ['none', ['none']],
    ])('asks for %s where nothing else is supported', async (method, supported) => {
      await using scene = await addScene(sb, {
        issuer: { metadata: { token_endpoint_auth_methods_supported: supported } },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('register')[0]?.fields['token_endpoint_auth_method']).toBe(method);
    });

    it('uses the method that it was given, whatever it asked for', async () => {
      await using scene = await addScene(sb, {
        issuer: { registered: { token_endpoint_auth_method: 'client_secret_post' } },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      const [exchange] = scene.issuer.sent('token');
      expect(exchange?.headers.authorization).toBeUndefined();
      expect(exchange?.fields['client_secret']).toBeTruthy();
    });

    it('goes as a public client where Basic is refused and a registration says none', async () => {
      await using scene = await addScene(sb, {
        issuer: {
          refusesBasic: true,
          metadata: { token_endpoint_auth_methods_supported: ['client_secret_basic', 'none'] },
          registered: { token_endpoint_auth_method: 'none', client_secret: undefined },
        },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('token')[0]?.fields['client_id']).toBeTruthy();
    });

    it('goes as a public client where the entry says so', async () => {
      await using scene = await addScene(sb, {
        issuer: { refusesBasic: true },
        auth: { token_auth_method: 'none' },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });
  });

  describe('the issuer', () => {
    it('at an address of another spelling than the metadata say is refused; the entry may name it', async () => {
      await using issuer = await startAuthorizationServer();
      await using mcp = await startProtectedServer({
        authorizationServer: issuer,
        // As at Google: the server's metadata have a slash that the issuer's do not.
        metadata: { authorization_servers: [`${issuer.issuer}/`] },
      });
      await addEntry(sb, 'spelt', mcp.url);
      await addEntry(sb, 'spelt-named', mcp.url, { issuer: issuer.issuer });
      const user = await newUser(sb);
      const refused = await echo(sb, 'spelt', user);
      expect(refused).toMatchObject({ status: 502, json: { code: 'upstream_protocol' } });
      expect(refused.json.detail).toContain('another issuer');
      const required = await echo(sb, 'spelt-named', user);
      await new UserAgent().connect(required.json.auth_url);
      expect((await echo(sb, 'spelt-named', user)).status).toBe(200);
      expect(sb.logged()).toContain('used the issuer of the catalogue entry');
    });

    it.each([
      ['RFC 8414 with a path', { path: '/tenant', metadataAt: 'oauth' }],
      ['OpenID with a path inserted', { path: '/tenant', metadataAt: 'openid' }],
      ['OpenID with a path before it', { path: '/tenant', metadataAt: 'appended' }],
      ['OpenID', { metadataAt: 'openid' }],
    ] as const)('has its metadata at the place of %s', async (_what, issuer) => {
      await using scene = await addScene(sb, { issuer });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('is the first of several that works', async () => {
      await using scene = await addScene(sb);
      const { mcp, issuer } = scene;
      mcp.switches.metadata = {
        authorization_servers: [`${mcp.origin}/nothing-here`, issuer.issuer, 'http://127.0.0.1:9/never'],
      };
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('of a server without metadata of its own is the server, as in 2025-03-26', async () => {
      await using scene = await addScene(sb, { mcp: { metadataAt: 'none', servesIssuer: true } });
      scene.issuer.switches.metadata = { issuer: scene.mcp.origin };
      scene.issuer.switches.iss = scene.mcp.origin;
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('compresses its metadata unasked', async () => {
      await using scene = await addScene(sb, { issuer: { gzip: true } });
      const raw = await fetch(`${scene.issuer.issuer}/.well-known/oauth-authorization-server`);
      expect(raw.headers.get('content-encoding')).toBe('gzip');
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('that does not say that it supports PKCE is refused, unless the entry vouches for it', async () => {
      for (const methods of [undefined, ['plain']]) {
        await using scene = await addScene(sb, {
          issuer: { metadata: { code_challenge_methods_supported: methods } },
        });
        const refused = await scene.call();
        expect(refused).toMatchObject({ status: 502, json: { code: 'upstream_protocol' } });
        expect(refused.json.detail).toContain('PKCE');
        expect(scene.issuer.sent('register')).toEqual([]);
        const id = `${scene.serverId}-assumed`;
        await addEntry(sb, id, scene.mcp.url, { assume_pkce: true });
        const required = await echo(sb, id, scene.user);
        await new UserAgent().connect(required.json.auth_url);
        expect((await echo(sb, id, scene.user)).status).toBe(200);
      }
    });
  });

  describe('the resource', () => {
    it.each([
      ['with a slash at its end', (origin: string) => `${origin}/mcp/`],
      ['as the origin', (origin: string) => origin],
      ['as the origin with a slash', (origin: string) => `${origin}/`],
    ])('goes out as it is published: %s', async (_what, resourceOf) => {
      await using scene = await addScene(sb, { issuer: { resource: 'required' } });
      const resource = resourceOf(scene.mcp.origin);
      scene.mcp.switches.metadata = { resource };
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('authorize')[0]?.query['resource']).toBe(resource);
      expect(scene.issuer.sent('token')[0]?.fields['resource']).toBe(resource);
    });

    it('is refused: the user is told, and an entry that omits it connects', async () => {
      await using scene = await addScene(sb, {
        issuer: { resource: 'refused' },
        mcp: { checksResource: false },
      });
      const { page, session } = await scene.connect();
      expect(page.status).toBe(400);
      expect(session.status).toBe('error');
      const id = `${scene.serverId}-omits`;
      await addEntry(sb, id, scene.mcp.url, { resource: 'omit' });
      const required = await echo(sb, id, scene.user);
      await new UserAgent().connect(required.json.auth_url);
      expect((await echo(sb, id, scene.user)).status).toBe(200);
      const requests = [...scene.issuer.sent('authorize'), ...scene.issuer.sent('token')];
      expect(
        requests.filter(({ query, fields }) => 'resource' in query || 'resource' in fields),
      ).toHaveLength(1);
    });

    it('of another value is sent where the entry says so', async () => {
      await using scene = await addScene(sb, {
        auth: { resource: 'api://notes' },
        mcp: { checksResource: false },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('authorize')[0]?.query['resource']).toBe('api://notes');
      expect(scene.issuer.sent('token')[0]?.fields['resource']).toBe('api://notes');
    });
  });

  describe('the challenge', () => {
    it.each([
      ['none in the 401', { challenge: 'bare' }],
      ['none in the 401, and metadata at the root', { challenge: 'bare', metadataAt: 'root' }],
      ['only there is the place of the metadata', { metadataAt: 'hidden' }],
      ['among others in one header', { challenge: 'several', metadataAt: 'hidden' }],
      ['none for GET', { guards: 'posts' }],
    ] as const)('%s: the server is connected all the same', async (_what, mcp) => {
      for (const auth of [{}, null]) {
        await using scene = await addScene(sb, { mcp, auth });
        await scene.connect();
        expect((await scene.call()).status).toBe(200);
      }
    });

    it.each([[{}], [null]])('comes only at tools/call: learned there, with an entry of %j', async auth => {
      await using scene = await addScene(sb, { mcp: { guards: 'tools/call' }, auth });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('of a server that names no authorization server anywhere is for a key', async () => {
      await using scene = await addScene(sb, { mcp: { metadataAt: 'none' }, auth: null });
      const required = await scene.call();
      expect(required.json).toMatchObject({ code: 'connection_required', kind: 'credentials' });
    });
  });

  describe('scopes', () => {
    it('come from the challenge, else from the metadata, else are left out', async () => {
      await using challenged = await addScene(sb, {
        mcp: {
          scopes: { 'tools/list': ['a'], 'server/discover': ['a'] },
          metadata: { scopes_supported: ['b'] },
        },
      });
      await challenged.connect();
      expect(challenged.issuer.sent('authorize')[0]?.query['scope']).toBe('a');
      await using listed = await addScene(sb, { mcp: { metadata: { scopes_supported: ['b', 'c'] } } });
      await listed.connect();
      expect(listed.issuer.sent('authorize')[0]?.query['scope']).toBe('b c');
      for (const scopes of [undefined, []]) {
        await using none = await addScene(sb, { mcp: { metadata: { scopes_supported: scopes } } });
        await none.connect();
        expect(none.issuer.sent('authorize')[0]?.query).not.toHaveProperty('scope');
        expect((await none.call()).status).toBe(200);
      }
    });

    it('of one call are asked of nobody else', async () => {
      await using scene = await addScene(sb, {
        mcp: {
          metadata: { scopes_supported: ['read'] },
          scopes: { 'tools/call': ['admin'] },
          guards: 'tools/call',
        },
        auth: null,
      });
      expect((await scene.call()).json.code).toBe('connection_required');
      const asked = async () => {
        const { json } = await sb.post(
          '/v1/identity/sessions',
          { user_id: 'somebody-else', server_id: scene.serverId },
          { 'x-api-key': sb.otherKey },
        );
        return new URL(await new UserAgent().open(json.auth_url)).searchParams.get('scope');
      };
      expect(await asked()).toBe('read');
      await sb.elapse(20 * 60_000);
      expect(await asked()).toBe('read');
    });

    it('are never openid of our own accord, which some refuse', async () => {
      await using scene = await addScene(sb, {
        issuer: {
          metadataAt: 'openid',
          refusedScopes: ['openid'],
          metadata: { scopes_supported: ['openid', 'profile', 'read', 'offline_access'] },
        },
        mcp: { metadata: { scopes_supported: ['read'] } },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('authorize')[0]?.query['scope']).toBe('read offline_access');
    });

    it('that are refused end the sign-in with words for the user', async () => {
      await using scene = await addScene(sb, {
        issuer: { refusedScopes: ['read'] },
        mcp: { metadata: { scopes_supported: ['read'] } },
      });
      const { page, session } = await scene.connect();
      expect([page.status, session.status]).toEqual([400, 'error']);
    });

    it('go into user_scope where the entry says so', async () => {
      await using scene = await addScene(sb, {
        issuer: { scopeParameter: 'user_scope' },
        mcp: { metadata: { scopes_supported: ['chat:write'] }, scopes: { 'tools/call': ['chat:write'] } },
        auth: { scope_param: 'user_scope' },
      });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      const [request] = scene.issuer.sent('authorize');
      expect(request?.query['user_scope']).toBe('chat:write');
      expect(request?.query).not.toHaveProperty('scope');
    });

    it('more parameters of an entry are added', async () => {
      await using scene = await addScene(sb, { auth: { authorize_params: { access_type: 'offline' } } });
      await scene.connect();
      expect(scene.issuer.sent('authorize')[0]?.query['access_type']).toBe('offline');
    });
  });

  describe('tokens', () => {
    it.each([
      ['no expires_in', { expiresIn: undefined }],
      ['expires_in as text', { expiresIn: '3600' }],
      ['expires_in null', { expiresIn: null }],
      ['expires_in 0', { expiresIn: 0 }],
      ['expires_in of ages', { expiresIn: 1e18 }],
      ['expires_in as a number beyond all bounds', { expiresIn: '9'.repeat(400) }],
      ['expires_in below zero', { expiresIn: -1 }],
      ['expires_in as words', { expiresIn: 'an hour' }],
      ['expires_in as a list', { expiresIn: [3600] }],
      ['token_type in lower case', { tokenAnswer: { token_type: 'bearer' } }],
      ['no token_type', { tokenAnswer: { token_type: undefined } }],
      ['refresh_token null', { tokenAnswer: { refresh_token: null } }],
      ['scope as a list', { tokenAnswer: { scope: ['a', 'b'] } }],
      ['no scope', { tokenAnswer: { scope: undefined } }],
      ['an id_token that is none', { tokenAnswer: { id_token: 'x.y.z' } }],
    ])('are read: %s', async (_what, switches) => {
      await using scene = await addScene(sb, { issuer: switches });
      const { page } = await scene.connect();
      expect(page.status, page.html).toBe(200);
      expect((await scene.call()).status).toBe(200);
    });

    it.each([
      ['an error with status 200', { status: 200, body: '{"error":"bad_verification_code"}' }],
      ['a page', { status: 200, headers: { 'content-type': 'text/html' }, body: '<!doctype html>' }],
      ['nothing', { status: 204 }],
      ['no token', { status: 200, body: '{"token_type":"bearer"}' }],
      [
        'a token that no header can carry',
        { status: 200, body: '{"access_token":"a\\r\\nb","token_type":"bearer"}' },
      ],
    ])('are not read: %s', async (_what, answer) => {
      await using scene = await addScene(sb);
      scene.issuer.faults.token = { headers: { 'content-type': 'application/json' }, ...answer };
      const { page, session } = await scene.connect();
      expect([page.status, session.status]).toEqual([400, 'error']);
      expect((await scene.call()).json).toMatchObject({
        code: 'connection_required',
        reason: 'not_connected',
      });
      expect(scene.mcp.tokens()).toEqual([]);
    });
  });
});
