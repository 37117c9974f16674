import { LRUCache } from 'lru-cache';
import type { Clock } from '../../infra/clock.ts';
import type { Log } from '../../infra/log.ts';
import type { Catalogue } from './catalogue.ts';
import type { Definition } from './definitions.ts';
import type { Server } from './entry.ts';

/** A server's tools are written no more often than this, however often they are listed. */
const INTERVAL_MS = 10 * 60_000;
/** Listings that wait to be written (behind an import, say); further ones are passed over, and come again. */
const MAX_WAITING = 20;

/** Brings the tools that servers list, and that are the same for everybody, into the catalogue now and then. */
export class ToolRefresh {
  readonly #catalogue: Pick<Catalogue, 'refreshTools'>;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #refreshedAt = new LRUCache<string, number>({ max: 10_000 });
  #waiting = 0;

  constructor(catalogue: Pick<Catalogue, 'refreshTools'>, clock: Clock, log: Log) {
    this.#catalogue = catalogue;
    this.#clock = clock;
    this.#log = log;
  }

  /** Never throws and never waits. */
  offer(server: Pick<Server, 'id' | 'remoteUrl'>, definitions: readonly Definition[]): void {
    const key = `${server.id} ${server.remoteUrl}`;
    const now = this.#clock.now();
    const due = (this.#refreshedAt.get(key) ?? -Infinity) + INTERVAL_MS <= now;
    if (!due || this.#waiting >= MAX_WAITING) return;
    this.#refreshedAt.set(key, now);
    this.#waiting++;
    this.#catalogue
      .refreshTools(server, definitions, now)
      .catch((error: unknown) =>
        this.#log.warn({ err: error, serverId: server.id }, 'live tools not brought into the catalogue'),
      )
      .finally(() => this.#waiting--);
  }
}
