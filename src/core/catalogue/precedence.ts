import type { Origin, RegistryMark, Server } from './entry.ts';

/** What comes of a sync with a registry, besides the entries themselves. */
export interface FromRegistry {
  readonly source: string;
  /** By id: where each entry came from. */
  readonly marks: ReadonlyMap<string, RegistryMark>;
  /** Ids that the registry says have ended. */
  readonly ended: ReadonlySet<string>;
  /**
   * Hears how many of this registry's active servers would become inactive, before anything is written. What it throws ends
   * the write.
   */
  readonly approve: (ending: number, of: number) => void;
}

/** Who writes which servers; see `Catalogue.put`. */
export interface Writer {
  readonly origin: Origin;
  readonly replace: boolean;
  readonly keep: ReadonlySet<string> | undefined;
  readonly registry: FromRegistry | undefined;
}

/**
 * Takes out of `wanted` what belongs to others: a shipped entry never overwrites an operator's; a registry's entry nobody's but
 * its own, and one for an address that stands here without it is not added again; neither brings back what is inactive since it
 * does not answer, at the same address. Resolves to the ids taken out.
 */
export function withoutOthers(
  wanted: Map<string, Server>,
  { origin, registry }: Writer,
  known: ReadonlyMap<string, Server>,
): string[] {
  if (origin === 'operator') return [];
  const addresses = registry ? ownAddresses(known.values()) : new Set<string>();
  const others = [...wanted.values()].filter(({ id, remoteUrl }) => {
    const old = known.get(id);
    if (old?.unanswered && old.remoteUrl === remoteUrl) return true;
    if (!registry) return old?.origin === 'operator';
    if (old && !isOf(old, registry.source)) return true;
    return !old?.active && addresses.has(addressOf(remoteUrl));
  });
  for (const { id } of others) wanted.delete(id);
  return others.map(({ id }) => id);
}

/**
 * The servers that the write makes inactive for good.
 * @param left ids that `withoutOthers` has taken out
 * @param standing active, or without an answer
 * @throws whatever `approve` does */
export function endedBy(
  wanted: ReadonlyMap<string, Server>,
  { origin, replace, keep, registry }: Writer,
  left: ReadonlySet<string>,
  standing: Iterable<Server>,
): Server[] {
  const isAbsent = ({ id }: Server) => replace && !wanted.has(id) && !left.has(id) && !keep?.has(id);
  if (!registry) {
    return [...standing].filter(old => isAbsent(old) && (origin === 'operator' || old.origin === 'shipped'));
  }
  const own = [...standing].filter(old => isOf(old, registry.source));
  const gone = own.filter(old => isAbsent(old) || registry.ended.has(old.id));
  registry.approve(gone.length, own.length);
  return gone;
}

const isOf = ({ origin, registry }: Server, source: string): boolean =>
  origin === 'registry' && registry?.source === source;

/** Of servers that are here without any registry, and of those that the operator does not want. */
function ownAddresses(servers: Iterable<Server>): Set<string> {
  const addresses = new Set<string>();
  for (const { origin, active, unanswered = false, remoteUrl } of servers) {
    if (origin === 'operator' || (origin === 'shipped' && (active || unanswered)))
      addresses.add(addressOf(remoteUrl));
  }
  return addresses;
}

const addressOf = (remoteUrl: string): string => new URL(remoteUrl).href.replace(/\/$/, '');
