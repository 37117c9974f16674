import { randomBytes } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { rows } from '../../../src/platform/database/database.ts';
import { Canaries, dump, FORMS, listenIn } from '../../support/canaries.ts';
import { startCollector } from '../../support/otlp-collector.ts';
import {
  DATABASES,
  startIdentity,
  type DatabaseKind,
  type IdentityUnderTest,
} from '../../support/identity.ts';
import { refusedPort } from '../../support/upstreams/http.ts';
import { startV2Server } from '../../support/upstreams/v2.ts';
import { UserAgent } from '../../support/user-agent.ts';
import { startReceiver } from '../../support/webhook-receiver.ts';

const USER = 'canary-user-of-the-caller';

/** Everything that can happen to a user, well or badly; the database is looked at while secrets are in it. */
async function liveThrough(
  sb: IdentityUnderTest,
  canaries: Canaries,
  look: () => Promise<void>,
): Promise<void> {
  const { idp } = sb;
  const key = { 'idempotency-key': `retry-${randomBytes(16).toString('hex')}` };
  canaries.add('idempotencyKey', key['idempotency-key']);
  const callTool = (token: string, server_id = 'mail') =>
    sb.post(
      '/v1/mcp/call',
      { server_id, method: 'tools/call', params: { name: 'echo', arguments: { message: 'hi' } } },
      { authorization: `Bearer ${token}` },
    );
  const create = async (more: object = {}) => (await sb.createSession(USER, more)).json;

  // Sign-ins: direct, refused, on our own page (waiting for the click, then confirmed), twice.
  idp.accessTokenTtlSec = 1;
  const direct = await create();
  await sb.poll(direct.session_id);
  await sb.token(direct.session_id);
  await look();
  const callback = await sb.authorize(direct.auth_url, { login: 'canary' });
  await new UserAgent().follow(await new UserAgent().get(callback));
  await new UserAgent().get(callback);
  await sb.poll(direct.session_id);
  await sb.poll(direct.session_id);
  await sb.signIn((await create()).auth_url, { login: 'canary', deny: true });
  const paged = await create({ mode: 'page' });
  const agent = new UserAgent();
  const away = await agent.submit(await agent.get(paged.auth_url));
  const waiting = await agent.signIn(away.headers.get('location') ?? '', {
    login: 'canary',
    stopAt: url => url.startsWith(`${sb.url}/`),
  });
  expect(waiting.status).toBe(200);
  await look();
  await agent.follow(await agent.submit(waiting, { fields: { decision: 'connect' } }));
  expect((await sb.poll(paged.session_id)).json).toEqual({ status: 'complete' });

  // One that the app confirms: what the browser brought waits meanwhile.
  await sb.admin.request('POST', '/tenants/local', { return_urls: ['https://app.example/'] });
  const byApp = await create({ mode: 'caller', return_url: 'https://app.example/' });
  const back = await new UserAgent().get(await sb.authorize(byApp.auth_url, { login: 'canary' }));
  const code = new URL(back.headers.get('location') ?? '').searchParams.get('code');
  await look();
  const confirm = (user_id: string) =>
    sb.post(`/v1/identity/sessions/${byApp.session_id}/confirm`, { code, user_id });
  expect((await confirm(USER)).json).toEqual({ status: 'complete' });
  expect((await confirm(USER)).status).toBe(400);

  // Tokens: first pair, replayed; refresh, replayed; reuse.
  const first = await sb.token(direct.session_id, key);
  expect((await sb.token(direct.session_id, key)).json).toEqual(first.json);
  const second = await sb.refresh(first.json.refresh_token, key);
  expect((await sb.refresh(first.json.refresh_token, key)).json).toEqual(second.json);
  await look();

  // Calls: with a provider token that must be renewed first, that cannot be renewed, to a server that is away.
  idp.faults.token = { status: 500 };
  await callTool(second.json.access_token);
  idp.faults.token = {};
  await sb.elapse(31_000);
  idp.accessTokenTtlSec = 3600;
  expect((await callTool(second.json.access_token)).status).toBe(200);
  await callTool(second.json.access_token, 'away');
  await look();
  await sb.refresh(second.json.refresh_token);
  await sb.elapse(3_000);
  expect((await sb.refresh(first.json.refresh_token)).status).toBe(400);
  expect((await callTool(second.json.access_token)).status).toBe(401);

  // What a provider can do wrong with a code.
  for (const fault of [
    { status: 500 },
    { html: true },
    { truncated: true },
    { omitAccessToken: true },
    { rewriteIdToken: 'wrong-nonce' },
    { rewriteIdToken: 'other-key' },
    { narrowScope: 'openid' },
  ] as const) {
    const spoilt = (await sb.createSession(`${USER}-spoilt-${JSON.stringify(fault)}`)).json;
    idp.faults.token = fault;
    await sb.signIn(spoilt.auth_url, { login: 'canary' });
    idp.faults.token = {};
    await sb.poll(spoilt.session_id);
  }

  // Secrets where they do not belong.
  for (const secret of [second.json.refresh_token, second.json.access_token, direct.session_id, sb.key]) {
    await sb.refresh(secret);
    await sb.token(secret);
    await sb.poll(secret);
    await callTool(secret);
    await sb.post('/v1/search', { query: 'mail' }, { 'x-api-key': `${secret}x` });
    await sb.post(`/v1/search?api_key=${secret}&access_token=${secret}`, { query: 7 });
    await sb.post('/v1/identity/refresh', `{"refresh_token": "${secret}"`);
    await sb.post('/v1/identity/refresh', { refresh_token: secret, [secret]: secret });
    await sb.post('/v1/identity/refresh', { refresh_token: [secret] });
    await sb.post('/v1/identity/sessions', { user_id: USER, provider: secret });
    await fetch(`${sb.url}/oauth/callback/local?state=${secret}&code=${secret}&error_description=${secret}`);
    for (const place of ['connect', 'manage', 'oauth/done']) await fetch(`${sb.url}/${place}/${secret}`);
  }

  // What fails inside of us, with secrets at hand.
  const again = await create();
  const late = await sb.authorize(again.auth_url, { login: 'canary' });
  const waitingForRefresh = await sb.connect(`${USER}-2`, { login: 'canary-2' });
  for (const table of ['refresh_tokens', 'connections', 'audit_log']) {
    const name = sql.identifier(table);
    const hidden = sql.identifier(`${table}_hidden`);
    await sb.db.execute(sql`alter table ${name} rename to ${hidden}`);
    await sb.refresh(waitingForRefresh.refresh_token, key);
    await sb.token(again.session_id);
    await callTool(waitingForRefresh.access_token);
    await sb.createSession(`${USER}-3`);
    await sb.revoke(`${USER}-2`);
    if (table === 'connections') expect((await new UserAgent().get(late)).status).toBe(500);
    await sb.db.execute(sql`alter table ${hidden} rename to ${name}`);
  }

  // The end: the page of connections, then everything, while the provider does not listen.
  const manage = (await sb.post('/v1/identity/manage', { user_id: USER })).json;
  const manager = new UserAgent();
  const list = await manager.follow(await manager.submit(await manager.get(manage.url)));
  expect(list.html).toContain('canary@example.test');
  const renewed = await manager.follow(await manager.submit(list));
  await sb.signIn(await manager.open(renewed.url), { login: 'canary', agent: manager });
  await sb.admin.request('POST', '/tenants/local', { sign_in: { provider: 'local', user_id: 'sub' } });
  const guest = new UserAgent();
  const atProvider = await guest.open(`${sb.url}/manage/sign-in/local`);
  expect((await sb.signIn(atProvider, { login: USER, agent: guest })).html).toContain('You are signed in');
  idp.faults.revocation = { status: 500 };
  await sb.revoke(USER);
  await look();
  idp.faults.revocation = {};
  await sb.elapse(60_000);
  await callTool((await sb.connect(`${USER}-4`, { login: 'canary-4' })).access_token);
  idp.revokeEverythingOf('canary-4');
  await look();
}

