import type { Clock } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { traced } from '../../../platform/telemetry/tracing.ts';
import { ThrottledLog } from '../../../platform/telemetry/throttled-log.ts';
import type { Embedder } from './embedder.ts';

interface QueryVectorsParts {
  readonly embedder: Embedder;
  readonly log: Log;
  readonly clock: Clock;
}

/** Embeds queries for a search index, which answers by keyword while the embedder fails. */
export class QueryVectors {
  readonly #embedder: Embedder;
  readonly #log: ThrottledLog;
  #isFailing = false;
  #changes = 0;

  constructor({ embedder, log, clock }: QueryVectorsParts) {
    this.#embedder = embedder;
    this.#log = new ThrottledLog(log, clock);
  }

  /** Why queries have no vectors at present; undefined when they have. */
  get failure(): string | undefined {
    if ('degraded' in this.#embedder) return this.#embedder.degraded;
    return this.#isFailing ? 'embedder failing: searching by keyword only' : undefined;
  }

  /** Grows whenever a query fails after one that did not, or the other way round. */
  get changes(): number {
    return this.#changes;
  }

  /** Returns one vector a text, or none when the embedder fails. */
  async of(texts: readonly string[]): Promise<Float32Array[]> {
    const embedder = this.#embedder;
    try {
      const vectors = await traced(
        'embed',
        () => embedder.embed(texts, 'query'),
        () => ({
          attributes: { 'switchboard.embedder': embedder.id, 'switchboard.embed.texts': texts.length },
        }),
      );
      this.#note(false);
      return vectors;
    } catch (error) {
      this.#note(true);
      this.#log.warn({ err: error }, 'query not embedded: searching by keyword only');
      return [];
    }
  }

  #note(isFailing: boolean): void {
    if (this.#isFailing !== isFailing) this.#changes++;
    this.#isFailing = isFailing;
  }
}
