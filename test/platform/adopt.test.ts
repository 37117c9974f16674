import { describe, expect, it } from 'vitest';
import { adoptLater } from '../../src/platform/adopt.ts';

describe('adoptLater', () => {
  it('closes what was opened, even if the stack is disposed of before it is open', async () => {
    const closed: string[] = [];
    const opening = Promise.withResolvers<string>();
    const stack = new AsyncDisposableStack();
    expect(adoptLater(stack, opening.promise, one => closed.push(one))).toBe(opening.promise);
    const disposed = stack.disposeAsync();
    opening.resolve('database');
    await disposed;
    expect(closed).toEqual(['database']);
  });

  it('closes nothing that could not be opened, and leaves the failure to whoever awaits it', async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', note);
    const stack = new AsyncDisposableStack();
    const opening = adoptLater(stack, Promise.reject(new Error('no disk')), () => {
      throw new Error('closed');
    });
    await new Promise(resolve => setImmediate(resolve));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
    await expect(opening).rejects.toThrow('no disk');
    await stack.disposeAsync();
  });
});
