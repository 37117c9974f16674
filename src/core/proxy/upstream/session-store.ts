interface Stored {
  readonly key: string;
  readonly tenantId: string;
  readonly serverId: string;
  readonly calls: number;
}

interface Bounds {
  readonly maxSessions: number;
  readonly maxSessionsPerTenant: number;
  readonly maxSessionsPerServer: number;
}

/** Sessions by key, least recently used first, bounded in all, per tenant and per server. */
export class SessionStore<S extends Stored> {
  readonly #byKey = new Map<string, S>();
  readonly #bounds: Bounds;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
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

  /** Takes out and returns the sessions that must go for it, of each group that is too large; idle ones before busy ones. */
  add(session: S): S[] {
    const { maxSessions, maxSessionsPerTenant, maxSessionsPerServer } = this.#bounds;
    const victims: S[] = [];
    const makeRoom = (max: number, belongs: (other: S) => boolean) => {
      const group = this.values().filter(belongs);
      const victim = group.length >= max ? leastUseful(group) : undefined;
      if (!victim) return;
      this.remove(victim);
      victims.push(victim);
    };
    makeRoom(maxSessionsPerTenant, other => other.tenantId === session.tenantId);
    makeRoom(maxSessionsPerServer, other => other.serverId === session.serverId);
    makeRoom(maxSessions, () => true);
    this.#byKey.set(session.key, session);
    return victims;
  }

  remove(session: S): void {
    if (this.#byKey.get(session.key) === session) this.#byKey.delete(session.key);
  }
}

const leastUseful = <S extends Stored>(sessions: readonly S[]): S | undefined =>
  sessions.find(session => session.calls === 0) ?? sessions[0];
