import { randomUUID } from 'node:crypto';
import { UserAgent } from '../../test/support/user-agent.ts';
import type { Answer, Balancer } from './balancer.ts';
import { PUBLIC_URL, type Installation } from './installation.ts';

/** More than are refreshed in the time that a database needs to come back, so that there is always a free one. */
const FAMILIES = 48;
/** 120 callbacks a minute are allowed to one address. */
const SIGN_INS_AT_ONCE = 4;
const TIMEOUT_MS = 10_000;

interface Family {
  readonly user: string;
  accessToken: string;
  refreshToken: string;
  /** Of a refresh whose answer was lost: it is asked for again with the same key (docs/identity.md). */
  lostKey: string | undefined;
}

interface Tokens {
  readonly access_token: string;
  readonly refresh_token: string;
}

/** Users who have signed in, and their tokens, which turn over throughout the run: each refresh token is used once. */
export class Families {
  readonly #installation: Installation;
  readonly #balancer: Balancer;
  /** Those that nobody is refreshing, the longest unused first. */
  readonly #free: Family[] = [];
  readonly #all: Family[] = [];
  #signingIn: Promise<unknown>[] = [];
  readonly counts = {
    sign_ins: 0,
    refreshed: 0,
    /** Refreshes without an answer, or with a 503. */
    unanswered: 0,
    /** Of those, the ones that were answered when they were sent again with their Idempotency-Key. */
    repeated: 0,
    /** Ended with `invalid_grant`: the user had to sign in again. */
    families_lost: 0,
  };

  private constructor(installation: Installation, balancer: Balancer) {
    this.#installation = installation;
    this.#balancer = balancer;
  }

  /** Signs everybody in. */
  static async start(installation: Installation, balancer: Balancer): Promise<Families> {
    const families = new Families(installation, balancer);
    const users = Array.from({ length: FAMILIES }, (_, at) => `user-${at}`);
    const signIn = async () => {
      for (let user = users.pop(); user !== undefined; user = users.pop()) await families.#signIn(user);
    };
    await Promise.all(Array.from({ length: SIGN_INS_AT_ONCE }, signIn));
    return families;
  }

  /** An identity token of one of them. */
  accessToken(turn: number): string {
    return this.#all[turn % this.#all.length]?.accessToken ?? '';
  }

  /**
   * Refreshes the one that has waited longest. A lost answer is asked for again by the next refresh.
   * @throws NoAnswer
   */
  async refresh(): Promise<Answer> {
    const family = this.#free.shift();
    if (!family) return { status: 0, text: '{"code":"no_family_free"}' };
    const idempotencyKey = family.lostKey ?? randomUUID();
    try {
      const answer = await this.#send(
        '/v1/identity/refresh',
        { refresh_token: family.refreshToken },
        idempotencyKey,
      );
      this.#take(family, answer, idempotencyKey);
      return answer;
    } catch (error) {
      this.#lose(family, idempotencyKey);
      throw error;
    }
  }

  /** Refreshes each of them once more: how many still can be. */
  async stillGood(): Promise<number> {
    await Promise.all(this.#signingIn);
    let good = 0;
    for (let left = this.#free.length; left > 0; left--) if ((await this.refresh()).status === 200) good++;
    return good;
  }

  get size(): number {
    return this.#all.length;
  }

  #take(family: Family, answer: Answer, idempotencyKey: string): void {
    if (answer.status === 200) {
      const tokens = JSON.parse(answer.text) as Tokens;
      if (family.lostKey !== undefined) this.counts.repeated++;
      this.counts.refreshed++;
      family.accessToken = tokens.access_token;
      family.refreshToken = tokens.refresh_token;
      family.lostKey = undefined;
      this.#free.push(family);
    } else if (answer.text.includes('invalid_grant')) {
      this.counts.families_lost++;
      this.#all.splice(this.#all.indexOf(family), 1);
      this.#signingIn.push(this.#signIn(family.user).catch(() => {}));
    } else this.#lose(family, idempotencyKey);
  }

  #lose(family: Family, idempotencyKey: string): void {
    this.counts.unanswered++;
    family.lostKey = idempotencyKey;
    this.#free.unshift(family);
  }

  async #signIn(user: string): Promise<void> {
    const created = await this.#send('/v1/identity/sessions', { user_id: user, provider: 'local' });
    if (created.status !== 200) throw new Error(`no session: ${created.text}`);
    const session = JSON.parse(created.text) as { session_id: string; auth_url: string };
    const callback = await new UserAgent().authorize(session.auth_url, {
      login: user,
      stopAt: url => url.startsWith(`${PUBLIC_URL}/`),
    });
    const origin = created.life?.program.url ?? '';
    await (await fetch(callback.replace(PUBLIC_URL, origin), { redirect: 'manual' })).text();
    const answer = await this.#send('/v1/identity/token', { session_id: session.session_id }, randomUUID());
    if (answer.status !== 200) throw new Error(`no tokens: ${answer.text}`);
    const tokens = JSON.parse(answer.text) as Tokens;
    this.counts.sign_ins++;
    const family = {
      user,
      accessToken: tokens.access_token,
      refreshToken: tokens.refresh_token,
      lostKey: undefined,
    };
    this.#all.push(family);
    this.#free.push(family);
  }

  #send(path: string, body: object, idempotencyKey?: string): Promise<Answer> {
    const headers = {
      'x-api-key': this.#installation.key,
      ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
    };
    return this.#balancer.send({ path, headers, body, timeoutMs: TIMEOUT_MS });
  }
}
