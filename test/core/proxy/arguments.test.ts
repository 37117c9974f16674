import { Ajv2020 } from 'ajv/dist/2020.js';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ArgumentChecks } from '../../../src/core/proxy/arguments/check-arguments.ts';
import {
  checkableSchema,
  isOverlarge,
  valuesIn,
} from '../../../src/core/proxy/arguments/checkable-schema.ts';
import { nearest } from '../../../src/platform/closest-names.ts';

const checks = new ArgumentChecks();
const names = (count: number, start = '') => Array.from({ length: count }, (_, at) => `${start}${at}`);
const many = (count: number, value: object) => Array.from({ length: count }, () => value);
const members = <T>(count: number, value: T) =>
  Object.fromEntries(names(count, 'k').map(name => [name, value]));
const copies = (count: number, e: object) => ({
  forms: many(count, { $ref: '#/$defs/e' }),
  $defs: { e },
});
const ofItems = (items: object, more: object = {}) => ({ properties: { a: { items } }, ...more });
/** Wide enough for any machine: unbounded, these took from four seconds to for ever. */
const MAX_MS = 2_000;

const FORECAST = {
  type: 'object',
  properties: {
    city: { type: 'string', minLength: 2 },
    days: { type: 'integer', minimum: 1 },
    unit: { enum: ['celsius', 'fahrenheit'] },
    stops: {
      type: 'array',
      items: { type: 'object', properties: { at: { type: 'number' } }, required: ['at'] },
    },
    either: { anyOf: [{ type: 'string' }, { type: 'null' }] },
    pair: { prefixItems: [{ type: 'string' }], items: false },
    tags: { propertyNames: { enum: ['ok'] } },
    from: {},
    to: {},
  },
  dependentRequired: { from: ['to'] },
  required: ['city'],
  additionalProperties: false,
};

describe('the description of wrong arguments', () => {
  it.each<[args: unknown, problems: string | undefined]>([
    [{ city: 'Bonn', days: 2, unit: 'celsius', stops: [{ at: 1 }], either: null }, undefined],
    [{}, 'city is missing (expected string)'],
    [
      { citty: 'Bonn' },
      'city is missing (expected string); is "citty" a misspelling of "city"?; citty is unknown; did you mean "city"?',
    ],
    [
      { city: 'Bonn', colour: 1 },
      'colour is unknown; known: "city", "days", "unit", "stops", "either", "pair", "tags", "from" and 1 more',
    ],
    [{ city: 5 }, 'city: expected string, got number 5'],
    [
      { city: 'B', days: 0 },
      'city: expected at least 2 characters, got string "B"; days: expected >= 1, got number 0',
    ],
    [
      { city: 'Bonn', unit: 'celcius' },
      'unit: expected one of "celsius", "fahrenheit", got string "celcius"; did you mean "celsius"?',
    ],
    [{ city: 'Bonn', stops: [{ at: 1 }, {}] }, 'stops[1].at is missing (expected number)'],
    [{ city: 'Bonn', either: 5 }, 'either: expected string or null, got number 5'],
    [{ city: null }, 'city: expected string, got null'],
    [{ city: 'Bonn', pair: ['x', 'y'] }, 'pair[1] is not allowed'],
    [{ city: 'Bonn', tags: { ok: 1, no: 1 } }, 'tags.no is not an allowed name'],
    [{ city: 'Bonn', from: 1 }, 'to is missing'],
    [null, 'arguments: expected object, got null'],
    [[], 'arguments: expected object, got an array of 0'],
  ])('%j', (args, problems) => {
    expect(checks.problems(FORECAST, args)).toBe(problems);
  });

  it('names five problems and counts the rest', () => {
    const args = Object.fromEntries(Array.from({ length: 9 }, (_, at) => [`other${at}`, 1]));
    const problems = checks.problems(FORECAST, { city: 'Bonn', ...args });
    expect(problems?.split('; ').filter(part => part.includes('is unknown'))).toHaveLength(5);
    expect(problems).toMatch(/; and 4 more$/);
  });

  it('never shows a long value', () => {
    const problems = checks.problems(FORECAST, { city: 'Bonn', days: 'secret'.repeat(20) });
    expect(problems).toBe('days: expected integer, got string');
  });
});

