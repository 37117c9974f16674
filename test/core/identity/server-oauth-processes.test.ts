import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import {
  installOwnSignIn,
  SERVER_ID,
  type OwnSignInInstallation,
} from '../../support/authorization/installed.ts';
import { eventually, parallel, statusesOf, type Process } from '../../support/processes.ts';

/** Long enough for requests to come in on both processes meanwhile. */
const OVERLAP_MS = 500;

// An embedded database belongs to one process.
describe.skipIf(inject('postgresUrl') === undefined)("servers' own sign-ins in two processes", () => {
  let own: OwnSignInInstallation;
  let a: Process;
  let b: Process;
  beforeAll(async () => {
    own = await installOwnSignIn(true);
    [a, b] = await Promise.all([own.installation.start('a'), own.installation.start('b')]);
  });
  afterAll(() => own[Symbol.asyncDispose]());

  const either = (index: number) => (index % 2 === 0 ? a : b);
  const refreshes = () =>
    own.issuer.sent('token').filter(({ fields }) => fields['grant_type'] === 'refresh_token');

  it('register one client, however many users are asked to sign in at once', async () => {
    const users = await parallel(10, index => either(index).connect(`first-${index}`));
    const hold = own.issuer.hold('register', 'before');
    const asking = parallel(20, index => own.call(either(index), users[index % 10] ?? users[0]!));
    await hold.arrived;
    await delay(OVERLAP_MS);
    hold.release();
    const replies = await asking;
    expect(statusesOf(replies)).toEqual({ 403: 20 });
    expect(new Set(replies.map(({ json }) => json.code))).toEqual(new Set(['connection_required']));
    expect(own.issuer.sent('register')).toHaveLength(1);
    // One link for each user, whichever process was asked.
    expect(new Set(replies.map(({ json }) => json.auth_url)).size).toBe(10);
  });

  it('complete on one what was begun on the other, once', async () => {
    const tokens = await a.connect('begins');
    let at = a;
    const agent = own.browserAt(() => at);
    const { callback, sessionId } = await own.goTo(a, tokens, agent);
    const before = own.issuer.sent('token').length;
    at = b;
    expect((await own.browserAt(() => b).get(callback)).status).toBe(400);
    const replies = await parallel(10, () => agent.get(callback));
    expect(statusesOf(replies)).toEqual({ 303: 1, 400: 9 });
    at = a;
    expect((await agent.get(callback)).status).toBe(400);
    expect(own.issuer.sent('token').length - before).toBe(1);
    expect((await a.poll(sessionId)).json).toEqual({ status: 'complete' });
    expect(statusesOf([await own.call(a, tokens), await own.call(b, tokens)])).toEqual({ 200: 2 });
  });

  it('refresh a token once, whatever the calls', async () => {
    own.issuer.switches.expiresIn = 1;
    const tokens = await a.connect('refreshes');
    await own.connect(a, tokens);
    own.issuer.switches.expiresIn = 3600;
    const before = refreshes().length;
    const received = own.mcp.inbox.count('tools/call');
    const hold = own.issuer.hold('token', 'before');
    const calling = parallel(60, index => own.call(either(index), tokens));
    await hold.arrived;
    await delay(OVERLAP_MS);
    hold.release();
    expect(statusesOf(await calling)).toEqual({ 200: 60 });
    expect(refreshes().length - before).toBe(1);
    const sent = own.mcp.inbox.of('tools/call').slice(received);
    expect(new Set(sent.map(({ headers }) => headers.authorization)).size).toBe(1);
  });

  it('use what the other has refreshed after a refusal', async () => {
    const tokens = await a.connect('refused');
    await own.connect(a, tokens);
    expect(statusesOf([await own.call(a, tokens), await own.call(b, tokens)])).toEqual({ 200: 2 });
    const before = refreshes().length;
    own.issuer.expireAccessTokens();
    expect(statusesOf(await parallel(20, index => own.call(either(index), tokens)))).toEqual({ 200: 20 });
    expect(refreshes().length - before).toBe(1);
  });

  it('know at once of a revocation: the next call on either carries nothing', async () => {
    const tokens = await a.connect('revoked');
    await own.connect(a, tokens);
    expect(statusesOf([await own.call(a, tokens), await own.call(b, tokens)])).toEqual({ 200: 2 });
    const ended = await a.post('/v1/identity/revoke', { user_id: 'revoked', server_id: SERVER_ID });
    expect(ended.status).toBe(200);
    const before = own.mcp.inbox.all.length;
    for (const { status, json } of await Promise.all([own.call(a, tokens), own.call(b, tokens)]))
      expect([status, json.code, json.reason]).toEqual([403, 'connection_required', 'not_connected']);
    expect(own.mcp.inbox.all.slice(before).filter(({ headers }) => headers.authorization)).toEqual([]);
    await eventually('the authorization server is told', () => own.issuer.sent('revoke').length > 0);
  });

  it('know at once of scopes that were added on the other', async () => {
    own.mcp.switches.scopes = { 'tools/call': ['write'] };
    const tokens = await a.connect('steps-up');
    await own.connect(a, tokens);
    expect((await own.call(b, tokens)).json.reason).toBe('missing_scopes');
    const page = await own.connect(a, tokens);
    expect(page.status, page.html).toBe(200);
    expect(statusesOf([await own.call(b, tokens), await own.call(a, tokens)])).toEqual({ 200: 2 });
    own.mcp.switches.scopes = {};
  });
});
