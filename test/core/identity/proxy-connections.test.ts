import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import {
  actingForUsers,
  startAuthorised,
  type AuthorisedServer,
} from '../../support/upstreams/authorised.ts';

const ECHOED = { content: [{ type: 'text', text: 'Echo: hello' }], isError: false };

describe.each(DATABASES)('on $name', ({ kind, skipped }) => {
  describe.skipIf(skipped)('a call for a user', () => {
    let upstream: AuthorisedServer;
    let sb: IdentityUnderTest;
    beforeAll(async () => {
      upstream = await startAuthorised('legacy');
      sb = await startIdentity({
        database: kind,
        catalogue: [
          actingForUsers('plain', upstream.url),
          actingForUsers('calendar', upstream.url, { scopes: ['calendar.read', 'calendar.write'] }),
          actingForUsers('unconfigured', upstream.url, { provider: 'nobody' }),
          { id: 'open', remote_url: upstream.url },
        ],
        allowedOrigins: [upstream.origin],
        env: { SWITCHBOARD_RATE_LIMIT: 'off' },
      });
    });
    afterAll(async () => {
      await sb[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    });

    const tool = (server_id: string, headers?: Record<string, string>) =>
      sb.post('/v1/mcp/tools/call', { server_id, name: 'echo', arguments: { message: 'hello' } }, headers);
    const generic = (server_id: string, headers?: Record<string, string>) =>
      sb.post('/v1/mcp/call', { server_id, method: 'tools/list', id: 'mine' }, headers);
    const list = (server_id: string, headers?: Record<string, string>) =>
      sb.post('/v1/mcp/tools/list', { server_id }, headers);
    const calls = { 'tools/call': tool, 'tools/list': list, 'the generic call': generic };

    let users = 0;
    const newUser = () => `connections-${++users}`;
    /** A user whose identity token holds, and who has connected nothing. */
    const withoutConnection = async (user = newUser()) => {
      const headers = sb.as(await sb.connect(user));
      const { status } = await sb.post('/v1/identity/revoke', { user_id: user, provider: 'local' });
      expect(status).toBe(200);
      return headers;
    };
    const nothingUpstream = async <T>(act: () => Promise<T>): Promise<T> => {
      const from = upstream.inbox.all.length;
      const result = await act();
      expect(upstream.inbox.all.slice(from)).toEqual([]);
      return result;
    };

    describe.each(Object.entries(calls))('%s', (name, call) => {
      it('without an identity token is 401 that says which token is missing', async () => {
        const answer = await nothingUpstream(() => call('plain'));
        expect(answer.status).toBe(401);
        expect(answer.headers.get('www-authenticate')).toBe(
          'Bearer realm="switchboard", error="invalid_token"',
        );
        expect(answer.json).toMatchObject({ code: 'identity_token_required', error: expect.anything() });
        const { detail } = answer.json;
        expect(detail ?? answer.json.error.message).toContain('switchboard keys create --user');
      });

      it.each(['Bearer nonsense', 'Basic dXNlcjpwYXNz', 'Bearer', 'nonsense'])(
        'with %s is 401, also where no token is needed',
        async authorization => {
          for (const server of ['plain', 'open']) {
            const answer = await nothingUpstream(() => call(server, { authorization }));
            expect(answer.status).toBe(401);
            expect(answer.headers.get('www-authenticate')).toBe(
              'Bearer realm="switchboard", error="invalid_token"',
            );
            expect(answer.json).toMatchObject({ code: 'identity_token_invalid' });
          }
        },
      );

      it('84: after a revocation is 401 on the very next call, also where no token is needed', async () => {
        const user = newUser();
        const headers = sb.as(await sb.connect(user));
        expect((await call('plain', headers)).status).toBe(200);
        expect((await sb.revoke(user)).status).toBe(200);
        for (const server of ['plain', 'open']) {
          const answer = await nothingUpstream(() => call(server, headers));
          expect(answer.status).toBe(401);
          expect(answer.headers.get('www-authenticate')).toBe(
            'Bearer realm="switchboard", error="invalid_token"',
          );
          expect(answer.json).toMatchObject({ code: 'identity_token_invalid' });
        }
      });

      it('without a connection is 403 with where to sign in', async () => {
        const headers = await withoutConnection();
        const { status, json } = await nothingUpstream(() => call('plain', headers));
        expect(status).toBe(403);
        const members = {
          provider: 'local',
          reason: 'not_connected',
          missing_scopes: [],
          session_id: expect.stringMatching(/^ses_/),
          auth_url: expect.stringContaining(sb.idp.issuer),
          expires_at: expect.any(String),
        };
        expect(json).toMatchObject({ code: 'connection_required', ...members });
        if (name !== 'the generic call') return;
        expect(json).toMatchObject({
          jsonrpc: '2.0',
          id: 'mine',
          error: {
            code: -32_000,
            data: { ...members, origin: 'switchboard', retryable: false, reason: 'connection_required' },
          },
        });
      });

      it('for a provider that is not configured is 503 that names the operator`s setting', async () => {
        const headers = sb.as(await sb.connect(newUser()));
        const { status, json } = await nothingUpstream(() => call('unconfigured', headers));
        expect(status).toBe(503);
        expect(json).toMatchObject({
          code: 'provider_not_configured',
          detail: expect.stringContaining('SWITCHBOARD_PROVIDERS'),
        });
      });
    });

    it('works with the same token once the user has signed in at the auth_url, and the session can be polled', async () => {
      const user = newUser();
      const headers = await withoutConnection(user);
      const refused = await tool('plain', headers);
      await sb.signIn(refused.json.auth_url, { login: user });
      expect((await sb.poll(refused.json.session_id)).json).toEqual({ status: 'complete' });
      expect((await tool('plain', headers)).json).toMatchObject(ECHOED);
    });

    it('fifty failing calls at a time get one and the same session', async () => {
      const headers = await withoutConnection();
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, at) => (at % 2 === 0 ? tool : generic)('plain', headers)),
      );
      expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([403]));
      expect(new Set(answers.map(({ json }) => json.session_id)).size).toBe(1);
      expect(new Set(answers.map(({ json }) => json.auth_url)).size).toBe(1);
      const other = await tool('plain', await withoutConnection());
      expect(other.json.session_id).not.toBe(answers[0]?.json.session_id);
    });

    it('a session that is nearly over is not given out again', async () => {
      const headers = await withoutConnection();
      const first = await tool('plain', headers);
      await sb.elapse(235_000);
      expect((await tool('plain', headers)).json.session_id).toBe(first.json.session_id);
      await sb.elapse(6_000);
      expect((await tool('plain', headers)).json.session_id).not.toBe(first.json.session_id);
    });

    it('does not use up the sessions a user may ask for in a minute', async () => {
      const user = newUser();
      const headers = await withoutConnection(user);
      for (let at = 0; at < 12; at++) await tool(at % 2 === 0 ? 'plain' : 'calendar', headers);
      expect((await sb.createSession(user)).status).toBe(200);
    });

    describe('missing scopes', () => {
      it('are listed, and granted by one more sign-in that leaves the connection in place until then', async () => {
        const user = newUser();
        const headers = sb.as(await sb.connect(user, { session: { scopes: ['calendar.read'] } }));
        const connectionsOf = async () =>
          rows<{ id: string; status: string; scopes: string[] }>(
            sb.db,
            sql`select c.id, c.status, to_json(c.scopes) as scopes from connections c join users u on u.id = c.user_id where u.external_id = ${user}`,
          );
        const [before] = await connectionsOf();
        const refused = await nothingUpstream(() => tool('calendar', headers));
        expect(refused.status).toBe(403);
        expect(refused.json).toMatchObject({
          code: 'connection_required',
          reason: 'missing_scopes',
          missing_scopes: ['calendar.write'],
        });
        const asked = new URL(refused.json.auth_url).searchParams.get('scope')?.split(' ');
        expect(asked).toEqual(
          expect.arrayContaining(['openid', 'email', 'offline_access', 'calendar.read', 'calendar.write']),
        );
        expect((await tool('plain', headers)).json).toMatchObject(ECHOED);

        await sb.signIn(refused.json.auth_url, { login: user });
        expect((await tool('calendar', headers)).json).toMatchObject(ECHOED);
        expect((await tool('plain', headers)).json).toMatchObject(ECHOED);
        const after = await connectionsOf();
        expect(after).toHaveLength(1);
        expect(after[0]).toMatchObject({ id: before?.id, status: 'active' });
      });

      it('that the user refuses leave the connection as it was', async () => {
        const user = newUser();
        const headers = sb.as(await sb.connect(user));
        const refused = await tool('calendar', headers);
        expect(refused.json.missing_scopes).toEqual(['calendar.read', 'calendar.write']);
        await sb.signIn(refused.json.auth_url, { login: user, deny: true });
        expect((await sb.poll(refused.json.session_id)).json).toMatchObject({ status: 'error' });
        expect((await tool('plain', headers)).json).toMatchObject(ECHOED);
        expect((await tool('calendar', headers)).json.session_id).not.toBe(refused.json.session_id);
      });
    });
  });
});
