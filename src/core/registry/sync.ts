import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Database, OpenDatabase } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { slices } from '../../platform/yield.ts';
import type { Catalogue, CatalogueChange, OnProgress } from '../catalogue/catalogue.ts';
import type { ReadOptions } from '../catalogue/import-file.ts';
import { createGuardedFetch } from '../../platform/outbound/guarded-fetch.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { ClusterLock } from '../../platform/database/cluster-lock.ts';
import { LOCKS } from '../locks.ts';
import { Collected, laterOf } from './listing.ts';
import { CLIENT_LIMITS, pagesOf, type ClientLimits } from './client.ts';
import { readItem } from './entry.ts';
import { readState, writeState, type SyncState } from './state.ts';

/** What is asked for again of the time before the last sync: writes that were under way then, and clocks that differ. */
const OVERLAP_MS = 600_000;
interface SyncParts extends ReadOptions {
  readonly catalogue: Catalogue;
  readonly db: Database;
  readonly hold: OpenDatabase['hold'];
  readonly log: Log;
  readonly clock: Clock;
  readonly guard: Guard;
  /** By `registryUrl`. They must reach no log and no error. */
  readonly keys: ReadonlyMap<string, string>;
  /** In percent: a sync that would make more than this share of a registry's servers inactive is refused. */
  readonly maxShrinkPercent: number;
  readonly limits?: Partial<ClientLimits> | undefined;
}

export interface SyncOptions {
  /** Whether everything is asked for, or what has changed since the last sync, where there was one. */
  readonly full: boolean;
  /** Also when much would become inactive. */
  readonly force?: boolean;
  /** Hears how many entries have been read. */
  readonly onListed?: (entries: number) => void;
  readonly onProgress?: OnProgress;
  /** Hears, once, that another sync is under way, here or in another process, which is waited for. */
  readonly onWait?: () => void;
  /** Writes what is to stand or fall with the sync, within its transaction; not called where it is refused. */
  readonly alongside?: (tx: Database, done: SyncDone) => Promise<void>;
  /** Ends it, with everything as it was, until it is committed. */
  readonly signal?: AbortSignal;
}

export interface SyncReport {
  readonly registry: string;
  readonly mode: 'full' | 'incremental';
  /** Entries that the registry listed. */
  readonly received: number;
  /** Servers that are active and as the registry has them. */
  readonly synced: number;
  readonly deactivated: number;
  /** Entries whose id or address belongs to the operator, the shipped catalogue or another registry. */
  readonly left: number;
  readonly skipped: {
    readonly deleted: number;
    readonly no_remote: number;
    readonly needs_configuration: number;
  };
  readonly problems: readonly { readonly name?: string; readonly reason: string }[];
  readonly bad: number;
  /** Why nothing was changed, if so. */
  readonly refused?: string;
}

export type SyncDone = Pick<SyncReport, 'mode' | 'synced' | 'deactivated' | 'left'>;

class Shrunk extends Error {
  override readonly name = 'Shrunk';
}

/** Brings what registries list into the catalogue. Syncs run one after another, of all processes on the database. */
export class RegistrySync {
  readonly #parts: SyncParts;
  readonly #outbound: ReturnType<typeof createGuardedFetch>;
  readonly #closing = new AbortController();
  readonly #lock: ClusterLock;

