import * as fc from 'fast-check';
import type { Operation, Schema } from './document.ts';
import { nearly } from './json-text.ts';
import { astrayRequests, brokenRequests, pathOnly, type Keys } from './odd-requests.ts';
import { altered, type FuzzRequest, type Headers } from './send.ts';
import { fitting, oddText, type Known } from './values.ts';

/** Requests of every kind to one operation. */
export function requestsTo(operation: Operation, keys: Keys, known: Known): fc.Arbitrary<FuzzRequest> {
  const valid = validRequests(operation, keys, known);
  return fc.oneof(
    { weight: 3, arbitrary: valid },
    { weight: 5, arbitrary: nearRequests(operation, valid, known) },
    { weight: 4, arbitrary: brokenRequests(valid, keys) },
    { weight: 1, arbitrary: astrayRequests(valid) },
  );
}

/** Requests that the document allows. Many of their values mean something to the server under test. */
export function validRequests(operation: Operation, keys: Keys, known: Known): fc.Arbitrary<FuzzRequest> {
  const { method, body } = operation;
  return fc
    .tuple(
      pathsOf(operation, known),
      queriesOf(operation, known),
      headersOf(operation),
      bodiesOf(body, known),
    )
    .map(([path, query, headers, sent]) => {
      const plain: FuzzRequest = {
        family: 'valid',
        method,
        target: path + query,
        headers: { 'x-api-key': keys.right },
      };
      const described = sent ? { headers: { 'content-type': sent.type }, body: sent.text } : {};
      return altered(altered(plain, { headers }), described);
    });
}

/** Segments that are text of any kind, and never empty: they still lead to the operation. */
function pathsOf({ path, parameters }: Operation, known: Known, isOdd = false): fc.Arbitrary<string> {
  const parts = parameters.filter(one => one.in === 'path');
  const values = parts.map(({ name, schema }) =>
    isOdd
      ? oddSegments
      : (fitting({ minLength: 1, ...schema }, name, knownOf(path, known)) as fc.Arbitrary<string>),
  );
  return fc
    .tuple(...values)
    .map(texts =>
      parts.reduce(
        (made, { name }, at) =>
          made.replace(`{${name}}`, () => (isOdd ? (texts[at] ?? '') : percent(texts[at] ?? ''))),
        path,
      ),
    );
}

const NOT_DECODABLE = ['%', '%zz', '%E0%A4%A', '%c0%af', '%ed%a0%80', '%ff', '%u0041', 'a%'];
const oddSegments = fc.oneof(
  { weight: 4, arbitrary: oddText.map(percent) },
  fc.constantFrom('%00', 'a%00b', '%2e%2e', '%2e%2e%2f%2e%2e', '%252F', '%0d%0a', 'x'.repeat(6_000)),
  fc.constantFrom(...NOT_DECODABLE),
);

/** `id` names keys, tenants and servers. */
const knownOf = (path: string, known: Known): Known => {
  const ids = known[`id of ${path.split('/')[3]}`];
  return ids === undefined ? known : { ...known, id: ids };
};

