import type { Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { raceAbort } from '../../platform/race-abort.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Definition } from '../catalogue/tools/definitions.ts';
import type { Server } from '../catalogue/entry.ts';

/** Tools of a server that are new or changed, taken at one visit: each has texts to be embedded. The rest comes with the next visits. */
const MAX_NEWS = 100;
/** Of all listings that wait, as JSON; further ones are passed over, and come again with the next visit. */
const MAX_WAITING_CHARS = 32 * 1024 * 1024;

interface FoundToolsParts {
  readonly catalogue: Pick<Catalogue, 'refreshTools'>;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Brings the tools that visited servers list into the catalogue: one server after the other, so that no visit waits for it, and any
 * other write of the catalogue for one server's tools at most.
 */
export class FoundTools {
  readonly #parts: FoundToolsParts;
  readonly #ended = new AbortController();
  #last: Promise<void> = Promise.resolve();
  #waitingChars = 0;

  constructor(parts: FoundToolsParts) {
    this.#parts = parts;
  }

  /** Never throws and never waits. */
  offer(server: Server, tools: readonly Definition[]): void {
    if (tools.length === 0 || this.#ended.signal.aborted) return;
    const chars = JSON.stringify(tools).length;
    if (this.#waitingChars + chars > MAX_WAITING_CHARS) return;
    this.#waitingChars += chars;
    const listedAtMs = this.#parts.clock.now();
    this.#last = this.#last
      .then(() => this.#take(server, tools, listedAtMs))
      .finally(() => (this.#waitingChars -= chars));
  }

  /** Resolves when all is in the catalogue, or at once when the signal aborts: what is not committed by then is dropped. */
  async settle(signal: AbortSignal): Promise<void> {
    try {
      await raceAbort(this.#last, signal);
    } catch (error) {
      this.#ended.abort(error);
    }
  }

  async #take(server: Server, tools: readonly Definition[], listedAtMs: number): Promise<void> {
    const { catalogue, log } = this.#parts;
    const { signal } = this.#ended;
    if (signal.aborted) return;
    try {
      // Unless the same: every process would make it ready for searches again, each time.
      await catalogue.refreshTools(server, tools, listedAtMs, {
        unlessSame: true,
        maxNews: MAX_NEWS,
        signal,
      });
    } catch (error) {
      if (!signal.aborted)
        log.warn({ err: error, serverId: server.id }, 'tools of a visit not brought into the catalogue');
    }
  }
}
