import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Repeat } from '../../src/platform/time.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('begins at once, then each time the time has passed and the last one has ended', async () => {
  const works: PromiseWithResolvers<void>[] = [];
  const looking = new Repeat(1_000, () => {
    const work = Promise.withResolvers<void>();
    works.push(work);
    return work.promise;
  });
  expect(works).toHaveLength(0);
  looking.start();
  expect(works).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(works).toHaveLength(1);
  works[0]?.resolve();
  await vi.advanceTimersByTimeAsync(0);
  expect(works).toHaveLength(2);
  works[1]?.resolve();
  await vi.advanceTimersByTimeAsync(999);
  expect(works).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(works).toHaveLength(3);
  void looking.stop();
  works[2]?.resolve();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(works).toHaveLength(3);
});

it('runs when it is asked to, and once more after the run under way', async () => {
  const works: PromiseWithResolvers<void>[] = [];
  const repeat = new Repeat(1_000, () => {
    const work = Promise.withResolvers<void>();
    works.push(work);
    return work.promise;
  }).start(500);
  expect(works).toHaveLength(0);
  repeat.kick();
  repeat.kick();
  repeat.kick();
  expect(works).toHaveLength(1);
  works[0]?.resolve();
  await vi.advanceTimersByTimeAsync(0);
  expect(works).toHaveLength(2);
  works[1]?.resolve();
  await vi.advanceTimersByTimeAsync(999);
  expect(works).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(works).toHaveLength(3);
  let isStopped = false;
  const stopping = repeat.stop().then(() => (isStopped = true));
  repeat.kick();
  await vi.advanceTimersByTimeAsync(0);
  expect(isStopped).toBe(false);
  works[2]?.resolve();
  await stopping;
  await vi.advanceTimersByTimeAsync(5_000);
  expect(works).toHaveLength(3);
});