describe('what is not checked', () => {
  const deep = (levels: number): object => (levels === 0 ? {} : { properties: { a: deep(levels - 1) } });
  it.each<[why: string, schema: object]>([
    ['a reference over the network', { properties: { a: { $ref: 'https://127.0.0.1:1/schema.json' } } }],
    ['a reference to nowhere', { properties: { a: { $ref: '#/$defs/gone' } } }],
    ['a recursive schema', { $defs: { n: { properties: { n: { $ref: '#/$defs/n' } } } }, $ref: '#/$defs/n' }],
    ['a schema that refers to itself', { properties: { a: { $ref: '#' } } }],
    ['an id within', { properties: { a: { $id: 'https://x.example/a', type: 'string' } } }],
    ['dynamic references', { $dynamicRef: '#x' }],
    ['a broken keyword', { properties: { a: { minimum: '1; process.exit()' } } }],
    ['an unknown type', { type: 'any' }],
    [
      'too many schemas',
      { properties: Object.fromEntries(Array.from({ length: 700 }, (_, at) => [at, {}])) },
    ],
    ['a schema that is too deep', deep(40)],
    ['a schema far too deep', deep(3_000)],
    [
      'references that multiply',
      {
        $defs: Object.fromEntries(
          Array.from({ length: 30 }, (_, at) => [
            `d${at}`,
            at === 29 ? {} : { allOf: [{ $ref: `#/$defs/d${at + 1}` }, { $ref: `#/$defs/d${at + 1}` }] },
          ]),
        ),
        $ref: '#/$defs/d0',
      },
    ],
  ])('%s', (_why, schema) => {
    expect(checkableSchema(schema)).toBeUndefined();
    expect(checks.problems({ required: ['never'], ...schema }, {})).toBeUndefined();
  });

  it.each<[keyword: string, schema: object, args: unknown]>([
    ['pattern', { properties: { a: { type: 'string', pattern: '^(a+)+$' } } }, { a: `${'a'.repeat(50)}!` }],
    ['patternProperties', { patternProperties: { '^x': {} }, additionalProperties: false }, { x1: 1 }],
    ['format', { properties: { a: { format: 'date-time' } } }, { a: 'soon' }],
    ['not', { not: { properties: { a: { pattern: 'x' } } } }, { a: 'y' }],
    ['oneOf, of which several fit', { oneOf: [{ pattern: 'a' }, { pattern: 'b' }] }, 'a'],
    ['if', JSON.parse('{"if":{"properties":{"a":{"const":1}}},"then":false}') as object, { a: 1 }],
    ['unevaluatedProperties', { unevaluatedProperties: false }, { a: 1 }],
  ])('%s refuses nothing here: the server decides', (_keyword, schema, args) => {
    expect(checkableSchema(schema)).toBeDefined();
    expect(checks.problems(schema, args)).toBeUndefined();
  });
});

