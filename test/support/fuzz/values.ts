import * as fc from 'fast-check';
import type { Schema } from './document.ts';

/** Values that mean something to the server under test, by the name of their field. */
export type Known = Readonly<Record<string, readonly unknown[]>>;

const deep = (open: string, close: string, levels: number) =>
  `${open.repeat(levels)}1${close.repeat(levels)}`;

/** JSON that hardly any field wants, as text: some of it is lost once it is parsed. */
export const ODD_JSON: readonly string[] = [
  'null',
  'true',
  '7',
  '-1',
  '-0',
  '1.5',
  '1e308',
  '1e400',
  '-1e400',
  '1e-400',
  '9007199254740993',
  '123456789012345678901234567890',
  '""',
  '" "',
  String.raw`"\u0000"`,
  String.raw`"a\u0000b"`,
  String.raw`"\ud800"`,
  String.raw`"\udc00x\ud800"`,
  String.raw`"\u202egnp.exe"`,
  String.raw`"\u2028\ufeff\u200b"`,
  '"𝒳👩‍👩‍👧‍👦é́"',
  '"<script>alert(1)</script>"',
  String.raw`"'; DROP TABLE servers; --"`,
  '"../../etc/passwd"',
  '"__proto__"',
  '"constructor"',
  '"2026-02-30T00:00:00Z"',
  '"9999-12-31T23:59:59.999999999Z"',
  '"http://[::1"',
  '"javascript:alert(1)"',
  JSON.stringify('x'.repeat(3_000)),
  JSON.stringify('é'.repeat(60_000)),
  '[]',
  '[null]',
  '[[[[]]]]',
  JSON.stringify(Array.from({ length: 2_000 }, () => 7)),
  '{}',
  '{"__proto__":{"polluted":1}}',
  '{"constructor":{"prototype":{"polluted":1}}}',
  '{"toString":1,"valueOf":2,"hasOwnProperty":3,"then":4,"toJSON":5}',
  '{"":""}',
  deep('[', ']', 150),
  deep('{"a":', '}', 150),
  deep('[', ']', 300),
  deep('{"a":', '}', 5_000),
];

export const ODD_NAMES: readonly string[] = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'then',
  '',
  '\0',
  '\ud800',
  '‮',
  'x'.repeat(5_000),
];

/** For parameters of paths, of query strings and for names. */
export const oddText: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    '\0',
    'a\0b',
    '.',
    '..',
    '../..',
    '../../../../etc/passwd',
    '/',
    'a/b',
    '//',
    ' ',
    '%',
    '%00',
    '%2F',
    '?',
    '#',
    '\r\n',
    'a\r\nSet-Cookie: x=1',
    '‮',
    '\ufeff',
    '__proto__',
    'constructor',
    'toString',
    "' OR 1=1 --",
    '<b>',
    '{{7*7}}',
    'x'.repeat(300),
    'x'.repeat(2_000),
    'é'.repeat(500),
    '-1',
    '0',
    '1e400',
    '99999999999999999999',
    'null',
    'undefined',
    'true',
  ),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }),
  fc.string({ minLength: 1, maxLength: 40 }),
);

/** Values that the schema allows; half of those with a known name are known ones. */
export function fitting(schema: Schema, name: string, known: Known): fc.Arbitrary<unknown> {
  const made = generated(schema, name, known);
  const familiar = schema.enum ? undefined : known[name];
  return familiar ? fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...familiar) }, made) : made;
}

function generated(schema: Schema, name: string, known: Known): fc.Arbitrary<unknown> {
  if ('const' in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.anyOf) return fc.oneof(...schema.anyOf.map(one => generated(one, name, known)));
  const { type = '', minimum, maximum } = schema;
  const byType: Readonly<Record<string, () => fc.Arbitrary<unknown>>> = {
    object: () => objects(schema, known),
    array: () => arrays(schema, name, known),
    string: () => strings(schema),
    integer: () => fc.integer({ min: bounded(minimum, -(2 ** 31)), max: bounded(maximum, 2 ** 31 - 1) }),
    number: () => fc.double({ min: minimum ?? -1e308, max: maximum ?? 1e308, noNaN: true }),
    boolean: () => fc.boolean(),
    null: () => fc.constant(null),
  };
  return byType[type]?.() ?? fc.jsonValue({ maxDepth: 3 });
}

const arrays = ({ items = {}, minItems = 0, maxItems = 5 }: Schema, name: string, known: Known) =>
  fc.array(fitting(items, `${name}[]`, known), { minLength: minItems, maxLength: Math.min(maxItems, 5) });

/** fast-check takes integers of 32 bits; the schemas' own bounds can be those of a double. */
const bounded = (bound: number | undefined, otherwise: number) =>
  bound === undefined || Math.abs(bound) >= 2 ** 31 ? otherwise : bound;

function objects({ properties, required = [] }: Schema, known: Known): fc.Arbitrary<unknown> {
  if (!properties)
    return fc.dictionary(fc.string({ unit: 'binary', maxLength: 10 }), fc.jsonValue({ maxDepth: 2 }), {
      maxKeys: 5,
    });
  const members = Object.entries(properties).map(([name, schema]) => [name, fitting(schema, name, known)]);
  return fc.record(Object.fromEntries(members) as Record<string, fc.Arbitrary<unknown>>, {
    requiredKeys: [...required],
  });
}

function strings({ pattern, format, minLength = 0, maxLength = 300 }: Schema): fc.Arbitrary<string> {
  if (format === 'date-time') return dates.map(date => date.toISOString());
  if (format === 'date') return dates.map(date => date.toISOString().slice(0, 10));
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  const length = { minLength, maxLength: Math.min(maxLength, 300) };
  return fc.oneof(fc.string({ unit: 'grapheme-ascii', ...length }), fc.string({ unit: 'binary', ...length }));
}

const dates = fc.date({ min: new Date(0), max: new Date(Date.UTC(9999, 11, 31)), noInvalidDate: true });
