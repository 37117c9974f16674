import { describe, expect, it } from 'vitest';
import { sql } from 'drizzle-orm';
import { rows } from '../../../src/platform/database/database.ts';
import { addEntry, addScene, echo, newUser, type Scene } from '../../support/authorization/scene.ts';
import { startProtectedServer } from '../../support/authorization/protected.ts';
import { startAuthorizationServer } from '../../support/authorization/server.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

describe.each(DATABASES)("on $name: links to servers' own sign-ins", database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  /** Returns the states of the sessions with a scene's server. */
  const statesOf = async ({ serverId }: Scene) => {
    const found = await rows<{ state: string }>(
      sb.db,
      sql`select coalesce(error_code, status) as state from auth_sessions where provider = ${`server:${serverId}`} order by created_at`,
    );
    return found.map(({ state }) => state);
  };
  /** Makes the server demand this scope of every request. */
  const demand = ({ mcp }: Scene, scope: string) => {
    const names = ['initialize', 'server/discover', 'tools/list', 'tools/call'];
    mcp.switches.scopes = Object.fromEntries(names.map(name => [name, [scope]]));
  };

  describe('whose scopes change', () => {
    it('are replaced: the older one is over, and its app is told', async () => {
      await using scene = await addScene(sb, { auth: null });
      demand(scene, 'one');
      const older = (await scene.call()).json;
      demand(scene, 'two');
      const newer = (await scene.call()).json;
      expect(newer.auth_url).not.toBe(older.auth_url);
      expect((await new UserAgent().get(older.auth_url)).status).toBe(400);
      expect((await sb.poll(older.session_id)).json).toEqual({
        status: 'error',
        error: expect.stringMatching(/^replaced: /),
      });
      expect((await new UserAgent().connect(newer.auth_url)).html).toContain('Connected');
    });

    it('with every call are few, one at a time, and the last one works', async () => {
      await using scene = await addScene(sb, { auth: null });
      const links = new Set<string>();
      for (let i = 0; i < 20; i++) {
        demand(scene, `scope-${i}`);
        const { status, json } = await scene.call();
        expect([status, json.code]).toEqual([403, 'connection_required']);
        links.add(json.auth_url);
      }
      expect(await statesOf(scene)).toEqual(['replaced', 'replaced', 'pending']);
      expect((await new UserAgent().connect([...links].at(-1) ?? '')).status).toBe(200);
      await sb.elapse(60_000);
      expect((await scene.call()).json.missing).toEqual(['scope-19']);
    });

    it('stay while the user is signing in, whatever calls need meanwhile', async () => {
      await using scene = await addScene(sb, { auth: null });
      demand(scene, 'one');
      const { json } = await scene.call();
      const agent = new UserAgent();
      const back = await agent.open(json.auth_url);
      demand(scene, 'two');
      expect((await scene.call()).json.auth_url).toBe(json.auth_url);
      expect((await agent.follow(await agent.get(back))).html).toContain('Connected');
      expect((await scene.call()).json).toMatchObject({ reason: 'missing_scopes', missing: ['two'] });
    });
  });

  describe('of an entry that names another authorization server', () => {
    it('lead there', async () => {
      await using scene = await addScene(sb);
      await using next = await startAuthorizationServer();
      const older = (await scene.call()).json;
      const agent = new UserAgent();
      await agent.open(older.auth_url);
      scene.mcp.switches.authorizationServer = next;
      await addEntry(sb, scene.serverId, scene.mcp.url, { issuer: next.issuer });
      const { page } = await scene.connect();
      expect(page.html).toContain('Connected');
      expect(next.sent('authorize')).toHaveLength(1);
      expect(await statesOf(scene)).toEqual(['replaced', 'complete']);
    });

    it('with every call are limited, and no link of the other one is given out', async () => {
      await using scene = await addScene(sb);
      await using next = await startAuthorizationServer();
      const codes: string[] = [];
      for (let i = 0; i < 5; i++) {
        const now = i % 2 === 0 ? next : scene.issuer;
        scene.mcp.switches.authorizationServer = now;
        await addEntry(sb, scene.serverId, scene.mcp.url, { issuer: now.issuer });
        codes.push((await scene.call()).json.code);
      }
      const required = 'connection_required';
      expect(codes).toEqual([required, required, required, 'rate_limited', required]);
      expect(await statesOf(scene)).toEqual(['replaced', 'replaced', 'pending']);
    });
  });

  it('that calls for one user ask for are limited', async () => {
    await using scene = await addScene(sb, { auth: { kind: 'credentials' } });
    const statuses: number[] = [];
    for (let i = 0; i < 31; i++) {
      await addEntry(sb, `many-${i}`, scene.mcp.url, { kind: 'credentials' });
      statuses.push((await echo(sb, `many-${i}`, scene.user)).status);
    }
    expect(statuses).toEqual([...Array.from({ length: 30 }, () => 403), 429]);
    expect((await echo(sb, 'many-0', scene.user)).status).toBe(403);
    expect((await scene.call(await newUser(sb))).status).toBe(403);
    await sb.elapse(60_000);
    expect((await echo(sb, 'many-30', scene.user)).status).toBe(403);
  });

  describe('to a server that moves while the user signs in', () => {
    it.each(['to another address', 'out of the catalogue'])(
      '%s fail, and give the tokens back',
      async where => {
        await using scene = await addScene(sb);
        const { json } = await scene.call();
        const agent = new UserAgent();
        const back = await agent.open(json.auth_url);
        await using moved = await startProtectedServer({ authorizationServer: scene.issuer });
        if (where === 'to another address') await addEntry(sb, scene.serverId, moved.url);
        else await sb.admin.request('POST', `/catalogue/${scene.serverId}/deactivate`, {});
        const page = await agent.follow(await agent.get(back));
        expect([page.status, page.html]).toEqual([400, expect.stringContaining('the server has moved')]);
        const polled = (await sb.poll(json.session_id)).json;
        expect(polled).toEqual({ status: 'error', error: expect.stringMatching(/^server_moved: /) });
        await expect.poll(() => scene.issuer.sent('revoke').length, { timeout: 10_000 }).toBeGreaterThan(0);
        const left = await sb.get(`/v1/identity/connections?user_id=${scene.user.id}`);
        expect(left.json.connections).toEqual([]);
      },
    );
  });
});
