import { describe, expect, it } from 'vitest';
import { cleanText, isPlain, quoted, sanitise } from '../../src/platform/sanitize.ts';

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

describe('cleanText', () => {
  it.each([
    ['two\r\nlines\u{2028}three\tcells', 'two\nlines\nthree\tcells'],
    ['\u{1b}[1;31mred\u{1b}[0m \u{9b}[2Jgone', 'red gone'],
    ['a\u{0}b\u{7f}c\u{85}d', 'a b c\nd'],
    ['zero\u{200b}width \u{202e}bidi\u{2066} tag\u{e0041}s \u{feff}bom', 'zerowidth bidi tags bom'],
    ['half \ud800 pair, filler \u{3164}, selector a\u{e0101}', 'half  pair, filler , selector a'],
    ['Grüße 你好 مرحبا 😀 ❤️', 'Grüße 你好 مرحبا 😀 ❤️'],
  ])('%j', (text, clean) => {
    expect(cleanText(text)).toBe(clean);
  });

  it('takes linear time', () => {
    const startedAt = performance.now();
    for (const part of ['\u{1b}[', '\u{1b}[1', '\r', '\u{200b}', 'a ']) cleanText(part.repeat(1_000_000));
    expect(performance.now() - startedAt).toBeLessThan(20_000);
  });
});

describe('isPlain', () => {
  it.each(['create_issue', 'a b', 'größe', '名前', '❤️'])('%j is', name => expect(isPlain(name)).toBe(true));
  it.each(['a\u{200b}b', 'a\nb', 'a\u{1b}[31m', 'a\u{202e}b', 'a\u{e0041}', '\ud800', 'a\u{0}'])(
    '%j is not',
    name => expect(isPlain(name)).toBe(false),
  );
});

describe('quoted', () => {
  it('is the text as JSON has it, or its start: an error does not send back all that came [errors.short]', () => {
    expect(quoted('a "b"\n')).toBe(String.raw`"a \"b\"\n"`);
    expect(quoted('x'.repeat(16_000))).toHaveLength(303);
  });
});
