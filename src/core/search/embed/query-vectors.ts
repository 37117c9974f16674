import type { Clock } from '../../../platform/clock.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { traced } from '../../../platform/telemetry/tracing.ts';
import type { Embedder } from './embedder.ts';

const WARN_EVERY_MS = 60_000;

/** The vectors of queries; none while the embedder fails, and a word about it. */
export class QueryVectors {
  readonly #parts: { readonly embedder: Embedder; readonly log: Log; readonly clock: Clock };
  #failure: string | undefined;
  #warnedAt = -Infinity;

  constructor(parts: { readonly embedder: Embedder; readonly log: Log; readonly clock: Clock }) {
    this.#parts = parts;
  }

  /** Why the last query has none; undefined when it has, or where the embedder's state is watched by itself. */
  get failure(): string | undefined {
    return this.#parts.embedder.isWatched ? undefined : this.#failure;
  }

  /** One a text, or none when the embedder fails: keywords then answer alone. */
  async of(texts: readonly string[]): Promise<Float32Array[]> {
    const { embedder, log, clock } = this.#parts;
    try {
      // One request a text: an embedder lets small requests overtake an import.
      const vectors = await traced(
        'embed',
        () => Promise.all(texts.map(text => embedder.embed([text], 'query'))),
        () => ({
          attributes: { 'switchboard.embedder': embedder.id, 'switchboard.embed.texts': texts.length },
        }),
      );
      this.#failure = undefined;
      return vectors.flat();
    } catch (error) {
      this.#failure = 'embedder failing: searching by keyword only';
      const now = clock.now();
      if (now - this.#warnedAt >= WARN_EVERY_MS) {
        this.#warnedAt = now;
        log.warn({ err: error }, 'query not embedded: searching by keyword only');
      }
      return [];
    }
  }
}
