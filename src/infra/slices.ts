import { setImmediate } from 'node:timers/promises';

/** The event loop is given a turn after this much work, in milliseconds. */
const SLICE_MS = 8;

/** Call between pieces of long work, and await what it gives: a turn of the event loop whenever `SLICE_MS` have passed since the last one. */
export function slices(): () => Promise<void> | undefined {
  let startedAt = performance.now();
  return () => {
    if (performance.now() - startedAt < SLICE_MS) return undefined;
    return setImmediate().then(() => {
      startedAt = performance.now();
    });
  };
}
