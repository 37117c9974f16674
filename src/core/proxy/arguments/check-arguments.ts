import { validate, type OutputUnit, type Schema } from '@cfworker/json-schema';
import { LRUCache } from 'lru-cache';
import { nearest } from '../../../platform/closest-names.ts';
import { isObject } from '../../../platform/json/limits.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import { checkableSchema, namesIn, valuesIn, type Checkable } from './checkable-schema.ts';

/** The number of prepared schemas that are cached. */
const MAX_KEPT = 500;
const MAX_PROBLEMS = 5;
/** More problems are described than shown, because some are alike. */
const MAX_DESCRIBED = 2 * MAX_PROBLEMS;
/** The maximum steps of one check: the schema's weight times the number of values. Above this, the server decides. */
const MAX_STEPS = 40_000;
/** The maximum steps for finding all problems instead of the first, because each step can find one. */
const MAX_EXPLAINED_STEPS = 5_000;
const MAX_SHOWN_CHARS = 40;
const MAX_SHOWN_CHOICES = 8;
const MAX_SHOWN_NAME = 80;

type Json = Readonly<Record<string, unknown>>;

/** Checks arguments against input schemas. Prepared copies are cached by schema object. */
export class ArgumentChecks {
  readonly #checkable = new LRUCache<object, Checkable | 'unchecked'>({ max: MAX_KEPT });

  /** Describes all problems of the arguments in one text. Returns undefined if they are valid or cannot be checked. */
  problems(inputSchema: object, args: unknown): string | undefined {
    const checkable = this.#of(inputSchema);
    if (checkable === 'unchecked') return undefined;
    const { weight, schema } = checkable;
    const steps = weight * valuesIn(args, MAX_STEPS / weight);
    if (steps > MAX_STEPS) return undefined;
    try {
      const errors = errorsOf(schema, args, true);
      if (errors.length === 0) return undefined;
      return describe(steps > MAX_EXPLAINED_STEPS ? errors : errorsOf(schema, args, false), schema, args);
    } catch {
      // The library rejects some member names, such as those with unpaired surrogates; the server decides then.
      return undefined;
    }
  }

  #of(inputSchema: object): Checkable | 'unchecked' {
    let checkable = this.#checkable.get(inputSchema);
    if (checkable === undefined) {
      checkable = checkableSchema(inputSchema) ?? 'unchecked';
      this.#checkable.set(inputSchema, checkable);
    }
    return checkable;
  }
}

/** A checkable schema has no unresolved references. */
const NO_REFERENCES = {};

const errorsOf = (schema: Schema, args: unknown, onlyFirst: boolean): OutputUnit[] =>
  validate(args, schema, '2020-12', NO_REFERENCES, onlyFirst).errors;

/** The library reports these before the errors of their parts, which are more specific. */
const FRAMES: ReadonlySet<string> = new Set([
  'allOf',
  'properties',
  'items',
  'prefixItems',
  'dependentSchemas',
  'additionalProperties',
]);

function describe(errors: readonly OutputUnit[], schema: Schema, args: unknown): string {
  const problems = telling(errors);
  const shown = new Set<string>();
  let described = 0;
  for (const problem of problems.slice(0, MAX_DESCRIBED)) {
    if (shown.size === MAX_PROBLEMS) break;
    shown.add(problemOf(problem, schema, args));
    described++;
  }
  const more = problems.length - described;
  return `${[...shown].join('; ')}${more > 0 ? `; and ${more} more` : ''}`;
}

interface Problem {
  readonly error: OutputUnit;
  /** The next error of the library: the first one in the part that this one is about. */
  readonly inner: OutputUnit | undefined;
  /** The number of earlier errors with the same keyword for the same value. */
  readonly repeated: number;
}

/** Selects the errors that are informative. */
function telling(errors: readonly OutputUnit[]): Problem[] {
  const problems: Problem[] = [];
  let whole: string | undefined;
  let repeated = 0;
  for (const [at, error] of errors.entries()) {
    const { keyword, keywordLocation } = error;
    const [before, inner] = [errors[at - 1], errors[at + 1]];
    // The library gives `false` no location: it belongs to the previous error.
    if (whole !== undefined && (keyword === 'false' || keywordLocation.startsWith(whole))) continue;
    // Errors inside one of several forms, or of a name, are not informative: the whole is described.
    whole = keyword === 'anyOf' || keyword === 'propertyNames' ? `${keywordLocation}/` : undefined;
    repeated = isAlike(before, error) ? repeated + 1 : 0;
    if (!isFrame(error, before, inner)) problems.push({ error, inner, repeated });
  }
  return problems;
}

