import { describe, expect, it } from 'vitest';
import { addScene, echo, newUser, type Scene, type User } from '../../support/authorization/scene.ts';
import { DATABASES, useIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { parallel, statusesOf } from '../../support/processes.ts';
import { UserAgent } from '../../support/user-agent.ts';

const NOBODY: User = { id: '', headers: {} };

describe.each(DATABASES)('on $name: a sign-in that a tenant shares', database => {
  let sb: IdentityUnderTest;
  useIdentity(database, started => (sb = started));

  const begin = async ({ serverId }: Scene, more: object = {}) => {
    const { status, json } = await sb.admin.request('POST', '/connections/session', {
      server_id: serverId,
      ...more,
    });
    expect([status, json.kind]).toEqual([200, 'oauth']);
    return json as { auth_url: string; session_id: string };
  };
  const share = async (scene: Scene, more: object = {}) => {
    const { auth_url } = await begin(scene, more);
    const page = await new UserAgent().connect(auth_url);
    expect(page.status, page.html).toBe(200);
  };
  const asNobody = ({ serverId }: Scene) => echo(sb, serverId, NOBODY);

  it('is for calls that act for no user, and for users only where the operator says so', async () => {
    await using scene = await addScene(sb);
    expect((await asNobody(scene)).json.code).toBe('connection_required');
    await share(scene);
    expect((await asNobody(scene)).status).toBe(200);
    expect((await scene.call()).json.code).toBe('connection_required');
    expect(
      (await echo(sb, scene.serverId, { id: '', headers: { 'x-api-key': sb.otherKey } })).json.code,
    ).toBe('connection_required');
    await share(scene, { for_users: true });
    expect((await scene.call()).status).toBe(200);
    const [, shared = ''] = scene.mcp.tokens();
    const own = await sb.post('/v1/identity/sessions', { user_id: scene.user.id, server_id: scene.serverId });
    await new UserAgent().connect(own.json.auth_url);
    expect((await scene.call()).status).toBe(200);
    expect(scene.mcp.tokens().at(-1)).not.toBe(shared);
    expect((await asNobody(scene)).status).toBe(200);
    const listed = await sb.admin.request('GET', '/connections');
    expect(listed.json.connections).toContainEqual(
      expect.objectContaining({ server_id: scene.serverId, kind: 'oauth', issuer: scene.issuer.issuer }),
    );
  });

  it('is refreshed once for all calls, and ends with its revocation', async () => {
    await using scene = await addScene(sb);
    await share(scene);
    await sb.elapse(3_600_000);
    expect(statusesOf(await parallel(20, () => asNobody(scene)))).toEqual({ 200: 20 });
    const grants = scene.issuer.sent('token').map(({ fields }) => fields['grant_type']);
    expect(grants).toEqual(['authorization_code', 'refresh_token']);
    const ended = await sb.admin.request('POST', '/connections/revoke', { server_id: scene.serverId });
    expect(ended.json).toEqual({ ended: true });
    expect((await asNobody(scene)).json).toMatchObject({
      code: 'connection_required',
      reason: 'not_connected',
    });
    await expect.poll(() => scene.issuer.sent('revoke').length, { timeout: 10_000 }).toBeGreaterThan(0);
  });

  it('that lacks scopes says so to whoever calls, and is widened by the operator', async () => {
    await using scene = await addScene(sb, { mcp: { scopes: { 'tools/call': ['write'] } } });
    await share(scene);
    const refused = await asNobody(scene);
    expect(refused.json).toMatchObject({
      code: 'connection_required',
      reason: 'missing_scopes',
      missing: ['write'],
    });
    expect(refused.json).not.toHaveProperty('auth_url');
    await share(scene, { scopes: ['write'] });
    expect((await asNobody(scene)).status).toBe(200);
  });

  it('is not taken from everybody by one user whose call is refused', async () => {
    await using scene = await addScene(sb, { issuer: { refresh: 'none' } });
    await share(scene, { for_users: true });
    expect((await scene.call()).status).toBe(200);
    scene.mcp.switches.refusesTokens = () => ({ status: 401 });
    expect((await scene.call()).json.code).toBe('upstream_unauthorized');
    scene.mcp.switches.refusesTokens = undefined;
    expect((await asNobody(scene)).status).toBe(200);
    expect((await scene.call(await newUser(sb))).status).toBe(200);
  });

  it('begins at an authorization server of another domain, too: the operator vouches for it', async () => {
    await using scene = await addScene(sb, { issuer: { host: 'localhost' } });
    expect((await scene.call()).json.code).toBe('operator_setup_needed');
    const { auth_url } = await begin(scene);
    const link = await new UserAgent().get(auth_url);
    expect(link.html).toContain('belongs to another domain than the server');
    await share(scene);
    expect((await asNobody(scene)).status).toBe(200);
  });
});
