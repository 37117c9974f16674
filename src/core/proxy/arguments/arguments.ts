import {
  _,
  Ajv2020,
  type CodeKeywordDefinition,
  type ErrorObject,
  type ValidateFunction,
} from 'ajv/dist/2020.js';
import { LRUCache } from 'lru-cache';
import { sanitise } from '../../../platform/sanitize.ts';
import { checkableSchema, valuesIn, type Checkable } from './checkable-schema.ts';
import { isObject } from '../../../platform/json-limits.ts';
import { nearest } from '../../../platform/closest-names.ts';

/** Compiled schemas kept; one takes some ten kilobytes. */
const MAX_COMPILED = 500;
const MAX_PROBLEMS = 5;
/** Described at most, as some are alike. */
const MAX_DESCRIBED = 2 * MAX_PROBLEMS;
/** Steps of one check: the schema's weight times the values in the arguments. Above, the server decides. */
const MAX_STEPS = 100_000;
/** All problems, and not just the first, are only sought in so many steps: each can find one. */
const MAX_EXPLAINED_STEPS = 5_000;
const MAX_SHOWN_CHARS = 40;
const MAX_SHOWN_CHOICES = 8;
const MAX_SHOWN_NAME = 80;

/** Nothing is looked up, and nothing is read from a schema but what `checkableSchema` let through. */
const OPTIONS = {
  strict: false,
  meta: false,
  validateSchema: false,
  validateFormats: false,
  addUsedSchema: false,
  messages: false,
  ownProperties: true,
  logger: false,
  code: { optimize: false },
  // Above, code goes through the names instead of having a line for each.
  loopRequired: 3,
  loopEnum: 3,
} as const;

/**
 * Decimals are rounded to binary fractions: 19.99 / 0.01 is 1998.9999999999998. What so many steps of precision explain is no
 * fault of the number's (three roundings, of half a step each); ajv's own keyword refuses it, and very large numbers.
 */
const ROUNDING = 2 * Number.EPSILON;

const MULTIPLE_OF: CodeKeywordDefinition = {
  keyword: 'multipleOf',
  type: 'number',
  schemaType: 'number',
  error: { message: 'must be a multiple', params: ({ schemaValue }) => _`{multipleOf: ${schemaValue}}` },
  code(context) {
    const { gen, data, schemaValue } = context;
    const steps = gen.const('steps', _`${data} / ${schemaValue}`);
    context.fail(_`Math.abs(${steps} - Math.round(${steps})) > ${ROUNDING} * Math.abs(${steps})`);
  },
};

interface Compiled extends Checkable {
  readonly isValid: ValidateFunction;
  /** Finds every problem; made when it is first needed. */
  explain?: ValidateFunction;
}

/** Checks arguments against input schemas; what was compiled is kept by schema object. */
export class ArgumentChecks {
  readonly #compiled = new LRUCache<object, Compiled | 'unchecked'>({ max: MAX_COMPILED });

  /** What is wrong, in a few sentences' parts, `undefined` when nothing is or the schema cannot be checked against. */
  problems(inputSchema: object, args: unknown): string | undefined {
    const compiled = this.#of(inputSchema);
    if (compiled === 'unchecked') return undefined;
    const { weight } = compiled;
    const steps = weight * valuesIn(args, MAX_STEPS / weight);
    if (steps > MAX_STEPS || fits(compiled.isValid, args)) return undefined;
    let check = compiled.isValid;
    if (steps <= MAX_EXPLAINED_STEPS) {
      compiled.explain ??= compile(compiled.schema, true);
      check = compiled.explain;
      fits(check, args);
    }
    return describe(check.errors ?? [], args);
  }

  #of(inputSchema: object): Compiled | 'unchecked' {
    let compiled = this.#compiled.get(inputSchema);
    if (compiled === undefined) {
      compiled = tryToCompile(inputSchema);
      this.#compiled.set(inputSchema, compiled);
    }
    return compiled;
  }
}

function tryToCompile(inputSchema: object): Compiled | 'unchecked' {
  const checkable = checkableSchema(inputSchema);
  if (checkable === undefined) return 'unchecked';
  try {
    return { ...checkable, isValid: compile(checkable.schema, false) };
  } catch {
    // ajv has its own opinion of some schemas; the server decides then.
    return 'unchecked';
  }
}

/** Comparing with the objects of an `enum`, ajv stumbles over members called like methods (`valueOf`): the server decides then. */
function fits(check: ValidateFunction, args: unknown): boolean {
  try {
    return check(args);
  } catch {
    return true;
  }
}

/** Each has an ajv of its own: one that is shared keeps something of every schema for ever. */
const compile = (schema: Record<string, unknown>, all: boolean): ValidateFunction =>
  new Ajv2020({ ...OPTIONS, allErrors: all, verbose: true })
    .removeKeyword('multipleOf')
    .addKeyword(MULTIPLE_OF)
    .compile(schema);