  constructor(parts: SyncParts) {
    this.#parts = parts;
    this.#lock = new ClusterLock(parts.hold, LOCKS.sync);
    this.#outbound = createGuardedFetch(
      parts.guard,
      parts.limits?.maxPageBytes ?? CLIENT_LIMITS.maxPageBytes,
    );
  }

  /** Ends what is under way, unless it is being committed. */
  async close(): Promise<void> {
    this.#closing.abort(new SwitchboardError('unavailable', 'Switchboard is stopping. Nothing was changed.'));
    await this.#outbound.close();
  }

  /**
   * The listing is read to its end before anything is changed, and then put into the catalogue as an import is, all or nothing.
   * @param source see `registryUrl`
   * @throws SwitchboardError `upstream_…` when the registry fails
   */
  sync(source: string, { onWait = () => {}, signal, ...options }: SyncOptions): Promise<SyncReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#lock.run(ended, onWait, held => this.#sync(source, { ...options, signal: held }));
  }

  /**
   * Asks for what has changed, or everything, unless another process is at a sync or this registry has been synced with since
   * then: undefined.
   * @param sinceMs on the clock
   */
  syncUnlessSynced(source: string, sinceMs: number, full: boolean): Promise<SyncReport | undefined> {
    return this.#lock.runIfFree(this.#closing.signal, async signal => {
      const { syncedAtMs = -Infinity } = await this.state(source);
      return syncedAtMs > sinceMs ? undefined : this.#sync(source, { full, signal });
    });
  }

  state(source: string): Promise<SyncState> {
    return readState(this.#parts.db, source);
  }

  async #sync(
    source: string,
    { full, force = false, onListed, onProgress, alongside, signal }: Turn,
  ): Promise<SyncReport> {
    const { catalogue, log, clock } = this.#parts;
    const before = await this.state(source);
    const since = full ? undefined : before.highWater;
    const startedAtMs = clock.now();
    const collected = await this.#collect({ source, since, signal, onListed });
    const mode = since === undefined ? 'full' : 'incremental';
    const { entries, marks, ended, kept } = collected;
    const report = { registry: source, mode, ...collected.counts } as const;
    let change: CatalogueChange;
    try {
      change = await catalogue.put(entries, {
        origin: 'registry',
        signal,
        replace: mode === 'full',
        keep: kept,
        registry: { source, marks, ended, approve: force ? () => {} : this.#approve },
        alongside: async (tx, stored) => {
          await writeState(tx, source, {
            highWater: notAfter(laterOf(before.highWater, collected.highWater), startedAtMs),
            fullAtMs: mode === 'full' ? startedAtMs : before.fullAtMs,
            syncedAtMs: startedAtMs,
          });
          await alongside?.(tx, { mode, ...amountsOf(stored) });
        },
        ...(onProgress === undefined ? {} : { onProgress }),
      });
    } catch (error) {
      if (!(error instanceof Shrunk)) throw error;
      log.warn({ registry: source, reason: error.message }, 'registry sync refused');
      return { ...report, synced: 0, deactivated: 0, left: 0, refused: error.message };
    }
    const done = amountsOf(change);
    log.info({ registry: source, mode, received: report.received, ...done }, 'registry synced');
    return { ...report, ...done };
  }

  async #collect({ source, since, signal, onListed }: Collecting): Promise<Collected> {
    const { catalogue, keys, limits, allowHttp } = this.#parts;
    const pause = slices();
    const collected = new Collected(id => catalogue.get(id)?.registry?.name);
    const updatedSince =
      since === undefined ? undefined : new Date(Date.parse(since) - OVERLAP_MS).toISOString();
    const options = {
      fetch: this.#outbound.fetch,
      key: keys.get(source),
      signal,
      ...(limits === undefined ? {} : { limits }),
    };
    for await (const page of pagesOf({ source, updatedSince }, options)) {
      for (const item of page) {
        collected.add(readItem(item, source, { allowHttp }));
        await pause();
      }
      onListed?.(collected.counts.received);
    }
    return collected;
  }

  readonly #approve = (ending: number, of: number): void => {
    const { maxShrinkPercent } = this.#parts;
    if (ending * 100 <= of * maxShrinkPercent) return;
    throw new Shrunk(
      `${ending} of the ${of} servers that came from this registry would become inactive, more than ${maxShrinkPercent} %: nothing was changed. If that is right, run switchboard catalogue sync with --force.`,
    );
  };
}

const amountsOf = ({ upserted, removed, left = [] }: CatalogueChange) => ({
  synced: upserted.length,
  deactivated: removed.length,
  left: left.length,
});

type Turn = Omit<SyncOptions, 'onWait'> & { readonly signal: AbortSignal };

interface Collecting {
  readonly source: string;
  /** RFC 3339. */
  readonly since: string | undefined;
  readonly signal: AbortSignal;
  readonly onListed: SyncOptions['onListed'];
}

/** A registry whose clock is wrong must not keep its own changes from being asked for. */
const notAfter = (time: string | undefined, nowMs: number): string | undefined =>
  time !== undefined && Date.parse(time) > nowMs ? new Date(nowMs).toISOString() : time;
