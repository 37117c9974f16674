import { eq } from 'drizzle-orm';
import { z } from 'zod';
import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import { slices } from '../../infra/slices.ts';
import type { Catalogue, CatalogueChange, OnProgress } from '../catalogue/catalogue.ts';
import type { Entry, RegistryMark } from '../catalogue/entry.ts';
import type { ReadOptions } from '../catalogue/read-entries.ts';
import { createGuardedFetch } from '../outbound/guarded-fetch.ts';
import type { Guard } from '../outbound/guard.ts';
import { settings } from '../schema.ts';
import { CLIENT_LIMITS, pagesOf, type ClientLimits } from './registry-client.ts';
import { idFor, readItem, type Read } from './registry-entry.ts';

/** What is asked for again of the time before the last sync: writes that were under way then, and clocks that differ. */
const OVERLAP_MS = 600_000;
/** Problems that a report names. */
const MAX_PROBLEMS = 100;

interface SyncParts extends ReadOptions {
  readonly catalogue: Catalogue;
  readonly db: Database;
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
  readonly onProgress?: OnProgress;
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

const stateSchema = z.object({
  /** The latest `updatedAt` that was seen, by the registry's clock. */
  highWater: z.iso.datetime({ offset: true }).optional(),
  fullAtMs: z.number().optional(),
  syncedAtMs: z.number().optional(),
});
export type SyncState = z.output<typeof stateSchema>;

class Shrunk extends Error {
  override readonly name = 'Shrunk';
}

/** Brings what registries list into the catalogue. Syncs run one after another. */
export class RegistrySync {
  readonly #parts: SyncParts;
  readonly #outbound: ReturnType<typeof createGuardedFetch>;
  readonly #closing = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  constructor(parts: SyncParts) {
    this.#parts = parts;
    this.#outbound = createGuardedFetch(
      parts.guard,
      parts.limits?.maxPageBytes ?? CLIENT_LIMITS.maxPageBytes,
    );
  }

  /** Ends the reading of a listing. A write that is under way is the catalogue's. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#outbound.close();
  }

  /**
   * The listing is read to its end before anything is changed, and then put into the catalogue as an import is, all or nothing.
   * @param source see `registryUrl`
   * @throws SwitchboardError `upstream_…` when the registry fails
   */
  sync(source: string, options: SyncOptions): Promise<SyncReport> {
    const running = this.#running.then(() => this.#sync(source, options));
    this.#running = running.catch(() => {});
    return running;
  }

  async state(source: string): Promise<SyncState> {
    const [row] = await this.#parts.db
      .select()
      .from(settings)
      .where(eq(settings.key, keyOf(source)));
    return row ? (stateSchema.safeParse(JSON.parse(row.value)).data ?? {}) : {};
  }

  async #sync(
    source: string,
    { full, force = false, onProgress, signal = this.#closing.signal }: SyncOptions,
  ): Promise<SyncReport> {
    const { catalogue, log, clock } = this.#parts;
    const before = await this.state(source);
    const since = full ? undefined : before.highWater;
    const startedAtMs = clock.now();
    const collected = await this.#collect(source, since, signal);
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
        ...(onProgress === undefined ? {} : { onProgress }),
      });
    } catch (error) {
      if (!(error instanceof Shrunk)) throw error;
      log.warn({ registry: source, reason: error.message }, 'registry sync refused');
      return { ...report, synced: 0, deactivated: 0, left: 0, refused: error.message };
    }
    await this.#remember(source, {
      highWater: notAfter(laterOf(before.highWater, collected.highWater), startedAtMs),
      fullAtMs: mode === 'full' ? startedAtMs : before.fullAtMs,
      syncedAtMs: startedAtMs,
    });
    const { upserted, removed, left = [] } = change;
    const done = { synced: upserted.length, deactivated: removed.length, left: left.length };
    log.info({ registry: source, mode, received: report.received, ...done }, 'registry synced');
    return { ...report, ...done };
  }

  async #collect(source: string, since: string | undefined, signal: AbortSignal): Promise<Collected> {
    const { catalogue, keys, limits, allowHttp } = this.#parts;
    const pause = slices();
    const collected = new Collected(id => catalogue.get(id)?.registry?.name);
    const updatedSince =
      since === undefined ? undefined : new Date(Date.parse(since) - OVERLAP_MS).toISOString();
    const options = {
      fetch: this.#outbound.fetch,
      key: keys.get(source),
      signal: AbortSignal.any([this.#closing.signal, signal]),
      ...(limits === undefined ? {} : { limits }),
    };
    for await (const page of pagesOf({ source, updatedSince }, options)) {
      for (const item of page) {
        collected.add(readItem(item, source, { allowHttp }));
        await pause();
      }
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

  async #remember(source: string, state: { [Key in keyof SyncState]: SyncState[Key] | undefined }) {
    const value = JSON.stringify(state);
    await this.#parts.db
      .insert(settings)
      .values({ key: keyOf(source), value })
      .onConflictDoUpdate({ target: settings.key, set: { value } });
  }
}

const keyOf = (source: string): string => `registry_sync ${source}`;

const laterOf = (one: string | undefined, other: string | undefined): string | undefined => {
  if (one === undefined || other === undefined) return one ?? other;
  return Date.parse(one) > Date.parse(other) ? one : other;
};

/** A registry whose clock is wrong must not keep its own changes from being asked for. */
const notAfter = (time: string | undefined, nowMs: number): string | undefined =>
  time !== undefined && Date.parse(time) > nowMs ? new Date(nowMs).toISOString() : time;

/** A listing, as far as it has been read. Of a name that comes twice the last holds. */
class Collected {
  readonly marks = new Map<string, RegistryMark>();
  readonly ended = new Set<string>();
  /** Ids whose entry is bad: what is known of them stays. */
  readonly kept = new Set<string>();
  readonly counts = {
    received: 0,
    skipped: { deleted: 0, no_remote: 0, needs_configuration: 0 },
    problems: [] as { name?: string; reason: string }[],
    bad: 0,
  };
  highWater: string | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #nameOf: (id: string) => string | undefined;

  /** @param nameOf which registry's name the catalogue has under an id */
  constructor(nameOf: (id: string) => string | undefined) {
    this.#nameOf = nameOf;
  }

  get entries(): Entry[] {
    return [...this.#entries.values()];
  }

  add(read: Read): void {
    this.counts.received++;
    if ('updatedAt' in read) this.highWater = laterOf(this.highWater, read.updatedAt);
    if (read.kind === 'bad') this.#addProblem(read);
    if (read.kind === 'ended') {
      this.counts.skipped[read.why]++;
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.ended.add(id);
    }
    if (read.kind === 'server') {
      const id = this.#idOf(read.name);
      this.#forget(id);
      this.#entries.set(id, { ...read.entry.entry, id });
      this.marks.set(id, read.entry.mark);
    }
  }

  #addProblem({ name, reason }: { name?: string; reason: string }): void {
    this.counts.bad++;
    if (name !== undefined) this.kept.add(this.#idOf(name));
    if (this.counts.problems.length < MAX_PROBLEMS)
      this.counts.problems.push({ ...(name === undefined ? {} : { name }), reason });
  }

  #forget(id: string): void {
    this.#entries.delete(id);
    this.marks.delete(id);
    this.ended.delete(id);
  }

  #idOf(name: string): string {
    return idFor(name, id => this.marks.get(id)?.name ?? this.#nameOf(id));
  }
}
