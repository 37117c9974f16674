import type { Database } from '../../platform/database/database.ts';
import type { HeldServer, Origin, RegistryMark, Server, ServerHead } from './entry.ts';

/** Servers changed by a write: `upserted` ones are active, `removed` ids are no longer found by a search. */
export interface CatalogueChange {
  readonly upserted: readonly Server[];
  readonly removed: readonly string[];
  /** Present if the change is to become visible at once. */
  readonly whole?: WholeCatalogue;
  /** Ids of entries that were skipped because they belong to another owner. */
  readonly left?: readonly string[];
}

/** All servers that are active after a change. */
export interface WholeCatalogue {
  /** The number of servers and of their tools together. */
  readonly parts: number;
  /** True: nothing that was indexed before is valid, and `upserted` is empty. */
  readonly isAnew?: boolean;
  /** Reads them page by page, because all together may take gigabytes. */
  readonly servers: () => AsyncIterable<Server>;
}

/** Reports how many of the texts have been embedded. */
export type OnProgress = (progress: { readonly done: number; readonly of: number }) => void;

/**
 * Prepares a change, which may take minutes and may fail. Resolves with the quick step that applies it; nothing is visible before.
 */
export type PrepareChange = (
  change: CatalogueChange,
  onProgress?: OnProgress,
  signal?: AbortSignal,
) => Promise<() => Promise<void>>;

/** Writes something in the same transaction, such as the audit record. */
export type InSameTransaction = (tx: Database, stored: CatalogueChange) => Promise<void>;

export interface WriteOptions {
  readonly inSameTransaction?: InSameTransaction | undefined;
  /** Cancels the write with its reason and without any effect, until it is committed. */
  readonly signal?: AbortSignal | undefined;
}

export interface PutOptions extends WriteOptions {
  readonly origin: Origin;
  /** Deactivates servers of the same scope that are not among the entries; see `Catalogue.put`. */
  readonly replace?: boolean;
  /** Ids that a replacement keeps active although they are not among the entries. */
  readonly exclude?: ReadonlySet<string>;
  /** Required with the origin `registry`, and only then. */
  readonly registry?: RegistryListing;
  /** Keeps the tools of servers that stay at their address: the entries name none. A registry's never do. */
  readonly keepsTools?: boolean;
  readonly onProgress?: OnProgress | undefined;
}

/** Additional data of a registry sync. */
interface RegistryListing {
  readonly source: string;
  /** The source of each entry, by id. */
  readonly marks: ReadonlyMap<string, RegistryMark>;
  /** Ids that the registry no longer has. */
  readonly ended: ReadonlySet<string>;
  /**
   * Called before anything is written with the number of this registry's servers that would become inactive. An error cancels
   * the write.
   */
  readonly approve: (ending: number, of: number) => void;
}

/**
 * Removes from `wanted` the entries that this writer may not change, and returns their ids. A shipped entry never overwrites
 * an operator's. A registry's entry overwrites only its own, and is not added for an address that already exists from another
 * source. Neither reactivates a server that is inactive as unreachable, unless the address differs.
 */
export function withoutOthers(
  wanted: Map<string, Server>,
  { origin, registry }: PutOptions,
  known: ReadonlyMap<string, ServerHead>,
): string[] {
  if (origin === 'operator') return [];
  const addresses = registry ? addressesOfOthers(known.values()) : new Set<string>();
  const others = [...wanted.values()].filter(({ id, remoteUrl }) => {
    const old = known.get(id);
    if (old?.unreachable && old.remoteUrl === remoteUrl) return true;
    if (!registry) return old?.origin === 'operator';
    if (old && !isOf(old, registry.source)) return true;
    return !old?.active && addresses.has(addressOf(remoteUrl));
  });
  for (const { id } of others) wanted.delete(id);
  return others.map(({ id }) => id);
}

/**
 * Returns the servers that a write deactivates permanently.
 * @param left ids that `withoutOthers` has removed
 * @param listed servers that are active, or inactive only as unreachable
 * @throws the error of `approve`
 */
export function endedBy(
  wanted: ReadonlyMap<string, Server>,
  { origin, replace = false, exclude, registry }: PutOptions,
  left: ReadonlySet<string>,
  listed: Iterable<HeldServer>,
): HeldServer[] {
  const isAbsent = ({ id }: ServerHead) => replace && !wanted.has(id) && !left.has(id) && !exclude?.has(id);
  if (!registry) {
    return [...listed].filter(old => isAbsent(old) && (origin === 'operator' || old.origin === 'shipped'));
  }
  const own = [...listed].filter(old => isOf(old, registry.source));
  const gone = own.filter(old => isAbsent(old) || registry.ended.has(old.id));
  registry.approve(gone.length, own.length);
  return gone;
}

const isOf = ({ origin, registry }: ServerHead, source: string): boolean =>
  origin === 'registry' && registry?.source === source;

/** Returns addresses of servers that came from no registry, including those that the operator deactivated. */
function addressesOfOthers(servers: Iterable<ServerHead>): Set<string> {
  const addresses = new Set<string>();
  for (const { origin, active, unreachable = false, remoteUrl } of servers) {
    if (origin === 'operator' || (origin === 'shipped' && (active || unreachable)))
      addresses.add(addressOf(remoteUrl));
  }
  return addresses;
}

const addressOf = (remoteUrl: string): string => new URL(remoteUrl).href.replace(/\/$/, '');

/** Returns the server as permanently inactive: owned by that origin, and not reactivated by a health check. */
export function withdrawn<Any extends ServerHead>({ unreachable: _any, ...server }: Any, origin: Origin) {
  return { ...server, active: false, origin };
}