const isAlike = (before: OutputUnit | undefined, { keywordLocation, instanceLocation }: OutputUnit) =>
  before?.keywordLocation === keywordLocation && before.instanceLocation === instanceLocation;

/** A forbidden additional property has two errors, of which the first knows the schema. */
const isFrame = ({ keyword }: OutputUnit, before: OutputUnit | undefined, inner: OutputUnit | undefined) =>
  keyword === 'false'
    ? before?.keyword === 'additionalProperties'
    : FRAMES.has(keyword) && !(keyword === 'additionalProperties' && inner?.keyword === 'false');

function problemOf({ error, inner, repeated }: Problem, schema: Schema, args: unknown): string {
  const { keyword, keywordLocation, instanceLocation } = error;
  const at = pathOf(namesIn(instanceLocation));
  if (keyword === 'false') return `${at} is not allowed`;
  const declared = valueAt(schema, namesIn(keywordLocation).slice(0, -1)) as Json;
  const data = valueAt(args, namesIn(instanceLocation));
  const part = inner ? (namesIn(inner.instanceLocation).at(-1) ?? '') : '';
  switch (keyword) {
    case 'required':
    case 'dependentRequired':
      return missing(at, missingNames(declared[keyword], data)[repeated] ?? '', declared, data);
    case 'additionalProperties':
      return unknown(at, part, declared);
    case 'propertyNames':
      return `${join(at, part)} is not an allowed name`;
    default:
      return `${at === '' ? 'arguments' : at}: expected ${expected(keyword, declared)}, got ${given(data)}${meant(keyword, declared, data)}`;
  }
}

function valueAt(root: unknown, names: readonly string[]): unknown {
  let value = root;
  for (const name of names) value = (value as Json)[name];
  return value;
}

/** Returns the missing names, required always or together with another name, in the order of the library's errors. */
function missingNames(required: unknown, data: unknown): string[] {
  const has = (name: string) => Object.hasOwn(data as Json, name);
  const names = Array.isArray(required)
    ? (required as string[])
    : Object.entries(required as Readonly<Record<string, string[]>>).flatMap(([name, others]) =>
        has(name) ? others : [],
      );
  return names.filter(name => !has(name));
}

function missing(at: string, name: string, declared: Json, data: unknown): string {
  const property = propertiesOf(declared)[name];
  const type = isObject(property) ? typeOf(property) : undefined;
  const [misspelt] = nearest(name, strangers(declared, data), 1);
  const hint = misspelt === undefined ? '' : `; is ${quoted(misspelt)} a misspelling of ${quoted(name)}?`;
  return `${join(at, name)} is missing${type === undefined ? '' : ` (expected ${type})`}${hint}`;
}

function unknown(at: string, name: string, declared: Json): string {
  const names = Object.keys(propertiesOf(declared));
  const [meantName] = nearest(name, names, 1);
  if (meantName !== undefined) return `${join(at, name)} is unknown; did you mean ${quoted(meantName)}?`;
  if (names.length === 0) return `${join(at, name)} is unknown; no members are allowed here`;
  return `${join(at, name)} is unknown; known: ${listed(names)}`;
}

const propertiesOf = ({ properties }: Json): Json => (isObject(properties) ? properties : {});

/** Yields the members that the schema does not name. */
function* strangers(declared: Json, data: unknown): Iterable<string> {
  const known = propertiesOf(declared);
  for (const key of isObject(data) ? Object.keys(data) : []) if (!Object.hasOwn(known, key)) yield key;
}

function expected(keyword: string, declared: Json): string {
  const value = declared[keyword];
  const bound = BOUNDS[keyword];
  if (bound !== undefined) return bound.replace('%', String(value));
  switch (keyword) {
    case 'type':
      return typeOf(declared) ?? 'another type';
    case 'enum':
      return `one of ${listed(choicesOf(declared))}`;
    case 'const':
      return short(value);
    case 'anyOf':
      return formsOf(value as unknown[]);
    default:
      return keyword;
  }
}

const BOUNDS: Readonly<Record<string, string>> = {
  minimum: '>= %',
  maximum: '<= %',
  exclusiveMinimum: '> %',
  exclusiveMaximum: '< %',
  multipleOf: 'a multiple of %',
  minLength: 'at least % characters',
  maxLength: 'at most % characters',
  minItems: 'at least % items',
  maxItems: 'at most % items',
  minProperties: 'at least % members',
  maxProperties: 'at most % members',
};

