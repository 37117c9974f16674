import { sql } from 'drizzle-orm';
import { describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { addScene, echo, newUser, type Scene } from '../../support/authorization/scene.ts';
import { startAuthorizationServer } from '../../support/authorization/server.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { parallel, statusesOf } from '../../support/processes.ts';
import { UserAgent } from '../../support/user-agent.ts';

const HOUR_MS = 3_600_000;

describe.each(DATABASES)("on $name: the tokens of a server's own sign-in", database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  const refreshes = ({ issuer }: Scene) =>
    issuer.sent('token').filter(({ fields }) => fields['grant_type'] === 'refresh_token');
  const ended = (reason: string) => ({
    status: 403,
    json: { code: 'connection_required', kind: 'oauth', reason },
  });

  describe('refresh', () => {
    it.each(['rotating', 'fixed'] as const)(
      'one at a time, whatever the calls: %s refresh tokens',
      async refresh => {
        await using scene = await addScene(sb, { issuer: { refresh } });
        await scene.connect();
        for (let round = 1; round <= 3; round++) {
          await sb.elapse(HOUR_MS);
          expect(statusesOf(await parallel(20, () => scene.call()))).toEqual({ 200: 20 });
          expect(refreshes(scene)).toHaveLength(round);
        }
        expect(new Set(refreshes(scene).map(({ fields }) => fields['refresh_token'])).size).toBe(
          refresh === 'rotating' ? 3 : 1,
        );
        expect(refreshes(scene).every(({ fields }) => fields['resource'] === scene.mcp.url)).toBe(true);
        expect(scene.issuer.introspect(scene.mcp.tokens().at(-1) ?? '')).toBeDefined();
      },
    );

    it('is leased to one process only when the metadata have been read, which may take long', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      await sb.elapse(HOUR_MS);
      const leases = async () =>
        (await rows(sb.db, sql`SELECT 1 FROM connections WHERE lease_id IS NOT NULL`)).length;
      const reading = scene.issuer.hold('metadata', 'before');
      const asking = scene.issuer.hold('token', 'before');
      const call = scene.call();
      await reading.arrived;
      expect(await leases()).toBe(0);
      reading.release();
      await asking.arrived;
      expect(await leases()).toBe(1);
      asking.release();
      expect((await call).status).toBe(200);
      expect(await leases()).toBe(0);
    });

    it('does not happen where there is no refresh token: the user signs in again', async () => {
      await using scene = await addScene(sb, { issuer: { refresh: 'none' } });
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      await sb.elapse(HOUR_MS);
      const before = scene.mcp.inbox.all.length;
      expect(await scene.call()).toMatchObject(ended('needs_reauth'));
      const sent = scene.mcp.inbox.all.slice(before).map(({ headers }) => headers.authorization);
      expect(sent.filter(value => value !== undefined)).toEqual([]);
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('waits for an authorization server that is away, and loses nothing', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      await sb.elapse(HOUR_MS);
      for (const fault of [{ status: 503 }, { status: 200, body: '<html>' }]) {
        scene.issuer.faults.token = fault;
        expect((await scene.call()).json.code).toBe('provider_unavailable');
        await sb.elapse(60_000);
      }
      delete scene.issuer.faults.token;
      await sb.elapse(60_000);
      expect((await scene.call()).status).toBe(200);
    });

    it.each([
      ['a minute', 60, 50],
      ['ten minutes', 600, 535],
      ['an hour', 3_600, 3_530],
    ])(
      'of a token that lives for %s happens shortly before its end, not with every call',
      async (_for, expiresIn, sec) => {
        await using scene = await addScene(sb, { issuer: { expiresIn } });
        await scene.connect();
        await sb.elapse(sec * 1_000);
        expect((await scene.call()).status).toBe(200);
        expect(refreshes(scene)).toHaveLength(0);
        await sb.elapse(expiresIn * 100);
        expect((await scene.call()).status).toBe(200);
        expect(refreshes(scene)).toHaveLength(1);
      },
    );

    it('that is refused ends the connection', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      await sb.elapse(HOUR_MS);
      scene.issuer.endAll();
      expect(await scene.call()).toMatchObject(ended('needs_reauth'));
      const { json } = await sb.get(`/v1/identity/connections?user_id=${scene.user.id}`);
      expect(json.connections[0].status).toBe('needs_reauth');
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
    });

    it('that is refused early leaves the access token until it expires', async () => {
      await using scene = await addScene(sb, { issuer: { expiresIn: 600 } });
      await scene.connect();
      const [before] = [await scene.call()];
      expect(before.status).toBe(200);
      scene.issuer.faults.token = {
        status: 400,
        headers: { 'content-type': 'application/json' },
        body: '{"error":"invalid_grant"}',
      };
      await sb.elapse(300_000);
      expect((await scene.call()).status).toBe(200);
      await sb.elapse(HOUR_MS);
      expect(await scene.call()).toMatchObject(ended('needs_reauth'));
    });

    it('happens once when the server refuses a token before its time', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      scene.issuer.expireAccessTokens();
      expect(statusesOf(await parallel(10, () => scene.call()))).toEqual({ 200: 10 });
      expect(refreshes(scene)).toHaveLength(1);
    });

    it('is not repeated for a server that refuses every token', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      scene.mcp.switches.refusesTokens = () => ({
        status: 401,
        headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
      });
      for (let call = 0; call < 5; call++) expect(await scene.call()).toMatchObject(ended('rejected'));
      expect(refreshes(scene)).toHaveLength(1);
    });
  });

  describe('registrations that age', () => {
    it('a client that is forgotten is registered anew, and what the old one has goes on until it must be refreshed', async () => {
      await using scene = await addScene(sb);
      const early = await newUser(sb);
      await scene.connect(early);
      await scene.connect();
      await sb.elapse(HOUR_MS);
      scene.issuer.forgetClients();
      expect(await scene.call()).toMatchObject(ended('needs_reauth'));
      const { page } = await scene.connect();
      expect(page.status, page.html).toBe(200);
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('register')).toHaveLength(2);
      expect(await scene.call(early)).toMatchObject(ended('needs_reauth'));
      await scene.connect(early);
      expect((await scene.call(early)).status).toBe(200);
      expect(scene.issuer.sent('register')).toHaveLength(2);
    });

    it('a client that is forgotten between the page and the code fails that sign-in, and the next one works', async () => {
      await using scene = await addScene(sb);
      const hold = scene.issuer.hold('token', 'before');
      const signingIn = scene.connect();
      await hold.arrived;
      scene.issuer.forgetClients();
      hold.release();
      const { page, session } = await signingIn;
      expect([page.status, session.status]).toEqual([400, 'error']);
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      expect(scene.issuer.sent('register')).toHaveLength(2);
    });

    it('a secret that is about to expire is used for no new sign-in; what it has is refreshed with it', async () => {
      const twoHours = Math.floor(sb.now() / 1_000) + 7_200;
      await using scene = await addScene(sb, {
        issuer: { registered: { client_secret_expires_at: twoHours } },
      });
      await scene.connect();
      scene.issuer.switches.registered = {};
      await sb.elapse(1.5 * HOUR_MS);
      const late = await newUser(sb);
      await scene.connect(late);
      expect(scene.issuer.sent('register')).toHaveLength(2);
      const clients = new Set(scene.issuer.sent('authorize').map(({ query }) => query['client_id']));
      expect(clients.size).toBe(2);
      expect((await scene.call()).status).toBe(200);
      expect((await scene.call(late)).status).toBe(200);
      expect(refreshes(scene)).toHaveLength(1);
    });
  });

  it('whose client is gone here can be renewed by the user alone', async () => {
    await using scene = await addScene(sb);
    await scene.connect();
    await sb.db.execute(sql`delete from oauth_clients`);
    expect((await scene.call()).status).toBe(200);
    await sb.elapse(HOUR_MS);
    expect(await scene.call()).toMatchObject(ended('needs_reauth'));
    expect(refreshes(scene)).toEqual([]);
    await scene.connect();
    expect((await scene.call()).status).toBe(200);
  });

  it('are refreshed and lack scopes in one call: the user is asked for the scopes', async () => {
    await using scene = await addScene(sb);
    await scene.connect();
    expect((await scene.call()).status).toBe(200);
    scene.issuer.expireAccessTokens();
    scene.mcp.switches.scopes = { 'tools/call': ['write'] };
    expect(await scene.call()).toMatchObject(ended('missing_scopes'));
    expect(refreshes(scene)).toHaveLength(1);
  });

  describe('step-up', () => {
    const scopes = { 'tools/list': ['read'], 'server/discover': ['read'], 'tools/call': ['write'] };

    it('asks for what a call lacks beside what is held, and keeps both', async () => {
      await using scene = await addScene(sb, { mcp: { scopes } });
      await scene.connect();
      const refused = await scene.call();
      expect(refused).toMatchObject(ended('missing_scopes'));
      expect(refused.json.missing).toEqual(['write']);
      await scene.connect();
      expect((await scene.call()).status).toBe(200);
      const asked = scene.issuer.sent('authorize').map(({ query }) => query['scope']?.split(' ').toSorted());
      expect(asked).toEqual([['read'], ['read', 'write']]);
      const { json } = await sb.get(`/v1/identity/connections?user_id=${scene.user.id}`);
      expect(json.connections[0].scopes.toSorted()).toEqual(['read', 'write']);
    });

    it('is not asked for where everything was granted: the refusal is final', async () => {
      await using scene = await addScene(sb, {
        mcp: { scopes: { 'tools/call': ['write'] }, metadata: { scopes_supported: ['write'] } },
      });
      await scene.connect();
      scene.mcp.switches.refusesTokens = () => ({
        status: 403,
        headers: { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' },
      });
      const refused = await scene.call();
      expect(refused.json.code).toBe('upstream_forbidden');
      expect(refused.json).not.toHaveProperty('auth_url');
      expect(scene.issuer.sent('authorize')).toHaveLength(1);
    });

    it('is asked for twice at most where it is never granted', async () => {
      await using scene = await addScene(sb, { mcp: { scopes }, issuer: { grantedScopes: ['read'] } });
      await scene.connect();
      const codes: string[] = [];
      for (let round = 0; round < 4; round++) {
        const { json } = await scene.call();
        codes.push(json.code);
        if (json.code === 'connection_required') await scene.connect();
      }
      expect(codes).toContain('upstream_forbidden');
      expect(codes.indexOf('upstream_forbidden')).toBeLessThanOrEqual(2);
      expect(codes.at(-1)).toBe('upstream_forbidden');
    });

    it('is asked for five times an hour at most where each call demands another one', async () => {
      await using scene = await addScene(sb, { issuer: { grantedScopes: ['read'] } });
      await scene.connect();
      const codes: string[] = [];
      for (let round = 0; round < 7; round++) {
        scene.mcp.switches.scopes = { 'tools/call': [`scope-${round}`] };
        codes.push((await scene.call()).json.code);
        if (codes.at(-1) === 'connection_required') await scene.connect();
      }
      expect(codes).toEqual([
        ...Array(5).fill('connection_required'),
        'upstream_forbidden',
        'upstream_forbidden',
      ]);
    });

    it('is in the advice for an operator only if a shell reads it as a word', async () => {
      await using scene = await addScene(sb);
      const shared = await sb.admin.request('POST', '/connections/session', { server_id: scene.serverId });
      await new UserAgent().connect(shared.json.auth_url);
      const plain = 'https://api.example/mail.read';
      const hostile = ['read;id;#', '`id`', '$(id)', '--key', 'a&b', "a'b"];
      scene.mcp.switches.scopes = { 'tools/call': [plain, ...hostile] };
      const { json } = await sb.post('/v1/mcp/tools/call', {
        server_id: scene.serverId,
        name: 'echo',
        arguments: { message: 'x' },
      });
      expect(json.missing).toEqual([plain, ...hostile]);
      expect(json.detail).toContain(`npx switchboard connect ${scene.serverId} --scope ${plain}. `);
    });

    it('that the user declines leaves what is held', async () => {
      await using scene = await addScene(sb, { mcp: { scopes } });
      await scene.connect();
      scene.issuer.switches.denies = true;
      const { page } = await scene.connect();
      expect(page.status).toBe(400);
      const listed = await sb.post(
        '/v1/mcp/tools/list',
        { server_id: scene.serverId },
        { ...scene.user.headers },
      );
      expect(listed.status, listed.text).toBe(200);
    });
  });

  describe('another authorization server', () => {
    it.each([
      ['kind oauth', {}],
      ['no kind', null],
    ])(
      'gets nothing of the old one, which has ended, and a sign-in makes a new one: an entry of %s',
      async (_kind, auth) => {
        await using scene = await addScene(sb, { auth });
        await using next = await startAuthorizationServer();
        await scene.connect();
        expect((await scene.call()).status).toBe(200);
        const old = scene.issuer;
        scene.mcp.switches.authorizationServer = next;
        expect(await scene.call()).toMatchObject(ended('needs_reauth'));
        expect(refreshes(scene)).toEqual([]);
        expect([...next.sent('token'), ...next.sent('revoke')]).toEqual([]);
        await scene.connect();
        expect((await scene.call()).status).toBe(200);
        expect(next.sent('register')).toHaveLength(1);
        const atNext = next
          .all()
          .map(({ body, headers, path, query }) => JSON.stringify([body, headers, path, query]));
        for (const secret of old.secrets) expect(atNext.filter(text => text.includes(secret))).toEqual([]);
        for (const id of old.clients.keys()) expect(atNext.filter(text => text.includes(id))).toEqual([]);
      },
    );

    it('that cannot be read leaves the connection as it is', async () => {
      await using scene = await addScene(sb);
      await scene.connect();
      scene.issuer.expireAccessTokens();
      scene.mcp.faults.metadata = { status: 500 };
      expect((await scene.call()).status).toBe(200);
      expect(refreshes(scene)).toHaveLength(1);
    });
  });

  describe('revocation', () => {
    it('of the user ends a sign-in that is under way, and gives its tokens back', async () => {
      await using scene = await addScene(sb);
      const hold = scene.issuer.hold('token', 'after');
      const signingIn = scene.connect();
      await hold.arrived;
      expect((await sb.revoke(scene.user.id)).status).toBe(200);
      hold.release();
      const { page, session } = await signingIn;
      expect([page.status, session.status]).toEqual([400, 'error']);
      await expect.poll(() => scene.issuer.sent('revoke').length, { timeout: 10_000 }).toBeGreaterThan(0);
      expect((await echo(sb, scene.serverId, scene.user)).status).not.toBe(200);
    });

    it('is retried while the authorization server is away, and a server without an endpoint for it is no obstacle', async () => {
      await using scene = await addScene(sb, { issuer: { revocation: false } });
      await scene.connect();
      const end = () => sb.post('/v1/identity/revoke', { user_id: scene.user.id, server_id: scene.serverId });
      expect((await end()).status).toBe(200);
      expect((await scene.call()).json.reason).toBe('not_connected');
      await using other = await addScene(sb);
      await other.connect();
      expect((await other.call()).status).toBe(200);
      other.issuer.faults.revoke = { status: 503 };
      expect(
        (await sb.post('/v1/identity/revoke', { user_id: other.user.id, server_id: other.serverId })).status,
      ).toBe(200);
      await expect.poll(() => other.issuer.sent('revoke').length, { timeout: 10_000 }).toBeGreaterThan(0);
      expect((await other.call()).json.reason).toBe('not_connected');
      delete other.issuer.faults.revoke;
      await sb.elapse(10 * 60_000);
      const token = other.mcp.tokens()[0] ?? '';
      await expect
        .poll(() => other.issuer.introspect(token), { timeout: 30_000, interval: 200 })
        .toBeUndefined();
    });
  });
});
