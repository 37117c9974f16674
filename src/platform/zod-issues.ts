import { z } from 'zod';

type Code = z.core.$ZodIssue['code'];
type Raw<C extends Code> = z.core.$ZodRawIssue<Extract<z.core.$ZodIssue, { code: C }>>;
type Bound = Raw<'too_big'> | Raw<'too_small'>;

/** Names of types, in JSON terms. */
const TYPES: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'a JSON object',
  record: 'a JSON object',
  array: 'an array',
  null: 'null',
};
const FORMATS: Readonly<Record<string, string>> = {
  url: 'a URL',
  email: 'an e-mail address',
  uuid: 'a UUID',
  datetime: 'an ISO 8601 time such as 2030-01-31T00:00:00Z',
  date: 'an ISO 8601 date such as 2030-01-31',
  ipv4: 'an IPv4 address',
  ipv6: 'an IPv6 address',
};
const UNITS: Readonly<Record<string, readonly [one: string, many: string]>> = {
  string: ['character', 'characters'],
  array: ['item', 'items'],
  set: ['item', 'items'],
  map: ['entry', 'entries'],
};

/** Limits the length of an error, because names come from the caller. */
const MAX_NAMED = 10;
const MAX_NAME_CHARS = 64;

/** Texts after a field's name, by kind of issue. Values are never quoted, because they may be secrets. */
const WORDS: { readonly [C in Code]: (issue: Raw<C>) => string } = {
  invalid_type: ({ expected, input }) => mustBe(TYPES[expected] ?? `of type ${expected}`, input),
  invalid_value: ({ values, input }) => mustBeOneOf(values, input),
  too_big: issue => outOfBounds(issue, issue.maximum, ['at most', 'less than']),
  too_small: issue => outOfBounds(issue, issue.minimum, ['at least', 'more than']),
  invalid_format: issue => {
    const { format, pattern, prefix, suffix, includes } = issue as Record<string, unknown>;
    if (format === 'regex') return `must match ${String(pattern)}`;
    if (format === 'starts_with') return `must begin with ${JSON.stringify(prefix)}`;
    if (format === 'ends_with') return `must end with ${JSON.stringify(suffix)}`;
    if (format === 'includes') return `must contain ${JSON.stringify(includes)}`;
    return `must be ${FORMATS[String(format)] ?? `of the format ${String(format)}`}`;
  },
  not_multiple_of: ({ divisor }) => `must be a multiple of ${divisor}`,
  unrecognized_keys: ({ keys, inst }) => {
    const known = inst instanceof z.ZodObject ? Object.keys(inst.shape) : [];
    const fields = known.length === 0 ? '' : ` (the fields are ${known.join(', ')})`;
    return `unknown ${keys.length === 1 ? 'field' : 'fields'} ${firstOf(keys.map(nameOf), ', ')}${fields}`;
  },
  invalid_key: ({ issues }) => `the name ${issues[0]?.message ?? 'is not allowed'}`,
  invalid_element: ({ issues }) => `has an invalid member: ${issues[0]?.message ?? 'see the documentation'}`,
  invalid_union: issue =>
    Array.isArray(issue['options'])
      ? mustBeOneOf(issue['options'], issue.input)
      : eitherOf(
          issue.errors.map(issues => inWords(issues.slice(0, 1))),
          issue.input,
        ),
  custom: () => 'is not allowed',
};

// Applies to every schema in the program, including those of the MCP SDK. A schema's own text takes precedence.
z.config({ customError: issue => (WORDS[issue.code] as (one: typeof issue) => string)(issue) });

/** @param input undefined if the field is missing */
function mustBe(what: string, input: unknown): string {
  if (input === undefined) return `is missing; it must be ${what}`;
  if (typeof input !== 'number' || !what.endsWith('number')) return `must be ${what}, not ${kindOf(input)}`;
  return Number.isFinite(input) ? `must be ${what}` : 'must be a finite number';
}

function mustBeOneOf(values: readonly unknown[], input: unknown): string {
  const what = values.length === 1 ? JSON.stringify(values[0]) : `one of ${values.map(String).join(', ')}`;
  return input === undefined ? `is missing; it must be ${what}` : `must be ${what}`;
}

function kindOf(input: unknown): string {
  if (Array.isArray(input)) return 'an array';
  if (typeof input === 'string' || typeof input === 'number') return `a ${typeof input}`;
  return typeof input === 'object' && input !== null ? 'an object' : String(input);
}

function outOfBounds(issue: Bound, limit: number | bigint, [within, beyond]: readonly [string, string]) {
  const { origin, exact = false, inclusive = true, input } = issue;
  const unit = UNITS[origin];
  const bound = exact ? 'exactly' : inclusive ? within : beyond;
  if (!unit) return `must be ${bound} ${limit}`;
  if (issue.code === 'too_small' && !exact && inclusive && limit === 1) return 'must not be empty';
  return `must have ${bound} ${limit} ${unit[limit === 1 ? 0 : 1]}, not ${sizeOf(input)}`;
}

const sizeOf = (input: unknown): number =>
  typeof input === 'string' || Array.isArray(input) ? input.length : (input as { size: number }).size;

/** @param ways why the input matches none of the allowed forms */
function eitherOf(ways: readonly string[], input: unknown): string {
  if (ways.length === 0) return 'matches several of the allowed forms instead of exactly one';
  const forms = ways.map(way => /^(?:is missing; it )?must be (.*?)(?:, not [^,]*)?$/.exec(way)?.[1]);
  if (forms.includes(undefined)) return ways.join(', or ');
  return `${input === undefined ? 'is missing; it must be' : 'must be'} ${[...new Set(forms)].join(' or ')}`;
}

const nameOf = (name: string): string =>
  JSON.stringify(name.length <= MAX_NAME_CHARS ? name : `${name.slice(0, MAX_NAME_CHARS)}…`);

function firstOf(parts: readonly string[], separator: string, max = MAX_NAMED): string {
  const more = parts.length - max;
  return [...parts.slice(0, max), ...(more > 0 ? [`and ${more} more`] : [])].join(separator);
}

/** The displayed part of an issue. Other validators of the Standard Schema have it, too. */
interface Issue {
  readonly message: string;
  readonly path?: readonly unknown[] | undefined;
}

/**
 * Describes what is wrong with an input in one line, each field by its path: `limit: must be at most 50;
 * scopes[2]: must be a string, not null`.
 * @param whole the subject of an issue without a path, such as `The body`; absent: only its text
 * @param max the number of issues shown, followed by how many more there are
 */
export function inWords(issues: readonly Issue[], whole?: string, max?: number): string {
  const described = issues.map(({ message, path = [] }) => {
    if (path.length > 0) return `${fieldOf(path)}: ${message}`;
    if (message.startsWith('unknown field')) return `U${message.slice(1)}`;
    return whole === undefined ? message : `${whole} ${message}`;
  });
  return firstOf(described, '; ', max);
}

const fieldOf = (path: readonly unknown[]): string =>
  path
    .map((key, at) => (typeof key === 'number' ? `[${key}]` : `${at === 0 ? '' : '.'}${String(key)}`))
    .join('');
