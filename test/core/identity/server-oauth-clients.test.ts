import { mkdtempSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addScene, type Scene } from '../../support/authorization/scene.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

const PUBLIC_URL = 'https://switchboard.test';
const BEHIND_PROXY = { PUBLIC_URL, SWITCHBOARD_ALLOWED_HOSTS: '*' };

describe.each(DATABASES)('on $name: how Switchboard is known to an issuer', ({ kind, skipped }) => {
  beforeEach(ctx => {
    if (skipped) ctx.skip();
  });

  const start = (env: Record<string, string>) => startIdentity({ database: kind, env });
  /** A browser that finds the public address. */
  const browserOf = ({ url }: IdentityUnderTest) =>
    new UserAgent(address => address.replace(PUBLIC_URL, url));

  describe('by a client that the operator registered', () => {
    let issuer: AuthorizationServer;
    beforeEach(async () => {
      issuer = await startAuthorizationServer({ clientDocuments: true });
      return () => issuer[Symbol.asyncDispose]();
    });

    const settings = (clients: object) => ({ SWITCHBOARD_OAUTH_CLIENTS: JSON.stringify(clients) });
    const client = (scene: Scene, more: object = {}) =>
      scene.issuer.preregister({
        client_id: 'by-hand',
        client_secret: 'secret-by-hand-0123456789',
        redirect_uris: [],
        ...more,
      });

    it.each([
      ['client_secret_basic', undefined],
      ['client_secret_post', 'client_secret_post'],
    ])('before any other, with %s and its own scopes', async (method, token_auth_method) => {
      const secret = 'secret-by-hand-0123456789';
      await using sb = await start(
        settings({
          [issuer.issuer]: {
            client_id: 'by-hand',
            client_secret: secret,
            scopes: ['extra'],
            ...(token_auth_method === undefined ? {} : { token_auth_method }),
          },
        }),
      );
      await using scene = await addScene(sb, { issuer, mcp: { metadata: { scopes_supported: ['read'] } } });
      const required = await scene.call();
      const authorization = new URL(await new UserAgent().open(required.json.auth_url));
      const redirectUri = authorization.searchParams.get('redirect_uri') ?? '';
      expect(redirectUri).toMatch(new RegExp(`^${sb.url}/oauth/return/`));
      expect(authorization.searchParams.get('client_id')).toBe('by-hand');
      client(scene, { redirect_uris: [redirectUri], token_endpoint_auth_method: method });
      const other = await addScene(sb, { issuer });
      await using _other = other;
      const { page } = await other.connect();
      expect(page.status, page.html).toBe(200);
      expect((await other.call()).status).toBe(200);
      expect(issuer.sent('register')).toEqual([]);
      expect(authorization.searchParams.get('scope')).toBe('read extra');
      const [exchange] = issuer.sent('token');
      expect([exchange?.headers.authorization !== undefined, exchange?.fields['client_secret']]).toEqual(
        method === 'client_secret_basic' ? [true, undefined] : [false, secret],
      );
      expect([sb.logged(), page.html].join('\n')).not.toContain(secret);
    });

    it('from a file', async () => {
      const folder = mkdtempSync(path.join(tmpdir(), 'sb-'));
      const file = path.join(folder, 'clients.json');
      await writeFile(file, JSON.stringify({ [issuer.issuer]: { client_id: 'public' } }));
      await using sb = await start({ SWITCHBOARD_OAUTH_CLIENTS: file });
      await using scene = await addScene(sb, { issuer });
      const { json } = await scene.call();
      const authorization = new URL(await new UserAgent().open(json.auth_url));
      expect(authorization.searchParams.get('client_id')).toBe('public');
      await rm(folder, { recursive: true });
    });

    it('whose tokens a server of another domain gets only where the operator lists its origin', async () => {
      await using foreign = await startAuthorizationServer({ host: 'localhost' });
      const clients = (allowed_origins: string[]) =>
        settings({
          [foreign.issuer]: { client_id: 'by-hand', client_secret: 'x'.repeat(32), allowed_origins },
        });
      await using strict = await start({
        ...clients(['https://mcp.example.com']),
        SWITCHBOARD_OAUTH_ISSUERS: '*',
      });
      await using scene = await addScene(strict, { issuer: foreign });
      const refused = await scene.call();
      expect(refused).toMatchObject({ status: 403, json: { code: 'operator_setup_needed' } });
      expect(refused.json.detail).toContain('allowed_origins');
      await using named = await addScene(strict, { issuer: foreign, auth: { issuer: foreign.issuer } });
      expect((await named.call()).json.code).toBe('operator_setup_needed');
      await using open = await start(clients([scene.mcp.origin]));
      const id = 'listed';
      await open.admin.request(
        'POST',
        '/catalogue/import',
        JSON.stringify({ id, name: id, description: id, remote_url: scene.mcp.url, auth: { kind: 'oauth' } }),
      );
      const key = await open.admin.request('POST', '/keys', { name: id, user_id: id });
      const asked = await open.post(
        '/v1/mcp/tools/call',
        { server_id: id, name: 'echo', arguments: {} },
        { 'x-api-key': key.json.key },
      );
      expect(asked.json.code).toBe('connection_required');
      for (const endpoint of ['register', 'authorize', 'token'] as const)
        expect(foreign.sent(endpoint)).toEqual([]);
    });
  });

  describe('by a document at its own address', () => {
    let sb: IdentityUnderTest;
    beforeAll(async () => {
      if (!skipped) sb = await start(BEHIND_PROXY);
    });
    afterAll(() => sb?.[Symbol.asyncDispose]());

    /** As an authorization server fetches it. */
    const documentAt = async (address: string) =>
      (await fetch(address.replace(PUBLIC_URL, sb.url))).json() as Promise<Record<string, unknown>>;
    /** Fetches the document that a sign-in names, as the authorization server would then. */
    async function publish(scene: Scene): Promise<string> {
      const { json } = await scene.call();
      const link = await browserOf(sb).get(json.auth_url);
      expect(link.status).toBe(200);
      const id = `${PUBLIC_URL}/oauth/client.json`;
      scene.issuer.documents.set(id, await documentAt(id));
      return id;
    }

    it('says who it is, and is the client', async () => {
      await using scene = await addScene(sb, { issuer: { clientDocuments: true } });
      const id = await publish(scene);
      expect(scene.issuer.documents.get(id)).toMatchObject({
        client_id: id,
        client_name: 'Switchboard',
        redirect_uris: [`${PUBLIC_URL}/oauth/return`],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none',
      });
      const { page, session } = await scene.connect(scene.user, browserOf(sb));
      expect([page.status, session.status]).toEqual([200, 'complete']);
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('register')).toEqual([]);
      expect(scene.issuer.sent('token')[0]?.fields).toMatchObject({
        client_id: id,
        redirect_uri: `${PUBLIC_URL}/oauth/return`,
      });
      await sb.elapse(3_600_000);
      expect((await scene.call()).status).toBe(200);
      const { status } = await sb.post('/v1/identity/revoke', {
        user_id: scene.user.id,
        server_id: scene.serverId,
      });
      expect(status).toBe(200);
      await expect.poll(() => scene.issuer.sent('revoke').length, { timeout: 10_000 }).toBeGreaterThan(0);
    });

    it('is not used where responses do not name their issuer: it registers', async () => {
      await using scene = await addScene(sb, { issuer: { clientDocuments: true, iss: 'missing' } });
      const { page } = await scene.connect(scene.user, browserOf(sb));
      expect(page.status, page.html).toBe(200);
      expect(scene.issuer.sent('register')).toHaveLength(1);
    });

    it('is not used there either if nobody can register: the operator is told', async () => {
      await using scene = await addScene(sb, {
        issuer: { clientDocuments: true, iss: 'missing', registration: 'none' },
      });
      const { json } = await scene.call();
      expect(json).toMatchObject({
        code: 'operator_setup_needed',
        redirect_uri: expect.stringMatching(new RegExp(`^${PUBLIC_URL}/oauth/return/[\\w-]+$`)),
      });
    });

    it('is not used where only clients with a secret are let in: it registers, as a web application', async () => {
      await using scene = await addScene(sb, {
        issuer: {
          clientDocuments: true,
          metadata: { token_endpoint_auth_methods_supported: ['client_secret_basic'] },
        },
      });
      const { page } = await scene.connect(scene.user, browserOf(sb));
      expect(page.status, page.html).toBe(200);
      expect(scene.issuer.sent('register')[0]?.fields).toMatchObject({
        application_type: 'web',
        client_uri: PUBLIC_URL,
      });
    });
  });

  it('by a document that is hosted elsewhere, for an installation that nobody can reach', async () => {
    const id = 'https://clients.example/switchboard.json';
    await using sb = await start({
      SWITCHBOARD_CLIENT_METADATA_URL: id,
      SWITCHBOARD_CLIENT_NAME: 'Our Agents',
    });
    await using scene = await addScene(sb, { issuer: { clientDocuments: true } });
    scene.issuer.documents.set(id, { client_id: id, redirect_uris: [`${sb.url}/oauth/return`] });
    const { page } = await scene.connect();
    expect(page.status, page.html).toBe(200);
    expect((await scene.call()).status).toBe(200);
    expect(scene.issuer.sent('authorize')[0]?.query['client_id']).toBe(id);
    // Where it does not help, a client is registered, with the name that the operator gave.
    await using plain = await addScene(sb);
    await plain.connect();
    expect((await plain.call()).status).toBe(200);
    expect(plain.issuer.sent('register')[0]?.fields['client_name']).toBe('Our Agents');
  });

  it.each([
    ['no JSON', 'no'],
    ['an issuer that is none', '{"github":{"client_id":"x"}}'],
    ['no client_id', '{"https://issuer.example":{}}'],
    ['a member of no meaning', '{"https://issuer.example":{"client_id":"x","secret":"y"}}'],
    [
      'an origin with a path',
      '{"https://issuer.example":{"client_id":"x","allowed_origins":["https://a.example/x"]}}',
    ],
  ])('not by a setting with %s: it does not start', async (_what, value) => {
    await expect(start({ SWITCHBOARD_OAUTH_CLIENTS: value })).rejects.toThrow(/^SWITCHBOARD_OAUTH_CLIENTS: /);
  });
});
