import { setImmediate } from 'node:timers/promises';

/** The event loop is given a turn after this much work, in milliseconds. */
const SLICE_MS = 5;

export type Pause = () => Promise<void> | undefined;

/**
 * Returns a function to call between pieces of long work, and to await. It gives the event loop a turn whenever 5 ms have
 * passed since the last one.
 * @param signal ends the work there, with its reason
 */
export function slices(signal?: AbortSignal): Pause {
  let startedAt = performance.now();
  return () => {
    signal?.throwIfAborted();
    if (performance.now() - startedAt < SLICE_MS) return undefined;
    return setImmediate().then(() => {
      signal?.throwIfAborted();
      startedAt = performance.now();
    });
  };
}
