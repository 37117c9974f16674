import { z } from 'zod';
import { SwitchboardError } from '../../errors.ts';
import { Repeat, slices, type Clock } from '../../platform/time.ts';
import type { Database, OpenDatabase } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { CatalogueChange, OnProgress } from '../catalogue/changes.ts';
import type { ReadOptions } from '../catalogue/import-file.ts';
import { createGuardedFetch } from '../../platform/outbound/fetch.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { ClusterLock } from '../../platform/database/cluster-lock.ts';
import { readJsonSetting, writeJsonSetting } from '../../platform/database/settings.ts';
import { LOCKS } from '../locks.ts';
import { laterOf, Listing, readItem } from './entry.ts';
import { CLIENT_LIMITS, pagesOf, type ClientLimits } from './client.ts';

/** The overlap with the last sync, for open writes and clock differences. */
const OVERLAP_MS = 600_000;
/** Everything is requested once a day, which repairs what listings of changes have missed. */
const FULL_EVERY_MS = 86_400_000;
/** How often the schedule checks whether a sync is due. */
const LOOK_EVERY_MS = 60_000;

const stateSchema = z.object({
  /** The latest `updatedAt` seen, by the registry's clock. */
  highWater: z.iso.datetime({ offset: true }).optional(),
  fullAtMs: z.number().optional(),
  syncedAtMs: z.number().optional(),
});

/** Progress of the syncs with one registry, shared by all processes on the database. */
export type SyncState = z.output<typeof stateSchema>;

const stateKey = (source: string): string => `registry_sync ${source}`;

interface SyncParts extends ReadOptions {
  readonly catalogue: Catalogue;
  readonly db: Database;
  readonly hold: OpenDatabase['hold'];
  readonly log: Log;
  readonly clock: Clock;
  readonly guard: Guard;
  /** Keys by registry address. They must never reach a log or an error. */
  readonly keys: ReadonlyMap<string, string>;
  /** A sync that would deactivate a larger share of a registry's servers is refused. */
  readonly maxShrinkPercent: number;
  readonly limits?: Partial<ClientLimits> | undefined;
}

export interface SyncOptions {
  /** Requests everything; otherwise only changes since the last sync, if there was one. */
  readonly full: boolean;
  /** Syncs even if many servers would become inactive. */
  readonly force?: boolean;
  /** Called with the number of entries read so far. */
  readonly onListed?: (entries: number) => void;
  readonly onProgress?: OnProgress;
  /** Called once if another sync, here or in another process, has to end first. */
  readonly onWait?: () => void;
  /** Called in the transaction of the sync; not called if it is refused. */
  readonly inSameTransaction?: (tx: Database, done: SyncDone) => Promise<void>;
  /** Cancels the sync without any effect, until it is committed. */
  readonly signal?: AbortSignal;
}

export interface SyncReport {
  readonly registry: string;
  readonly mode: 'full' | 'incremental';
  /** The number of entries that the registry listed. */
  readonly received: number;
  /** The number of active servers that match the registry. */
  readonly synced: number;
  readonly deactivated: number;
  /**
   * The number of entries skipped because their id or address belongs to the operator, the shipped catalogue or another registry.
   */
  readonly left: number;
  readonly skipped: {
    readonly deleted: number;
    readonly no_remote: number;
    readonly needs_configuration: number;
  };
  readonly problems: readonly { readonly name?: string; readonly reason: string }[];
  readonly bad: number;
  /** Why nothing was changed; absent if the sync succeeded. */
  readonly refused?: string;
}

export type SyncDone = Pick<SyncReport, 'mode' | 'synced' | 'deactivated' | 'left'>;

class Shrunk extends Error {
  override readonly name = 'Shrunk';
}

