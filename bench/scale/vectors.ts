import { refuse } from '../command-line.ts';
import type { Database } from '../../src/platform/database/database.ts';
import type { Entry } from '../../src/core/catalogue/entry.ts';
import { documentsOf } from '../../src/core/search/documents.ts';
import { textHash } from '../../src/core/search/index/vector-cache.ts';
import {
  encodeVector,
  quantize,
  VectorFile,
  type QuantizedVector,
  type VectorReader,
} from '../../src/core/search/index/vectors.ts';
import { embeddings } from '../../src/core/search/schema.ts';
import type { Mixture, RecombinedCatalogue } from './catalogue.ts';

/** Part of a text's vector that comes from the foreign text. The cosine with the vector of its own text is then about .9. */
const FOREIGN_SHARE = 0.5;
const BATCH_SERVERS = 50;

/** Vectors of recombined texts, made of the vectors of their sources, so that the texts need not be embedded. */
export class MixedVectors implements Disposable {
  readonly #catalogue: RecombinedCatalogue;
  readonly #embedderId: string;
  readonly #vectors: VectorReader;

  private constructor(catalogue: RecombinedCatalogue, file: VectorFile) {
    this.#catalogue = catalogue;
    this.#embedderId = file.embedderId;
    this.#vectors = file.open();
  }

  /** @param file from `npm run build:vectors`, with the vectors of the originals' texts */
  static async read(catalogue: RecombinedCatalogue, file: string): Promise<MixedVectors> {
    return new MixedVectors(catalogue, await VectorFile.read(file));
  }

  /** Stores the vectors of servers where the program stores those that it embeds. @param from number of the first server */
  async store(db: Database, servers: readonly Entry[], from: number): Promise<void> {
    for (let at = 0; at < servers.length; at += BATCH_SERVERS) {
      const batch = servers.slice(at, at + BATCH_SERVERS);
      const rows = batch.flatMap((server, position) => this.#rowsOf(server, from + at + position));
      await db.insert(embeddings).values(rows).onConflictDoNothing();
    }
  }

  #rowsOf({ name, description, tools = [] }: Entry, number: number): (typeof embeddings.$inferInsert)[] {
    const mixtures = this.#catalogue.mixtures(number);
    return documentsOf({ name, description, tools }).parts.map(({ prose }, at) => {
      const vector = this.#mixed(mixtures[at] ?? refuse(`server ${number} has another text`));
      return { embedder: this.#embedderId, textHash: textHash(prose), vector: encodeVector(vector) };
    });
  }

  #mixed({ own, foreign }: Mixture): QuantizedVector {
    const [a, b] = [own, foreign].map(({ prose }) => this.#find(prose));
    if (!a || !b) return refuse('--vectors lacks texts of --source: run npm run build:vectors');
    const share = FOREIGN_SHARE * b.scale;
    const sum = Float32Array.from(a.values, (value, i) => value * a.scale + share * (b.values[i] ?? 0));
    const length = Math.hypot(...sum);
    return quantize(sum.map(component => component / length));
  }

  [Symbol.dispose](): void {
    this.#vectors[Symbol.dispose]();
  }

  #find(text: string): QuantizedVector | undefined {
    return this.#vectors.find(textHash(text));
  }
}
