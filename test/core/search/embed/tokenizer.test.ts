import { beforeAll, describe, expect, it } from 'vitest';
import { MAX_TOKENS, Tokenizer } from '../../../../src/core/search/embed/minilm/tokenizer.ts';
import { readModel } from '../../../../src/core/search/embed/minilm/weights.ts';
import reference from './minilm-reference.json' with { type: 'json' };

const CLS = 101;
const SEP = 102;
const UNKNOWN = 100;

let tokenizer: Tokenizer;
beforeAll(async () => {
  tokenizer = new Tokenizer((await readModel()).vocabulary);
});

describe('Tokenizer.encode', () => {
  it.each(reference.cases)('gives the ids of the original tokenizer: $text', ({ text, ids }) => {
    expect(tokenizer.encode(text)).toEqual(ids);
  });

  it('gives a text without words its two frame tokens', () => {
    for (const text of ['', ' \t\n', '\0\u200B\uFEFF']) expect(tokenizer.encode(text)).toEqual([CLS, SEP]);
  });

  it('ignores case, accents and control characters', () => {
    const plain = tokenizer.encode('resume cafe');
    expect(tokenizer.encode('RÉSUMÉ  Caf\u00E9')).toEqual(plain);
    expect(tokenizer.encode('re\u00ADsume cafe\u0301\u0007')).toEqual(plain);
  });

  it('treats every CJK character as a word', () => {
    expect(tokenizer.encode('東京')).toEqual(tokenizer.encode('東 京'));
  });

  it('takes a spelled-out special token as plain text', () => {
    expect(tokenizer.encode('[SEP] [MASK]').filter(id => id === SEP)).toHaveLength(1);
    expect(tokenizer.encode('[MASK]')).not.toContain(103);
  });

  it('drops lone surrogates', () => {
    expect(tokenizer.encode('mail\uD800 \uDC00box')).toEqual(tokenizer.encode('mail box'));
  });

  it('makes a word of more than 100 characters unknown', () => {
    expect(tokenizer.encode('a'.repeat(101))).toEqual([CLS, UNKNOWN, SEP]);
    expect(tokenizer.encode('a'.repeat(100))).not.toContain(UNKNOWN);
  });

  it(`cuts at ${MAX_TOKENS} tokens and keeps the frame`, () => {
    const ids = tokenizer.encode('word '.repeat(5_000));
    expect(ids).toHaveLength(MAX_TOKENS);
    expect([ids[0], ids.at(-1)]).toEqual([CLS, SEP]);
    expect(new Set(ids.slice(1, -1)).size).toBe(1);
  });

  it('cuts inside a word of several pieces', () => {
    const ids = tokenizer.encode(`${'word '.repeat(MAX_TOKENS - 3)}antidisestablishmentarianism`);
    expect(ids).toHaveLength(MAX_TOKENS);
    expect(ids.at(-1)).toBe(SEP);
  });
});

describe('new Tokenizer', () => {
  it('refuses a vocabulary without the special tokens', () => {
    expect(() => new Tokenizer(new Map([['[UNK]', 0]]))).toThrow('The vocabulary does not contain [CLS]');
  });
});