function percent(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

function queriesOf({ parameters }: Operation, known: Known): fc.Arbitrary<string> {
  const parts = parameters.filter(one => one.in === 'query');
  const fields = parts.map(({ name, schema }) => [name, fitting(schema, name, known)] as const);
  const requiredKeys = parts.filter(one => one.required).map(({ name }) => name);
  return fc
    .record(Object.fromEntries(fields) as Record<string, fc.Arbitrary<unknown>>, { requiredKeys })
    .map(query => {
      const pairs = Object.entries(query).map(([name, value]) => `${name}=${percent(String(value))}`);
      return pairs.length === 0 ? '' : `?${pairs.join('&')}`;
    });
}

function headersOf({ parameters }: Operation): fc.Arbitrary<Headers> {
  const names = new Set(parameters.filter(one => one.in === 'header').map(({ name }) => name));
  return fc.record(
    {
      ...(names.has('Idempotency-Key') && { 'idempotency-key': fc.stringMatching(/^[\x21-\x7e]{1,255}$/) }),
      ...(names.has('Switchboard-Timeout-Ms') && {
        'switchboard-timeout-ms': fc.constantFrom('1000', '5000'),
      }),
    },
    { requiredKeys: [] },
  );
}

function bodiesOf(content: Operation['body'], known: Known) {
  const [type, described] = Object.entries(content ?? {})[0] ?? [];
  if (type === undefined || !described) return fc.constant(undefined);
  if (type === 'application/json')
    return fitting(described.schema, '', known).map(value => ({ type, text: JSON.stringify(value) }));
  return fc
    .array(linesOf(known), { minLength: 1, maxLength: 4 })
    .map(lines => ({ type, text: lines.join('\n') }));
}

/** Lines of a catalogue file: the document says no more of them than that they are text. */
const ENTRY: Schema = {
  type: 'object',
  properties: {
    id: { type: 'string', pattern: '^[a-z][a-z0-9_-]{0,20}$' },
    name: { type: 'string', minLength: 1, maxLength: 100 },
    description: { type: 'string', minLength: 1, maxLength: 200 },
    remote_url: { enum: ['https://one.invalid/mcp', 'http://127.0.0.1:1/mcp', 'https://one.invalid/a?b=c'] },
    categories: { type: 'array', items: { type: 'string', maxLength: 20 } },
    tools: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          name: { type: 'string', minLength: 1, maxLength: 50 },
          description: { type: 'string' },
          input_schema: { type: 'object' },
        },
        required: ['name', 'description', 'input_schema'],
      },
    },
  },
  required: ['id', 'name', 'description', 'remote_url'],
};
const linesOf = (known: Known) => {
  const entries = fitting(ENTRY, '', { ...known, id: ['doomed'] });
  return fc.oneof(
    { weight: 3, arbitrary: entries.map(entry => JSON.stringify(entry)) },
    nearly(entries),
    oddText.map(text => text.replaceAll('\n', ' ')),
  );
};

function nearRequests(operation: Operation, valid: fc.Arbitrary<FuzzRequest>, known: Known) {
  const schema = operation.body?.['application/json']?.schema;
  const kinds = [
    fc
      .tuple(valid, oddQueries(operation))
      .map(([one, query]) => altered(one, { target: pathOnly(one) + query })),
  ];
  if (schema) {
    const texts = nearly(fitting(schema, '', known));
    const spoilt = fc.tuple(valid, texts).map(([one, body]) => altered(one, { body }));
    kinds.push(spoilt, spoilt, spoilt, spoilt, spoilt);
  }
  if (operation.path.includes('{'))
    kinds.push(
      fc.tuple(valid, pathsOf(operation, known, true)).map(([one, target]) => altered(one, { target })),
    );
  return fc.oneof(...kinds).map(one => altered(one, { family: 'near' }));
}

/** Known and unknown names with odd values, some of them twice. */
function oddQueries({ parameters }: Operation): fc.Arbitrary<string> {
  const names = [
    ...parameters.filter(one => one.in === 'query').map(({ name }) => name),
    'unknown',
    '__proto__',
  ];
  const pairs = fc
    .tuple(
      fc.constantFrom(...names),
      fc.constantFrom('', '[]', '[a]'),
      fc.constantFrom('=', '=', '=', ''),
      oddText,
    )
    .map(([name, suffix, equals, value]) => `${name}${suffix}${equals}${equals && percent(value)}`);
  return fc.oneof(
    { weight: 4, arbitrary: fc.array(pairs, { minLength: 1, maxLength: 4 }).map(all => `?${all.join('&')}`) },
    fc.constantFrom('?', '??', '?&&&', '?=', '?%', '?%00', '?%ff=%fe', `?${'a=1&'.repeat(1_500)}`),
  );
}
