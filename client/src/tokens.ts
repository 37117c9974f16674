import type { operations } from './openapi.ts';

/** An identity token and the refresh token for the next one, as the API issues them. */
export type TokenSet = operations['refreshToken']['responses'][200]['content']['application/json'];

/** A token set that says when its identity token expires, by this machine's clock. */
export type Tokens = TokenSet & { readonly expires_at: string };

/** Keeps a user's token set over restarts, and shares it between processes. */
export interface TokenStore {
  /** Replaces the set. The new one is used only once this has resolved. */
  save(tokens: Tokens): Promise<unknown>;
  /** Resolves to the set saved last. Without it, only one process may act for the user. */
  load?(): Promise<Tokens | undefined>;
}

/** A token that expires sooner is renewed before it is used. */
const LEEWAY_MS = 60_000;

/**
 * Renews the tokens of one user: shortly before they expire, and when a call says that they are invalid.
 *
 * A refresh token works once, so a new set must be saved before the old one may be forgotten. If the process dies in between,
 * the old set is still in the store, and refreshing it within a minute returns the same new set (`idempotencyKey`). After that
 * minute it counts as stolen: refreshing fails with `invalid_grant`, and the user must sign in again.
 */
export class UserTokens {
  readonly #api: { refresh(refreshToken: string): Promise<Tokens> };
  readonly #store: TokenStore;
  #current: Tokens;
  /** Issued, but not saved: the next attempt begins with saving it. */
  #unsaved: Tokens | undefined;
  #renewal: Promise<void> | undefined;

  /** @param api a `Switchboard` */
  constructor(api: { refresh(refreshToken: string): Promise<Tokens> }, tokens: Tokens, store: TokenStore) {
    this.#api = api;
    this.#current = tokens;
    this.#store = store;
  }

  /** Resolves to an identity token. @throws SwitchboardError `invalid_grant`: the user must sign in again */
  async accessToken(): Promise<string> {
    const { access_token: token } = this.#current;
    return isDue(this.#current) ? this.renewed(token) : token;
  }

  /**
   * Resolves to an identity token other than the refused one. Concurrent calls share one refresh.
   * @throws SwitchboardError `invalid_grant`: the user must sign in again
   */
  async renewed(refused: string): Promise<string> {
    if (this.#current.access_token === refused)
      await (this.#renewal ??= this.#renew().finally(() => (this.#renewal = undefined)));
    return this.#current.access_token;
  }

  async #renew(): Promise<void> {
    const saved = this.#unsaved === undefined ? await this.#store.load?.() : undefined;
    if (saved !== undefined && saved.expires_at > this.#current.expires_at) {
      this.#current = saved;
      if (!isDue(saved)) return;
    }
    this.#unsaved ??= await this.#api.refresh(this.#current.refresh_token);
    await this.#store.save(this.#unsaved);
    this.#current = this.#unsaved;
    this.#unsaved = undefined;
  }
}

const isDue = ({ expires_at: at }: Tokens) => Date.parse(at) - Date.now() < LEEWAY_MS;

/**
 * Returns the Idempotency-Key of a request that uses up a secret. It is the same after a crash and in every process, so that a
 * repeated request gets the lost response instead of counting as theft.
 */
export async function idempotencyKey(secret: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(`idempotency:${secret}`));
  return Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, '0')).join('');
}
