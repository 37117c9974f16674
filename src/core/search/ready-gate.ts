import { setTimeout as delay } from 'node:timers/promises';
import { SwitchboardError } from '../../errors.ts';

/** How long a search at the start waits for the index to hold the catalogue: the shipped one takes a second or two. */
const MAX_WAIT_MS = 10_000;

/**
 * A function that resolves once `indexed` has, at once from then on: an answer from an index that is being filled would say that
 * nothing fits.
 * @throws SwitchboardError `unavailable` (503) when that takes longer than `maxWaitMs`, or fails
 */
export function onceIndexed(
  indexed: () => Promise<unknown>,
  maxWaitMs: number = MAX_WAIT_MS,
): () => Promise<void> {
  let isIndexed = false;
  return async () => {
    if (isIndexed) return;
    const enough = new AbortController();
    const tooLate = delay(maxWaitMs, false, { signal: enough.signal }).catch(() => false);
    const filled = indexed().then(
      () => true,
      () => false,
    );
    isIndexed = await Promise.race([filled, tooLate]);
    enough.abort();
    if (isIndexed) return;
    throw new SwitchboardError(
      'unavailable',
      'The catalogue is being read into the search index. Try again in a few seconds: /readyz answers 200 once it is.',
    );
  };
}
