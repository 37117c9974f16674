import { setImmediate } from 'node:timers/promises';

/** The event loop is given a turn after this much work. */
const SLICE_MS = 8;

/** Call between pieces of work: gives the event loop a turn whenever `SLICE_MS` have passed since the last one. */
export function slices(): () => Promise<void> | undefined {
  let startedAt = performance.now();
  return () => {
    if (performance.now() - startedAt < SLICE_MS) return undefined;
    return setImmediate().then(() => {
      startedAt = performance.now();
    });
  };
}
