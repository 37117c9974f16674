import { describe, expect, inject, it } from 'vitest';
import {
  installOwnSignIn,
  SERVER_ID,
  type Begun,
  type OwnSignInInstallation,
} from '../../support/authorization/installed.ts';
import { databasesOfRun } from '../../support/full-run.ts';
import { eventually, type Process } from '../../support/processes.ts';

const DATABASES = [
  { name: 'PGlite', onPostgres: false, skipped: false },
  { name: 'Postgres', onPostgres: true, skipped: inject('postgresUrl') === undefined },
] as const;

const USER = 'interrupted';

/** Whether the connection was cut before there was an answer. Asked at once, so that no rejection is left alone. */
const isCut = (reply: Promise<unknown>): Promise<boolean> =>
  reply.then(
    () => false,
    () => true,
  );

describe.each(databasesOfRun(DATABASES))(
  "kill -9 during servers' own sign-ins on $name",
  ({ onPostgres, skipped }) => {
    /** Makes the call or opens the page, and kills the process when the authorization server has come to that point. */
    async function killAt(
      own: OwnSignInInstallation,
      process: Process,
      [endpoint, when]: readonly ['register' | 'token' | 'revoke', 'before' | 'after'],
      act: () => Promise<unknown>,
    ): Promise<void> {
      const hold = own.issuer.hold(endpoint, when);
      const acting = isCut(act());
      await hold.arrived;
      await process.stop('SIGKILL');
      await acting;
      // What it had sent before is never answered.
      if (when === 'before') own.issuer.faults[endpoint] = 'hang';
      hold.release();
    }

    const repair = ({ issuer }: OwnSignInInstallation) => {
      for (const endpoint of ['register', 'token', 'revoke'] as const) delete issuer.faults[endpoint];
    };

    /** Connects the user, and calls. */
    async function expectConnects(own: OwnSignInInstallation, process: Process): Promise<void> {
      const tokens = await process.connect(USER);
      const page = await own.connect(process, tokens);
      expect(page.status, page.html).toBe(200);
      expect((await own.call(process, tokens)).status).toBe(200);
    }

    const rows = async ({ installation }: OwnSignInInstallation, query: string) => installation.sql(query);

    describe.skipIf(skipped)('while a client is being registered', () => {
      it.each(['before', 'after'] as const)(
        '%s the authorization server has made it: the next process takes over once the lease is over',
        async when => {
          await using own = await installOwnSignIn(onPostgres);
          const process = await own.installation.start();
          const tokens = await process.connect(USER);
          await killAt(own, process, ['register', when], () => own.call(process, tokens));
          const [left] = await rows(own, 'select client_id, lease_id from oauth_clients');
          expect(left).toMatchObject({ client_id: null });
          expect(left?.['lease_id']).not.toBeNull();
          await rows(own, `update oauth_clients set lease_until = now() - interval '1 s'`);
          repair(own);
          await expectConnects(own, await own.installation.start());
          expect(own.issuer.sent('register')).toHaveLength(2);
        },
      );
    });

    describe.skipIf(skipped)('while a code is being exchanged', () => {
      it.each(['before', 'after'] as const)(
        '%s the authorization server has seen it: interrupted after a minute, no half connection, and a new sign-in works',
        async when => {
          await using own = await installOwnSignIn(onPostgres);
          const process = await own.installation.start();
          const begun = await own.goTo(process, await process.connect(USER));
          await killAt(own, process, ['token', when], () => begun.agent.get(begun.callback));
          expect(await rows(own, `select id from connections where issuer is not null`)).toEqual([]);
          repair(own);
          await expectInterrupted(own, begun);
        },
      );
    });

    async function expectInterrupted(
      own: OwnSignInInstallation,
      { sessionId, callback }: Begun,
    ): Promise<void> {
      const after = await own.installation.start();
      expect((await after.poll(sessionId)).json).toEqual({ status: 'pending' });
      expect((await own.browserAt(() => after).get(callback)).status).toBe(400);
      await after.stop('SIGKILL');
      await rows(own, `update auth_sessions set claimed_at = claimed_at - interval '60 s'`);
      const process = await own.installation.start();
      const told = await process.poll(sessionId);
      expect([told.status, told.json.status]).toEqual([200, 'error']);
      expect(told.json.error).toMatch(/^interrupted: /);
      await expectConnects(own, process);
    }

    describe.skipIf(skipped)('while tokens are being refreshed', () => {
      async function expired(own: OwnSignInInstallation) {
        const process = await own.installation.start();
        own.issuer.switches.expiresIn = 1;
        const tokens = await process.connect(USER);
        await own.connect(process, tokens);
        own.issuer.switches.expiresIn = 3600;
        return { process, tokens };
      }
      const LEASE_OVER = `update connections set lease_until = now() - interval '1 s' where lease_id is not null`;

      it('before the authorization server has seen it: the next process refreshes', async () => {
        await using own = await installOwnSignIn(onPostgres);
        const { process, tokens } = await expired(own);
        await killAt(own, process, ['token', 'before'], () => own.call(process, tokens));
        await rows(own, LEASE_OVER);
        repair(own);
        const next = await own.installation.start();
        expect((await own.call(next, tokens)).status).toBe(200);
      });

      it('after it was answered: the used token ends the connection, and the user can sign in again', async () => {
        await using own = await installOwnSignIn(onPostgres);
        const { process, tokens } = await expired(own);
        await killAt(own, process, ['token', 'after'], () => own.call(process, tokens));
        await rows(own, LEASE_OVER);
        const next = await own.installation.start();
        const asked = await own.call(next, tokens);
        expect(asked.json).toMatchObject({ code: 'connection_required', reason: 'needs_reauth' });
        const page = await own.connect(next, tokens);
        expect(page.status, page.html).toBe(200);
        expect((await own.call(next, tokens)).status).toBe(200);
      });
    });

    describe.skipIf(skipped)('while scopes are being added', () => {
      it('what was there goes on', async () => {
        await using own = await installOwnSignIn(onPostgres);
        const process = await own.installation.start();
        const tokens = await process.connect(USER);
        await own.connect(process, tokens);
        own.mcp.switches.scopes = { 'tools/call': ['write'] };
        const begun = await own.goTo(process, tokens);
        await killAt(own, process, ['token', 'after'], () => begun.agent.get(begun.callback));
        own.mcp.switches.scopes = {};
        const next = await own.installation.start();
        expect((await own.call(next, tokens)).status).toBe(200);
      });
    });

    describe.skipIf(skipped)('while tokens are being revoked', () => {
      it('before the authorization server has seen it: the next process does it', async () => {
        await using own = await installOwnSignIn(onPostgres);
        const process = await own.installation.start();
        const tokens = await process.connect(USER);
        await own.connect(process, tokens);
        expect((await own.call(process, tokens)).status).toBe(200);
        const [token = ''] = own.mcp.tokens();
        await killAt(own, process, ['revoke', 'before'], () =>
          process.post('/v1/identity/revoke', { user_id: USER, server_id: SERVER_ID }),
        );
        expect(own.issuer.introspect(token)).toBeDefined();
        await rows(own, `update revocation_outbox set next_at = now() - interval '1 s'`);
        repair(own);
        const next = await own.installation.start();
        await eventually('the token is revoked', () => own.issuer.introspect(token) === undefined);
        expect((await own.call(next, tokens)).json.code).toBe('connection_required');
      });
    });
  },
);
