interface Stored {
  readonly key: string;
  readonly tenantId: string;
  readonly calls: number;
}

/** Sessions by key, least recently used first, bounded in all and per tenant. */
export class SessionStore<S extends Stored> {
  readonly #byKey = new Map<string, S>();
  readonly #max: number;
  readonly #maxPerTenant: number;

  constructor(max: number, maxPerTenant: number) {
    this.#max = max;
    this.#maxPerTenant = maxPerTenant;
  }

  get size(): number {
    return this.#byKey.size;
  }

  values(): S[] {
    return [...this.#byKey.values()];
  }

  get(key: string): S | undefined {
    const session = this.#byKey.get(key);
    if (session) {
      this.#byKey.delete(key);
      this.#byKey.set(key, session);
    }
    return session;
  }

  /** Returns the sessions that must go for it: of the tenant that has too many, else of all; idle ones before busy ones. */
  add(session: S): S[] {
    this.#byKey.set(session.key, session);
    const others = this.values().filter(other => other !== session);
    const own = others.filter(other => other.tenantId === session.tenantId);
    const tooMany = own.length >= this.#maxPerTenant ? own : others;
    const victim = tooMany === own || others.length >= this.#max ? leastUseful(tooMany) : undefined;
    return victim ? [victim] : [];
  }

  remove(session: S): void {
    if (this.#byKey.get(session.key) === session) this.#byKey.delete(session.key);
  }
}

const leastUseful = <S extends Stored>(sessions: readonly S[]): S | undefined =>
  sessions.find(session => session.calls === 0) ?? sessions[0];
