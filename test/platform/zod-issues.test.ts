import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { inWords } from '../../src/platform/zod-issues.ts';
import { ZODS_WORDS } from '../support/zods-words.ts';

const of = (schema: z.ZodType, input: unknown, whole?: string) => {
  const issues = schema.safeParse(input).error?.issues ?? [];
  return { codes: issues.map(({ code }) => code), text: inWords(issues, whole) };
};
const field = (schema: z.ZodType, input?: unknown) => of(z.object({ a: schema }), { a: input });
const text = z.string();

describe('an issue in words', () => {
  it.each<[code: string, schema: z.ZodType, input: unknown, words: string]>([
    ['invalid_type', text, undefined, 'a: is missing; it must be a string'],
    ['invalid_type', text, null, 'a: must be a string, not null'],
    ['invalid_type', text, 7, 'a: must be a string, not a number'],
    ['invalid_type', text, true, 'a: must be a string, not true'],
    ['invalid_type', text, [], 'a: must be a string, not an array'],
    ['invalid_type', text, {}, 'a: must be a string, not an object'],
    ['invalid_type', z.number(), 'x', 'a: must be a number, not a string'],
    ['invalid_type', z.number(), Infinity, 'a: must be a finite number'],
    ['invalid_type', z.int(), 1.5, 'a: must be a whole number'],
    ['invalid_type', z.int(), '1', 'a: must be a number, not a string'],
    ['invalid_type', z.boolean(), 'yes', 'a: must be true or false, not a string'],
    ['invalid_type', z.array(text), {}, 'a: must be an array, not an object'],
    ['invalid_type', z.array(text), ['x', 7], 'a[1]: must be a string, not a number'],
    ['invalid_type', z.object({}), [], 'a: must be a JSON object, not an array'],
    ['invalid_type', z.record(text, text), 'x', 'a: must be a JSON object, not a string'],
    [
      'invalid_type',
      z.object({ b: z.object({ c: text }) }),
      { b: {} },
      'a.b.c: is missing; it must be a string',
    ],
    ['invalid_type', z.date(), 7, 'a: must be of type date, not a number'],
    ['invalid_value', z.enum(['x', 'y']), 'z', 'a: must be one of x, y'],
    ['invalid_value', z.enum(['x', 'y']), undefined, 'a: is missing; it must be one of x, y'],
    ['invalid_value', z.literal('2.0'), '1.0', 'a: must be "2.0"'],
    ['invalid_value', z.literal([1, true]), 2, 'a: must be one of 1, true'],
    ['too_big', text.max(3), 'four', 'a: must have at most 3 characters, not 4'],
    ['too_big', text.max(1), 'two', 'a: must have at most 1 character, not 3'],
    ['too_big', z.array(text).max(2), ['', '', ''], 'a: must have at most 2 items, not 3'],
    ['too_big', z.set(text).max(0), new Set(['x']), 'a: must have at most 0 items, not 1'],
    ['too_big', z.number().max(5), 6, 'a: must be at most 5'],
    ['too_big', z.number().lt(5), 5, 'a: must be less than 5'],
    ['too_big', z.int(), 2 ** 60, 'a: must be at most 9007199254740991'],
    ['too_big', text.length(3), 'four', 'a: must have exactly 3 characters, not 4'],
    ['too_small', text.min(3), 'no', 'a: must have at least 3 characters, not 2'],
    ['too_small', text.min(1), '', 'a: must not be empty'],
    ['too_small', z.array(text).min(1), [], 'a: must not be empty'],
    ['too_small', z.array(text).min(2), ['x'], 'a: must have at least 2 items, not 1'],
    ['too_small', z.number().min(5), 4, 'a: must be at least 5'],
    ['too_small', z.number().positive(), 0, 'a: must be more than 0'],
    ['too_small', text.length(1), '', 'a: must have exactly 1 character, not 0'],
    ['invalid_format', z.url(), 'x', 'a: must be a URL'],
    ['invalid_format', z.email(), 'x', 'a: must be an e-mail address'],
    ['invalid_format', z.iso.datetime(), 'x', 'a: must be an ISO 8601 time such as 2030-01-31T00:00:00Z'],
    ['invalid_format', z.cuid2(), '-', 'a: must be of the format cuid2'],
    ['invalid_format', text.regex(/^b+$/), 'x', 'a: must match /^b+$/'],
    ['invalid_format', text.startsWith('b'), 'x', 'a: must begin with "b"'],
    ['invalid_format', text.endsWith('b'), 'x', 'a: must end with "b"'],
    ['invalid_format', text.includes('b'), 'x', 'a: must contain "b"'],
    ['not_multiple_of', z.number().multipleOf(5), 6, 'a: must be a multiple of 5'],
    [
      'unrecognized_keys',
      z.strictObject({ b: text.optional() }),
      { c: 1 },
      'a: unknown field "c" (the fields are b)',
    ],
    ['unrecognized_keys', z.strictObject({}), { c: 1, '"': 1 }, 'a: unknown fields "c", "\\""'],
    [
      'invalid_key',
      z.record(text.max(1), z.any()),
      { bb: 1 },
      'a.bb: the name must have at most 1 character, not 2',
    ],
    ['invalid_union', z.union([text, z.number()]), [], 'a: must be a string or a number'],
    ['invalid_union', z.union([text, z.int()]), undefined, 'a: is missing; it must be a string or a number'],
    [
      'invalid_union',
      z.union([text, z.object({ b: text })]),
      {},
      'a: must be a string, not an object, or b: is missing; it must be a string',
    ],
    [
      'invalid_union',
      z.discriminatedUnion('k', [z.object({ k: z.literal('x') })]),
      { k: 'z' },
      'a.k: must be "x"',
    ],
    ['custom', text.refine(() => false), 'x', 'a: is not allowed'],
    ['custom', text.refine(() => false, 'must rhyme'), 'x', 'a: must rhyme'],
  ])('%s of %o with %o', (code, schema, input, words) => {
    const { codes, text: said } = field(schema, input);
    expect([codes, said]).toEqual([[code], words]);
    expect(said).not.toMatch(ZODS_WORDS);
  });

  it('is of the whole, where it has no path', () => {
    const schema = z.strictObject({ b: text.optional() });
    expect(of(schema, [], 'The body').text).toBe('The body must be a JSON object, not an array');
    expect(of(schema, []).text).toBe('must be a JSON object, not an array');
    expect(of(schema, { c: 1 }, 'The body').text).toBe('Unknown field "c" (the fields are b)');
  });

  it('names the first ten of many, and cuts the names', () => {
    expect(field(z.array(text), Array.from({ length: 50 })).text).toMatch(
      /^(a\[\d\]: is missing; it must be a string; ){10}and 40 more$/,
    );
    const many = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`${at}${'x'.repeat(1_000)}`, 1]));
    expect(of(z.strictObject({}), many).text).toMatch(/^Unknown fields ("\d+x{62,63}…", ){10}and 2 more$/);
  });
});

describe('the source', () => {
  it("takes an issue's words from nowhere else", () => {
    const astray = globSync('src/**/*.ts').filter(file => {
      const source = readFileSync(file, 'utf8');
      return /\.issues\b|prettifyError|treeifyError|flattenError/.test(source) && !source.includes('inWords');
    });
    // What comes from a search engine goes to the log alone.
    expect(astray).toEqual(['src/core/search/index/meilisearch-engine.ts']);
  });
});
