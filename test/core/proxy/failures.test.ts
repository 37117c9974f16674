import { describe, expect, it } from 'vitest';
import { httpFailure, readRetryAfter } from '../../../src/core/proxy/failures.ts';

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
    ['99999999999999999999', 300],
    ['9'.repeat(400), 300],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 300],
  ])('%j is %s s', (value, seconds) => {
    expect(readRetryAfter(value, nowMs, 300)).toBe(seconds);
  });
});

describe('a server that wants to be left alone for years', () => {
  it.each([
    [429, 'upstream_rate_limited', 300],
    [503, 'upstream_unavailable', 60],
  ])('HTTP %i is %s; what is told is what it is held to, %i s', (status, code, seconds) => {
    const headers = { 'retry-after': '999999999' };
    const error = httpFailure({ status, headers, nowMs: 0, excerpt: '' });
    expect(error).toMatchObject({ code, retryAfterSec: seconds });
    expect(error.detail).toMatch(new RegExp(`Try again in ${seconds} s\\.$`));
  });
});

describe('HTTP 401', () => {
  const detailOf = (hadToken: boolean) =>
    httpFailure({ status: 401, headers: {}, nowMs: 0, excerpt: '', hadToken }).detail;

  it('says whose turn it is: the operator`s without a token, the user`s with one', () => {
    expect(detailOf(false)).toMatch(/HTTP 401.*no token for it.*operator must set "auth"/);
    expect(detailOf(true)).toMatch(/HTTP 401.*does not take the token.*user must connect the account again/);
  });
});
