import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { addEntry, echo, newUser, type User } from '../../support/authorization/scene.ts';
import { startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { startAuthorised, type AuthorisedServer } from '../../support/upstreams/authorised.ts';

const KEY = 'key-that-gives-more-0123456789';

describe('a server that does more for those with a key, and was found to be open', () => {
  let sb: IdentityUnderTest;
  let upstream: AuthorisedServer;
  let count = 0;
  let serverId: string;
  let nobody: User;

  beforeAll(async () => {
    sb = await startIdentity();
    upstream = await startAuthorised('modern');
  });
  afterAll(async () => {
    await sb?.[Symbol.asyncDispose]();
    await upstream?.[Symbol.asyncDispose]();
  });
  beforeEach(async () => {
    serverId = `optional-${++count}`;
    nobody = { id: '', headers: { 'x-api-key': sb.otherKey } };
    await addEntry(sb, serverId, upstream.url, null);
  });

  /** Calls the server, and returns what it got as Authorization. */
  const sent = async (user: User = { id: '', headers: {} }) => {
    expect((await echo(sb, serverId, user)).status).toBe(200);
    return upstream.inbox.all.at(-1)?.headers.authorization;
  };
  /** Makes a call without a key, and waits until the server is known to be open. */
  const callOpenly = async () => {
    expect(await sent(nobody)).toBeUndefined();
    await vi.waitFor(async () => {
      const { json } = await sb.admin.request('GET', `/catalogue/${serverId}`);
      expect(json.access.learned).toEqual({ kind: 'none' });
    }, 60_000);
  };
  const share = () =>
    sb.admin.request('PUT', '/connections', { server_id: serverId, values: { token: KEY } });
  const statusFor = async (headers: Readonly<Record<string, string>> = {}) => {
    const { json } = await sb.post('/v1/search', { query: serverId, limit: 20 }, headers);
    return json.servers.find(({ id }: { id: string }) => id === serverId)?.access.status;
  };

  it("goes on to get a tenant's key", async () => {
    expect((await share()).status).toBe(200);
    expect(await sent()).toBe(`Bearer ${KEY}`);
    await callOpenly();
    expect(await sent()).toBe(`Bearer ${KEY}`);
    expect([await statusFor(), await statusFor(nobody.headers)]).toEqual(['connected', 'open']);
  });

  it('takes a key, and a newer one', async () => {
    await callOpenly();
    for (const _time of [1, 2]) expect((await share()).status).toBe(200);
    expect(await sent()).toBe(`Bearer ${KEY}`);
  });

  it("goes on to get a user's key, while others call it without", async () => {
    const [one, other] = [await newUser(sb), await newUser(sb)];
    await callOpenly();
    const values = { token: `${KEY}-of-one` };
    const put = { user_id: one.id, server_id: serverId, values };
    expect((await sb.put('/v1/identity/connections', put)).status).toBe(200);
    expect(await sent(one)).toBe(`Bearer ${KEY}-of-one`);
    expect([await sent(other), await sent(nobody)]).toEqual([undefined, undefined]);
  });

  it('takes none where its entry says that it needs none', async () => {
    await addEntry(sb, serverId, upstream.url, { kind: 'none' });
    expect(await share()).toMatchObject({ status: 400, json: { code: 'invalid_request' } });
    expect(await sent()).toBeUndefined();
  });
});
