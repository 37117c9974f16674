import { LRUCache } from 'lru-cache';
import { SingleFlight } from '../../../platform/queues.ts';
import type { IdentityContext } from '../context.ts';
import type { Connections } from './connections.ts';
import { connectionKey, OPENED, type Credential, type HeldConnection } from './holdings.ts';
import { NeedsReauth, ProviderRefresh, type IssuerOf, type VersionedTokens } from './provider-refresh.ts';

/** A server's refusal of a token triggers a refresh at most this often. */
const REFRESH_AFTER_REFUSAL_MS = 60_000;

/** The access tokens of connections, refreshed when they run out. */
export class AccessTokens {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #refresh: ProviderRefresh;
  readonly #opened = new LRUCache<string, Credential>(OPENED);
  readonly #refreshing = new SingleFlight<VersionedTokens>();
  /** The last refresh of each connection after a refusal. */
  readonly #reserved = new LRUCache<string, { version: number; atMs: number }>({ max: 10_000 });

  constructor(context: IdentityContext, all: Connections) {
    this.#context = context;
    this.#connections = all;
    this.#refresh = new ProviderRefresh(context, all);
  }

  /**
   * Returns the credential of a connection's access token, refreshed if it has run out.
   * @param issuerOf finds what issued the tokens
   * @param options `refused`: the server refused this token, so it is refreshed in any case
   * @returns undefined if only the user can renew the connection
   * @throws SwitchboardError `provider_unavailable`
   */
  async of(
    row: HeldConnection,
    issuerOf: IssuerOf,
    { refused }: { readonly refused: boolean } = { refused: false },
  ): Promise<Credential | undefined> {
    if (row.status === 'needs_reauth') return undefined;
    if (row.fresh && !refused) return this.#open(row);
    const { id, version } = row;
    try {
      const refresh = () => this.#refresh.run(issuerOf, id, version);
      return credentialOf(row, await this.#refreshing.run(`${id}/${version}`, refresh));
    } catch (error) {
      if (error instanceof NeedsReauth) return undefined;
      throw error;
    }
  }

  /**
   * Returns whether a refused token may be refreshed, and remembers that it is. A server that refuses every token must not turn
   * each call into a refresh. Calls with the same refused token share one.
   */
  tryReserveRefresh({ id, version, hasRefreshToken }: HeldConnection): boolean {
    if (!hasRefreshToken) return false;
    const now = this.#context.clock.now();
    const last = this.#reserved.get(id);
    if (last && version !== last.version && now - last.atMs < REFRESH_AFTER_REFUSAL_MS) return false;
    this.#reserved.set(id, { version, atMs: now });
    return true;
  }

  async #open(row: HeldConnection): Promise<Credential | undefined> {
    // The whole row, because a sealed text is valid only in its own row.
    const key = JSON.stringify(row);
    const known = this.#opened.get(key);
    if (known) return known;
    const tokens = await this.#connections.tokensOf(row);
    if (!tokens) return undefined;
    const { version, signIn } = row;
    const credential = credentialOf(row, { ...tokens, version, signIn });
    this.#opened.set(key, credential);
    return credential;
  }
}

const credentialOf = (
  { id, issuer }: HeldConnection,
  { accessToken, version, signIn }: VersionedTokens,
): Credential => ({
  connectionKey: connectionKey({ id, issuer, signIn }),
  version,
  headers: { authorization: `Bearer ${accessToken}` },
  secrets: [accessToken],
});