/** Imports registries' servers into the catalogue. Syncs run one after another across all processes on the database. */
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

  /** Cancels the current sync, unless it is being committed. */
  async close(): Promise<void> {
    this.#closing.abort(new SwitchboardError('unavailable', 'Switchboard is stopping. Nothing was changed.'));
    await this.#outbound.close();
  }

  /**
   * Reads the whole listing and then imports it, all or nothing.
   * @param source the registry's address, normalised by `registryUrl`
   * @throws SwitchboardError `upstream_…` if the registry fails
   */
  sync(source: string, { onWait = () => {}, signal, ...options }: SyncOptions): Promise<SyncReport> {
    const ended = AbortSignal.any([this.#closing.signal, ...(signal ? [signal] : [])]);
    return this.#lock.run(ended, onWait, held => this.#sync(source, { ...options, signal: held }));
  }

  /** Syncs unless another process is syncing, or has synced with this registry since `sinceMs`; resolves to undefined then. */
  syncUnlessSynced(source: string, sinceMs: number, full: boolean): Promise<SyncReport | undefined> {
    return this.#lock.runIfFree(this.#closing.signal, async signal => {
      const { syncedAtMs = -Infinity } = await this.state(source);
      return syncedAtMs > sinceMs ? undefined : this.#sync(source, { full, signal });
    });
  }

  state(source: string): Promise<SyncState> {
    return readJsonSetting(this.#parts.db, stateKey(source), stateSchema).then(state => state ?? {});
  }

  async #sync(
    source: string,
    { full, force = false, onListed, onProgress, inSameTransaction, signal }: Turn,
  ): Promise<SyncReport> {
    const { catalogue, log, clock } = this.#parts;
    const before = await this.state(source);
    const since = full ? undefined : before.highWater;
    const startedAtMs = clock.now();
    const listing = await this.#list({ source, since, signal, onListed });
    const mode = since === undefined ? 'full' : 'incremental';
    const { entries, marks, ended, kept } = listing;
    const report = { registry: source, mode, ...listing.counts } as const;
    let change: CatalogueChange;
    try {
      change = await catalogue.put(entries, {
        origin: 'registry',
        signal,
        replace: mode === 'full',
        exclude: kept,
        registry: { source, marks, ended, approve: force ? () => {} : this.#approve },
        inSameTransaction: async (tx, stored) => {
          await writeJsonSetting(tx, stateKey(source), {
            highWater: notAfter(laterOf(before.highWater, listing.highWater), startedAtMs),
            fullAtMs: mode === 'full' ? startedAtMs : before.fullAtMs,
            syncedAtMs: startedAtMs,
          });
          await inSameTransaction?.(tx, { mode, ...amountsOf(stored) });
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

  async #list({ source, since, signal, onListed }: ListingOptions): Promise<Listing> {
    const { catalogue, keys, limits, allowHttp } = this.#parts;
    const pause = slices();
    const listing = new Listing(id => catalogue.get(id)?.registry?.name);
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
        listing.add(readItem(item, source, { allowHttp }));
        await pause();
      }
      onListed?.(listing.counts.received);
    }
    return listing;
  }

  readonly #approve = (ending: number, of: number): void => {
    const { maxShrinkPercent } = this.#parts;
    if (ending * 100 <= of * maxShrinkPercent) return;
    throw new Shrunk(
      `${ending} of the ${of} servers that came from this registry would become inactive, which is more than ${maxShrinkPercent} %. Nothing was changed. If this is expected, run switchboard catalogue sync with --force.`,
    );
  };
}

const amountsOf = ({ upserted, removed, left = [] }: CatalogueChange) => ({
  synced: upserted.length,
  deactivated: removed.length,
  left: left.length,
});

type Turn = Omit<SyncOptions, 'onWait'> & { readonly signal: AbortSignal };

interface ListingOptions {
  readonly source: string;
  /** RFC 3339. */
  readonly since: string | undefined;
  readonly signal: AbortSignal;
  readonly onListed: SyncOptions['onListed'];
}

/** Limits a time to now: a registry whose clock is ahead must not hide its own later changes. */
const notAfter = (time: string | undefined, nowMs: number): string | undefined =>
  time !== undefined && Date.parse(time) > nowMs ? new Date(nowMs).toISOString() : time;

interface ScheduleParts {
  readonly sync: Pick<RegistrySync, 'state' | 'syncUnlessSynced'>;
  readonly sources: readonly string[];
  readonly everyMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Syncs with every registry once per interval, even across restarts. The wait after a failure is the same as after a success.
 * Processes on one database share the syncs: none repeats what another did less than half an interval ago.
 */
export class SyncSchedule {
  readonly #parts: ScheduleParts;
  readonly #triedAtMs = new Map<string, number>();
  readonly #repeat = new Repeat(LOOK_EVERY_MS, () => this.syncDue());
  #isStopped = false;

  constructor(parts: ScheduleParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#parts.sources.length > 0) this.#repeat.start();
  }

  stop(): void {
    this.#isStopped = true;
    void this.#repeat.stop();
  }

  /** Resolves when every due registry has been synced or has failed. */
  async syncDue(): Promise<void> {
    for (const source of this.#parts.sources) {
      if (!this.#isStopped) await this.#syncIfDue(source);
    }
  }

  async #syncIfDue(source: string): Promise<void> {
    const { sync, everyMs, clock, log } = this.#parts;
    try {
      const { syncedAtMs, fullAtMs } = await sync.state(source);
      const now = clock.now();
      const lastMs = Math.max(syncedAtMs ?? -Infinity, this.#triedAtMs.get(source) ?? -Infinity);
      if (now - lastMs < everyMs) return;
      this.#triedAtMs.set(source, now);
      const full = now - (fullAtMs ?? -Infinity) >= FULL_EVERY_MS;
      const report = await sync.syncUnlessSynced(source, now - everyMs / 2, full);
      if (report) return;
      this.#triedAtMs.delete(source);
      log.info({ registry: source }, 'skipped a registry sync that another process is running');
    } catch (error) {
      if (!this.#isStopped) log.warn({ registry: source, err: error }, 'registry sync failed');
    }
  }
}
