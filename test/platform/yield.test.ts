import { expect, it } from 'vitest';
import { slices } from '../../src/platform/time.ts';

it('gives other work its turn again and again while long work goes on', async () => {
  const pause = slices();
  const turns: number[] = [];
  const timer = setInterval(() => turns.push(1), 1);
  try {
    while (turns.length < 3) await pause();
  } finally {
    clearInterval(timer);
  }
  expect(turns.length).toBeGreaterThanOrEqual(3);
});

it('ends the work at its next pause when it is to end, with the reason', async () => {
  const ending = new AbortController();
  const pause = slices(ending.signal);
  await pause();
  ending.abort(new Error('ended'));
  expect(pause).toThrow('ended');
});