describe('what is checked', () => {
  it('references within the schema, in both dialects', () => {
    const schema = {
      $schema: 'http://json-schema.org/draft-07/schema#',
      definitions: { 'a/b': { type: 'integer' } },
      properties: {
        n: { $ref: '#/definitions/a~1b' },
        pair: { items: [{ type: 'string' }], additionalItems: false },
      },
    };
    expect(checks.problems(schema, { n: 1, pair: ['x'] })).toBeUndefined();
    expect(checks.problems(schema, { n: 'x' })).toBe('n: expected integer, got string "x"');
    expect(checks.problems(schema, { pair: ['x', 'y'] })).toContain('pair');
  });

  const DRAFT_07 = 'http://json-schema.org/draft-07/schema#';
  const REFERRING = {
    $defs: { text: { type: ['string', 'null'] }, open: { properties: { x: {} } } },
    properties: {
      a: { $ref: '#/$defs/text', type: 'string' },
      b: { $ref: '#/$defs/open', additionalProperties: false },
    },
  };
  it.each(['3', '4', '6', '7'])('keywords beside a $ref are ignored in draft-0%s', draft => {
    const schema = { $schema: `http://json-schema.org/draft-0${draft}/schema#`, ...REFERRING };
    expect(checks.problems(schema, { a: null, b: { x: 1 } })).toBeUndefined();
    expect(checks.problems(schema, { a: 1 })).toBe('a: expected string or null, got number 1');
  });

  it.each([
    undefined,
    'https://json-schema.org/draft/2019-09/schema',
    'https://json-schema.org/draft/2020-12/schema',
  ])('keywords beside a $ref count where $schema is %s', $schema => {
    const schema = $schema === undefined ? REFERRING : { $schema, ...REFERRING };
    expect(checks.problems(schema, { a: null })).toBe('a: expected string, got null');
    expect(checks.problems(schema, { b: { x: 1 } })).toBe('b.x is unknown; no members are allowed here');
  });

  it.each<[keyword: string, schema: object, args: unknown]>([
    ['prefixItems', { properties: { a: { prefixItems: [{ type: 'string' }] } } }, { a: [1] }],
    ['dependentRequired', { dependentRequired: { a: ['b'] } }, { a: 1 }],
    ['dependentSchemas', { dependentSchemas: { a: { required: ['b'] } } }, { a: 1 }],
  ])('%s is no keyword of draft-07', (_keyword, schema, args) => {
    expect(checks.problems(schema, args)).toBeDefined();
    expect(checks.problems({ $schema: DRAFT_07, ...schema }, args)).toBeUndefined();
  });

  it('an id of draft-04 leads references elsewhere', () => {
    const schema = { $schema: 'http://json-schema.org/draft-04/schema#', properties: { a: { id: 'x#' } } };
    expect(checkableSchema(schema)).toBeUndefined();
  });

  const multiples = (multipleOf: number) => ({ properties: { n: { type: 'number', multipleOf } } });
  it.each([
    [0.01, 19.99, true],
    [0.01, 4.35, true],
    [0.01, 0.07, true],
    [0.01, -1_234_567_890.12, true],
    [0.01, 0.015, false],
    [0.01, 1e300, true],
    [1e-20, 1e300, true],
    [10, 1e22, true],
    [3, 9, true],
    [3, 10, false],
    [0.5, 0, true],
  ])('of %d, %d is a multiple: %s', (step, n, fits) => {
    const problem = `n: expected a multiple of ${step}, got number ${n}`;
    expect(checks.problems(multiples(step), { n })).toBe(fits ? undefined : problem);
  });

  it('every decimal multiple of a decimal is one', () => {
    const step = fc.integer({ min: 1, max: 99_999 });
    const factor = fc.integer({ min: -1_000_000_000, max: 1_000_000_000 });
    const exponent = fc.integer({ min: -9, max: 9 });
    fc.assert(
      fc.property(step, factor, exponent, (digits, times, tens) => {
        const schema = multiples(Number(`${digits}e${tens}`));
        const n = Number(`${BigInt(digits) * BigInt(times)}e${tens}`);
        expect(checks.problems(schema, { n })).toBeUndefined();
      }),
    );
  });

  it('agrees with another validator about random schemas and arguments', () => {
    const name = fc.constantFrom('a', 'b', 'a/b', '~');
    const count = fc.integer({ min: 0, max: 3 });
    const plain = fc.constantFrom(null, true, 0, 2, 1.5, '', 'ab', '😀');
    const value = fc.oneof(plain, fc.array(plain, { maxLength: 3 }), fc.dictionary(name, plain));
    const args = fc.oneof(value, fc.dictionary(name, value), fc.array(fc.dictionary(name, value)));
    const type = fc.constantFrom('null', 'boolean', 'object', 'array', 'number', 'integer', 'string');
    const { schema } = fc.letrec<{ schema: object; part: object | boolean }>(tie => {
      const parts = fc.array(tie('part'), { minLength: 1, maxLength: 2 });
      return {
        part: fc.oneof({ maxDepth: 1 }, fc.boolean(), tie('schema')),
        schema: fc.record(
          {
            type: fc.oneof(type, fc.uniqueArray(type, { minLength: 1 })),
            enum: fc.array(value, { minLength: 1 }),
            const: value,
            required: fc.uniqueArray(name),
            minimum: count,
            exclusiveMaximum: count,
            multipleOf: fc.integer({ min: 1, max: 3 }),
            maxLength: count,
            minItems: count,
            maxProperties: count,
            properties: fc.dictionary(name, tie('part')),
            additionalProperties: tie('part'),
            propertyNames: tie('part'),
            dependentRequired: fc.dictionary(name, fc.uniqueArray(name)),
            dependentSchemas: fc.dictionary(name, tie('part')),
            prefixItems: parts,
            items: tie('part'),
            allOf: parts,
            anyOf: parts,
          },
          { requiredKeys: [] },
        ),
      };
    });
    fc.assert(
      fc.property(schema, args, (...made) => {
        // As JSON has them, with the prototype that other validators rely on.
        const [checked, given] = JSON.parse(JSON.stringify(made)) as [object, unknown];
        const weight = checkableSchema(checked)?.weight ?? Infinity;
        fc.pre(weight * valuesIn(given, 1_000) < 40_000);
        const other = new Ajv2020({ strict: false, validateSchema: false, ownProperties: true });
        expect(checks.problems(checked, given) === undefined).toBe(other.validate(checked, given));
      }),
      { endOnFailure: true },
    );
  });

  it('two schemas with one $id are two schemas', () => {
    const schema = (type: string) => ({ $id: 'https://x.example/s', properties: { a: { type } } });
    expect(checks.problems(schema('string'), { a: 'x' })).toBeUndefined();
    expect(checks.problems(schema('number'), { a: 'x' })).toBe('a: expected number, got string "x"');
  });

  it('names that every object inherits', () => {
    const schema = { properties: { constructor: { type: 'string' } }, required: ['constructor'] };
    expect(checks.problems(schema, {})).toBe('constructor is missing (expected string)');
    const proto = JSON.parse(
      '{"properties":{"__proto__":{"type":"string"}},"additionalProperties":false}',
    ) as object;
    expect(checks.problems(proto, JSON.parse('{"__proto__":"x"}'))).toBeUndefined();
    const choice = { properties: { a: { enum: [{ x: 1 }] } } };
    expect(checks.problems(choice, { a: { x: 1 } })).toBeUndefined();
    expect(checks.problems(choice, { a: { valueOf: 1 } })).toBeDefined();
    expect(checks.problems(choice, { a: { x: 2 } })).toBeDefined();
  });

  it('many wrong items, of which the first is named; more than can be checked in time are left to the server', () => {
    const schema = { properties: { list: { type: 'array', items: { type: 'string' } } } };
    const wrong = (length: number) => checks.problems(schema, { list: Array.from({ length }, () => 1) });
    expect(wrong(10_000)).toBe('list[0]: expected string, got number 1');
    expect(wrong(1_000_000)).toBeUndefined();
  });

  it('lists of all time zones, and a thousand rows', () => {
    const zones = { properties: { zone: { enum: names(600, 'zone') } }, required: ['zone'] };
    expect(checks.problems(zones, { zone: 'zone599' })).toBeUndefined();
    expect(checks.problems(zones, { zone: 'zone601' })).toContain('expected one of "zone0"');
    const row = { type: 'object', properties: { id: { type: 'integer' }, name: { type: 'string' } } };
    const rows = Array.from({ length: 1_000 }, (_, id) => ({ id, name: 'x' }));
    const table = { properties: { rows: { type: 'array', items: row } } };
    expect(checks.problems(table, { rows })).toBeUndefined();
    expect(checks.problems(table, { rows: [...rows, { id: 'x' }] })).toContain('rows[1000].id');
  });
});

