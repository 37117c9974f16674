import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rows } from '../../../../src/platform/database/database.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../../support/identity.ts';
import { eventually } from '../../../support/processes.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../../support/upstreams/authorised.ts';
import { UserAgent } from '../../../support/user-agent.ts';
import {
  signaturesOf,
  startReceiver,
  type Delivery,
  type WebhookReceiver,
} from '../../../support/webhook-receiver.ts';

const KEY = 'key-of-alice-0123456789';
const TTL_SEC = 300;

describe.each(DATABASES)('on $name, the webhook of a tenant', ({ kind, skipped }) => {
  describe.skipIf(skipped)('', () => {
    let weather: AuthorisedServer;
    let mail: AuthorisedServer;
    let receiver: WebhookReceiver;
    let sb: IdentityUnderTest;
    let secret: string;
    const accepted = new Set<string>();
    let users = 0;
    let user: string;

    beforeAll(async () => {
      weather = await startAuthorised('modern', ({ 'x-api-key': key }) => accepted.has(String(key)));
      mail = await startAuthorised('legacy');
      receiver = await startReceiver();
      sb = await startIdentity({
        database: kind,
        catalogue: [
          {
            id: 'weather',
            remote_url: weather.url,
            auth: { kind: 'credentials', headers: [{ name: 'X-Api-Key', value: '{api_key}' }] },
          },
          actingForUsers('mail', mail.url),
        ],
        allowedOrigins: [mail.origin],
        idp: { accessTokenTtlSec: TTL_SEC },
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
      });
      const set = await sb.admin.request('PUT', '/tenants/local/webhook', { url: receiver.url });
      expect(set.status, JSON.stringify(set.json)).toBe(200);
      ({ secret } = set.json);
    });
    afterAll(async () => {
      await sb[Symbol.asyncDispose]();
      await Promise.all([weather, mail, receiver].map(one => one[Symbol.asyncDispose]()));
    });
    beforeEach(() => {
      accepted.clear();
      accepted.add(KEY);
      receiver.conduct = 204;
      user = `hook-${++users}`;
    });

    const ofUser = (name: string | null = user) =>
      receiver.all.filter(({ event }) => event.data.user_id === name);
    const types = (deliveries: readonly Delivery[]) => deliveries.map(({ event }) => event.type);
    /** What the receiver got about a user, in the order of the timestamps. */
    async function received(count: number, name: string | null = user): Promise<any[]> {
      await eventually(`${count} events`, () => ofUser(name).length >= count);
      const events = ofUser(name).map(({ event }) => event);
      expect(events, JSON.stringify(events)).toHaveLength(count);
      return events.toSorted((one, other) => (one.timestamp < other.timestamp ? -1 : 1));
    }
    const putKey = (apiKey = KEY) =>
      sb.put('/v1/identity/connections', {
        user_id: user,
        server_id: 'weather',
        values: { api_key: apiKey },
      });
    const echo = (serverId: string, headers: Record<string, string>) =>
      sb.post(
        '/v1/mcp/tools/call',
        { server_id: serverId, name: 'echo', arguments: { message: 'x' } },
        headers,
      );
    const waiting = async () =>
      (await rows<{ body: string }>(sb.db, sql`select body from webhook_outbox`)).map(({ body }) => body);

    it('gets connection.created, signed, when a user has signed in, and nothing but what it says', async () => {
      await sb.connect(user);
      const [created] = await received(1);
      const { json } = await sb.get(`/v1/identity/connections?user_id=${user}`);
      expect(created).toEqual({
        type: 'connection.created',
        timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        data: {
          connection_id: json.connections[0].id,
          user_id: user,
          kind: 'provider',
          provider: 'local',
          server_id: null,
        },
      });
      expect(Math.abs(Date.parse(created.timestamp) - Date.now())).toBeLessThan(60_000);
      const [delivery] = ofUser();
      if (!delivery) throw new Error('received above');
      expect(signaturesOf(delivery, secret)).toEqual([true]);
      expect(signaturesOf({ ...delivery, body: `${delivery.body} ` }, secret)).toEqual([false]);
      expect(signaturesOf({ ...delivery, id: 'evt_other' }, secret)).toEqual([false]);
      expect(delivery.headers).toMatchObject({
        'content-type': 'application/json',
        'webhook-id': expect.stringMatching(/^evt_\w{22}$/),
        'webhook-timestamp': expect.stringMatching(/^\d{10}$/),
      });
      await eventually('the outbox is empty', async () => (await waiting()).length === 0);
    });

    it('gets connection.created again, of the same connection, when the user signs in again', async () => {
      await sb.connect(user);
      await sb.connect(user);
      const events = await received(2);
      expect(events.map(({ type }) => type)).toEqual(['connection.created', 'connection.created']);
      expect(events[0].data.connection_id).toBe(events[1].data.connection_id);
    });

    it('gets connection.ended with who ended it: the app, the user, an undo, another account', async () => {
      await sb.connect(user);
      await sb.revoke(user);
      expect((await received(2))[1]).toMatchObject({
        type: 'connection.ended',
        data: { reason: 'revoked_by_app', provider: 'local', user_id: user },
      });

      user = `hook-${++users}`;
      await sb.connect(user);
      const { json } = await sb.post('/v1/identity/manage', { user_id: user });
      const agent = new UserAgent();
      const list = await agent.follow(await agent.submit(await agent.get(json.url)));
      await agent.follow(await agent.submit(list, { formIndex: 1 }));
      expect((await received(2))[1].data.reason).toBe('revoked_by_user');

      user = `hook-${++users}`;
      const session = await sb.createSession(user);
      const other = new UserAgent();
      const page = await sb.signIn(session.json.auth_url, { login: user, agent: other });
      await other.follow(await other.submit(page));
      expect((await received(2))[1].data.reason).toBe('undone');

      user = `hook-${++users}`;
      await sb.connect(user);
      await sb.connect(user, { login: `${user}-b`, session: { allow_account_change: true } });
      const [first, ...then] = await received(3);
      expect(then.map(({ type, data }) => [type, data.reason])).toEqual([
        ['connection.ended', 'replaced'],
        ['connection.created', undefined],
      ]);
      expect(then[0].data.connection_id).toBe(first.data.connection_id);
      expect(then[1].data.connection_id).not.toBe(first.data.connection_id);
    });

    it('gets connection.needs_reauth when the provider has ended the grant', async () => {
      const headers = sb.as(await sb.connect(user));
      sb.idp.revokeEverythingOf(user);
      await sb.elapse((TTL_SEC + 1) * 1000);
      expect((await echo('mail', headers)).status).toBe(403);
      expect((await echo('mail', headers)).status).toBe(403);
      expect((await received(2))[1]).toMatchObject({
        type: 'connection.needs_reauth',
        data: { reason: 'invalid_grant', provider: 'local', kind: 'provider' },
      });
    });

    it('gets connection.rejected once for a key that a server refuses, and again for the next key', async () => {
      const headers = sb.as(await sb.connect(user));
      expect((await putKey()).status).toBe(200);
      accepted.delete(KEY);
      expect((await echo('weather', headers)).json.reason).toBe('rejected');
      await sb.elapse(61_000);
      // Tried again, and refused again.
      const asked = weather.inbox.all.length;
      expect((await echo('weather', headers)).json.reason).toBe('rejected');
      expect(weather.inbox.all.length).toBeGreaterThan(asked);
      const events = await received(3);
      expect(
        events.slice(1).map(({ type, data }) => [type, data.kind, data.server_id, data.provider]),
      ).toEqual([
        ['connection.created', 'credentials', 'weather', null],
        ['connection.rejected', 'credentials', 'weather', null],
      ]);
      accepted.add(KEY);
      await putKey();
      accepted.delete(KEY);
      await echo('weather', headers);
      expect((await received(6)).slice(3).map(({ type, data }) => [type, data.reason])).toEqual([
        ['connection.ended', 'replaced'],
        ['connection.created', undefined],
        ['connection.rejected', undefined],
      ]);
    });

    it('gets a key entered on the page, and the ones that a tenant shares, without a user', async () => {
      const { json } = await sb.post('/v1/identity/sessions', { user_id: user, server_id: 'weather' });
      const agent = new UserAgent();
      await agent.submit(await agent.get(json.auth_url), { fields: { 'value.api_key': KEY } });
      expect((await received(1))[0]).toMatchObject({
        type: 'connection.created',
        data: { kind: 'credentials' },
      });

      const shared = { server_id: 'weather', values: { api_key: KEY } };
      expect((await sb.admin.request('PUT', '/connections', shared)).status).toBe(200);
      await sb.admin.request('POST', '/connections/revoke', { server_id: 'weather' });
      const events = await received(2, null);
      expect(events.map(({ type, data }) => [type, data.reason])).toEqual([
        ['connection.created', undefined],
        ['connection.ended', 'revoked_by_operator'],
      ]);
    });

    it('gets nothing of what was rolled back', async () => {
      const { json } = await sb.createSession(user);
      const callback = await sb.authorize(json.auth_url, { login: user });
      // The last statement of the transaction that makes the connection fails.
      await sb.db.execute(sql`alter table audit_log rename to audit_log_hidden`);
      const failed = await new UserAgent().get(callback);
      await sb.db.execute(sql`alter table audit_log_hidden rename to audit_log`);
      expect(failed.status).toBe(500);
      expect((await waiting()).filter(body => body.includes(user))).toEqual([]);
      await sb.connect(`${user}-next`);
      await received(1, `${user}-next`);
      expect(ofUser()).toEqual([]);
    });

    it('is that of its own tenant: another one`s connections are neither told nor recorded', async () => {
      await sb.put(
        '/v1/identity/connections',
        { user_id: user, server_id: 'weather', values: { api_key: KEY } },
        { 'x-api-key': sb.otherKey },
      );
      expect((await waiting()).filter(body => body.includes(user))).toEqual([]);
      await sb.connect(`${user}-next`);
      await received(1, `${user}-next`);
      expect(ofUser()).toEqual([]);
    });

    it('gets an event again, under the same id, until it has taken it', async () => {
      receiver.conduct = 500;
      await sb.connect(user);
      await eventually('a first attempt', () => ofUser().length === 1);
      expect(await waiting()).toHaveLength(1);
      receiver.conduct = 204;
      await sb.elapse(6_000);
      await eventually('a second attempt', () => ofUser().length === 2);
      await eventually('the outbox is empty', async () => (await waiting()).length === 0);
      const [first, second] = ofUser();
      expect(second?.id).toBe(first?.id);
      expect(second?.body).toBe(first?.body);
      expect(types(ofUser())).toEqual(['connection.created', 'connection.created']);
    });
  });
});
