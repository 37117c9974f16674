import { describe, expect, it } from 'vitest';
import { readRetryAfter, sanitise } from '../../../src/core/proxy/failures.ts';

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

describe('sanitise', () => {
  it.each([
    ['  two\r\n\tlines ', 'two lines'],
    ['\u{1b}[31mred\u{1b}[0m', 'red'],
    ['a\u{0}b\u{7f}c', 'a b c'],
    ['zero\u{200b}width \u{202e}rtl', 'zerowidth rtl'],
    ['x'.repeat(300), `${'x'.repeat(200)}…`],
  ])('%j', (text, clean) => {
    expect(sanitise(text)).toBe(clean);
  });

  it('never ends in half a character', () => {
    expect(sanitise('😀'.repeat(300), 5).isWellFormed()).toBe(true);
  });
});
