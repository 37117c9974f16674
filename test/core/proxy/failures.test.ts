import { describe, expect, it } from 'vitest';
import { readRetryAfter } from '../../../src/core/proxy/failures.ts';

describe('readRetryAfter', () => {
  const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
  it.each([
    ['7', 7],
    [' 0 ', 0],
    ['Sat, 21 Nov 2026 12:00:30 GMT', 30],
    ['Sat, 21 Nov 2026 11:00:00 GMT', 0],
    ['-5', undefined],
    ['1.5', undefined],
    ['soon', undefined],
    ['', undefined],
    [undefined, undefined],
    ['99999999999999999999', undefined],
  ])('%j is %s s', (value, seconds) => {
    expect(readRetryAfter(value, nowMs)).toBe(seconds);
  });
});
