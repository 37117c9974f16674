import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { raceAbort, raceDeadline, settledWithin } from '../../src/platform/time.ts';

it('resolves or rejects as the work does, and leaves no listener behind', async () => {
  const { signal } = new AbortController();
  expect(await raceAbort(Promise.resolve(1), signal)).toBe(1);
  await expect(raceAbort(Promise.reject(new Error('broken')), signal)).rejects.toThrow('broken');
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

it('rejects when the signal aborts, whatever the outcome of the work', async () => {
  const ending = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const waiting = raceAbort(promise, ending.signal);
  ending.abort(new Error('stopping'));
  await expect(waiting).rejects.toThrow('stopping');
  expect(getEventListeners(ending.signal, 'abort')).toEqual([]);
  await expect(raceAbort(promise, ending.signal)).rejects.toThrow('stopping');
  // Not unhandled: vitest would fail for it.
  reject(new Error('too late'));
});

describe('a deadline', () => {
  const late = () => new Error('late');

  it('gives what the work gives in time', async () => {
    expect(await raceDeadline(Promise.resolve(1), 1_000, late)).toBe(1);
    await expect(raceDeadline(Promise.reject(new Error('broken')), 1_000, late)).rejects.toThrow('broken');
    expect(await settledWithin(Promise.reject(new Error('broken')), 1_000)).toBe(true);
  });

  it('ends the wait, whatever the outcome of the work', async () => {
    const { promise, reject } = Promise.withResolvers<never>();
    await expect(raceDeadline(promise, 1, late)).rejects.toThrow('late');
    expect(await settledWithin(promise, 1)).toBe(false);
    reject(new Error('too late'));
  });

  it('accepts a result that arrived while the process was blocked', async () => {
    const answered = new Promise<number>(resolve => void setTimeout(() => resolve(1), 5));
    const race = raceDeadline(answered, 5, late);
    const until = performance.now() + 20;
    while (performance.now() < until);
    expect(await race).toBe(1);
  });
});
