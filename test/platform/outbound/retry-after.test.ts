import { expect, it } from 'vitest';
import { retryAfterMs } from '../../../src/platform/outbound/fetch.ts';

const NOW_MS = Date.parse('2030-01-01T00:00:00Z');

it.each([
  ['7', 7_000],
  [' 0 ', 0],
  [['3', '9'], 3_000],
  ['Tue, 01 Jan 2030 00:00:30 GMT', 30_000],
  ['Mon, 31 Dec 2029 23:59:00 GMT', 0],
  ['soon', undefined],
  ['-5', undefined],
  ['1.5', undefined],
  ['', undefined],
  [null, undefined],
  [undefined, undefined],
])('%j is %s ms', (value, expected) => {
  expect(retryAfterMs(value, NOW_MS)).toBe(expected);
});
