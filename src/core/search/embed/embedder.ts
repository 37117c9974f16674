import type { Clock } from '../../../platform/time.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { traced } from '../../../platform/telemetry/tracing.ts';
import { ThrottledLog } from '../../../platform/telemetry/throttled-log.ts';

/**
 * The purpose of vectors. A search waits briefly for those of its `query`; those for the `index` may take minutes. A model
 * may map the two differently; they are compared with each other.
 */
export type EmbeddingPurpose = 'query' | 'index';

/** A text; or a part of one (UTF-16 positions, `to` excluded), which a model may read in the context of the whole. */
export type Passage = string | Part;

interface Part {
  readonly of: string;
  readonly from: number;
  readonly to: number;
}

/** Returns the words of a passage, without their context. */
export const wordsOf = (passage: Passage): string =>
  typeof passage === 'string' ? passage : passage.of.slice(passage.from, passage.to);

/** Turns texts into vectors that are close together if the texts have similar meanings. */
export interface Embedder {
  /** Identifies the model, its weights or address, tokenization and arithmetic. Vectors with different ids are never mixed. */
  readonly id: string;
  /** The length of every vector. */
  readonly dimensions: number;
  /** The current failure, for an embedder that monitors itself; the index then does not report failures. */
  readonly degraded?: string | undefined;
  /** The words that the model reads as a whole, in lower case; absent for a model that understands misspelled ones. */
  readonly words?: ReadonlySet<string>;
  /** The useful number of concurrent `embed` calls for the index; absent: 2. */
  readonly indexCalls?: number;
  /**
   * Returns unit vectors, one per passage, in their order. For the `index`, a text that cannot be embedded at present may get a
   * zero vector, which must not be stored: its cosine with everything is 0.
   */
  embed(passages: readonly Passage[], purpose: EmbeddingPurpose): Promise<Float32Array[]>;
  /** Frees all resources; may be called twice. */
  close(): Promise<void>;
}

interface QueryVectorsParts {
  readonly embedder: Embedder;
  readonly log: Log;
  readonly clock: Clock;
}

/** Embeds queries for a search index, which uses only keywords while the embedder fails. */
export class QueryVectors {
  readonly #embedder: Embedder;
  readonly #log: ThrottledLog;
  #isFailing = false;
  #changes = 0;

  constructor({ embedder, log, clock }: QueryVectorsParts) {
    this.#embedder = embedder;
    this.#log = new ThrottledLog(log, clock);
  }

  /** Why queries currently have no vectors; undefined if they do. */
  get failure(): string | undefined {
    if ('degraded' in this.#embedder) return this.#embedder.degraded;
    return this.#isFailing ? 'embedder failing: searching by keyword only' : undefined;
  }

  /** Incremented whenever a query fails after a success or succeeds after a failure. */
  get changes(): number {
    return this.#changes;
  }

  /** Returns one vector per passage, or none if the embedder fails. */
  async of(passages: readonly Passage[]): Promise<Float32Array[]> {
    const embedder = this.#embedder;
    try {
      const vectors = await traced(
        'embed',
        () => embedder.embed(passages, 'query'),
        () => ({
          attributes: { 'switchboard.embedder': embedder.id, 'switchboard.embed.texts': passages.length },
        }),
      );
      this.#note(false);
      return vectors;
    } catch (error) {
      this.#note(true);
      this.#log.warn({ err: error }, 'failed to embed a query: searching by keyword only');
      return [];
    }
  }

  #note(isFailing: boolean): void {
    if (this.#isFailing !== isFailing) this.#changes++;
    this.#isFailing = isFailing;
  }
}
