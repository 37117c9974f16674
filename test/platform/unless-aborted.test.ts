import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { unlessAborted } from '../../src/platform/race-abort.ts';

it('resolves or rejects as the work does, and leaves no listener behind', async () => {
  const { signal } = new AbortController();
  expect(await unlessAborted(Promise.resolve(1), signal)).toBe(1);
  await expect(unlessAborted(Promise.reject(new Error('broken')), signal)).rejects.toThrow('broken');
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

it('ends with the signal, whatever becomes of the work', async () => {
  const ending = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const waiting = unlessAborted(promise, ending.signal);
  ending.abort(new Error('stopping'));
  await expect(waiting).rejects.toThrow('stopping');
  expect(getEventListeners(ending.signal, 'abort')).toEqual([]);
  await expect(unlessAborted(promise, ending.signal)).rejects.toThrow('stopping');
  // Not unhandled: vitest would fail for it.
  reject(new Error('too late'));
});
