import { sql } from 'drizzle-orm';
import { beforeEach, describe, expect, it } from 'vitest';
import { oauthClients } from '../../../src/core/identity/schema.ts';
import { addEntry, addScene, echo, type Scene } from '../../support/authorization/scene.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

const SECRET = 'secret-by-hand-0123456789';

describe.each(DATABASES)('on $name: an OAuth app that the operator enters', ({ kind, skipped }) => {
  beforeEach(ctx => {
    if (skipped) ctx.skip();
  });
  const start = () => startIdentity({ database: kind, env: { SWITCHBOARD_RATE_LIMIT: 'off' } });

  const setup = async (sb: IdentityUnderTest) => (await sb.admin.request('GET', '/setup')).json;
  const enter = (sb: IdentityUnderTest, scene: Scene, more: object = {}) =>
    sb.admin.request('PUT', '/setup/oauth-clients', {
      issuer: scene.issuer.issuer,
      client_id: 'by-hand',
      client_secret: SECRET,
      ...more,
    });
  const accessOf = async (sb: IdentityUnderTest, { serverId }: Scene) =>
    (await sb.admin.request('GET', `/catalogue/${serverId}`)).json.access.status;

  it('takes a server from setup_needed to a call, without a restart', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none' } });
    expect((await scene.call()).json.code).toBe('operator_setup_needed');
    expect(await accessOf(sb, scene)).toBe('setup_needed');
    const { oauth_needed: needed } = await setup(sb);
    expect(needed).toMatchObject([
      { issuer: scene.issuer.issuer, count: 1, servers: [scene.serverId], origins: [scene.mcp.origin] },
    ]);

    scene.issuer.preregister({
      client_id: 'by-hand',
      client_secret: SECRET,
      redirect_uris: [needed[0].redirect_uri],
    });
    const entered = await enter(sb, scene, { scopes: ['extra'] });
    expect(entered).toMatchObject({ status: 200, json: { redirect_uri: needed[0].redirect_uri } });
    expect(await accessOf(sb, scene)).toBe('connect');
    const after = await setup(sb);
    expect(after.oauth_needed).toEqual([]);
    expect(after.oauth_clients).toMatchObject([
      { issuer: scene.issuer.issuer, source: 'entered', client_id: 'by-hand', servers: 1 },
    ]);
    const { page, session } = await scene.connect();
    expect(session.status, page.html).toBe('complete');
    expect((await scene.call()).status).toBe(200);
    expect(scene.issuer.sent('authorize').at(-1)?.query['scope']).toContain('extra');
    expect(scene.issuer.sent('register')).toEqual([]);
    expect([JSON.stringify(after), sb.logged(), page.html].join('\n')).not.toContain(SECRET);
    const [record] = (await sb.admin.request('GET', '/audit?event=oauth_client_entered')).json.audit;
    expect(record.details).toEqual({ issuer: scene.issuer.issuer });
  });

  it('comes before a registration, and tokens of an earlier client stay valid', async () => {
    await using sb = await start();
    await using scene = await addScene(sb);
    await scene.connect();
    const { oauth_clients: clients } = await setup(sb);
    expect(clients).toMatchObject([{ source: 'registered' }]);
    scene.issuer.preregister({
      client_id: 'by-hand',
      client_secret: SECRET,
      redirect_uris: [clients[0].redirect_uri],
    });
    await enter(sb, scene);
    scene.issuer.expireAccessTokens();
    expect((await scene.call()).status).toBe(200);
    await using other = await addScene(sb, { issuer: scene.issuer });
    await other.connect();
    expect(scene.issuer.sent('authorize').at(-1)?.query['client_id']).toBe('by-hand');
  });

  it('once removed is used for no more sign-ins, while accounts stay connected', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none' } });
    await scene.call();
    const { oauth_needed: needed } = await setup(sb);
    scene.issuer.preregister({
      client_id: 'by-hand',
      client_secret: SECRET,
      redirect_uris: [needed[0].redirect_uri],
    });
    await enter(sb, scene);
    await scene.connect();
    const remove = () =>
      sb.admin.request('POST', '/setup/oauth-clients/remove', { issuer: scene.issuer.issuer });
    expect((await remove()).json).toEqual({ removed: true });
    expect((await remove()).json).toEqual({ removed: false });
    scene.issuer.expireAccessTokens();
    expect((await scene.call()).status).toBe(200);
    await addEntry(sb, 'later', `${scene.mcp.url}?later`);
    expect((await echo(sb, 'later', scene.user)).json.code).toBe('operator_setup_needed');
  });

  it('is not used for a server of another domain, unless its origin is listed', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none', host: 'localhost' } });
    await enter(sb, scene);
    expect(await scene.call()).toMatchObject({ status: 403, json: { code: 'operator_setup_needed' } });
    await enter(sb, scene, { allowed_origins: [scene.mcp.origin] });
    expect((await scene.call()).json.code).toBe('connection_required');
    expect((await setup(sb)).oauth_clients).toMatchObject([{ allowed_origins: [scene.mcp.origin] }]);
  });

  it('keeps what a change of it does not name, as long as its id stays', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none' } });
    const shown = async () => (await setup(sb)).oauth_clients[0];
    const more = { token_auth_method: 'client_secret_post', scopes: ['extra'] };
    await enter(sb, scene, { ...more, allowed_origins: [scene.mcp.origin] });
    const before = await shown();
    expect(before).toMatchObject({ ...more, has_secret: true, allowed_origins: [scene.mcp.origin] });
    const changed = (fields: object) => enter(sb, scene, { client_secret: undefined, ...fields });
    await changed({ allowed_origins: [] });
    expect(await shown()).toMatchObject({ ...more, has_secret: true, allowed_origins: [] });
    scene.issuer.preregister({
      client_id: 'by-hand',
      client_secret: SECRET,
      token_endpoint_auth_method: 'client_secret_post',
      redirect_uris: [before.redirect_uri],
    });
    expect((await scene.connect()).session.status).toBe('complete');
    await changed({ client_secret: null, token_auth_method: null });
    expect(await shown()).toMatchObject({ has_secret: false, token_auth_method: null, scopes: ['extra'] });
    await enter(sb, scene);
    await changed({ client_id: 'another' });
    expect(await shown()).toMatchObject({ client_id: 'another', has_secret: false, scopes: [] });
  });

  it('is stored however many enter one at once', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none' } });
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, at) => enter(sb, scene, { client_id: `by-${at}` })),
    );
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect((await setup(sb)).oauth_clients).toHaveLength(1);
  });

  it('is neither shown nor used once PUBLIC_URL has changed', async () => {
    await using sb = await start();
    await using scene = await addScene(sb, { issuer: { registration: 'none' } });
    await enter(sb, scene);
    // The row of an installation that had another PUBLIC_URL.
    await sb.db
      .update(oauthClients)
      .set({ redirectUri: sql`replace(redirect_uri, ${sb.url}, 'https://before.example')` });
    expect((await setup(sb)).oauth_clients).toEqual([]);
    await enter(sb, scene, { client_id: 'now' });
    expect((await setup(sb)).oauth_clients).toMatchObject([{ client_id: 'now' }]);
  });

  it('is refused where it is not one', async () => {
    await using sb = await start();
    await using scene = await addScene(sb);
    for (const more of [
      { issuer: 'ftp://x.example' },
      { issuer: 'https://x.example/\0' },
      { issuer: 'no url' },
      { issuer: 'https://user:secret@x.example' },
      { issuer: 'https://x.example/?key=secret' },
      { issuer: 'https://x.example/#secret' },
      { client_id: '' },
      { client_id: 'a\0' },
      { token_auth_method: 'private_key_jwt' },
      { scopes: ['two words'] },
      { allowed_origins: ['https://x.example/path'] },
      { more: 1 },
    ])
      expect((await enter(sb, scene, more)).status, JSON.stringify(more)).toBe(400);
    expect((await setup(sb)).oauth_clients).toEqual([]);
  });
});
