import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isSwitchboardError, SessionFailed, Switchboard } from '../../client/src/index.ts';
import { addScene } from '../support/authorization/scene.ts';
import { startMail, type MailUnderTest } from '../support/identity.ts';
import { UserAgent } from '../support/user-agent.ts';

let sb: MailUnderTest;
beforeAll(async () => void (sb = await startMail('pglite')));
afterAll(() => sb[Symbol.asyncDispose]());

const intervalMs = 10;

/** Answers each poll in turn as the functions say, then as it comes. */
function clientWith(...polls: readonly ((poll: () => Promise<Response>) => Promise<Response>)[]) {
  const left = [...polls];
  return new Switchboard({
    url: sb.url,
    apiKey: sb.key,
    fetch: request => {
      const spoil = request.method === 'GET' ? left.shift() : undefined;
      return spoil ? spoil(() => fetch(request)) : fetch(request);
    },
  });
}

const lost = () => Promise.reject(new TypeError('fetch failed'));

describe('signIn', () => {
  it('resolves to the tokens of the user who signed in', async () => {
    const client = clientWith();
    const tokens = await client.signIn(
      { user_id: 'ada', provider: 'local' },
      { open: authUrl => sb.signIn(authUrl, { login: 'ada' }), intervalMs },
    );
    expect(tokens).toMatchObject({ token_type: 'Bearer', expires_in: 3600 });
    expect(Date.parse(tokens.expires_at)).toBeGreaterThan(Date.now() + 3_500_000);
    const call = { server_id: 'mail', name: 'echo', arguments: { message: 'ebb' } };
    expect(await client.as(tokens.access_token).callTool(call)).toMatchObject({ isError: false });
  });

  it('waits while the user has not finished', async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const polled = async (poll: () => Promise<Response>) => {
      const response = await poll();
      expect(await response.clone().json()).toEqual({ status: 'pending' });
      await sb.signIn(await promise, { login: 'ben' });
      return response;
    };
    const signingIn = clientWith(polled).signIn(
      { user_id: 'ben', provider: 'local' },
      { open: resolve, intervalMs },
    );
    expect(await signingIn).toHaveProperty('refresh_token');
  });

  it('fails with the reason if the user refuses', async () => {
    const signingIn = clientWith().signIn(
      { user_id: 'cleo', provider: 'local' },
      { open: authUrl => sb.signIn(authUrl, { login: 'cleo', deny: true }), intervalMs },
    );
    await expect(signingIn).rejects.toBeInstanceOf(SessionFailed);
    await expect(signingIn).rejects.toMatchObject({ reason: 'access_denied' });
  });

  it('fails if the user does not finish in time', async () => {
    const signingIn = clientWith().signIn(
      { user_id: 'dan', provider: 'local' },
      { open: () => sb.elapse(301_000), intervalMs },
    );
    await expect(signingIn).rejects.toMatchObject({ name: 'SessionFailed', reason: 'session_expired' });
  });

  it('ends at once when its signal aborts, between two polls', async () => {
    const stopping = new AbortController();
    const polled = async (poll: () => Promise<Response>) => {
      const response = await poll();
      setImmediate(() => stopping.abort(new Error('the user left')));
      return response;
    };
    const signingIn = clientWith(polled).signIn(
      { user_id: 'eve', provider: 'local' },
      { open: () => {}, signal: stopping.signal, intervalMs: 3_600_000 },
    );
    await expect(signingIn).rejects.toThrow('the user left');
  });

  it('goes on through an outage and a busy server', async () => {
    const busy = () => Promise.resolve(new Response('', { status: 503 }));
    const signingIn = clientWith(lost, busy).signIn(
      { user_id: 'finn', provider: 'local' },
      { open: authUrl => sb.signIn(authUrl, { login: 'finn' }), intervalMs },
    );
    expect(await signingIn).toHaveProperty('access_token');
  });

  it('has the tokens even if the response with the final status is lost', async () => {
    const lostAfterwards = (poll: () => Promise<Response>) => poll().then(lost);
    const signingIn = clientWith(lostAfterwards).signIn(
      { user_id: 'gus', provider: 'local' },
      { open: authUrl => sb.signIn(authUrl, { login: 'gus' }), intervalMs },
    );
    expect(await signingIn).toHaveProperty('access_token');
  });

  it('gives up an outage that outlasts the session', async () => {
    const client = clientWith(lost);
    const expired = { session_id: 'ses_x', expires_at: new Date(Date.now() - 3_600_000).toISOString() };
    await expect(client.waitFor(expired, { intervalMs })).rejects.toThrow('fetch failed');
  });
});

describe('connect and waitFor', () => {
  it('connects a user with a server that has a sign-in of its own', async () => {
    await using scene = await addScene(sb);
    await clientWith().connect(
      { user_id: scene.user.id, server_id: scene.serverId },
      { open: authUrl => new UserAgent().connect(authUrl), intervalMs },
    );
    expect((await scene.call()).json).toMatchObject({ isError: false });
  });

  it('waits for the session that a call asks for', async () => {
    const client = clientWith();
    const forHal = client.as((await sb.connect('hal')).access_token);
    await sb.post('/v1/identity/revoke', { user_id: 'hal', provider: 'local' });
    const call = { server_id: 'mail', name: 'echo', arguments: { message: 'ebb' } };
    const error = await forHal.callTool(call).catch((thrown: unknown) => thrown);
    if (!isSwitchboardError(error, 'connection_required') || !error.session) throw error;
    await sb.signIn(error.session.auth_url, { login: 'hal' });
    await client.waitFor(error.session, { intervalMs });
    expect(await forHal.callTool(call)).toMatchObject({ isError: false });
  });
});
