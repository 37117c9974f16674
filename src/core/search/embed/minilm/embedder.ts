import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { SwitchboardError } from '../../../../errors.ts';
import type { Embedder, EmbeddingPurpose, Passage } from '../embedder.ts';
import { instantiateKernel, kernelMemory, kernelModule } from './kernel.ts';
import { DIMENSIONS, MODEL_BYTES, packModel, SCRATCH_BYTES } from './model.ts';
import { TOKENIZATION, Tokenizer } from './tokenizer.ts';
import { readModel, REMEDY, WEIGHTS_SHA256, WeightsUnavailable } from './weights.ts';
import { EmbedQueue, WorkerPool } from './worker-pool.ts';
import type { WorkerInput } from './worker.ts';
import { decodeVector, encodedLength, encodeVector, quantize } from '../../index/vectors.ts';

export { WeightsUnavailable } from './weights.ts';

const MAX_DEFAULT_THREADS = 4;
const ADAPTER = new URL('query-adapter.bin', import.meta.url);
/** The arithmetic of the kernel; another one gives other last bits. */
const ARITHMETIC = 'i16';

interface MiniLmOptions {
  /**
   * The number of worker threads; by default one per core, at most 4. Each costs about 3.2 MB and a V8 isolate, but no copy
   * of the weights.
   */
  readonly threads?: number;
  /** The file with the weights; by default the one beside the code. */
  readonly modelFile?: URL;
}

async function readAdapter(): Promise<QueryAdapter> {
  try {
    return QueryAdapter.decode(await readFile(ADAPTER), DIMENSIONS);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new WeightsUnavailable(`${fileURLToPath(ADAPTER)} cannot be read (${reason}): ${REMEDY}`, {
      cause: error,
    });
  }
}

/**
 * Creates an embedder that runs a fine-tuned all-MiniLM-L6-v2 (`bench/model/`) on worker threads: 384 dimensions, at most 256 tokens per text. A text's
 * vector does not depend on the other texts in its batch. Queries overtake texts for the index.
 * @returns an embedder with warm workers
 * @throws WeightsUnavailable if a file of the model is missing or damaged
 */
export async function createMiniLmEmbedder(options: MiniLmOptions = {}): Promise<Embedder> {
  const threads = options.threads ?? Math.min(availableParallelism(), MAX_DEFAULT_THREADS);
  if (!Number.isInteger(threads) || threads < 1) throw new RangeError('threads must be a positive integer');
  const { tensors, vocabulary } = await readModel(options.modelFile);
  const adapter = await readAdapter();
  const module = kernelModule();
  const memory = kernelMemory(MODEL_BYTES + threads * SCRATCH_BYTES);
  const layout = packModel(tensors, memory, instantiateKernel(module, memory));
  const inputs = Array.from({ length: threads }, (_, index): WorkerInput => {
    return { module, memory, layout, scratch: MODEL_BYTES + index * SCRATCH_BYTES };
  });
  const queue = new EmbedQueue(new Tokenizer(vocabulary), threads);
  const pool: WorkerPool = new WorkerPool(new URL('worker.ts', import.meta.url), inputs, queue);

  const embed = async (passages: readonly Passage[], purpose: EmbeddingPurpose): Promise<Float32Array[]> => {
    if (pool.stopped) throw pool.stopped;
    if (passages.length === 0) return [];
    const vectors = queue.add(passages, purpose === 'query');
    pool.wake();
    return purpose === 'query' ? (await vectors).map(vector => adapter.apply(vector)) : vectors;
  };

  const close = () => pool.close(new SwitchboardError('unavailable', 'The embedding model is closed.'));

  try {
    // Embeds one text per worker: this starts them all, so that a worker that cannot start fails here instead of in the first
    // search.
    await Promise.all(inputs.map(() => embed(['warm-up'], 'index')));
  } catch (error) {
    await close();
    throw error;
  }

  return {
    id: `switchboard-minilm:${WEIGHTS_SHA256.slice(0, 16)}:${TOKENIZATION}:${ARITHMETIC}`,
    dimensions: DIMENSIONS,
    words: new Set([...vocabulary.keys()].filter(piece => /^[a-z]+$/.test(piece))),
    embed,
    close,
  };
}

/**
 * A linear map of query vectors, learned from queries and the servers that serve them (`bench/tune.ts`): it moves queries closer to
 * the way servers describe themselves. Document vectors are not mapped.
 */
export class QueryAdapter {
  readonly dimensions: number;
  readonly #delta: Float32Array;

  /** @param delta the map minus the identity, [dimensions, dimensions] row-major */
  constructor(delta: Float32Array, dimensions: number) {
    if (delta.length !== dimensions * dimensions)
      throw new RangeError(`${delta.length} numbers are not a matrix of ${dimensions} by ${dimensions}`);
    this.dimensions = dimensions;
    this.#delta = delta;
  }

  /**
   * The inverse of `encode`.
   * @throws RangeError if the bytes are not such a matrix
   */
  static decode(bytes: Uint8Array, dimensions: number): QueryAdapter {
    const rowBytes = encodedLength(dimensions);
    if (bytes.length !== rowBytes * dimensions)
      throw new RangeError(`${bytes.length} bytes are not an adapter of ${dimensions} dimensions`);
    const delta = new Float32Array(dimensions * dimensions);
    for (let row = 0; row < dimensions; row++) {
      const { values, scale } = decodeVector(bytes.subarray(row * rowBytes, (row + 1) * rowBytes));
      for (const [column, value] of values.entries()) delta[row * dimensions + column] = value * scale;
    }
    return new QueryAdapter(delta, dimensions);
  }

  /** Encodes with 8 bits per number and one scale per row. */
  encode(): Uint8Array {
    const rows = Array.from({ length: this.dimensions }, (_, row) =>
      encodeVector(quantize(this.#delta.slice(row * this.dimensions, (row + 1) * this.dimensions))),
    );
    return Buffer.concat(rows);
  }

  /** Returns the mapped vector, with unit length. */
  apply(vector: Float32Array): Float32Array {
    const mapped = this.#map(vector);
    const length = lengthOf(mapped);
    return length === 0 ? mapped : mapped.map(value => value / length);
  }

  /** Returns the length of the mapped vector before normalization. */
  lengthOf(vector: Float32Array): number {
    return lengthOf(this.#map(vector));
  }

  #map(vector: Float32Array): Float32Array {
    const { dimensions } = this;
    const mapped = Float32Array.from(vector);
    for (let row = 0; row < dimensions; row++) {
      let sum = 0;
      for (let column = 0; column < dimensions; column++) {
        sum += (this.#delta[row * dimensions + column] ?? 0) * (vector[column] ?? 0);
      }
      mapped[row] = (mapped[row] ?? 0) + sum;
    }
    return mapped;
  }
}

const lengthOf = (vector: Float32Array): number =>
  Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
