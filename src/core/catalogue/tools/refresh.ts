import { LRUCache } from 'lru-cache';
import { SerialQueue } from '../../../platform/queues.ts';
import { raceAbort, type Clock } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Catalogue } from '../catalogue.ts';
import { hashOf, type Definition } from './definitions.ts';
import type { Server } from '../entry.ts';

/** Shortest time between two writes of a server's tools. */
const INTERVAL_MS = 10 * 60_000;
/** Shortest time before a changed definition is written, so that searches soon know it. At most one such write per interval. */
const MIN_INTERVAL_MS = 60_000;
/** Limits listings that wait to be written, such as behind an import. Further ones are dropped, and come again. */
const MAX_WAITING = 20;

interface Parts {
  readonly catalogue: Pick<Catalogue, 'refreshTools'>;
  readonly clock: Clock;
  readonly log: Log;
}

type Offered = Pick<Server, 'id' | 'remoteUrl' | 'tools' | 'toolsListedAt'>;

interface Written {
  readonly atMs: number;
  /** When it was last written because of a change. */
  readonly hurriedAtMs: number;
}

/** Brings tools that servers list, and that are the same for everybody, into the catalogue, at most every ten minutes. */
export class ToolRefresh {
  readonly #parts: Parts;
  readonly #written = new LRUCache<string, Written>({ max: 10_000 });
  #waiting = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Takes a listing, or drops it when it is too soon. Never throws and never waits. */
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
      .catch((error: unknown) => log.warn({ err: error, serverId: server.id }, 'listed tools not stored'))
      .finally(() => this.#waiting--);
  }
}

/** Returns true when a tool is no longer what its server listed last. Added and removed tools are not urgent. */
function hasChanged({ tools, toolsListedAt }: Offered, definitions: readonly Definition[]): boolean {
  if (toolsListedAt === undefined) return false;
  const known = new Map(tools.map(({ name, live }) => [name, live?.hash]));
  return definitions.some(definition => {
    const hash = known.get(definition.name);
    return hash !== undefined && hash !== hashOf(definition);
  });
}

/** New or changed tools taken of a server in one check, as each has to be embedded. The next check brings more. */
const MAX_NEW_TOOLS = 100;
/** Characters of JSON of all listings that wait; further ones are dropped, and come again with the next check. */
const MAX_WAITING_CHARS = 32 * 1024 * 1024;

/** Brings the tools that a health check finds into the catalogue, one server at a time, so that no check waits for it. */
export class ListedTools {
  readonly #parts: Parts;
  readonly #ended = new AbortController();
  readonly #queue = new SerialQueue();
  #waitingChars = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Takes a listing, or drops it when too much waits. Never throws and never waits. */
  offer(server: Server, tools: readonly Definition[]): void {
    if (tools.length === 0 || this.#ended.signal.aborted) return;
    const chars = JSON.stringify(tools).length;
    if (this.#waitingChars + chars > MAX_WAITING_CHARS) return;
    this.#waitingChars += chars;
    const listedAtMs = this.#parts.clock.now();
    void this.#queue
      .run(() => this.#take(server, tools, listedAtMs))
      .finally(() => (this.#waitingChars -= chars));
  }

  /** Resolves when everything is in the catalogue, or when the signal aborts: what is not committed then is dropped. */
  async finish(signal: AbortSignal): Promise<void> {
    try {
      await raceAbort(this.#queue.settled(), signal);
    } catch (error) {
      this.#ended.abort(error);
    }
  }

  async #take(server: Server, tools: readonly Definition[], listedAtMs: number): Promise<void> {
    const { catalogue, log } = this.#parts;
    const { signal } = this.#ended;
    if (signal.aborted) return;
    // An unchanged listing is not written: every process would make the server ready for searches again.
    const options = { unlessSame: true, maxNews: MAX_NEW_TOOLS, signal };
    try {
      await catalogue.refreshTools(server, tools, listedAtMs, options);
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, serverId: server.id }, 'listed tools not stored');
    }
  }
}
