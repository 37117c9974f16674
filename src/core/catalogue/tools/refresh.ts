import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../platform/time.ts';
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

type Offered = Pick<Server, 'id' | 'remoteUrl' | 'tools' | 'toolsListedAt'>;

interface Written {
  readonly atMs: number;
  /** When it was last written because of a change. */
  readonly hurriedAtMs: number;
}

/** Brings tools that servers list, and that are the same for everybody, into the catalogue, at most every ten minutes. */
export class ToolRefresh {
  readonly #catalogue: Pick<Catalogue, 'refreshTools'>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #written = new LRUCache<string, Written>({ max: 10_000 });
  #waiting = 0;

  constructor(catalogue: Pick<Catalogue, 'refreshTools'>, clock: Clock, log: Log) {
    this.#catalogue = catalogue;
    this.#clock = clock;
    this.#log = log;
  }

  /** Takes a listing, or drops it when it is too soon. Never throws and never waits. */
  offer(server: Offered, definitions: readonly Definition[]): void {
    const key = `${server.id} ${server.remoteUrl}`;
    const now = this.#clock.now();
    const last = this.#written.get(key) ?? { atMs: -Infinity, hurriedAtMs: -Infinity };
    const isDue = now - last.atMs >= INTERVAL_MS;
    const mayHurry = now - last.atMs >= MIN_INTERVAL_MS && now - last.hurriedAtMs >= INTERVAL_MS;
    if (this.#waiting >= MAX_WAITING || !(isDue || (mayHurry && hasChanged(server, definitions)))) return;
    this.#written.set(key, { atMs: now, hurriedAtMs: isDue ? last.hurriedAtMs : now });
    this.#waiting++;
    this.#catalogue
      .refreshTools(server, definitions, now)
      .catch((error: unknown) =>
        this.#log.warn({ err: error, serverId: server.id }, 'listed tools not stored'),
      )
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
