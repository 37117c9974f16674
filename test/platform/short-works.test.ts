import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ShortWorks } from '../../src/platform/time.ts';

/** Works as long as a turn has for all. */
function busy(): void {
  const endsAt = performance.now() + 6;
  while (performance.now() < endsAt);
}

describe('short works', () => {
  it('run at once, until they have taken a while of one turn; the others follow in order, in later turns', async () => {
    const works = new ShortWorks();
    const done: number[] = [];
    const work = (number: number) => () => {
      done.push(number);
      busy();
    };
    works.run(work(1));
    expect(done).toEqual([1]);
    for (const number of [2, 3, 4]) works.run(work(number));
    expect(done).toEqual([1]);
    await turn();
    expect(done).toEqual([1, 2]);
    // One that comes later does not overtake them.
    works.run(work(5));
    expect(done).toEqual([1, 2]);
    while (done.length < 5) await turn();
    expect(done).toEqual([1, 2, 3, 4, 5]);
  });

  it('run at once again in another turn', async () => {
    const works = new ShortWorks();
    works.run(busy);
    await turn();
    let isDone = false;
    works.run(() => (isDone = true));
    expect(isDone).toBe(true);
  });
});
