import { describe, expect, it } from 'vitest';
import { ClusterLock } from '../../../src/platform/database/cluster-lock.ts';
import type { OpenDatabase } from '../../../src/platform/database/database.ts';

/** A database that several processes are on. */
function shared() {
  let holder: AbortController | undefined;
  let waiting = () => {};
  const hold: OpenDatabase['hold'] = () => {
    if (holder) {
      waiting();
      return Promise.resolve(undefined);
    }
    const losing = new AbortController();
    holder = losing;
    const free = () => Promise.resolve(void (holder = undefined));
    return Promise.resolve({ lost: losing.signal, [Symbol.asyncDispose]: free });
  };
  return {
    process: () => new ClusterLock(hold, 1),
    lose: () => holder?.abort(new Error('lost')),
    isHeld: () => holder !== undefined,
    /** Resolves when somebody has tried to have the lock in vain. */
    someoneWaits: () => new Promise<void>(resolve => (waiting = resolve)),
  };
}

const endless = new AbortController().signal;
const untilAborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));

/** Work that lasts until it is told to end. */
function work() {
  const { promise: running, resolve: started } = Promise.withResolvers<void>();
  const { promise, resolve: end } = Promise.withResolvers<string>();
  const run = () => {
    started();
    return promise;
  };
  return { run, running, end };
}

describe('a turn', () => {
  it('is held by one caller at a time in a process, in order of request', async () => {
    const lock = shared().process();
    const [first, second] = [work(), work()];
    const waits: string[] = [];
    const one = lock.run(endless, () => waits.push('first'), first.run);
    const two = lock.run(endless, () => waits.push('second'), second.run);
    await first.running;
    expect(waits).toEqual(['second']);
    first.end('1');
    expect(await one).toBe('1');
    await second.running;
    second.end('2');
    expect(await two).toBe('2');
    expect(waits).toEqual(['second']);
  });

  it('is held by one process at a time; others wait or continue without it, as requested', async () => {
    const database = shared();
    const [first, second] = [work(), work()];
    const one = database.process().run(endless, () => {}, first.run);
    await first.running;
    expect(await database.process().runIfFree(endless, second.run)).toBeUndefined();
    let waits = 0;
    const waiting = database.someoneWaits();
    const two = database.process().run(endless, () => waits++, second.run);
    await waiting;
    first.end('1');
    await one;
    await second.running;
    second.end('2');
    expect([await two, waits]).toEqual(['2', 1]);
    expect(database.isHeld()).toBe(false);
  });

  it('is given back after a failure, and the next one has it', async () => {
    const database = shared();
    const lock = database.process();
    await expect(
      lock.run(
        endless,
        () => {},
        () => Promise.reject(new Error('down')),
      ),
    ).rejects.toThrow('down');
    expect(await lock.runIfFree(endless, () => Promise.resolve('next'))).toBe('next');
  });

  it('ends its work when the lock is lost, since another may have it then', async () => {
    const database = shared();
    const turn = database.process().run(
      endless,
      () => {},
      signal => {
        const ended = untilAborted(signal);
        database.lose();
        return ended;
      },
    );
    await expect(turn).rejects.toThrow('lost');
  });

  it('need not be waited for any longer', async () => {
    const database = shared();
    const first = work();
    const one = database.process().run(endless, () => {}, first.run);
    await first.running;
    const gone = new AbortController();
    const waiting = database.someoneWaits();
    const two = database.process().run(
      gone.signal,
      () => {},
      () => Promise.resolve('never'),
    );
    await waiting;
    gone.abort(new Error('gone'));
    await expect(two).rejects.toThrow('gone');
    first.end('1');
    expect(await one).toBe('1');
  });
});
