import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Progress } from '../../src/core/proxy/proxy.ts';
import { adviceOnTimeOut, callTimeoutMs, ProgressRelay } from '../../src/api/mcp/progress.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

function startRelay(notify: () => Promise<void> = () => Promise.resolve(), isBehind = () => false) {
  const sent: Progress[] = [];
  const relay = new ProgressRelay(progress => (sent.push(progress), notify()), isBehind);
  return { relay, sent, values: () => sent.map(({ progress }) => progress) };
}

describe('progress to the client', () => {
  it('only rises', async () => {
    const { relay, values } = startRelay();
    for (const progress of [1, 1, 0.5, 2, -3, Number.NaN, Number.POSITIVE_INFINITY, 3]) {
      relay.report({ progress });
      await vi.advanceTimersByTimeAsync(100);
    }
    await relay[Symbol.asyncDispose]();
    expect(values()).toEqual([1, 2, 3]);
  });

  it('comes at most ten times a second, and always ends with the last value', async () => {
    const { relay, values } = startRelay();
    for (let ms = 0; ms < 990; ms++) {
      relay.report({ progress: ms });
      await vi.advanceTimersByTimeAsync(1);
    }
    expect(values().length).toBeLessThanOrEqual(10);
    await relay[Symbol.asyncDispose]();
    expect(values().at(-1)).toBe(989);
    expect(values()).toEqual(values().toSorted((a, b) => a - b));
  });

  it('sends the last value before a result that comes within the pause', async () => {
    const { relay, values } = startRelay();
    relay.report({ progress: 1 });
    relay.report({ progress: 2 });
    await relay[Symbol.asyncDispose]();
    expect(values()).toEqual([1, 2]);
  });

  it('waits while the client has not read earlier messages', async () => {
    let isBehind = true;
    const { relay, values } = startRelay(undefined, () => isBehind);
    relay.report({ progress: 1 });
    await vi.advanceTimersByTimeAsync(60_000);
    relay.report({ progress: 2 });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(values()).toEqual([]);
    isBehind = false;
    await vi.advanceTimersByTimeAsync(100);
    expect(values()).toEqual([2]);
    await relay[Symbol.asyncDispose]();
  });

  it('carries total and message, the message cleaned and cut', async () => {
    const { relay, sent } = startRelay();
    relay.report({ progress: 1, total: 4, message: `\u001b[31mStep\u0000 one\u200b${'x'.repeat(1_000)}` });
    await relay[Symbol.asyncDispose]();
    expect(sent).toEqual([{ progress: 1, total: 4, message: expect.stringMatching(/^Step onex{292}…$/) }]);
  });

  it.each([[Number.POSITIVE_INFINITY], [0.5]])('leaves out a total of %s, which cannot be', async total => {
    const { relay, sent } = startRelay();
    relay.report({ progress: 1, total });
    await relay[Symbol.asyncDispose]();
    expect(sent).toEqual([{ progress: 1 }]);
  });
});

describe('a heartbeat', () => {
  it('comes every 15 s while the server says nothing, with values that rise', async () => {
    const { relay, sent, values } = startRelay();
    await vi.advanceTimersByTimeAsync(46_000);
    expect(values()).toEqual([0.001, 0.002, 0.003]);
    expect(sent.map(({ message }) => message)).toEqual(
      [15, 30, 45].map(seconds => `Still waiting for the server (${seconds} s so far).`),
    );
    await relay[Symbol.asyncDispose]();
  });

  it('waits for 15 s of silence, and does not hide the next value of the server', async () => {
    const { relay, values } = startRelay();
    await vi.advanceTimersByTimeAsync(14_000);
    relay.report({ progress: 1, total: 2 });
    await vi.advanceTimersByTimeAsync(14_000);
    expect(values()).toEqual([1]);
    await vi.advanceTimersByTimeAsync(1_000);
    relay.report({ progress: 2, total: 2 });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(values()).toEqual([1, 1.001, 2]);
    await relay[Symbol.asyncDispose]();
  });

  it('rises above values so large that its step would be lost', async () => {
    const { relay, values } = startRelay();
    relay.report({ progress: 1e18 });
    await vi.advanceTimersByTimeAsync(30_000);
    expect(values()).toHaveLength(3);
    expect(new Set(values()).size).toBe(3);
    await relay[Symbol.asyncDispose]();
  });
});

describe('the end', () => {
  it('leaves no timer and sends nothing more', async () => {
    const { relay, sent } = startRelay();
    relay.report({ progress: 1 });
    relay.report({ progress: 2 });
    await relay[Symbol.asyncDispose]();
    relay.report({ progress: 3 });
    expect(vi.getTimerCount()).toBe(0);
    expect(sent).toHaveLength(2);
  });

  it('does not fail for a client that has gone', async () => {
    const { relay } = startRelay(() => Promise.reject(new Error('gone')));
    relay.report({ progress: 1 });
    await vi.advanceTimersByTimeAsync(15_200);
    await relay[Symbol.asyncDispose]();
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a time-out', () => {
  it.each([
    ['of a limit that the client set is its own', 1_500, 1_500, /This client set the limit itself/],
    [
      'of 55 s is for want of a progressToken',
      55_000,
      undefined,
      /progressToken or the header Switchboard-Timeout-Ms gets/,
    ],
    ['of 5 minutes could not have been later', 300_000, undefined, /less data\.$/],
    ['before the end of the time is the server`s', undefined, 1_500, /less data\.$/],
  ])('%s', (_what, timeLimitMs, requestedMs, advice) => {
    const told = adviceOnTimeOut({ timeLimitMs, retryable: false }, requestedMs);
    expect(told).toMatch(advice);
    expect(told).not.toContain('try again');
    expect(told).not.toContain('300000');
  });

  it('of a call that did not go out can be tried again', () => {
    expect(adviceOnTimeOut({ timeLimitMs: undefined, retryable: true }, undefined)).toBe(
      'Ask the tool for less data, or try again later.',
    );
  });
});

describe('how long a call may take', () => {
  it.each([
    ['55 s without progress', undefined, false, 55_000],
    ['5 minutes with it', undefined, true, 300_000],
    ['what the caller says', 1_000, false, 1_000],
    ['what the caller says, with progress', 120_000, true, 120_000],
    ['what the caller says, without progress too', 300_000, false, 300_000],
  ])('is %s', (_what, requestedMs, hasProgress, expected) => {
    expect(callTimeoutMs(requestedMs, hasProgress)).toBe(expected);
  });
});
