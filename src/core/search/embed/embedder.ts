import type { Clock } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { traced } from '../../../platform/telemetry/tracing.ts';
import { ThrottledLog } from '../../../platform/telemetry/throttled-log.ts';

/**
 * The purpose of vectors. A search waits for those of its `query`, and not for long; those to be kept (`index`) may take minutes.
 * A model may map the two differently; they are compared with each other.
 */
export type EmbeddingPurpose = 'query' | 'index';

/** Turns texts into vectors that lie close together when the texts mean the same. */
export interface Embedder {
  /** Names the model, its weights or address, and the tokenization. Vectors of two ids are never mixed. */
  readonly id: string;
  /** Length of every vector. */
  readonly dimensions: number;
  /** Names what fails at present, for an embedder that watches itself; an index then says nothing of its failures. */
  readonly degraded?: string | undefined;
  /** Number of calls of `embed` for the index that are worth making at a time; 2 where absent. */
  readonly indexCalls?: number;
  /**
   * Returns vectors of unit length, one a text, in the order of the texts. For the `index`, a text that cannot be embedded at
   * present may have a vector of zeros, which is not to be kept: its cosine with everything is 0.
   */
  embed(texts: readonly string[], purpose: EmbeddingPurpose): Promise<Float32Array[]>;
  /** Frees what the embedder holds; may be called twice. */
  close(): Promise<void>;
}

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
