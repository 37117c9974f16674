import { describe, expect, it } from 'vitest';
import { onceIndexed } from '../../../src/core/search/ready-gate.ts';

describe('onceIndexed', () => {
  it('waits for the index, and asks no more once it is filled', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let asked = 0;
    const untilIndexed = onceIndexed(() => {
      asked++;
      return promise;
    });
    const waiting = Promise.all([untilIndexed(), untilIndexed()]);
    resolve();
    await waiting;
    await untilIndexed();
    expect(asked).toBe(2);
  });

  it.each([
    ['is not filled in time', () => new Promise(() => {})],
    ['could not be filled', () => Promise.reject(new Error('the embedder left'))],
  ])('is unavailable where the index %s', async (_, indexed) => {
    await expect(onceIndexed(indexed, 1)()).rejects.toMatchObject({ code: 'unavailable', retryable: true });
  });
});