describe('schemas and arguments cannot hold the event loop or fill the memory', () => {
  const required = copies(140, { required: names(8_000) });
  const choices = copies(140, { enum: names(8_000) });
  const code = copies(140, { required: names(199) });
  const dependent = copies(140, { dependentRequired: members(150, names(20)) });
  it.each<[attack: string, schema: object, args: object]>([
    ['names required in vain', ofItems({ required: names(8_000) }), { a: many(480, {}) }],
    ['the same, 140 times', ofItems({ allOf: required.forms }, required), { a: many(480, {}) }],
    ['forms of names required', { anyOf: required.forms, $defs: required.$defs }, {}],
    [
      'valid choices, 140 times',
      ofItems({ anyOf: choices.forms }, choices),
      { a: Array(3_000).fill('7999') },
    ],
    ['wrong choices', ofItems({ enum: names(1_900, 'x'.repeat(25)) }), { a: names(480, 'y'.repeat(60)) }],
    [
      'long names like others',
      { required: names(900, 'x'.repeat(60)) },
      Object.fromEntries(names(450, 'y'.repeat(60)).map(name => [name, 1])),
    ],
    ['names that become code', { allOf: code.forms, $defs: code.$defs }, {}],
    ['dependent names', { allOf: dependent.forms, $defs: dependent.$defs }, members(140, 1)],
    [
      'forms that leave errors',
      ofItems({ anyOf: [...many(145, { type: 'string' }), {}] }),
      { a: Array(1_340).fill(1) },
    ],
    ['a long text, measured often', { allOf: many(140, { minLength: 3 }) }, { a: 'x'.repeat(1_000_000) }],
    [
      'a long name, measured often',
      { propertyNames: { allOf: many(140, { minLength: 3 }) } },
      { ['/~'.repeat(500_000)]: 1 },
    ],
  ])('%s: the server decides', (_attack, schema, args) => {
    const startedAt = performance.now();
    expect(checks.problems(schema, args)).toBeUndefined();
    expect(performance.now() - startedAt).toBeLessThan(MAX_MS);
  });

  it('a schema that is checked with has a bounded weight', () => {
    expect(checkableSchema({ required: names(1_900) })?.weight).toBe(1_901);
    expect(checkableSchema({ required: names(2_000) })).toBeUndefined();
    expect(checkableSchema({ enum: names(1_900) })?.weight).toBe(1_902);
    expect(checkableSchema({ enum: [members(1_000, [1])] })).toBeUndefined();
    expect(checkableSchema({ dependentRequired: { a: names(2_000) } })).toBeUndefined();
    expect(checkableSchema({ anyOf: [{}, {}] })?.weight).toBe(13);
  });

  it('nothing above a bound is looked at', () => {
    expect(valuesIn({ a: [1, 'x'], b: null }, 100)).toBe(5);
    expect(valuesIn(many(1_000_000, [[]]), 100)).toBeLessThan(105);
    expect(isOverlarge({ description: 'x'.repeat(60_000) })).toBe(false);
    expect(isOverlarge({ description: 'x'.repeat(66_000) })).toBe(true);
  });

  it('of many alike problems few are described', () => {
    const schema = { allOf: many(140, { required: ['x'] }) };
    expect(checks.problems(schema, { y: 1 })).toBe('x is missing; and 130 more');
  });
});

describe('nearest', () => {
  it.each([
    ['creat_issue', ['create_issue']],
    ['issues_search', ['search_issues']],
    ['listUsers', ['list_users']],
    ['zzz', []],
  ])('%s is %j', (name, expected) => {
    expect(nearest(name, ['search_issues', 'create_issue', 'list_users'], 1)).toEqual(expected);
  });

  it.each([
    ['short', 'ab', 1_001],
    ['long', 'x'.repeat(64), 49],
  ])('compares a bounded number of %s names', (_name, name, most) => {
    let taken = 0;
    function* endless() {
      for (;;) yield `${name}${++taken}`;
    }
    nearest(name, endless(), 1);
    expect(taken).toBe(most);
  });
});
