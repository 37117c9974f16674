/**
 * A thread that sends one small request after another to a URL, so that its waiting is not the sender's own. Asked by any
 * message, it posts its longest wait since then, in milliseconds.
 */
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';

const PAUSE_MS = 1;
const agent = new Agent({ keepAlive: true });
let longestMs = 0;

const ping = () =>
  new Promise<void>((resolve, reject) => {
    request(String(workerData), { agent }, response => response.resume().once('end', resolve))
      .once('error', reject)
      .end();
  });

parentPort?.on('message', () => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
  parentPort?.postMessage(longestMs);
  longestMs = 0;
});
for (;;) {
  const startedAt = performance.now();
  await ping();
  longestMs = Math.max(longestMs, performance.now() - startedAt);
  await delay(PAUSE_MS);
}
