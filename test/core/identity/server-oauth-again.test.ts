import { describe, expect, it } from 'vitest';
import { addScene, type Scene } from '../../support/authorization/scene.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent, type Page } from '../../support/user-agent.ts';
import { startReceiver } from '../../support/webhook-receiver.ts';

describe.each(DATABASES)('on $name: a later sign-in at the same server', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  const signInAgain = async ({ user, serverId }: Scene): Promise<Page> => {
    const { json } = await sb.post('/v1/identity/sessions', { user_id: user.id, server_id: serverId });
    const page = await new UserAgent().connect(json.auth_url);
    expect(page.html).toContain('Connected');
    return page;
  };
  const connectionsOf = async (userId: string) =>
    (await sb.get(`/v1/identity/connections?user_id=${userId}`)).json.connections;
  const isLive = ({ issuer }: Scene, token: string) => issuer.introspect(token) !== undefined;

  it('goes on in no session that was opened before, which may be of another account; a refresh does', async () => {
    await using scene = await addScene(sb, { mcp: { era: 'legacy' } });
    await scene.connect();
    expect((await scene.call()).status).toBe(200);
    scene.issuer.expireAccessTokens();
    expect((await scene.call()).status).toBe(200);
    await signInAgain(scene);
    expect((await scene.call()).status).toBe(200);
    const used = new Map<string, Set<string | undefined>>();
    for (const { headers } of scene.mcp.inbox.all) {
      const id = headers['mcp-session-id'];
      if (id !== undefined)
        used.set(String(id), (used.get(String(id)) ?? new Set()).add(headers.authorization));
    }
    expect([...used.values()].map(tokens => tokens.size)).toEqual([2, 1]);
  });

  it('is not ended by the undo of the first, which is not offered any more', async () => {
    await using scene = await addScene(sb);
    const agent = new UserAgent();
    const { page: first } = await scene.connect(scene.user, agent);
    const second = await signInAgain(scene);
    expect((await agent.get(first.url)).html).not.toContain('Undo');
    const refused = await agent.follow(await agent.submit(first));
    expect([refused.status, refused.html]).toEqual([400, expect.stringContaining('a later sign-in')]);
    expect((await scene.call()).status).toBe(200);
    expect(await connectionsOf(scene.user.id)).toMatchObject([{ status: 'active' }]);

    await agent.follow(await agent.submit(second));
    expect(await connectionsOf(scene.user.id)).toEqual([]);
  });

  it('at an identity provider is not ended by the undo of the first either', async () => {
    const user = 'signs-in-twice';
    const pages: Page[] = [];
    for (const _time of [1, 2]) {
      const { json } = await sb.createSession(user);
      pages.push(await sb.signIn(json.auth_url));
    }
    const agent = new UserAgent();
    for (const [done, page] of pages.entries()) {
      await agent.follow(await agent.submit(page));
      expect(await connectionsOf(user)).toHaveLength(1 - done);
    }
  });

  it('leaves no token behind: those of thirteen sign-ins live while it does, and are revoked with it', async () => {
    await using scene = await addScene(sb);
    await scene.connect();
    for (let i = 0; i < 12; i++) {
      await sb.elapse(10_000);
      await signInAgain(scene);
    }
    const tokens = [...scene.issuer.secrets].filter(token => isLive(scene, token));
    expect(tokens.length).toBeGreaterThanOrEqual(13);
    expect(scene.issuer.sent('revoke')).toEqual([]);
    await sb.post('/v1/identity/revoke', { user_id: scene.user.id, server_id: scene.serverId });
    await expect
      .poll(() => tokens.filter(token => isLive(scene, token)), { timeout: 20_000, interval: 100 })
      .toEqual([]);
  });

  it('whose token the server refuses is told to the app, also where a refresh has failed that day', async () => {
    await using hook = await startReceiver();
    await sb.admin.request('PUT', '/tenants/local/webhook', { url: hook.url });
    await using scene = await addScene(sb);
    await scene.connect();
    scene.issuer.faults.token = { status: 503 };
    await sb.elapse(3_570_000);
    expect((await scene.call()).status).toBe(200);
    delete scene.issuer.faults.token;
    await sb.elapse(60_000);
    scene.mcp.switches.refusesTokens = () => ({ status: 401, headers: { 'www-authenticate': 'Bearer' } });
    const rejected = () => hook.all.filter(({ event }) => event.type === 'connection.rejected');
    for (let minute = 0; minute < 3; minute++) {
      expect((await scene.call()).json.reason).toBe('rejected');
      await sb.elapse(61_000);
    }
    await expect.poll(() => rejected().length, { timeout: 20_000, interval: 50 }).toBe(1);
    await sb.admin.request('POST', '/tenants/local/webhook/remove', {});
  });
});
