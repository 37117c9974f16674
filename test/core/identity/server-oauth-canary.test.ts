import { randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { addScene, newUser } from '../../support/authorization/scene.ts';
import { startAuthorizationServer, type AuthorizationServer } from '../../support/authorization/server.ts';
import { Canaries, dump, listenIn } from '../../support/canaries.ts';
import { startCollector } from '../../support/otlp-collector.ts';
import { DATABASES, startIdentity, type IdentityUnderTest } from '../../support/identity.ts';
import { UserAgent } from '../../support/user-agent.ts';

const BY_HAND = 'secret-by-hand-0123456789-abcdefghij';
const HOUR_MS = 3_600_000;

/** Everything that can happen to a sign-in of a server's own, well or badly. */
async function liveThrough(
  sb: IdentityUnderTest,
  byHand: AuthorizationServer,
  look: () => Promise<void>,
): Promise<ReadonlySet<string>> {
  await using scene = await addScene(sb, { issuer: { echo: true }, mcp: { echo: true } });
  await using registered = await addScene(sb, { issuer: byHand });
  const { issuer, mcp, user } = scene;

  // While a client is registered and a sign-in is open; then connected.
  await scene.call();
  await look();
  const { json: link } = await registered.call();
  const authorization = new URL(await new UserAgent().open(link.auth_url));
  byHand.switches.echo = true;
  byHand.preregister({
    client_id: 'by-hand',
    client_secret: BY_HAND,
    redirect_uris: [authorization.searchParams.get('redirect_uri') ?? ''],
  });
  await scene.connect();
  expect((await scene.call()).status).toBe(200);
  const other = await newUser(sb);
  const { page } = await registered.connect(other);
  expect(page.status, page.html).toBe(200);
  expect((await registered.call(other)).status).toBe(200);
  await look();

  // Refreshed, refused, stepped up, and refreshed in vain.
  await sb.elapse(HOUR_MS);
  expect((await scene.call()).status).toBe(200);
  issuer.expireAccessTokens();
  expect((await scene.call()).status).toBe(200);
  mcp.switches.scopes = { 'tools/call': ['write'] };
  expect((await scene.call()).json.reason).toBe('missing_scopes');
  await scene.connect();
  expect((await scene.call()).status).toBe(200);
  await look();
  for (const status of [400, 401, 403, 500]) {
    mcp.switches.refusesTokens = token => ({
      status,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: -32_000, message: token } }),
    });
    await scene.call();
  }
  mcp.switches.refusesTokens = undefined;
  await scene.connect();
  await sb.get(`/v1/identity/connections?user_id=${user.id}`);
  const { json: managed } = await sb.post('/v1/identity/manage', { user_id: user.id });
  const manager = new UserAgent();
  await manager.follow(await manager.submit(await manager.get(managed.url)));

  // What an authorization server can do wrong with a code, and what fails inside of us then.
  for (const fault of [
    { status: 500 },
    { status: 400, body: '{"error":"invalid_grant"}' },
    { status: 200 },
  ]) {
    issuer.faults.token = { headers: { 'content-type': 'application/json' }, ...fault };
    await scene.connect(await newUser(sb));
  }
  delete issuer.faults.token;
  for (const table of ['connections', 'audit_log', 'oauth_clients']) {
    const late = await newUser(sb);
    const { json } = await scene.call(late);
    const agent = new UserAgent();
    const callback = await agent.authorize(await agent.open(json.auth_url), {
      stopAt: url => url.startsWith(`${sb.url}/`),
    });
    const name = sql.identifier(table);
    const hidden = sql.identifier(`${table}_hidden`);
    await sb.db.execute(sql`alter table ${name} rename to ${hidden}`);
    expect((await agent.follow(await agent.get(callback))).status).toBeGreaterThanOrEqual(400);
    await scene.call(late);
    await sb.db.execute(sql`alter table ${hidden} rename to ${name}`);
  }

  // Secrets where they do not belong.
  for (const secret of [...issuer.secrets].slice(0, 6)) {
    await fetch(`${sb.url}/oauth/return/AAAAAAAAAAAAAAAA?state=${secret}&code=${secret}&iss=${secret}`);
    await fetch(`${sb.url}/oauth/return?state=${secret}&error=${secret}&error_description=${secret}`);
    await sb.post('/v1/identity/sessions', { user_id: user.id, server_id: secret });
  }

  // The end, while the authorization server does not listen.
  issuer.faults.revoke = { status: 500 };
  await scene.connect(await newUser(sb)).catch(() => {});
  await sb.post('/v1/identity/revoke', { user_id: user.id, server_id: scene.serverId });
  await look();
  delete issuer.faults.revoke;
  issuer.forgetClients();
  await sb.revoke(other.id);
  await look();
  return issuer.secrets;
}

describe.each(DATABASES)("secrets of servers' own sign-ins on $name", ({ kind, skipped }) => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.unstubAllEnvs();
  });

  it.skipIf(skipped)(
    'no token, code, state, verifier or client secret is in a log, a trace, an answer, a page, /metrics or a dump of the database',
    async () => {
      const canaries = new Canaries();
      await using byHand = await startAuthorizationServer();
      await using collector = await startCollector();
      // OpenTelemetry reads the address by itself.
      vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.endpoint);
      await using sb = await startIdentity({
        database: kind,
        env: {
          LOG_LEVEL: 'trace',
          OTEL_EXPORTER_OTLP_ENDPOINT: collector.endpoint,
          SWITCHBOARD_KEKS: `k1:${randomBytes(32).toString('base64')}`,
          SWITCHBOARD_RATE_LIMIT: 'off',
          SWITCHBOARD_OAUTH_CLIENTS: JSON.stringify({
            [byHand.issuer]: { client_id: 'by-hand', client_secret: BY_HAND },
          }),
        },
      });
      listenIn(sb, canaries);
      const dumps: string[] = [];
      const secrets = await liveThrough(sb, byHand, async () => void dumps.push(await dump(sb)));
      await sb.get('/metrics');
      canaries.add('issued', ...secrets, ...byHand.secrets);
      canaries.add('clientSecret', BY_HAND);
      const log = sb.logged();

      // There was something to be found, everywhere.
      for (const prefix of ['at_', 'rt_', 'code_', 'cs_'])
        expect([prefix, [...secrets].some(secret => secret.startsWith(prefix))]).toEqual([prefix, true]);
      for (const kindOf of ['session', 'link', 'done', 'page', 'cookie', 'state', 'issued'])
        expect([kindOf, canaries.count(kindOf) > 0]).toEqual([kindOf, true]);
      expect(canaries.heard.some(({ status }) => status === 500)).toBe(true);
      expect(dumps.every(text => text.includes('oauth_clients'))).toBe(true);
      expect(dumps.some(text => text.includes('revocation_outbox'))).toBe(true);

      expect(canaries.in(log)).toEqual([]);
      expect(dumps.flatMap(text => canaries.in(text))).toEqual([]);
      expect(canaries.inAnswers()).toEqual([]);
      const audit = await rows(sb.db, sql`select a::text as row from audit_log a`);
      expect(audit.flatMap(({ row }) => canaries.in(String(row)))).toEqual([]);

      // Its end exports the last spans.
      await sb[Symbol.asyncDispose]();
      for (const name of ['POST /connect/:ticket', 'GET /oauth/return/:key', 'tools/call'])
        expect(collector.bytes).toContain(name);
      expect(canaries.in(collector.bytes)).toEqual([]);
    },
  );
});