const choicesOf = (declared: Json): string[] =>
  (declared['enum'] as unknown[]).map(value => (typeof value === 'string' ? value : JSON.stringify(value)));

function typeOf({ type }: Json): string | undefined {
  if (typeof type === 'string') return type;
  return Array.isArray(type) ? type.join(' or ') : undefined;
}

function formsOf(forms: readonly unknown[]): string {
  const types = new Set(forms.map(form => (isObject(form) ? typeOf(form) : undefined)));
  return types.size === forms.length && !types.has(undefined)
    ? [...types].join(' or ')
    : `one of ${forms.length} forms`;
}

/** Suggests the choice that a wrong value resembles. */
function meant(keyword: string, declared: Json, data: unknown): string {
  if (keyword !== 'enum' || typeof data !== 'string') return '';
  const [choice] = nearest(data, choicesOf(declared), 1);
  return choice === undefined ? '' : `; did you mean ${quoted(choice)}?`;
}

/** Describes a value by its type, and by the value itself if it is short. */
function given(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === 'object') return 'an object';
  const isLong = typeof value === 'string' && value.length > MAX_SHOWN_CHARS;
  return `${typeof value}${isLong || JSON.stringify(value).length > MAX_SHOWN_CHARS ? '' : ` ${short(value)}`}`;
}

const short = (value: unknown) => sanitise(JSON.stringify(value), MAX_SHOWN_CHARS);
const quoted = (name: string) => JSON.stringify(sanitise(name, MAX_SHOWN_NAME));

const listed = (names: readonly string[]): string => {
  const more = names.length - MAX_SHOWN_CHOICES;
  return `${names.slice(0, MAX_SHOWN_CHOICES).map(quoted).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
};

/** Writes names as a readable path: `items[2].name`. */
function pathOf(names: readonly string[]): string {
  let path = '';
  for (const name of names) path = /^\d+$/.test(name) && path !== '' ? `${path}[${name}]` : join(path, name);
  return path;
}

const join = (path: string, name: string) => {
  const clean = sanitise(name, MAX_SHOWN_NAME);
  return path === '' ? clean : `${path}.${clean}`;
};

const NUMBER = /^-?\d{1,15}(?:\.\d{1,15})?$/;

/**
 * Reads arguments leniently, by the types that a schema declares at the top level. Numbers and booleans sent as strings are
 * converted if the schema allows nothing else, and null is dropped if the argument is optional.
 * @returns undefined if nothing needs to be converted
 */
export function readAsDeclared(
  schema: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
): Record<string, unknown> | undefined {
  const { properties, required } = schema;
  if (!isObject(properties)) return undefined;
  if (Object.keys(args).every(name => isAsDeclared(args[name], properties[name]))) return undefined;
  const needed: ReadonlySet<unknown> = new Set(Array.isArray(required) ? required : []);
  const read = Object.entries(args).flatMap(([name, value]): [string, unknown][] => {
    const types = Object.hasOwn(properties, name) ? typesOf(properties[name]) : undefined;
    if (types === undefined) return [[name, value]];
    if (value === null) return types.has('null') || needed.has(name) ? [[name, value]] : [];
    return [[name, typeof value === 'string' ? readText(value, types) : value]];
  });
  const isSame =
    read.length === Object.keys(args).length && read.every(([name, value]) => value === args[name]);
  return isSame ? undefined : Object.fromEntries(read);
}

/** Returns whether a value certainly needs no conversion: most do not, and this is quickly seen. */
const isAsDeclared = (value: unknown, declared: unknown): boolean =>
  typeof value === 'string' ? isObject(declared) && declared['type'] === 'string' : value !== null;

function readText(text: string, types: ReadonlySet<unknown>): unknown {
  if (types.has('string')) return text;
  if ((types.has('integer') || types.has('number')) && NUMBER.test(text) && String(Number(text)) === text)
    return Number(text);
  return types.has('boolean') && (text === 'true' || text === 'false') ? text === 'true' : text;
}

/** Returns the types that a schema allows, by `type` or by those of its `anyOf`; undefined if it does not say. */
function typesOf(schema: unknown): ReadonlySet<unknown> | undefined {
  if (!isObject(schema)) return undefined;
  const { type, anyOf } = schema;
  if (typeof type === 'string') return new Set([type]);
  if (Array.isArray(type)) return new Set(type);
  if (!Array.isArray(anyOf)) return undefined;
  const types = anyOf.map(one => (isObject(one) ? one['type'] : undefined));
  return types.every(one => typeof one === 'string') ? new Set(types) : undefined;
}
