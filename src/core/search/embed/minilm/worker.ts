/** An inference thread: receives token batches and replies with their vectors. All threads share the weights. */
import { parentPort, workerData } from 'node:worker_threads';
import { createForwardPass, type ModelLayout, type TokenBatch } from './model.ts';

export interface WorkerInput {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly layout: ModelLayout;
  /** Byte offset of this worker's scratch area. */
  readonly scratch: number;
}

if (!parentPort) throw new Error('worker.ts runs in a worker thread only');
const port = parentPort;

// Only embedder.ts starts this worker.
const { module, memory, layout, scratch } = workerData as WorkerInput;
const forward = createForwardPass(module, memory, layout, scratch);

port.on('message', (batch: TokenBatch) => {
  const vectors = forward(batch);
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a port to a thread has no origin
  port.postMessage(vectors, [vectors.buffer]);
});
