import { existsSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';
import { describe, expect, inject, it } from 'vitest';
import { databasesOfRun } from '../../support/full-run.ts';
import type { TokenSet } from '../../support/identity.ts';
import { startPostgres } from '../../support/postgres-server.ts';
import {
  eventually,
  install,
  installOnPostgres,
  parallel,
  statusesOf,
  type Installation,
  type Process,
} from '../../support/processes.ts';
import { scrape, sumOf } from '../../support/scrape.ts';

const WITHOUT_POSTGRES = inject('postgresUrl') === undefined;

const DATABASES = [
  { name: 'PGlite', open: () => install(), skipped: false },
  { name: 'Postgres', open: () => installOnPostgres(), skipped: WITHOUT_POSTGRES },
] as const;

/** Whether the connection was cut before there was an answer. Asked at once, so that no rejection is left alone. */
const isCut = (reply: Promise<unknown>): Promise<boolean> =>
  reply.then(
    () => false,
    () => true,
  );

/** Killed and started again. An embedded database takes our statements only in between; so both do. */
async function restart(installation: Installation, running: Process, statements?: string): Promise<Process> {
  await running.stop('SIGKILL');
  if (statements !== undefined) await installation.sql(statements);
  return installation.start();
}

const count = async (installation: Installation, table: string) =>
  Number((await installation.sql(`select count(*)::int as count from ${table}`))[0]?.['count']);

async function signedIn(installation: Installation, process: Process, userId: string) {
  const { session_id, auth_url } = await process.createSession(userId);
  return { sessionId: session_id, callback: await installation.authorize(auth_url, userId) };
}

/** The kill leaves a claim; the user is told so a minute after it, once, and can start anew. */
async function expectInterrupted(
  installation: Installation,
  afterKill: Process,
  { sessionId, callback }: { sessionId: string; callback: string },
): Promise<void> {
  expect((await afterKill.poll(sessionId)).json).toEqual({ status: 'pending' });
  expect((await afterKill.callback(callback)).status).toBe(400);
  const process = await restart(
    installation,
    afterKill,
    `update auth_sessions set claimed_at = claimed_at - interval '60 s'`,
  );
  const told = await process.poll(sessionId);
  expect([told.status, told.json.status]).toEqual([200, 'error']);
  expect(told.json.error).toMatch(/^interrupted: /);
  expect((await process.poll(sessionId)).status).toBe(410);
  const token = await process.token(sessionId);
  expect([token.status, token.json.error]).toEqual([400, 'invalid_grant']);
  expect((await process.callback(callback)).status).toBe(400);
  const tokens = await process.connect('interrupted');
  expect((await process.callTool(tokens)).status).toBe(200);
  await process.stop('SIGKILL');
  expect(await count(installation, 'connections')).toBe(1);
}

describe.each(databasesOfRun(DATABASES))('kill -9 on $name', ({ open, skipped }) => {
  describe.skipIf(skipped)('during a sign-in', () => {
    it('50: between claim and exchange: interrupted after a minute, and a new session works', async () => {
      await using installation = await open();
      const { idp } = installation;
      const process = await installation.start();
      const session = await signedIn(installation, process, 'interrupted');
      const hold = idp.hold('token', 'before');
      const cut = isCut(process.callback(session.callback));
      await hold.arrived;
      await process.stop('SIGKILL');
      expect(await cut).toBe(true);
      // The provider never sees the code.
      idp.faults.token = { hang: true };
      hold.release();
      const restarted = await installation.start();
      idp.faults.token = {};
      await expectInterrupted(installation, restarted, session);
    });

    it('51: after the exchange was answered, before it is stored: the same, and no half connection', async () => {
      await using installation = await open();
      const process = await installation.start();
      const session = await signedIn(installation, process, 'interrupted');
      const hold = installation.idp.hold('token', 'after');
      const cut = isCut(process.callback(session.callback));
      await hold.arrived;
      await process.stop('SIGKILL');
      expect(await cut).toBe(true);
      hold.release();
      expect(await count(installation, 'connections')).toBe(0);
      await expectInterrupted(installation, await installation.start(), session);
    });
  });

  describe.skipIf(skipped)('during the confirmation by the app', () => {
    it('52: before the code is exchanged: interrupted after a minute, and nothing is connected', async () => {
      await using installation = await open();
      const { idp } = installation;
      const process = await installation.start();
      const return_url = 'https://app.example/connected';
      expect((await process.command('tenant', 'set', '--return-url', return_url)).code).toBe(0);
      const { json } = await process.post('/v1/identity/sessions', {
        user_id: 'interrupted',
        provider: 'local',
        mode: 'caller',
        return_url,
      });
      const callback = await installation.authorize(json.auth_url, 'interrupted');
      const back = new URL((await process.callback(callback)).headers.get('location') ?? '');
      const code = back.searchParams.get('code');
      const confirm = (to: Process) =>
        to.post(`/v1/identity/sessions/${json.session_id}/confirm`, { code, user_id: 'interrupted' });
      const hold = idp.hold('token', 'before');
      const cut = isCut(confirm(process));
      await hold.arrived;
      await process.stop('SIGKILL');
      expect(await cut).toBe(true);
      idp.faults.token = { hang: true };
      hold.release();
      const restarted = await installation.start();
      idp.faults.token = {};
      const again = await confirm(restarted);
      expect([again.status, again.json.error]).toEqual([400, 'invalid_grant']);
      await expectInterrupted(installation, restarted, { sessionId: json.session_id, callback });
    });
  });

  describe.skipIf(skipped)('during a refresh', () => {
    it('72: after the commit, before the answer is read: the Idempotency-Key gets it again', async () => {
      await using installation = await open();
      const process = await installation.start();
      const { refresh_token } = await process.connect('lost-answer');
      await headOfAnswer(installation, process, refresh_token, 'retry-72');
      const restarted = await restart(installation, process);
      const [again, andAgain] = [
        await restarted.refresh(refresh_token, { 'idempotency-key': 'retry-72' }),
        await restarted.refresh(refresh_token, { 'idempotency-key': 'retry-72' }),
      ];
      expect(again.status, again.text).toBe(200);
      expect(andAgain.json).toEqual(again.json);
      expect((await restarted.callTool(again.json)).status).toBe(200);
      expect((await restarted.refresh(again.json.refresh_token)).status).toBe(200);
    });
  });

  describe.skipIf(skipped)('during the refresh of a provider token', () => {
    async function expired(installation: Installation): Promise<{ process: Process; tokens: TokenSet }> {
      const { idp } = installation;
      const process = await installation.start();
      idp.accessTokenTtlSec = 1;
      const tokens = await process.connect('refreshing');
      idp.accessTokenTtlSec = 3600;
      return { process, tokens };
    }
    const LEASE_OVER = `update connections set lease_until = now() - interval '1 s'`;

    it('91: before the provider saw it: the next process takes over once the lease is over', async () => {
      await using installation = await open();
      const { idp } = installation;
      const { process, tokens } = await expired(installation);
      const hold = idp.hold('token', 'before');
      const cut = isCut(process.callTool(tokens));
      await hold.arrived;
      await process.stop('SIGKILL');
      expect(await cut).toBe(true);
      idp.faults.token = { hang: true };
      hold.release();
      expect((await installation.sql('select lease_id from connections'))[0]?.['lease_id']).not.toBeNull();
      await installation.sql(LEASE_OVER);
      const next = await installation.start();
      idp.faults.token = {};
      const before = idp.hits.token.refresh_token;
      expect(statusesOf(await parallel(10, () => next.callTool(tokens)))).toEqual({ 200: 10 });
      expect(idp.hits.token.refresh_token - before).toBe(1);
      await next.stop('SIGKILL');
      expect(await installation.sql('select status, version, lease_id from connections')).toEqual([
        { status: 'active', version: 2, lease_id: null },
      ]);
    });

    it('91: after the provider answered: needs_reauth, and the provider is asked once, not for ever', async () => {
      await using installation = await open();
      const { idp } = installation;
      const { process, tokens } = await expired(installation);
      const hold = idp.hold('token', 'after');
      const cut = isCut(process.callTool(tokens));
      await hold.arrived;
      await process.stop('SIGKILL');
      expect(await cut).toBe(true);
      hold.release();
      await installation.sql(LEASE_OVER);
      const next = await installation.start();
      const before = idp.hits.token.refresh_token;
      const replies = [
        ...(await parallel(10, () => next.callTool(tokens))),
        ...(await parallel(10, () => next.callTool(tokens))),
      ];
      expect(statusesOf(replies)).toEqual({ 403: 20 });
      for (const { json } of replies) {
        expect(json).toMatchObject({
          code: 'connection_required',
          reason: 'needs_reauth',
          provider: 'local',
        });
        expect(json.auth_url).toContain(idp.issuer);
      }
      expect(idp.hits.token.refresh_token - before).toBe(1);
      await next.stop('SIGKILL');
      expect(await installation.sql('select status, sealed from connections')).toEqual([
        { status: 'needs_reauth', sealed: null },
      ]);
    });
  });
});

describe('kill -9 within a transaction on PGlite', () => {
  it('72: before the commit: the refresh token still works', async () => {
    await using installation = await install();
    const { refresh_token } = await (async () => {
      const process = await installation.start();
      const tokens = await process.connect('uncommitted');
      await process.stop('SIGKILL');
      return tokens;
    })();
    await installation.sql(STALL_EMBEDDED);
    const process = await installation.start();
    const cut = isCut(process.refresh(refresh_token));
    await eventually('the transaction is at its insert', () =>
      existsSync(path.join(installation.dataDir, 'pglite', 'stalled')),
    );
    await process.stop('SIGKILL');
    expect(await cut).toBe(true);
    await installation.sql('drop trigger stall on refresh_tokens');
    const restarted = await installation.start();
    const { status, json } = await restarted.refresh(refresh_token);
    expect(status).toBe(200);
    expect((await restarted.callTool(json)).status).toBe(200);
  });
});

/** The insert says in a file that it was reached, and never ends. */
const STALL_EMBEDDED = `
create function stall() returns trigger language plpgsql as $$
begin
  execute format('copy (select 1) to %L', current_setting('data_directory') || '/stalled');
  loop null; end loop;
end $$;
create trigger stall after insert on refresh_tokens for each row execute function stall()`;

describe.skipIf(WITHOUT_POSTGRES)('kill -9 within a transaction on Postgres', () => {
  it('51: while the connection is being stored: interrupted, and no half connection', async () => {
    await using installation = await installOnPostgres();
    const process = await installation.start();
    const session = await signedIn(installation, process, 'interrupted');
    await using gate = await closeGate(installation.databaseUrl, 'connections', 'insert');
    const cut = isCut(process.callback(session.callback));
    await gate.reached();
    await process.stop('SIGKILL');
    expect(await cut).toBe(true);
    await gate.open();
    expect(await count(installation, 'connections')).toBe(0);
    await expectInterrupted(installation, await installation.start(), session);
  });

  it('51: at the commit itself: complete, whole, and redeemable', async () => {
    await using installation = await installOnPostgres();
    const process = await installation.start();
    const session = await signedIn(installation, process, 'committed');
    await using gate = await closeGate(installation.databaseUrl, 'connections', 'commit');
    const cut = isCut(process.callback(session.callback));
    await gate.reached();
    await process.stop('SIGKILL');
    expect(await cut).toBe(true);
    await gate.open();
    const restarted = await installation.start();
    expect((await restarted.poll(session.sessionId)).json).toEqual({ status: 'complete' });
    const tokens = await restarted.token(session.sessionId);
    expect((await restarted.callTool(tokens.json)).status).toBe(200);
  });

  it('72: before the commit: the refresh token still works', async () => {
    await using installation = await installOnPostgres();
    const process = await installation.start();
    const { refresh_token } = await process.connect('uncommitted');
    await using gate = await closeGate(installation.databaseUrl, 'refresh_tokens', 'insert');
    const cut = isCut(process.refresh(refresh_token));
    await gate.reached();
    await process.stop('SIGKILL');
    expect(await cut).toBe(true);
    await gate.open();
    const restarted = await installation.start();
    const { status, json } = await restarted.refresh(refresh_token);
    expect(status).toBe(200);
    expect((await restarted.callTool(json)).status).toBe(200);
  });

  it('72: at the commit itself: the Idempotency-Key recovers, and without it nobody gets tokens', async () => {
    await using installation = await installOnPostgres({ env: { SWITCHBOARD_REFRESH_RACE_MS: '60000' } });
    const process = await installation.start();
    const { refresh_token } = await process.connect('committed');
    await using gate = await closeGate(installation.databaseUrl, 'refresh_tokens', 'commit');
    const cut = isCut(process.refresh(refresh_token, { 'idempotency-key': 'retry-72' }));
    await gate.reached();
    await process.stop('SIGKILL');
    expect(await cut).toBe(true);
    await gate.open();
    const restarted = await installation.start();
    const refused = await restarted.refresh(refresh_token);
    expect([refused.status, refused.json.error]).toEqual([400, 'invalid_grant']);
    const recovered = await restarted.refresh(refresh_token, { 'idempotency-key': 'retry-72' });
    expect(recovered.status).toBe(200);
    expect((await restarted.callTool(recovered.json)).status).toBe(200);
    expect((await restarted.refresh(recovered.json.refresh_token)).status).toBe(200);
  });
});

describe.skipIf(WITHOUT_POSTGRES)('73: the database goes away', () => {
  it('every call is 503 with Retry-After, never 400, and the refresh token works when it is back', async () => {
    await using server = await startPostgres({ fsync: false });
    await using database = await server.createDatabase();
    await using installation = await install({ databaseUrl: database.url });
    const process = await installation.start();
    const tokens = await process.connect('outage');
    const open = await process.createSession('outage');

    await server.stop();
    const replies = [
      ...(await parallel(20, () => process.refresh(tokens.refresh_token))),
      await process.refresh(tokens.refresh_token, { 'idempotency-key': 'retry-73' }),
      await process.poll(open.session_id),
      await process.token(open.session_id),
      await process.post('/v1/identity/sessions', { user_id: 'outage', provider: 'local' }),
      await process.revoke('outage'),
      await process.callTool(tokens),
    ];
    for (const { status, headers, json } of replies) {
      expect([status, json.code]).toEqual([503, 'unavailable']);
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    }
    // What is counted is what was answered: operators are not told of a fault of the program.
    const counted = await scrape(process.url);
    const calls = (outcome: string) =>
      sumOf(counted, 'switchboard_proxy_call_duration_seconds_count', { kind: 'call', outcome });
    expect([calls('unavailable'), calls('internal')]).toEqual([1, 0]);

    await server.start();
    await eventually('the process is connected again', async () => {
      const { status } = await process.poll(open.session_id);
      expect([200, 503]).toContain(status);
      return status === 200;
    });
    const { status, json } = await process.refresh(tokens.refresh_token);
    expect(status).toBe(200);
    expect((await process.callTool(json)).status).toBe(200);
    await process.stop();
  });

  it('in the middle of a refresh: 503, and the refresh token works when it is back', async () => {
    await using server = await startPostgres({ fsync: false });
    await using database = await server.createDatabase();
    await using installation = await install({ databaseUrl: database.url });
    const process = await installation.start();
    const tokens = await process.connect('outage');
    await using gate = await closeGate(database.url, 'refresh_tokens', 'insert');
    const pending = process.refresh(tokens.refresh_token, { 'idempotency-key': 'retry-73' });
    await gate.reached();
    await server.stop('SIGQUIT');
    const { status, headers } = await pending;
    expect(status).toBe(503);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);

    await server.start();
    await eventually('the process is connected again', async () => {
      const poll = await process.poll(`ses_${'x'.repeat(43)}`);
      expect([404, 503]).toContain(poll.status);
      return poll.status === 404;
    });
    const again = await process.refresh(tokens.refresh_token, { 'idempotency-key': 'retry-73' });
    expect(again.status).toBe(200);
    expect((await process.callTool(again.json)).status).toBe(200);
    await process.stop();
  });
});

