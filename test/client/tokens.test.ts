import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Switchboard, UserTokens, type Tokens, type TokenStore } from '../../client/src/index.ts';
import { startMail, type MailUnderTest } from '../support/identity.ts';

let sb: MailUnderTest;
beforeAll(async () => void (sb = await startMail('pglite')));
afterAll(() => sb[Symbol.asyncDispose]());

const HOUR_MS = 3_600_000;
const CALL = { server_id: 'mail', name: 'echo', arguments: { message: 'ebb' } };

/** A store that outlives the processes which use it. */
class Store implements Required<TokenStore> {
  kept: Tokens;
  saves = 0;
  constructor(tokens: Tokens) {
    this.kept = tokens;
  }
  save(tokens: Tokens) {
    this.kept = tokens;
    this.saves += 1;
    return Promise.resolve();
  }
  load() {
    return Promise.resolve(this.kept);
  }
}

interface Process {
  readonly client: Switchboard;
  readonly tokens: UserTokens;
  readonly refreshes: () => number;
  /** Refreshes whose response is yet to be lost. */
  losing: number;
  readonly call: () => Promise<unknown>;
}

/** A process of the app that begins with what the store has. */
function start(store: TokenStore & { readonly kept: Tokens }): Process {
  let refreshes = 0;
  const client = new Switchboard({
    url: sb.url,
    apiKey: sb.key,
    fetch: async request => {
      const isRefresh = request.url.endsWith('/v1/identity/refresh');
      if (isRefresh) refreshes += 1;
      const response = await fetch(request);
      if (isRefresh && started.losing-- > 0) throw new TypeError('fetch failed');
      return response;
    },
  });
  const tokens = new UserTokens(client, store.kept, store);
  const forUser = client.as(tokens);
  const started = {
    client,
    tokens,
    losing: 0,
    refreshes: () => refreshes,
    call: () => forUser.callTool(CALL),
  };
  return started;
}

const expiring = (tokens: object, inMs = HOUR_MS) =>
  ({ ...tokens, expires_at: new Date(Date.now() + inMs).toISOString() }) as Tokens;

const connected = async (user: string, inMs?: number) => {
  const { sessionId: _, ...tokens } = await sb.connect(user);
  return new Store(expiring(tokens, inMs));
};

describe('UserTokens', () => {
  it('refreshes once for 20 concurrent calls whose token has expired on the server', async () => {
    const store = await connected('ada');
    const { call, refreshes } = start(store);
    await call();
    expect(refreshes()).toBe(0);
    await sb.elapse(HOUR_MS + 10_000);
    const results = await Promise.all(Array.from({ length: 20 }, call));
    for (const result of results) expect(result).toMatchObject({ isError: false });
    expect({ refreshes: refreshes(), saves: store.saves }).toEqual({ refreshes: 1, saves: 1 });
  });

  it('refreshes once for 20 concurrent calls shortly before the token expires', async () => {
    const store = await connected('ben', 30_000);
    const first = store.kept.access_token;
    const { call, refreshes, tokens } = start(store);
    await Promise.all(Array.from({ length: 20 }, call));
    expect(refreshes()).toBe(1);
    expect(await tokens.accessToken()).toBe(store.kept.access_token);
    expect(store.kept.access_token).not.toBe(first);
    expect(Date.parse(store.kept.expires_at)).toBeGreaterThan(Date.now() + HOUR_MS - 60_000);
  });

  it('gives nobody a new token before it is saved', async () => {
    const store = await connected('cleo', 0);
    const first = store.kept.access_token;
    const { promise: saving, resolve: arrived } = Promise.withResolvers<Tokens>();
    const { promise: saved, resolve: finish } = Promise.withResolvers<void>();
    const save = (tokens: Tokens) => (arrived(tokens), saved);
    const { tokens } = start({ kept: store.kept, save });
    let given: string | undefined;
    const asking = tokens.accessToken().then(token => (given = token));
    const issued = await saving;
    await new Promise(setImmediate);
    expect(given).toBeUndefined();
    expect(issued.access_token).not.toBe(first);
    finish();
    expect(await asking).toBe(issued.access_token);
  });

  it('saves what could not be saved before it is used, without another refresh', async () => {
    const store = await connected('dan', 0);
    const failing = [new Error('the store is down')];
    const save = (tokens: Tokens) => {
      const failure = failing.pop();
      return failure ? Promise.reject(failure) : store.save(tokens);
    };
    const { tokens, refreshes } = start({ kept: store.kept, save });
    await expect(tokens.accessToken()).rejects.toThrow('the store is down');
    expect(await tokens.accessToken()).toBe(store.kept.access_token);
    expect(refreshes()).toBe(1);
  });

  it('survives a crash before the new tokens were saved', async () => {
    const store = await connected('eve', 0);
    const old = store.kept;
    const crashing = start({ kept: old, save: () => Promise.reject(new Error('crashed')) });
    await expect(crashing.call()).rejects.toThrow('crashed');
    const restarted = start(store);
    expect(await restarted.call()).toMatchObject({ isError: false });
    expect(store.kept.refresh_token).not.toBe(old.refresh_token);
    // The family lives on.
    expect(await restarted.client.refresh(store.kept.refresh_token)).toHaveProperty('access_token');
  });

  it('survives a lost response', async () => {
    const store = await connected('finn', 0);
    const app = start(store);
    app.losing = 1;
    await expect(app.call()).rejects.toThrow('fetch failed');
    expect(await app.call()).toMatchObject({ isError: false });
    expect(app.refreshes()).toBe(2);
  });

  it('says invalid_grant if the tokens were refreshed more than a minute before a crash', async () => {
    const store = await connected('gus', 0);
    const crashing = start({ kept: store.kept, save: () => Promise.reject(new Error('crashed')) });
    await expect(crashing.call()).rejects.toThrow('crashed');
    await sb.elapse(61_000);
    await expect(start(store).call()).rejects.toMatchObject({ code: 'invalid_grant', status: 400 });
  });

  it('says invalid_grant once the user has been revoked', async () => {
    const { call } = start(await connected('hal'));
    await sb.revoke('hal');
    await expect(call()).rejects.toMatchObject({ code: 'invalid_grant', status: 400 });
  });

  it("takes another process's tokens from the store", async () => {
    const store = await connected('ida');
    const [one, other] = [start(store), start(store)];
    await sb.elapse(HOUR_MS + 10_000);
    await one.call();
    // The old refresh token would count as stolen by now.
    await sb.elapse(61_000);
    expect(await other.call()).toMatchObject({ isError: false });
    expect([one.refreshes(), other.refreshes()]).toEqual([1, 0]);
  });

  it('gives two processes that refresh at the same time the same tokens', async () => {
    const store = await connected('joe', 0);
    const processes = [
      start({ kept: store.kept, save: t => store.save(t) }),
      start({ kept: store.kept, save: t => store.save(t) }),
    ];
    const [one, other] = await Promise.all(processes.map(({ tokens }) => tokens.accessToken()));
    expect(one).toBe(other);
  });
});
