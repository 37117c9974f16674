import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DATABASES, startMail, type MailUnderTest } from '../../support/identity.ts';
import type { AuthorisedServer } from '../../support/upstreams/authorised.ts';

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('a key that acts for one user', () => {
    let upstream: AuthorisedServer;
    let sb: MailUnderTest;
    let users = 0;
    beforeAll(async () => void ({ upstream } = sb = await startMail(kind)));
    afterAll(() => sb[Symbol.asyncDispose]());

    const create = (body: object) => sb.admin.request('POST', '/keys', { name: 'ide', ...body });
    /** A user with a connection, and a key that acts for it. */
    const userWithKey = async () => {
      const user = `keyed-${++users}`;
      const tokens = await sb.connect(user);
      const { json } = await create({ user_id: user });
      return { user, tokens, id: json.id as string, headers: { 'x-api-key': json.key as string } };
    };
    const call = (headers: Record<string, string>) => sb.echo('hi', headers);
    const search = (headers: Record<string, string>) => sb.post('/v1/search', { query: 'x' }, headers);

    it('calls a server that wants the user`s token, without a Bearer', async () => {
      const { headers } = await userWithKey();
      const from = upstream.inbox.all.length;
      const answer = await call(headers);
      expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('Echo: hi')]);
      const [sent] = new Set(upstream.inbox.all.slice(from).map(one => one.headers.authorization));
      expect((await sb.idp.introspect(sent?.replace('Bearer ', '') ?? '')).active).toBe(true);
      expect((await search(headers)).status).toBe(200);
    });

    it('for a user who has never been seen is told where that one connects', async () => {
      const { json } = await create({ user_id: `new-${kind}` });
      const answer = await call({ 'x-api-key': json.key });
      expect([answer.status, answer.json.code, answer.json.reason]).toEqual([
        403,
        'connection_required',
        'not_connected',
      ]);
    });

    it.each([
      ['POST', '/v1/identity/sessions', { user_id: 'u', provider: 'local' }],
      ['GET', '/v1/identity/sessions/ses_x', undefined],
      ['POST', '/v1/identity/token', { session_id: 'ses_x' }],
      ['POST', '/v1/identity/refresh', { refresh_token: 'sbr_x' }],
      ['POST', '/v1/identity/revoke', { user_id: 'u' }],
      ['GET', '/v1/identity/connections?user_id=u', undefined],
      ['POST', '/v1/identity/manage', { user_id: 'u' }],
    ])('is refused on %s %s', async (method, path, body) => {
      const { headers } = await userWithKey();
      const answer = await (method === 'GET' ? sb.get(path, headers) : sb.post(path, body, headers));
      expect([answer.status, answer.json.code]).toEqual([403, 'insufficient_scope']);
    });

    it('cannot be made with the scopes that act for others', async () => {
      for (const scope of ['identity', 'admin']) {
        const { status, json } = await create({ user_id: 'u', scopes: ['search', scope] });
        expect([status, json.detail]).toEqual([400, expect.stringContaining(`not ${scope}`)]);
      }
      expect((await create({ user_id: 'u' })).json.scopes).toEqual(['search', 'proxy']);
      expect((await create({})).json.scopes).toEqual(['search', 'proxy', 'identity']);
      expect((await create({ user_id: '' })).status).toBe(400);
      expect((await create({ user_id: 'a\u0000b' })).status).toBe(400);
    });

    it('beside the identity token of another user is 401; of its own user it works', async () => {
      const mine = await userWithKey();
      const other = await userWithKey();
      const beside = (tokens: { access_token: string }) => search({ ...mine.headers, ...sb.as(tokens) });
      expect((await beside(mine.tokens)).status).toBe(200);
      const refused = await beside(other.tokens);
      expect([refused.status, refused.json.code]).toEqual([401, 'identity_token_invalid']);
    });

    it('dies with its user`s access, on the very next request, and a successor with it', async () => {
      const { user, id, headers } = await userWithKey();
      const { json: rotated } = await sb.admin.request('POST', `/keys/${id}/rotate`, { overlap_sec: 3600 });
      const successor = { 'x-api-key': rotated.key as string };
      for (const one of [headers, successor])
        expect([(await call(one)).status, (await search(one)).status]).toEqual([200, 200]);
      expect((await sb.revoke(user)).status).toBe(200);
      for (const one of [headers, successor])
        expect([(await call(one)).status, (await search(one)).status]).toEqual([401, 401]);
      const { json } = await sb.admin.request('GET', '/keys');
      const states = json.keys
        .filter((key: { user: string }) => key.user === user)
        .map((key: { revoked_at: string | null }) => key.revoked_at);
      expect(states).toEqual([expect.any(String), expect.any(String)]);

      // A new sign-in does not bring it back.
      await sb.connect(user);
      await sb.elapse(3_000);
      expect((await call(headers)).status).toBe(401);
    });

    it('made again after a revocation works', async () => {
      const { user } = await userWithKey();
      await sb.revoke(user);
      await sb.connect(user);
      const { json } = await create({ user_id: user });
      expect((await call({ 'x-api-key': json.key })).status).toBe(200);
    });

    it('belongs to its tenant: the user of that name elsewhere is another', async () => {
      const user = `shared-${kind}`;
      await sb.connect(user);
      const { json } = await create({ user_id: user, tenant: 'other' });
      expect(json).toMatchObject({ tenant: 'other', user });
      expect((await call({ 'x-api-key': json.key })).json).toMatchObject({ reason: 'not_connected' });
      const { json: made } = await create({ tenant: `tenant-${kind}` });
      expect(made.tenant).toBe(`tenant-${kind}`);
      expect((await create({ tenant: 'Not A Tenant' })).status).toBe(400);
    });
  });
});
