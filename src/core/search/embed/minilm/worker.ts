/** One inference thread: receives token batches, answers with their vectors. The weights it reads are shared with the others. */
import { parentPort, workerData } from 'node:worker_threads';
import { createForwardPass, type ModelLayout, type TokenBatch } from './model.ts';

export interface WorkerInput {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly layout: ModelLayout;
  /** Byte offset of this worker's own scratch area. */
  readonly scratch: number;
}

if (!parentPort) throw new Error('worker.ts runs in a worker thread only');
const port = parentPort;

// embedder-minilm.ts alone starts this worker.
const { module, memory, layout, scratch } = workerData as WorkerInput;
const forward = createForwardPass(module, memory, layout, scratch);

port.on('message', (batch: TokenBatch) => {
  const vectors = forward(batch);
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port to a thread has no origin
  port.postMessage(vectors, [vectors.buffer]);
});
