import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { scrape, sumOf } from '../../support/scrape.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';

const ECHOED = { content: [{ type: 'text', text: 'Echo: hello' }], isError: false };
/** Lifetime of the provider's access tokens; a token with less than a minute left is renewed before it is used. */
const TTL_SEC = 300;
const NEARLY_OVER_MS = (TTL_SEC - 30) * 1000;
const OVER_MS = (TTL_SEC + 1) * 1000;
const COOLDOWN_MS = 31_000;

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('a provider token that is over', () => {
    let legacy: AuthorisedServer;
    let modern: AuthorisedServer;
    let sb: IdentityUnderTest;
    beforeAll(async () => {
      [legacy, modern] = await Promise.all([startAuthorised('legacy'), startAuthorised('modern')]);
      sb = await startIdentity({
        database: kind,
        catalogue: [actingForUsers('legacy', legacy.url), actingForUsers('modern', modern.url)],
        allowedOrigins: [legacy.origin, modern.origin],
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
        idp: { accessTokenTtlSec: TTL_SEC },
      });
    });
    afterAll(async () => {
      await sb[Symbol.asyncDispose]();
      await Promise.all([legacy[Symbol.asyncDispose](), modern[Symbol.asyncDispose]()]);
    });

    const tool = (headers: Record<string, string>, server_id = 'legacy') =>
      sb.post('/v1/mcp/tools/call', { server_id, name: 'echo', arguments: { message: 'hello' } }, headers);
    const generic = (headers: Record<string, string>) =>
      sb.post('/v1/mcp/call', { server_id: 'legacy', method: 'tools/list', id: 7 }, headers);
    const refreshes = () => sb.idp.hits.token.refresh_token;

    let users = 0;
    const connected = async () => {
      const login = `refresh-${++users}`;
      return { login, headers: sb.as(await sb.connect(login)) };
    };
    /** Only what was called for this one: the inbox is everybody's. */
    const lastAuthorization = (upstream: AuthorisedServer) =>
      upstream.inbox.all.at(-1)?.headers.authorization;

    it('88: is renewed before it is used, once for fifty calls at a time, and old sessions go on with the new one', async () => {
      const { headers } = await connected();
      await tool(headers);
      const old = lastAuthorization(legacy);
      const from = { refreshes: refreshes(), initialize: legacy.inbox.count('initialize') };
      await sb.elapse(NEARLY_OVER_MS);
      const answers = await Promise.all(Array.from({ length: 50 }, () => tool(headers)));
      for (const answer of answers) expect(answer.json).toMatchObject(ECHOED);
      expect(refreshes()).toBe(from.refreshes + 1);
      const samples = await scrape(sb.url);
      expect(sumOf(samples, 'switchboard_provider_token_refreshes_total', { outcome: 'ok' })).toBe(1);
      const asked = { grant: 'session', outcome: 'ok' };
      expect(sumOf(samples, 'switchboard_identity_token_requests_total', asked)).toBe(1);
      expect(lastAuthorization(legacy)).not.toBe(old);
      expect(legacy.inbox.count('initialize')).toBe(from.initialize);
    });

    it('89: and whose grant is gone is 403 with where to sign in; the provider is not asked again', async () => {
      const { login, headers } = await connected();
      sb.idp.revokeEverythingOf(login);
      await sb.elapse(OVER_MS);
      const from = refreshes();
      const upstreamFrom = legacy.inbox.all.length;
      const first = await tool(headers);
      expect(first.status).toBe(403);
      expect(first.json).toMatchObject({
        code: 'connection_required',
        reason: 'needs_reauth',
        missing_scopes: [],
        auth_url: expect.any(String),
      });
      expect(refreshes()).toBe(from + 1);
      for (const again of [await tool(headers), await generic(headers)]) {
        expect(again.status).toBe(403);
        expect(again.json.session_id).toBe(first.json.session_id);
      }
      expect(refreshes()).toBe(from + 1);
      expect(legacy.inbox.all).toHaveLength(upstreamFrom);

      await sb.signIn(first.json.auth_url, { login });
      expect((await tool(headers)).json).toMatchObject(ECHOED);
    });

    it('90: and a provider that hangs are a 502 within seconds; it is left alone, and later the call works', async () => {
      const { headers } = await connected();
      await sb.elapse(OVER_MS);
      sb.idp.faults.token = { hang: true };
      const from = refreshes();
      const startedAt = performance.now();
      const answer = await tool(headers);
      expect(performance.now() - startedAt).toBeLessThan(20_000);
      expect(answer.status).toBe(502);
      expect(answer.json).toMatchObject({ code: 'provider_unavailable', retry_after: 30 });
      expect(answer.headers.get('retry-after')).toBe('30');

      const onGeneric = await generic(headers);
      expect(onGeneric.status).toBe(200);
      expect(onGeneric.json).toMatchObject({
        id: 7,
        error: { code: -32_000, data: { reason: 'provider_unavailable', retryable: true, retry_after: 30 } },
      });
      expect(refreshes()).toBe(from + 1);

      sb.idp.faults.token = {};
      await sb.elapse(COOLDOWN_MS);
      expect((await tool(headers)).json).toMatchObject(ECHOED);
      expect(refreshes()).toBe(from + 2);
    });

    it.each([
      ['an error', { status: 500 }],
      ['a web page', { html: true }],
      ['half an answer', { truncated: true }],
      ['no token', { omitAccessToken: true }],
    ])('90: %s from the provider: the old token is used while it holds', async (_what, fault) => {
      const { headers } = await connected();
      await tool(headers);
      const old = lastAuthorization(legacy);
      await sb.elapse(NEARLY_OVER_MS);
      sb.idp.faults.token = fault;
      try {
        expect((await tool(headers)).json).toMatchObject(ECHOED);
      } finally {
        sb.idp.faults.token = {};
      }
      expect(lastAuthorization(legacy)).toBe(old);
    });

    it('an answer with an id_token of another account is refused, and the user must sign in again', async () => {
      const { login, headers } = await connected();
      await tool(headers);
      await sb.elapse(NEARLY_OVER_MS);
      sb.idp.faults.token = { rewriteIdToken: 'other-sub' };
      const from = { refreshes: refreshes(), calls: legacy.inbox.count('tools/call') };
      const first = await tool(headers);
      sb.idp.faults.token = {};
      expect(first.json).toMatchObject({ code: 'connection_required', reason: 'needs_reauth' });
      expect((await tool(headers)).status).toBe(403);
      expect(refreshes()).toBe(from.refreshes + 1);
      expect(legacy.inbox.count('tools/call')).toBe(from.calls);
      const ended = await rows(
        sb.db,
        sql`select meta from audit_log where event = 'connection_needs_reauth' order by id desc limit 1`,
      );
      expect(ended).toMatchObject([{ meta: { provider: 'local', reason: 'other_account' } }]);

      await sb.signIn(first.json.auth_url, { login });
      expect((await tool(headers)).json).toMatchObject(ECHOED);
    });

    it('an answer without a new refresh token keeps the old one', async () => {
      const { headers } = await connected();
      sb.idp.faults.token = { omitRefreshToken: true };
      await sb.elapse(NEARLY_OVER_MS);
      const from = refreshes();
      expect((await tool(headers)).json).toMatchObject(ECHOED);
      sb.idp.faults.token = {};
      await sb.elapse(NEARLY_OVER_MS);
      const again = await tool(headers);
      expect(refreshes()).toBe(from + 2);
      // This provider rotates: the old one ends the grant. What matters is that it was offered.
      expect(again.json).toMatchObject({ code: 'connection_required', reason: 'needs_reauth' });
    });

    describe('because the server says so (401)', () => {
      it.each(['legacy', 'modern'] as const)('is renewed once, and the call works (%s)', async era => {
        const upstream = era === 'legacy' ? legacy : modern;
        const { headers } = await connected();
        await tool(headers, era);
        upstream.refuse(lastAuthorization(upstream));
        const from = { refreshes: refreshes(), calls: upstream.inbox.count('tools/call') };
        expect((await tool(headers, era)).json).toMatchObject(ECHOED);
        expect(refreshes()).toBe(from.refreshes + 1);
        expect(upstream.inbox.count('tools/call')).toBe(from.calls + 2);
      });

      it('of fifty calls at a time is renewed once', async () => {
        const { headers } = await connected();
        await tool(headers);
        legacy.refuse(lastAuthorization(legacy));
        const from = refreshes();
        const answers = await Promise.all(Array.from({ length: 50 }, () => tool(headers)));
        for (const answer of answers) expect(answer.json).toMatchObject(ECHOED);
        expect(refreshes()).toBe(from + 1);
      });

      it('and of whose grant nothing is left is 403 with where to sign in', async () => {
        const { login, headers } = await connected();
        await tool(headers);
        legacy.refuse(lastAuthorization(legacy));
        sb.idp.revokeEverythingOf(login);
        const answer = await tool(headers);
        expect(answer.status).toBe(403);
        expect(answer.json).toMatchObject({ code: 'connection_required', reason: 'needs_reauth' });
      });

      it('and which the provider cannot renew just now is not sent a second time', async () => {
        const { headers } = await connected();
        await tool(headers);
        legacy.refuse(lastAuthorization(legacy));
        sb.idp.faults.token = { status: 503 };
        const from = legacy.inbox.count('tools/call');
        try {
          const answer = await tool(headers);
          expect(answer.status).toBe(502);
          expect(answer.json).toMatchObject({ code: 'upstream_unauthorized' });
        } finally {
          sb.idp.faults.token = {};
        }
        expect(legacy.inbox.count('tools/call')).toBe(from + 1);
      });
    });
  });
});
