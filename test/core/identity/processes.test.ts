import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import {
  eventually,
  installOnPostgres,
  parallel,
  statusesOf,
  type Installation,
  type Process,
} from '../../support/processes.ts';

// An embedded database belongs to one process.
describe.skipIf(inject('postgresUrl') === undefined)('two processes on one Postgres', () => {
  let installation: Installation;
  let a: Process;
  let b: Process;
  beforeAll(async () => {
    installation = await installOnPostgres({
      // On a slow machine fifty requests may need more than the usual 2 s to arrive.
      env: { SWITCHBOARD_REFRESH_RACE_MS: '10000' },
    });
    [a, b] = await Promise.all([installation.start('a'), installation.start('b')]);
  });
  afterAll(() => installation[Symbol.asyncDispose]());

  const either = (index: number) => (index % 2 === 0 ? a : b);
  const hexHashOf = (secret: string) => createHash('sha256').update(secret).digest('hex');

  /** A session whose user has signed in at the provider; the callback waits to be fetched. */
  async function signedIn(userId: string) {
    const { session_id, auth_url } = await a.createSession(userId);
    return { sessionId: session_id, callback: await installation.authorize(auth_url, userId) };
  }

  it('74: a family rotates from process to process, and a reused token ends it on both', async () => {
    const first = await a.connect('user-74');
    const second = (await b.refresh(first.refresh_token)).json;
    const third = (await a.refresh(second.refresh_token)).json;
    expect(statusesOf([await a.callTool(third), await b.callTool(third)])).toEqual({ 200: 2 });
    await installation.sql(
      `update refresh_tokens set used_at = used_at - interval '11 s' where hash = '\\x${hexHashOf(first.refresh_token)}'`,
    );

    const reused = await b.refresh(first.refresh_token);
    expect([reused.status, reused.json.error]).toEqual([400, 'invalid_grant']);
    expect(statusesOf([await a.refresh(third.refresh_token), await b.refresh(third.refresh_token)])).toEqual({
      400: 2,
    });
    expect(statusesOf([await a.callTool(third), await b.callTool(third)])).toEqual({ 401: 2 });
  });

  it('74: of 50 parallel refreshes over both processes one wins, and what it won is usable on both', async () => {
    const { refresh_token } = await a.connect('user-74-parallel');
    const replies = await parallel(50, index => either(index).refresh(refresh_token));
    expect(statusesOf(replies)).toEqual({ 200: 1, 400: 49 });
    expect(
      replies.filter(({ status }) => status === 400).every(({ json }) => json.error === 'invalid_grant'),
    ).toBe(true);
    const won = replies.find(({ status }) => status === 200)?.json;
    expect(statusesOf([await a.callTool(won), await b.callTool(won)])).toEqual({ 200: 2 });
    const next = await b.refresh(won.refresh_token);
    expect(next.status).toBe(200);
    expect((await a.refresh(next.json.refresh_token)).status).toBe(200);
  });

  it('65: 50 parallel refreshes with one Idempotency-Key get one answer from both processes', async () => {
    const { refresh_token } = await b.connect('user-65');
    const replies = await parallel(50, index =>
      either(index).refresh(refresh_token, { 'idempotency-key': 'retry-65' }),
    );
    expect(statusesOf(replies)).toEqual({ 200: 50 });
    expect(new Set(replies.map(({ text }) => text)).size).toBe(1);
    const successors = await installation.sql(
      `select hash from refresh_tokens where parent_hash = '\\x${hexHashOf(refresh_token)}'`,
    );
    expect(successors).toHaveLength(1);
    expect((await a.refresh(replies[0]?.json.refresh_token)).status).toBe(200);
  });

  it('35: of 50 parallel callbacks over both processes one exchanges the code', async () => {
    const { sessionId, callback } = await signedIn('user-35');
    const before = installation.idp.hits.token.authorization_code;
    const replies = await parallel(50, index => either(index).callback(callback));
    expect(statusesOf(replies)).toEqual({ 303: 1, 400: 49 });
    expect(installation.idp.hits.token.authorization_code - before).toBe(1);
    expect((await b.poll(sessionId)).json).toEqual({ status: 'complete' });
  });

  it('49: of 50 parallel polls over both processes one gets the final status', async () => {
    const { sessionId, callback } = await signedIn('user-49');
    await b.callback(callback);
    const replies = await parallel(50, index => either(index).poll(sessionId));
    expect(statusesOf(replies)).toEqual({ 200: 1, 410: 49 });
    expect(replies.find(({ status }) => status === 200)?.json).toEqual({ status: 'complete' });
  });

  it('58: of 50 parallel redemptions over both processes one gets tokens', async () => {
    const { sessionId, callback } = await signedIn('user-58');
    await a.callback(callback);
    const replies = await parallel(50, index => either(index).token(sessionId));
    expect(statusesOf(replies)).toEqual({ 200: 1, 400: 49 });
    const won = replies.find(({ status }) => status === 200)?.json;
    expect((await b.refresh(won.refresh_token)).status).toBe(200);
  });

  it('84: after a revocation the very next call is refused on both processes', async () => {
    const tokens = await a.connect('user-84');
    expect(statusesOf([await a.callTool(tokens), await b.callTool(tokens)])).toEqual({ 200: 2 });
    expect((await a.revoke('user-84')).json).toEqual({ success: true });
    const [onA, onB] = await Promise.all([a.callTool(tokens), b.callTool(tokens)]);
    for (const { status, json, headers } of [onA, onB]) {
      expect([status, json.code]).toEqual([401, 'identity_token_invalid']);
      expect(headers.get('www-authenticate')).toBe('Bearer realm="switchboard", error="invalid_token"');
    }
    expect((await b.refresh(tokens.refresh_token)).status).toBe(400);
  });

  it('3: a key revoked through one process is refused by it at once, by the other within 2 s', async () => {
    const created = await a.command('keys', 'create', '--scopes', 'search', '--json');
    const { id, key } = JSON.parse(created.stdout);
    const search = (process: Process) => process.post('/v1/search', { query: 'mail' }, { 'x-api-key': key });
    await Promise.all([a.ready(), b.ready()]);
    expect(statusesOf([await search(a), await search(b)])).toEqual({ 200: 2 });
    // As late as can be, so that it stays in the other process's memory for as long as can be.
    const [revoked] = await Promise.all([a.command('keys', 'revoke', id), search(b)]);
    expect(revoked.code, revoked.stderr).toBe(0);
    const revokedAtMs = performance.now();
    expect((await search(a)).status).toBe(401);
    let lastAcceptedMs = 0;
    await eventually('the key is refused', async () => {
      const sentMs = performance.now() - revokedAtMs;
      const { status } = await search(b);
      if (status === 200) lastAcceptedMs = sentMs;
      else expect(status).toBe(401);
      return status === 401;
    });
    expect(lastAcceptedMs).toBeLessThan(2_000);
  });

  it('88: an expired provider token and 50 parallel calls on each process make one refresh', async () => {
    const { idp, upstream } = installation;
    idp.accessTokenTtlSec = 1;
    const tokens = await a.connect('user-88');
    idp.accessTokenTtlSec = 3600;
    const before = idp.hits.token.refresh_token;
    const received = upstream.inbox.count('tools/call');
    // Long enough for calls to come in on both processes meanwhile.
    idp.faults.token = { delayBeforeMs: 500 };
    const replies = await parallel(100, index => either(index).callTool(tokens));
    idp.faults.token = {};
    expect(statusesOf(replies)).toEqual({ 200: 100 });
    expect(replies.filter(({ json }) => json.result?.content?.[0]?.text === 'Echo: hi')).toHaveLength(100);
    expect(idp.hits.token.refresh_token - before).toBe(1);
    const sent = upstream.inbox.of('tools/call').slice(received);
    expect(new Set(sent.map(({ headers }) => headers.authorization)).size).toBe(1);
  });
});
