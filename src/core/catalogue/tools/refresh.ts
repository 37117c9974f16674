import { LRUCache } from 'lru-cache';
import { SerialQueue } from '../../../platform/queues.ts';
import { raceAbort, type Clock } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Catalogue } from '../catalogue.ts';
import { hashOf, type Definition } from './definitions.ts';
import type { CalledServer, ServerHead } from '../entry.ts';

/** The shortest time between two writes of a server's tools. */
const INTERVAL_MS = 10 * 60_000;
/** The shortest time before a changed definition is written, so that searches soon use it. At most one such write per interval. */
const MIN_INTERVAL_MS = 60_000;
/**
 * Limits listings that are waiting to be written, for instance behind an import. Further ones are dropped until their next listing.
 */
const MAX_WAITING = 20;

interface Parts {
  readonly catalogue: Pick<Catalogue, 'refreshTools'>;
  readonly clock: Clock;
  readonly log: Log;
}

type Offered = Pick<CalledServer, 'id' | 'remoteUrl' | 'tools' | 'toolsListedAt'>;

interface Written {
  readonly atMs: number;
  /** When it was last written because of a change. */
  readonly hurriedAtMs: number;
}

/** Stores tools that servers list, and that are the same for all callers, in the catalogue, at most every ten minutes. */
export class ToolRefresh {
  readonly #parts: Parts;
  readonly #written = new LRUCache<string, Written>({ max: 10_000 });
  #waiting = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Accepts a listing, or drops it if it comes too soon. Never throws and never waits. */
  offer(server: Offered, definitions: readonly Definition[]): void {
    const key = `${server.id} ${server.remoteUrl}`;
    const { catalogue, clock, log } = this.#parts;
    const now = clock.now();
    const last = this.#written.get(key) ?? { atMs: -Infinity, hurriedAtMs: -Infinity };
    const isDue = now - last.atMs >= INTERVAL_MS;
    const mayHurry = now - last.atMs >= MIN_INTERVAL_MS && now - last.hurriedAtMs >= INTERVAL_MS;
    if (this.#waiting >= MAX_WAITING || !(isDue || (mayHurry && hasChanged(server, definitions)))) return;
    this.#written.set(key, { atMs: now, hurriedAtMs: isDue ? last.hurriedAtMs : now });
    this.#waiting++;
    catalogue
      .refreshTools(server, definitions, now)
      .catch((error: unknown) =>
        log.warn({ err: error, serverId: server.id }, 'failed to store listed tools'),
      )
      .finally(() => this.#waiting--);
  }
}

/** Returns true if a tool's definition differs from the last listed one. Added and removed tools are not urgent. */
function hasChanged({ tools = [], toolsListedAt }: Offered, definitions: readonly Definition[]): boolean {
  if (toolsListedAt === undefined) return false;
  const known = new Map(tools.map(({ name, live }) => [name, live?.hash]));
  return definitions.some(definition => {
    const hash = known.get(definition.name);
    return hash !== undefined && hash !== hashOf(definition);
  });
}

/**
 * The maximum number of new or changed tools taken from a server per check, because each has to be embedded. The next check takes
 * more.
 */
const MAX_NEW_TOOLS = 100;
/** The maximum JSON size of all waiting listings; further ones are dropped until the next check. */
const MAX_WAITING_CHARS = 32 * 1024 * 1024;

/** Stores the tools found by a health check in the catalogue, one server at a time, so that no check waits for it. */
export class ListedTools {
  readonly #parts: Parts;
  readonly #ended = new AbortController();
  readonly #queue = new SerialQueue();
  #waitingChars = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Accepts a listing, or drops it if too much is waiting. Never throws and never waits. */
  offer(server: ServerHead, tools: readonly Definition[]): void {
    if (tools.length === 0 || this.#ended.signal.aborted) return;
    const chars = JSON.stringify(tools).length;
    if (this.#waitingChars + chars > MAX_WAITING_CHARS) return;
    this.#waitingChars += chars;
    const listedAtMs = this.#parts.clock.now();
    void this.#queue
      .run(() => this.#take(server, tools, listedAtMs))
      .finally(() => (this.#waitingChars -= chars));
  }

  /** Resolves when everything is stored, or when the signal aborts, which drops uncommitted listings. */
  async finish(signal: AbortSignal): Promise<void> {
    try {
      await raceAbort(this.#queue.settled(), signal);
    } catch (error) {
      this.#ended.abort(error);
    }
  }

  async #take(server: ServerHead, tools: readonly Definition[], listedAtMs: number): Promise<void> {
    const { catalogue, log } = this.#parts;
    const { signal } = this.#ended;
    if (signal.aborted) return;
    // An unchanged listing is not written, because every process would then reindex the server.
    const options = { unlessSame: true, maxNews: MAX_NEW_TOOLS, signal };
    try {
      await catalogue.refreshTools(server, tools, listedAtMs, options);
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, serverId: server.id }, 'failed to store listed tools');
    }
  }
}
