import { describe, expect, it } from 'vitest';
import { ArgumentChecks } from '../../../src/core/proxy/arguments.ts';
import { checkableSchema } from '../../../src/core/proxy/checkable-schema.ts';
import { nearest } from '../../../src/core/proxy/nearest.ts';

const checks = new ArgumentChecks();
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
  },
  required: ['city'],
  additionalProperties: false,
};

describe('what is said of wrong arguments', () => {
  it.each<[args: unknown, problems: string | undefined]>([
    [{ city: 'Bonn', days: 2, unit: 'celsius', stops: [{ at: 1 }], either: null }, undefined],
    [{}, 'city is missing (expected string)'],
    [
      { citty: 'Bonn' },
      'city is missing (expected string); did you mean "city" by "citty"?; citty is unknown; did you mean "city"?',
    ],
    [{ city: 'Bonn', colour: 1 }, 'colour is unknown; known: "city", "days", "unit", "stops", "either"'],
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
      { properties: Object.fromEntries(Array.from({ length: 400 }, (_, at) => [at, {}])) },
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
    ['if', { if: { properties: { a: { const: 1 } } }, else: false }, { a: 2 }],
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
    expect(() => checks.problems(proto, JSON.parse('{"__proto__":1}'))).not.toThrow();
  });

  it('a million wrong items in bounded time', () => {
    const schema = { properties: { list: { type: 'array', items: { type: 'string' } } } };
    expect(checks.problems(schema, { list: Array.from({ length: 1_000_000 }, () => 1) })).toBe(
      'list[0]: expected string, got number 1',
    );
  });
});

describe('nearest', () => {
  it.each([
    ['creat_issue', ['create_issue']],
    ['issues_search', ['search_issues']],
    ['listUsers', ['list_users']],
    ['zzz', []],
  ])('%s is %j', (name, names) => {
    expect(nearest(name, ['search_issues', 'create_issue', 'list_users'], 1)).toEqual(names);
  });
});
