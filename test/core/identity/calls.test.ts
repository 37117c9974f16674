import { asc, eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { users } from '../../../src/core/access/schema.ts';
import { MAX_OF_USER, UserCalls } from '../../../src/core/identity/calls.ts';
import { userCalls } from '../../../src/core/identity/schema.ts';
import { createLog } from '../../../src/platform/telemetry/log.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { startAuthorised, type AuthorisedServer } from '../../support/upstreams/authorised.ts';

const MINUTE = 60_000;
const DAY = 86_400_000;

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('the calls of a user', () => {
    let sb: IdentityUnderTest;
    let plain: AuthorisedServer;
    let count = 0;

    beforeAll(async () => {
      plain = await startAuthorised('legacy');
      sb = await startIdentity({
        database: kind,
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
        catalogue: [
          { id: 'plain', remote_url: plain.url },
          { id: 'keyed', remote_url: plain.url, auth: { kind: 'credentials' } },
          { id: 'gone', remote_url: 'http://127.0.0.1:9/mcp' },
        ],
      });
    });
    afterAll(async () => {
      await sb[Symbol.asyncDispose]();
      await plain[Symbol.asyncDispose]();
    });

    /** A user with a key, and the headers of calls with it. */
    async function newUser() {
      const user = `user-${++count}`;
      const made = await sb.admin.request('POST', '/keys', { name: 'ide', user_id: user });
      const [row] = await sb.db.select().from(users).where(eq(users.externalId, user));
      const headers = { 'x-api-key': made.json.key as string };
      return { user, id: row?.id ?? '', epoch: row?.tokenEpoch ?? 0, keyId: made.json.id as string, headers };
    }
    const stored = (userId: string) =>
      sb.db
        .select()
        .from(userCalls)
        .where(eq(userCalls.userId, userId))
        .orderBy(asc(userCalls.serverId), asc(userCalls.tool));
    /** The rows, once there are so many. */
    const rowsOf = (userId: string, wanted: number) =>
      vi.waitUntil(
        async () => {
          const found = await stored(userId);
          return found.length === wanted && found;
        },
        { timeout: 20_000 },
      );
    const callTool = (headers: Record<string, string>, server: string, name: string, args: object = {}) =>
      sb.post('/v1/mcp/tools/call', { server_id: server, name, arguments: args }, headers);

    it('are recorded with their outcome, without what was sent, and not at all without a user', async () => {
      const { id, keyId, headers } = await newUser();
      await callTool(headers, 'plain', 'echo', { message: 'canary-argument' });
      await callTool(headers, 'plain', 'nothing-of-the-kind');
      await callTool(headers, 'keyed', 'echo', { message: 'canary-argument' });
      await callTool(headers, 'gone', 'echo', { message: 'canary-argument' });
      await sb.post('/v1/mcp/call', { server_id: 'plain', id: 1, method: 'ping' }, headers);
      await sb.post('/v1/mcp/tools/list', { server_id: 'plain' }, headers);
      const found = await rowsOf(id, 4);
      expect(found.map(({ serverId, tool, outcome }) => [serverId, tool, outcome])).toEqual([
        ['gone', 'echo', 'failed'],
        ['keyed', 'echo', 'not_connected'],
        ['plain', 'echo', 'worked'],
        ['plain', 'nothing-of-the-kind', 'failed'],
      ]);
      expect(new Set(found.map(row => row.keyId))).toEqual(new Set([keyId]));
      const before = await sb.db.$count(userCalls);
      await callTool({}, 'plain', 'echo', { message: 'canary-argument' });
      await callTool(headers, 'plain', 'later', {});
      await rowsOf(id, 5);
      expect(await sb.db.$count(userCalls)).toBe(before + 1);
      expect(JSON.stringify(await sb.db.select().from(userCalls))).not.toContain('canary');
    });

    it('through the pass-through are recorded as answered, by the tool that they name', async () => {
      const { id, headers } = await newUser();
      const pass = (server: string, method: string, params: object, session?: string | null) =>
        sb.post(
          `/mcp/${server}`,
          { jsonrpc: '2.0', id: 1, method, params },
          {
            ...headers,
            accept: 'application/json, text/event-stream',
            ...(session ? { 'mcp-session-id': session } : {}),
          },
        );
      const client = {
        protocolVersion: '2025-11-25',
        capabilities: {},
        clientInfo: { name: 'test', version: '1' },
      };
      const opened = await pass('plain', 'initialize', client);
      const session = opened.headers.get('mcp-session-id');
      expect((await pass('plain', 'tools/list', {}, session)).status).toBe(200);
      const params = { arguments: { message: 'hello', name: 'not this' }, name: 'echo' };
      expect((await pass('plain', 'tools/call', params, session)).status).toBe(200);
      expect((await pass('keyed', 'initialize', client)).status).toBe(403);
      // A batch is noted also with one message, so that nothing can be hidden in one.
      const batch = [{ jsonrpc: '2.0', id: 2, method: 'tools/call', params }];
      await sb.post('/mcp/plain', batch, { ...headers, accept: 'application/json, text/event-stream' });
      expect(await rowsOf(id, 3)).toMatchObject([
        { serverId: 'keyed', tool: 'initialize', outcome: 'not_connected' },
        { serverId: 'plain', tool: 'echo', outcome: 'answered' },
        { serverId: 'plain', tool: 'several requests' },
      ]);
    });

    /** A recorder of its own, whose writes happen when they are waited for. */
    function recorder() {
      const calls = new UserCalls({ db: sb.db, clock: { now: () => sb.now() }, log: createLog('silent') });
      return { calls, [Symbol.asyncDispose]: () => calls.close() };
    }
    const ended = (
      user: { readonly id: string; readonly epoch: number; readonly keyId: string },
      tool: string,
    ) => ({
      subject: { userId: user.id, epoch: user.epoch },
      keyId: user.keyId,
      serverId: 'plain',
      tool,
      outcome: 'worked' as const,
    });

    it('are one row for equal calls of a minute, and the newest hundred rows of a user are shown and kept', async () => {
      await using recording = recorder();
      const { calls } = recording;
      const user = await newUser();
      for (let at = 0; at < 1_000; at++) calls.record(ended(user, 'same'));
      const listed = await calls.list(user.id);
      expect(listed.reduce((sum, { times }) => sum + times, 0)).toBe(1_000);
      expect(listed.length).toBeLessThanOrEqual(2);
      expect(listed[0]?.asker).toEqual({ keyId: user.keyId, keyName: 'ide', kind: 'own' });

      for (let at = 0; at < 10_000; at++) calls.record(ended(user, `tool-${at}`));
      expect(await calls.list(user.id)).toHaveLength(MAX_OF_USER);
      await sb.elapse(MINUTE);
      calls.record(ended(user, 'last'));
      await calls.list(user.id);
      expect((await stored(user.id)).length).toBeLessThanOrEqual(MAX_OF_USER + 1);
    });

    // On PGlite, a transaction has the whole database.
    it.skipIf(kind === 'pglite')('are written while another process has locked older ones', async () => {
      await using recording = recorder();
      const { calls } = recording;
      const user = await newUser();
      for (let at = 0; at < 200; at++) calls.record(ended(user, `tool-${at}`));
      await calls.list(user.id);
      await sb.elapse(MINUTE);
      await sb.db.transaction(async tx => {
        await tx.select().from(userCalls).where(eq(userCalls.userId, user.id)).for('update');
        calls.record(ended(user, 'last'));
        expect((await calls.list(user.id))[0]?.tool).toBe('last');
      });
      expect(await stored(user.id)).toHaveLength(201);
    });

    it('with any name are stored', async () => {
      await using recording = recorder();
      const user = await newUser();
      const names = ['\0', '\ud800', '"\'`\\', '漢'.repeat(1_000), "'); drop table users; --", ''];
      for (const name of names) recording.calls.record(ended(user, name));
      const listed = await recording.calls.list(user.id);
      expect(listed.reduce((sum, { times }) => sum + times, 0)).toBe(names.length);
    });

    it('end with a revocation, also those that are written after it', async () => {
      await using recording = recorder();
      const { calls } = recording;
      const [user, other] = [await newUser(), await newUser()];
      for (const one of [user, other]) calls.record(ended(one, 'early'));
      await calls.list(user.id);
      calls.record(ended(user, 'late'));
      expect((await sb.revoke(user.user)).status).toBe(200);
      calls.record(ended(user, 'later'));
      expect(await calls.list(user.id)).toEqual([]);
      expect(await calls.list(other.id)).toHaveLength(1);
    });

    it('are written by two processes at once without loss', async () => {
      await using one = recorder();
      await using other = recorder();
      const all = [await newUser(), await newUser(), await newUser()];
      for (let round = 0; round < 10; round++) {
        for (const { calls } of [one, other])
          for (const user of round % 2 === 0 ? all : all.toReversed()) calls.record(ended(user, 'same'));
        await Promise.all(all.flatMap(({ id }) => [one.calls.list(id), other.calls.list(id)]));
      }
      for (const { id } of all) {
        const [found] = await sb.db
          .select({ times: sql<number>`sum(${userCalls.times})::int` })
          .from(userCalls)
          .where(eq(userCalls.userId, id));
        expect(found?.times).toBe(20);
      }
    });

    it('are deleted after thirty days', async () => {
      await using recording = recorder();
      const { calls } = recording;
      const user = await newUser();
      calls.record(ended(user, 'old'));
      await calls.list(user.id);
      expect(await calls.purge()).toBe(0);
      await sb.elapse(31 * DAY);
      expect(await calls.list(user.id)).toEqual([]);
      await calls.purge();
      expect(await stored(user.id)).toEqual([]);
    });
  });
});
