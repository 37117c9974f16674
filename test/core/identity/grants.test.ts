import { randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { eventually } from '../../support/processes.ts';
import { makeDataDir } from '../../support/data-dir.ts';
import { run, serve, temporaryFolder } from '../../support/program.ts';
import { startAuthorised } from '../../support/upstreams/authorised.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';

const MINUTE = 60_000;

describe.each(DATABASES)('grants at the provider on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('of one account', () => {
    let upstream: Awaited<ReturnType<typeof startAuthorised>>;
    let sb: IdentityUnderTest;
    beforeAll(async () => {
      upstream = await startAuthorised('modern');
      sb = await startIdentity({
        database: kind,
        allowedOrigins: [new URL(upstream.url).origin],
        catalogue: [{ id: 'up', remote_url: upstream.url, auth: { kind: 'user_oauth', provider: 'local' } }],
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
      });
    });
    afterAll(async () => {
      await sb[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    });

    const call = (tokens: { access_token: string }) =>
      sb.post('/v1/mcp/tools/list', { server_id: 'up' }, sb.as(tokens));
    const outboxIsEmpty = async () => (await rows(sb.db, sql`select id from revocation_outbox`)).length === 0;
    const isAlive = (token: string) => sb.idp.introspect(token).then(({ active }) => active);
    /** The access and refresh tokens given out while something was done. */
    const granted = async (work: () => Promise<unknown>) => {
      const before = new Set(sb.idp.secretsSeen);
      await work();
      const fresh = [...sb.idp.secretsSeen].filter(secret => !before.has(secret));
      const alive = await Promise.all(fresh.map(async secret => ((await isAlive(secret)) ? [secret] : [])));
      return alive.flat();
    };

    it('a revocation ends those of earlier sign-ins, too', async () => {
      const first = await granted(() => sb.connect('twice'));
      const second = await granted(() => sb.connect('twice'));
      expect([first.length, second.length]).toEqual([2, 2]);
      expect((await sb.revoke('twice')).status).toBe(200);
      await eventually('the outbox is empty', outboxIsEmpty);
      expect(await Promise.all([...first, ...second].map(isAlive))).toEqual([false, false, false, false]);
    });

    it('one that is still to be revoked does not end a connection made after it', async () => {
      await sb.connect('again');
      sb.idp.faults.revocation = { status: 500 };
      await sb.revoke('again');
      await eventually('the provider was told once', async () => sb.idp.hits.revocation > 0);
      const tokens = await sb.connect('again');
      sb.idp.faults.revocation = {};
      const told = sb.idp.hits.revocation;
      await sb.elapse(2 * MINUTE);
      await eventually('the outbox is empty', outboxIsEmpty);
      expect(sb.idp.hits.revocation).toBe(told);
      expect((await call(tokens)).status).toBe(200);
      await sb.revoke('again');
      await eventually('the outbox is empty', outboxIsEmpty);
      expect(sb.idp.hits.revocation).toBeGreaterThan(told + 2);
    });

    it('a provider refresh that a new sign-in overtakes goes on with the new tokens', async () => {
      sb.idp.accessTokenTtlSec = 1;
      const tokens = await sb.connect('overtaken');
      sb.idp.accessTokenTtlSec = 3600;
      await sb.elapse(MINUTE);
      const hold = sb.idp.hold('token', 'after');
      const pending = call(tokens);
      await hold.arrived;
      const again = sb.connect('overtaken');
      // The new sign-in's own exchange waits at the same gate.
      hold.release();
      await again;
      expect((await pending).status).toBe(200);
      expect((await call(tokens)).status).toBe(200);
    });

    it("tokens do not open as another provider's", async () => {
      const tokens = await sb.connect('moved');
      await sb.db.execute(
        sql`update connections set provider = 'other' where user_id = (select id from users where external_id = 'moved')`,
      );
      expect((await call(tokens)).json).toMatchObject({
        code: 'connection_required',
        reason: 'not_connected',
      });
      await sb.db.execute(
        sql`update connections set provider = 'local', resource = 'https://x.example' where user_id = (select id from users where external_id = 'moved')`,
      );
      await sb.db.execute(
        sql`update connections set resource = '', sealed = (select sealed from connections where user_id = (select id from users where external_id = 'overtaken')) where user_id = (select id from users where external_id = 'moved')`,
      );
      expect((await call(tokens)).json).toMatchObject({
        code: 'connection_required',
        reason: 'needs_reauth',
      });
    });

    it('one whose tokens do not open holds up neither its own revocation nor a sign-in that ends', async () => {
      const tokens = await sb.connect('damaged');
      const { json } = await sb.createSession('damaged', { mode: 'page' });
      await sb.db.execute(
        sql`update connections set sealed = 'k1:x' where user_id = (select id from users where external_id = 'damaged')`,
      );
      expect((await sb.revoke('damaged')).status).toBe(200);
      expect((await sb.poll(json.session_id)).json.error).toMatch(/^revoked: /);
      expect((await call(tokens)).status).toBe(401);
      expect((await sb.get('/v1/identity/connections?user_id=damaged')).json).toEqual({ connections: [] });
    });

    it('an answer kept for a repeated request is forgotten', async () => {
      const { refresh_token } = await sb.connect('replayed');
      await sb.refresh(refresh_token, { 'idempotency-key': 'k' });
      const kept = () => rows(sb.db, sql`select 1 from refresh_tokens where replay_sealed is not null`);
      expect(await kept()).toHaveLength(1);
      await sb.elapse(2 * MINUTE);
      await sb.admin.request('POST', '/vault/rewrap');
      expect(await kept()).toEqual([]);
    });
  });
});

describe('a lost vault key', () => {
  it('stops the start, and SWITCHBOARD_VAULT_RESET begins with a new one', async () => {
    await using folder = temporaryFolder();
    const kek = () => `k1:${randomBytes(32).toString('base64')}`;
    const env = {
      SWITCHBOARD_DATA_DIR: await makeDataDir(`${folder.path}/data`),
      SWITCHBOARD_CATALOGUE: 'test/support/one-server.jsonl',
    };
    await using first = await serve({ ...env, SWITCHBOARD_KEKS: kek() });
    await first.stop();
    const lost = { ...env, SWITCHBOARD_KEKS: kek() };
    const refused = await run(['keys', 'list'], lost);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toMatch(/SWITCHBOARD_KEKS: .*SWITCHBOARD_VAULT_RESET/);
    await using second = await serve({ ...lost, SWITCHBOARD_VAULT_RESET: 'lose-stored-tokens' });
    await second.stop();
    expect((await run(['keys', 'list'], lost)).stdout).toContain('first start');
  });
});
