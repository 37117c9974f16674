import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { delayOf } from '../../src/platform/time.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('calls what is due, in order and once, with one timer', () => {
  const calls: number[] = [];
  for (const number of [1, 2, 3]) delayOf(50).add(() => void calls.push(number));
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(49);
  expect(calls).toEqual([]);
  vi.advanceTimersByTime(500);
  expect(calls).toEqual([1, 2, 3]);
  expect(vi.getTimerCount()).toBe(0);
});

it('has one timer also if a call adds another, and calls nothing that was deleted', () => {
  const calls: string[] = [];
  const deleted = () => void calls.push('deleted');
  delayOf(50).add(() => delayOf(50).add(() => void calls.push('added')));
  delayOf(50).add(deleted);
  delayOf(50).delete(deleted);
  vi.advanceTimersByTime(50);
  expect(vi.getTimerCount()).toBe(1);
  vi.advanceTimersByTime(50);
  expect(calls).toEqual(['added']);
});

it('calls the next one in time although a call adds another', () => {
  const calls: string[] = [];
  delayOf(500).add(() => delayOf(500).add(() => void calls.push('added')));
  vi.advanceTimersByTime(100);
  delayOf(500).add(() => void calls.push('next'));
  vi.advanceTimersByTime(500);
  expect(calls).toEqual(['next']);
});

it('goes on after a call that throws', () => {
  const called = vi.fn();
  delayOf(50).add(() => {
    throw new Error('it failed');
  });
  delayOf(50).add(called);
  expect(() => vi.advanceTimersByTime(50)).toThrow('it failed');
  vi.advanceTimersByTime(1);
  expect(called).toHaveBeenCalledOnce();
});

it('keeps no timers of many delays that nobody waits for', () => {
  for (let ms = 1_000; ms < 2_000; ms++) {
    const call = () => {};
    delayOf(ms).add(call);
    delayOf(ms).delete(call);
  }
  expect(vi.getTimerCount()).toBeLessThanOrEqual(101);
});
