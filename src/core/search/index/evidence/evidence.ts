import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Server } from '../../../catalogue/entry.ts';
import { documentsOf, termsOfDocuments, type ServerTerms } from '../../documents.ts';
import { BM25, termScore } from '../bm25.ts';
import { documentCount, eachMatch, wordsOf, type WeighedTerms, type Words } from '../term-statistics.ts';
import { cosinesOf, encodedLength, encodeVector, viewVector, type QuantizedVector } from '../vectors.ts';

/** Version of `Words` and of how texts become terms (`tokenize`): a new number makes new rows for all servers. */
const FORMAT = 1;

/** What the index knows of the stored evidence of a server. */
export interface Stored {
  /** The key of its row, SHA-256 as base64. */
  readonly hash: string;
  /** The number of its tools. */
  readonly tools: number;
  /** The number of its vectors: one for its own text, and one for each tool and example. */
  readonly parts: number;
  /** A hash of its vectors; 0 if all are missing. */
  readonly vectorsHash: number;
}

/** The texts of a server that search uses. */
export class ServerTexts {
  readonly id: string;
  readonly names: readonly string[];
  /** The number of its tools. */
  readonly tools: number;
  /** The text of each vector. */
  readonly prose: readonly string[];
  /** Equal only for equal texts and equal embedders, whose vectors can be compared. */
  readonly hash: string;
  readonly #documents: ReturnType<typeof documentsOf>;
  #terms: ServerTerms | undefined;

  constructor(server: Server, embedderId: string) {
    this.id = server.id;
    this.names = [server.name, ...server.tools.map(({ name }) => name)];
    this.tools = server.tools.length;
    this.#documents = documentsOf(server);
    this.prose = this.#documents.parts.map(({ prose }) => prose);
    const hashed = JSON.stringify([FORMAT, embedderId, this.names, this.#documents]);
    this.hash = createHash('sha256').update(hashed).digest('base64');
  }

  get terms(): ServerTerms {
    return (this.#terms ??= termsOfDocuments(this.#documents));
  }
}

/** The words and vectors of a server, as they are stored: reading them takes no decoding. They may be views of other memory. */
export class Evidence {
  readonly words: Words;
  /** The vectors of its parts in their order, each as of `encodeVector`; zeros for a missing one. */
  readonly vectors: Int8Array<ArrayBuffer>;
  /** One for the server's own text, and one for each tool and example. */
  readonly parts: number;
  readonly #dimensions: number;
  readonly #scales: Float32Array;

  constructor(words: Words, vectors: Int8Array<ArrayBuffer>) {
    this.words = words;
    this.vectors = vectors;
    this.parts = documentCount(words) - 1;
    this.#dimensions = vectors.length / this.parts - encodedLength(0);
    this.#scales = new Float32Array(vectors.buffer, vectors.byteOffset, vectors.byteLength / 4);
  }

  /** @param vectors one for each part; one that has other dimensions belongs to another model and counts as missing */
  static of(terms: ServerTerms, vectors: readonly QuantizedVector[], dimensions: number): Evidence {
    const row = encodedLength(dimensions);
    const bytes = new Int8Array(terms.parts.length * row);
    for (const [at, vector] of vectors.entries()) {
      if (vector.values.length === dimensions) bytes.set(encodeVector(vector), at * row);
    }
    return new Evidence(wordsOf([terms.whole, ...terms.parts]), bytes);
  }

  /** True if every part has its vector. */
  get isComplete(): boolean {
    for (let part = 0; part < this.parts; part++) if (this.#scaleOf(part) === 0) return false;
    return true;
  }

  /** A hash of the vectors; 0 if all are missing. */
  get vectorsHash(): number {
    return this.vectors.every(byte => byte === 0) ? 0 : crc32(this.vectors) | 0 || 1;
  }

  /** Returns the vectors of the parts; none if they have other dimensions. */
  vectorsWith(dimensions: number): QuantizedVector[] {
    if (dimensions !== this.#dimensions) return [];
    const { buffer, byteOffset } = this.vectors;
    const row = encodedLength(dimensions);
    return Array.from({ length: this.parts }, (_, part) =>
      viewVector(new Uint8Array(buffer, byteOffset + part * row, row)),
    );
  }

  /** Returns by part the best cosine of its vector with any of the queries; those with other dimensions are ignored. */
  cosines(queries: readonly QuantizedVector[]): Float32Array {
    const best = new Float32Array(this.parts);
    const comparable = queries.filter(({ values }) => values.length === this.#dimensions);
    for (const [at, query] of comparable.entries()) {
      const cosines = cosinesOf(query, this.vectors);
      if (at === 0) best.set(cosines);
      else
        for (let part = 0; part < best.length; part++)
          best[part] = Math.max(best[part] ?? 0, cosines[part] ?? 0);
    }
    return best;
  }

  /** Returns the BM25 scores of the whole text and of each part, equal to those of `Bm25`. */
  keywords(terms: WeighedTerms): { readonly whole: number; readonly parts: Float32Array } {
    // The whole text comes first.
    const scores = new Float32Array(1 + this.parts);
    eachMatch(this.words, terms, (document, length, term, count) => {
      const { weights, meanLength } = document === 0 ? terms.whole : terms.part;
      const score = termScore(BM25, weights[term] ?? 0, count, length, meanLength);
      scores[document] = (scores[document] ?? 0) + score;
    });
    return { whole: scores[0] ?? 0, parts: scores.subarray(1) };
  }

  #scaleOf(part: number): number {
    return this.#scales[((part + 1) * encodedLength(this.#dimensions)) / 4 - 1] ?? 0;
  }
}
