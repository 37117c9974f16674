import { errors, type Adapter, type AdapterPayload } from 'oidc-provider';
import type { Grants } from '../../core/identity/grants/grants.ts';
import type { StoredRecord } from '../../core/identity/grants/records.ts';

/** A registration of a client (RFC 7591) is deleted after this time in seconds, unless a user meets it (`Grants.keepClient`). */
const NEW_CLIENT_SEC = 86_400;
/** Models that may be used once only. */
const ONCE: ReadonlySet<string> = new Set(['AuthorizationCode', 'RefreshToken']);

/** Stores the models of `oidc-provider` as authorization records. A model's id may be a secret, and is kept only as a hash. */
export class RecordAdapter implements Adapter {
  readonly #kind: string;
  readonly #grants: Grants;

  constructor(kind: string, grants: Grants) {
    this.#kind = kind;
    this.#grants = grants;
  }

  async upsert(id: string, payload: AdapterPayload, expiresIn: number | undefined): Promise<void> {
    const { grantId, uid } = payload;
    const ttlSec = this.#kind === 'Client' ? NEW_CLIENT_SEC : (expiresIn ?? 0);
    // A grant's own id is the key that stands for it.
    const ofGrant = this.#kind === 'Grant' ? id : this.#kind === 'Session' ? undefined : grantId;
    const kept = this.#kind === 'Session' ? withoutAccount(payload) : payload;
    await this.#grants.records.put(this.#kind, id, { payload: kept, ttlSec, grantId: ofGrant, uid });
    if (this.#kind !== 'RefreshToken' || grantId === undefined) return;
    await this.#grants.prolong(grantId, ttlSec);
    await this.#grants.keepClient(payload.clientId ?? '');
  }

  async find(id: string): Promise<AdapterPayload | undefined> {
    const found = await this.#grants.records.find(this.#kind, id);
    if (!found) return undefined;
    const payload = this.#payloadOf(found);
    // `oidc-provider` then calls `revokeByGrantId`.
    if (payload.consumed && payload.grantId !== undefined) await this.#grants.noteReuse(payload.grantId);
    return payload;
  }

  async findByUid(uid: string): Promise<AdapterPayload | undefined> {
    const found = await this.#grants.records.findByUid(this.#kind, uid);
    return found && this.#payloadOf(found);
  }

  /** The device flow is not offered. */
  findByUserCode(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** @throws errors.InvalidGrant if a code is used twice at once; each sees that it is unused, and one comes first */
  async consume(id: string): Promise<void> {
    const isFirst = await this.#grants.records.use(this.#kind, id);
    if (!isFirst && this.#kind === 'AuthorizationCode')
      throw new errors.InvalidGrant('the authorization code was already used');
  }

  async destroy(id: string): Promise<void> {
    await this.#grants.records.drop(this.#kind, id);
  }

  /** Ends the sign-in as a whole, with the access tokens that were issued. */
  async revokeByGrantId(grantId: string): Promise<void> {
    await this.#grants.end(grantId);
  }

  #payloadOf({ payload, usedForMs }: StoredRecord): AdapterPayload {
    if (usedForMs === undefined || !ONCE.has(this.#kind)) return payload;
    // A client that refreshes twice at the same time is no thief.
    const isRace = this.#kind === 'RefreshToken' && usedForMs < this.#grants.refreshRaceMs;
    return isRace ? payload : { ...payload, consumed: true };
  }
}

/**
 * A browser's session only holds its sign-ins together while they last. Without an account in it, two clients can be connected at
 * the same time, and each consent says anew who it is of.
 */
function withoutAccount(payload: AdapterPayload): AdapterPayload {
  const { accountId: _account, loginTs: _at, authorizations: _clients, ...kept } = payload;
  return kept;
}
