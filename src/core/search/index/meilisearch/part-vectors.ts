import { slices } from '../../../../platform/yield.ts';
import { LRUCache } from 'lru-cache';
import type { OnProgress } from '../../../catalogue/catalogue.ts';
import type { VectorSource } from '../indexed-servers.ts';
import { dot, type QuantizedVector } from '../quantize.ts';
import type { VectorCache } from '../vector-cache.ts';

/** What an array costs beside its content. */
const OVERHEAD_BYTES = 160;

type Vectors = readonly QuantizedVector[];

/** The vectors of servers' parts: those used last are in memory, all of them in the database. */
export class PartVectors {
  readonly #cache: VectorCache;
  readonly #recent: LRUCache<string, Vectors>;

  constructor(cache: VectorCache, maxBytes: number) {
    this.#cache = cache;
    this.#recent = new LRUCache({
      maxSize: maxBytes,
      sizeCalculation: vectors =>
        vectors.reduce((sum, { values }) => sum + values.length + OVERHEAD_BYTES, OVERHEAD_BYTES),
    });
  }

  /** Whether they can be had without the database. */
  has({ key }: VectorSource): boolean {
    return this.#recent.has(key);
  }

  /** Of each server the vectors of its texts, as they are in memory or in the database; zeros for those that are in neither. */
  async of(sources: readonly VectorSource[]): Promise<Vectors[]> {
    const missing = sources.filter(source => !this.has(source));
    const read = await this.#read(missing, texts => this.#cache.keptVectorsOf(texts));
    return sources.map(({ key }) => read.get(key) ?? this.#recent.get(key) ?? []);
  }

  /** The same, with those that are nowhere yet made and kept first. */
  async made(
    sources: readonly VectorSource[],
    onProgress?: OnProgress,
    signal?: AbortSignal,
  ): Promise<Vectors[]> {
    const isWhole = ({ key }: VectorSource) =>
      this.#recent.get(key)?.every(({ scale }) => scale > 0) ?? false;
    const lacking = sources.filter(source => !isWhole(source));
    const read = await this.#read(lacking, texts => this.#cache.vectorsOf(texts, onProgress, signal));
    return sources.map(({ key }) => read.get(key) ?? this.#recent.get(key) ?? []);
  }

  /** Of each server, by part, the best cosine with any of the queries; gives the event loop turns. */
  async bestCosines(
    sources: readonly VectorSource[],
    queries: readonly QuantizedVector[],
  ): Promise<Float32Array[]> {
    const pause = slices();
    const cosines: Float32Array[] = [];
    for (const vectors of await this.of(sources)) {
      const best = (vector: QuantizedVector) =>
        queries.reduce((highest, query) => Math.max(highest, dot(query, vector)), -1);
      cosines.push(Float32Array.from(vectors, best));
      await pause();
    }
    return cosines;
  }

  async #read(
    sources: readonly VectorSource[],
    vectorsOf: (texts: readonly string[]) => Promise<Vectors>,
  ): Promise<Map<string, Vectors>> {
    const read = new Map<string, Vectors>();
    if (sources.length === 0) return read;
    const texts = sources.map(source => source.texts());
    const vectors = await vectorsOf(texts.flat());
    let at = 0;
    for (const [position, { key }] of sources.entries()) {
      const count = texts[position]?.length ?? 0;
      // In memory of their own: what is kept of a server must not keep others'.
      const own = vectors
        .slice(at, at + count)
        .map(({ values, scale }) => ({ values: values.slice(), scale }));
      at += count;
      read.set(key, own);
      this.#recent.set(key, own);
    }
    return read;
  }
}
