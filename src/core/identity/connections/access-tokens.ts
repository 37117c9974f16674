import { LRUCache } from 'lru-cache';
import { SingleFlight } from '../../../platform/queues.ts';
import type { IdentityContext } from '../context.ts';
import type { Connections } from './connections.ts';
import { isSameRow, type HeldConnection } from './holdings.ts';
import { NeedsReauth, ProviderRefresh, type IssuerOf, type VersionedTokens } from './provider-refresh.ts';
import type { Credential } from './holdings.ts';

/** A server's refusal of a token triggers a refresh at most this often. */
const FORCE_EVERY_MS = 60_000;
/** How long a decrypted token is cached: except for the query, decrypting is the most expensive step. */
const OPENED_MS = 60_000;

/** The access tokens of connections, refreshed when they run out. */
export class AccessTokens {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #refresh: ProviderRefresh;
  /** Credentials by the sealed text that they were opened from. */
  readonly #opened = new LRUCache<string, { row: HeldConnection; credential: Credential }>({
    max: 5_000,
    ttl: OPENED_MS,
  });
  readonly #refreshing = new SingleFlight<VersionedTokens>();
  readonly #forced = new LRUCache<string, { version: number; atMs: number }>({ max: 10_000 });

  constructor(context: IdentityContext, connections: Connections) {
    this.#context = context;
    this.#connections = connections;
    this.#refresh = new ProviderRefresh(context, connections);
  }

  /**
   * Returns the credential of a connection's access token, refreshed if it has run out.
   * @param issuerOf finds what issued the tokens
   * @param refused true: the server refused this token, so it is refreshed in any case
   * @returns undefined if only the user can renew the connection
   * @throws SwitchboardError `provider_unavailable`
   */
  async of(row: HeldConnection, issuerOf: IssuerOf, refused = false): Promise<Credential | undefined> {
    if (row.status === 'needs_reauth') return undefined;
    if (row.fresh && !refused) return this.#open(row);
    const { id, version } = row;
    try {
      const refresh = () => this.#refresh.run(issuerOf, id, version);
      return credentialOf(id, await this.#refreshing.run(`${id}/${version}`, refresh));
    } catch (error) {
      if (error instanceof NeedsReauth) return undefined;
      throw error;
    }
  }

  /**
   * Returns whether a refused token may be refreshed. A server that refuses every token must not turn each call into a
   * refresh. Calls with the same refused token share one.
   */
  mayForce({ id, version, hasRefreshToken }: HeldConnection): boolean {
    if (!hasRefreshToken) return false;
    const now = this.#context.clock.now();
    const last = this.#forced.get(id);
    if (last && version !== last.version && now - last.atMs < FORCE_EVERY_MS) return false;
    this.#forced.set(id, { version, atMs: now });
    return true;
  }

  async #open(row: HeldConnection): Promise<Credential | undefined> {
    const key = row.sealed ?? '';
    const known = this.#opened.get(key);
    // A sealed text is valid only in its own row.
    if (known && isSameRow(known.row, row)) return known.credential;
    const tokens = await this.#connections.tokensOf(row);
    if (!tokens) return undefined;
    const credential = credentialOf(row.id, { ...tokens, version: row.version });
    this.#opened.set(key, { row, credential });
    return credential;
  }
}

const credentialOf = (connectionId: string, { accessToken, version }: VersionedTokens): Credential => ({
  connectionId,
  version,
  headers: { authorization: `Bearer ${accessToken}` },
  secrets: [accessToken],
});