describe.each(DATABASES)('secrets on $name', ({ kind, skipped }) => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.unstubAllEnvs();
  });

  it.skipIf(skipped)(
    '96: no secret is in a log, a trace, an error, a page, /metrics or a dump of the database [identity.vault]',
    async () => {
      const canaries = new Canaries();
      await using upstream = await startV2Server();
      await using collector = await startCollector();
      // OpenTelemetry reads the address by itself.
      vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.endpoint);
      const away = `http://127.0.0.1:${await refusedPort()}`;
      const kek = randomBytes(32);
      await using receiver = await startReceiver();
      await using sb = await startCanary(kind, kek, upstream.url, away, collector.endpoint);
      listenIn(sb, canaries);
      canaries.add('apiKey', sb.key, sb.otherKey);
      canaries.add('kek', kek.toString('base64'), kek.toString('hex'));
      canaries.add('clientSecret', sb.idp.clientSecret);
      const created = await sb.admin.request('POST', '/keys', { name: 'canary', scopes: ['identity'] });
      canaries.add('apiKey', created.json.key);
      await sb.createSession('by-key', {}, { 'x-api-key': created.json.key });
      // Of every second event, the first attempt fails: it waits in the outbox, and the log says so.
      let attempts = 0;
      receiver.conduct = () => (++attempts % 2 === 0 ? 204 : 500);
      const hook = { url: `${receiver.url}?token=of-the-receiver` };
      const set = await sb.admin.request('PUT', '/tenants/local/webhook', hook);
      const rotated = await sb.admin.request('POST', '/tenants/local/webhook/rotate', { overlap_sec: 3600 });
      for (const { json } of [set, rotated])
        canaries.add('webhookSecret', json.secret, json.secret.slice('whsec_'.length));

      const dumps: string[] = [];
      await liveThrough(sb, canaries, async () => void dumps.push(await dump(sb)));
      await sb.get('/metrics');
      canaries.add('provider', ...sb.idp.secretsSeen);
      const log = sb.logged();

      // There was something to be found, everywhere.
      for (const kindOf of [...Object.keys(FORMS), 'provider', 'apiKey', 'kek', 'webhookSecret'])
        expect([kindOf, canaries.count(kindOf) > 0]).toEqual([kindOf, true]);
      expect(canaries.heard.filter(({ status }) => status === 500).length).toBeGreaterThan(3);
      expect(log).toContain('request failed');
      expect(log.split('\n').length).toBeGreaterThan(100);
      expect(dumps.some(text => text.includes(USER))).toBe(true);
      expect(dumps.some(text => /k1:eyJ/.test(text))).toBe(true);

      expect(canaries.in(log)).toEqual([]);
      expect(dumps.flatMap(text => canaries.in(text))).toEqual([]);
      const told = receiver.all.map(({ headers, body }) => `${JSON.stringify(headers)}\n${body}`);
      expect(told.some(text => text.includes(USER))).toBe(true);
      expect(told.flatMap(text => canaries.in(text))).toEqual([]);
      expect(dumps.some(text => text.includes('connection.created'))).toBe(true);
      expect(log).toContain('webhook not delivered');
      expect(log).not.toContain('of-the-receiver');
      expect(canaries.inAnswers()).toEqual([]);
      // Nor who the user is, nor a private key.
      expect(log).not.toContain(USER);
      expect(log).not.toContain('canary@example.test');
      const audit = await rows(sb.db, sql`select a::text as row from audit_log a`);
      expect(audit.some(({ row }) => String(row).includes(USER))).toBe(false);
      for (const text of dumps) expect(text).not.toMatch(/"d": ?"/);

      // Its end exports the last spans.
      await sb[Symbol.asyncDispose]();
      for (const name of ['GET /oauth/callback/:provider', 'GET /manage/:link', 'tools/call'])
        expect(collector.bytes).toContain(name);
      expect(canaries.in(collector.bytes)).toEqual([]);
      expect(collector.bytes).not.toContain(USER);

      // And it would be found, in whichever way it was written.
      const [secret = ''] = sb.idp.secretsSeen;
      const planted = [
        secret,
        `…${secret.slice(-24)}`,
        Buffer.from(`{"token":"${secret}"}`).toString('base64'),
        Buffer.from(`{"a":"${secret}"}`).toString('base64url'),
        `\\x${Buffer.from(secret).toString('hex')}`,
      ];
      for (const leak of planted) expect(canaries.in(`${log}${leak}`), leak).toHaveLength(1);
    },
  );
});

const startCanary = (kind: DatabaseKind, kek: Buffer, upstream: string, away: string, collector: string) => {
  const entry = (id: string, remote_url: string) => ({
    id,
    remote_url,
    auth: { kind: 'user_oauth', provider: 'local', scopes: ['email'] },
  });
  return startIdentity({
    database: kind,
    catalogue: [entry('mail', upstream), entry('away', `${away}/mcp`)],
    allowedOrigins: [new URL(upstream).origin, away],
    env: {
      LOG_LEVEL: 'trace',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector,
      SWITCHBOARD_KEKS: `k1:${kek.toString('base64')}`,
      SWITCHBOARD_RATE_LIMIT: 'off',
    },
  });
};