function describe(errors: readonly ErrorObject[], args: unknown): string {
  // What is wrong in one form of several says little: the choice as a whole is reported.
  const failed = errors
    .filter(({ keyword }) => keyword === 'anyOf')
    .map(({ schemaPath }) => `${schemaPath}/`);
  const choices = [...new Set(failed)];
  const told = errors.filter(
    ({ schemaPath, keyword }) =>
      keyword !== 'propertyNames' && !choices.some(choice => schemaPath.startsWith(choice)),
  );
  const shown = new Set<string>();
  let described = 0;
  for (const error of told.slice(0, MAX_DESCRIBED)) {
    if (shown.size === MAX_PROBLEMS) break;
    shown.add(problemOf(error, args));
    described++;
  }
  const more = told.length - described;
  return `${[...shown].join('; ')}${more > 0 ? `; and ${more} more` : ''}`;
}

function problemOf(error: ErrorObject, args: unknown): string {
  const at = pathOf(error.instancePath);
  const { keyword, data } = error;
  const params = error.params as Record<string, unknown>;
  switch (keyword) {
    case 'required':
    case 'dependentRequired':
      return missing(at, String(params['missingProperty']), error);
    case 'additionalProperties':
      return unknown(at, String(params['additionalProperty']), error);
    case 'false schema':
      return `${at} is not allowed`;
    default:
      return `${at === '' ? 'arguments' : at}: expected ${expected(keyword, params, error)}, got ${given(data === undefined ? args : data)}${meant(keyword, params, data)}`;
  }
}

function missing(at: string, name: string, { parentSchema, data }: ErrorObject): string {
  const property = propertiesOf(parentSchema)[name];
  const type = isObject(property) ? typeOf(property) : undefined;
  const [misspelt] = nearest(name, strangers(parentSchema, data), 1);
  const hint = misspelt === undefined ? '' : `; did you mean ${quoted(name)} by ${quoted(misspelt)}?`;
  return `${join(at, name)} is missing${type === undefined ? '' : ` (expected ${type})`}${hint}`;
}

function unknown(at: string, name: string, { parentSchema }: ErrorObject): string {
  const names = Object.keys(propertiesOf(parentSchema));
  const [meantName] = nearest(name, names, 1);
  if (meantName !== undefined) return `${join(at, name)} is unknown; did you mean ${quoted(meantName)}?`;
  if (names.length === 0) return `${join(at, name)} is unknown; none is taken here`;
  return `${join(at, name)} is unknown; known: ${listed(names)}`;
}

const propertiesOf = (schema: unknown): Record<string, unknown> =>
  isObject(schema) && isObject(schema['properties']) ? schema['properties'] : {};

/** Members that the schema does not name. */
function* strangers(schema: unknown, data: unknown): Iterable<string> {
  const known = propertiesOf(schema);
  for (const key of isObject(data) ? Object.keys(data) : []) if (!Object.hasOwn(known, key)) yield key;
}

function expected(keyword: string, params: Record<string, unknown>, { parentSchema }: ErrorObject): string {
  const unit = UNITS[keyword];
  if (unit !== undefined)
    return `${keyword.startsWith('min') ? 'at least' : 'at most'} ${Number(params['limit'])} ${unit}`;
  if ('comparison' in params) return `${String(params['comparison'])} ${Number(params['limit'])}`;
  switch (keyword) {
    case 'type':
      return typeOf(params) ?? 'another type';
    case 'enum':
      return `one of ${listed(choicesOf(params))}`;
    case 'const':
      return short(params['allowedValue']);
    case 'anyOf':
      return formsOf(parentSchema);
    case 'multipleOf':
      return `a multiple of ${Number(params['multipleOf'])}`;
    default:
      return keyword;
  }
}

const UNITS: Readonly<Record<string, string>> = {
  minLength: 'characters',
  maxLength: 'characters',
  minItems: 'items',
  maxItems: 'items',
  minProperties: 'members',
  maxProperties: 'members',
};

const choicesOf = (params: Record<string, unknown>): string[] =>
  (params['allowedValues'] as unknown[]).map(value =>
    typeof value === 'string' ? value : JSON.stringify(value),
  );

function typeOf({ type }: Record<string, unknown>): string | undefined {
  if (typeof type === 'string') return type;
  return Array.isArray(type) ? type.join(' or ') : undefined;
}

function formsOf(schema: unknown): string {
  const forms = isObject(schema) && Array.isArray(schema['anyOf']) ? (schema['anyOf'] as unknown[]) : [];
  const types = new Set(forms.map(form => (isObject(form) ? typeOf(form) : undefined)));
  return types.size === forms.length && !types.has(undefined)
    ? [...types].join(' or ')
    : `one of ${forms.length} forms`;
}

/** The choice a wrong value is near to. */
function meant(keyword: string, params: Record<string, unknown>, data: unknown): string {
  if (keyword !== 'enum' || typeof data !== 'string') return '';
  const [choice] = nearest(data, choicesOf(params), 1);
  return choice === undefined ? '' : `; did you mean ${quoted(choice)}?`;
}

/** The type, and the value where it is short. */
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

/** A JSON pointer as a path people write: `items[2].name`. */
function pathOf(pointer: string): string {
  let path = '';
  for (const part of pointer.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    path = /^\d+$/.test(name) && path !== '' ? `${path}[${name}]` : join(path, name);
  }
  return path;
}

const join = (path: string, name: string) => {
  const clean = sanitise(name, MAX_SHOWN_NAME);
  return path === '' ? clean : `${path}.${clean}`;
};