interface Gate extends AsyncDisposable {
  /** Resolves when a transaction waits at the gate. */
  reached(): Promise<void>;
  /** Lets it go on, and waits until the killed process has no connection left. */
  open(): Promise<void>;
}

const GATE = 4711;

/** Stops every transaction that writes to the table, at that statement or within its COMMIT, which then needs no client any more. */
async function closeGate(databaseUrl: string, table: string, at: 'insert' | 'commit'): Promise<Gate> {
  const client = new Client({ connectionString: databaseUrl, application_name: 'gate' });
  // The server goes down under it in one of the tests.
  client.on('error', () => {});
  await client.connect();
  await client.query(
    `create function stall() returns trigger language plpgsql as $$
     begin
       perform pg_advisory_xact_lock_shared(${GATE});
       return null;
     end $$;
     create constraint trigger stall after insert on ${table}
       deferrable initially ${at === 'commit' ? 'deferred' : 'immediate'} for each row execute function stall();
     select pg_advisory_lock(${GATE})`,
  );
  const some = async (from: string) => (await client.query(`select from ${from}`)).rowCount !== 0;
  return {
    reached: () =>
      eventually('a transaction is at the gate', () =>
        some(
          `pg_locks where locktype = 'advisory' and objid = ${GATE} and not granted
             and database = (select oid from pg_database where datname = current_database())`,
        ),
      ),
    async open() {
      await client.query(`select pg_advisory_unlock(${GATE})`);
      await eventually(
        'the connections of the killed process have ended',
        async () =>
          !(await some(
            `pg_stat_activity where datname = current_database() and application_name = 'switchboard'`,
          )),
      );
    },
    [Symbol.asyncDispose]: () => client.end(),
  };
}

/** The head of the answer has come in; nobody reads on. */
async function headOfAnswer(
  { key }: Installation,
  { url }: Process,
  refresh_token: string,
  idempotencyKey: string,
): Promise<void> {
  const { status } = await fetch(`${url}/v1/identity/refresh`, {
    method: 'POST',
    body: JSON.stringify({ refresh_token }),
    headers: { 'x-api-key': key, 'content-type': 'application/json', 'idempotency-key': idempotencyKey },
  });
  expect(status).toBe(200);
}
