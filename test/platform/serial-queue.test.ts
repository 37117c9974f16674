import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { SerialQueue } from '../../src/platform/queues.ts';

it('runs one piece at a time, in order, and gives each its own outcome', async () => {
  const queue = new SerialQueue();
  const seen: string[] = [];
  const piece = (name: string, ms: number) =>
    queue.run(async () => {
      seen.push(`${name} begins`);
      await delay(ms);
      seen.push(`${name} ends`);
      return name;
    });
  const first = piece('slow', 5);
  expect(seen).toEqual(['slow begins']);
  expect(await Promise.all([first, piece('quick', 0)])).toEqual(['slow', 'quick']);
  expect(seen).toEqual(['slow begins', 'slow ends', 'quick begins', 'quick ends']);
  expect(queue.size).toBe(0);
});

it('goes on after a failure, also of work that throws before it waits', async () => {
  const queue = new SerialQueue();
  const failed = queue.run(() => {
    throw new Error('broken');
  });
  const next = queue.run(() => Promise.resolve('next'));
  expect(queue.size).toBe(2);
  await expect(failed).rejects.toThrow('broken');
  expect(await next).toBe('next');
});

it('is settled when all that has come so far has ended', async () => {
  const queue = new SerialQueue();
  let done = 0;
  for (let i = 0; i < 3; i++) void queue.run(async () => void (await delay(1), done++));
  void queue.run(() => Promise.reject(new Error('broken'))).catch(() => {});
  await queue.settled();
  expect(done).toBe(3);
});
