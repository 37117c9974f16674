import type { Adapter, AdapterPayload } from 'oidc-provider';

/** What the provider remembers, kept here so that a test can end a user's grants from the provider's side. */
export class ProviderStore {
  readonly #records = new Map<string, AdapterPayload>();
  readonly #client: () => AdapterPayload;

  /**
   * The client is asked for at every look-up, never stored: the provider builds clients anew from what its adapter finds,
   * so a redirect URI allowed later counts from the next request on.
   */
  constructor(client: () => AdapterPayload) {
    this.#client = client;
  }

  /** For the provider's `adapter` option. Expiry needs no work here: the provider checks `exp` itself. */
  adapter(model: string): Adapter {
    const key = (id: string) => `${model}:${id}`;
    const findBy = (field: 'uid' | 'userCode', value: string) =>
      [...this.#records].find(([at, record]) => at.startsWith(`${model}:`) && record[field] === value)?.[1];
    return {
      upsert: async (id, payload) => void this.#records.set(key(id), payload),
      find: async id => {
        if (model !== 'Client') return this.#records.get(key(id));
        const client = this.#client();
        return client.client_id === id ? client : undefined;
      },
      findByUid: async uid => findBy('uid', uid),
      findByUserCode: async userCode => findBy('userCode', userCode),
      consume: async id => {
        const record = this.#records.get(key(id));
        if (record) record.consumed = Math.floor(Date.now() / 1000);
      },
      destroy: async id => void this.#records.delete(key(id)),
      revokeByGrantId: async grantId => this.#delete(({ grantId: of }) => of === grantId),
    };
  }

  /** Ends every grant, token, code and session of the user. */
  forget(accountId: string): void {
    this.#delete(record => record.accountId === accountId);
  }

  #delete(matches: (record: AdapterPayload) => boolean): void {
    for (const [key, record] of this.#records) if (matches(record)) this.#records.delete(key);
  }
}
