import type { Schema } from '@cfworker/json-schema';
import { isObject, jsonSizeOf } from '../../../platform/json/limits.ts';

/** The maximum number of subschemas, counting referenced ones each time. */
const MAX_SCHEMAS = 600;
/** The maximum number of subschemas, required names and enumerated values: the steps for checking one value. */
const MAX_WEIGHT = 2_000;
const MAX_DEPTH = 32;
const MAX_CHARS = 64 * 1024;
/** Comparing this many characters takes about as long as any other step. */
const CHARS_PER_STEP = 64;
/** The steps for a form of a choice, which leaves an error behind even if another form matches. */
const STEPS_OF_FORM = 5;

/** The schema cannot be checked within the limits. */
class Uncheckable extends Error {}

type Json = Record<string, unknown>;

const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value);
const isStrings = (value: unknown) =>
  Array.isArray(value) && value.every(member => typeof member === 'string');
const TYPES = new Set(['null', 'boolean', 'object', 'array', 'number', 'integer', 'string']);
const isType = (value: unknown) =>
  typeof value === 'string'
    ? TYPES.has(value)
    : isStrings(value) && value.length > 0 && value.every(one => TYPES.has(one));

/** Keywords that are copied unchanged, each with a check of its value. */
const PLAIN: Readonly<Record<string, (value: unknown) => boolean>> = {
  type: isType,
  enum: value => Array.isArray(value) && value.length > 0,
  const: () => true,
  required: isStrings,
  multipleOf: value => isNumber(value) && (value as number) > 0,
  minimum: isNumber,
  maximum: isNumber,
  exclusiveMinimum: isNumber,
  exclusiveMaximum: isNumber,
  minLength: isCount,
  maxLength: isCount,
  minItems: isCount,
  maxItems: isCount,
  minProperties: isCount,
  maxProperties: isCount,
  dependentRequired: value => isObject(value) && Object.values(value).every(isStrings),
};

/**
 * Every copy has all possible keywords in the same order, because the library reads all of them, which is a third faster if all
 * schemas have the same shape.
 */
const NO_KEYWORDS: Json = Object.fromEntries(
  [
    ...Object.keys(PLAIN),
    'properties',
    'additionalProperties',
    'propertyNames',
    'dependentSchemas',
    'prefixItems',
    'items',
    'allOf',
    'anyOf',
  ].map(keyword => [keyword, undefined]),
);

export interface Checkable {
  readonly schema: Schema;
  /** The maximum steps for checking one value, whether an argument or a nested value. */
  readonly weight: number;
}

/**
 * Copies a tool's schema so that it is safe to use: the copy refuses nothing that the schema allows, its check takes bounded
 * time, and it contains no references. The default dialect is JSON Schema 2020-12, as in MCP; `asOldDialect` translates those
 * before 2019-09. These keywords are dropped and not checked: regular expressions (a catastrophic one would block the event
 * loop), `format`, `uniqueItems` (quadratic), conditions, negations, `contains`, and keywords that depend on them. `oneOf`
 * counts as `anyOf`. Only references within the schema are resolved, never remote ones.
 * @returns undefined for an uncheckable schema: too large, too deep, recursive, invalid, or with remote references
 */
export function checkableSchema(schema: unknown): Checkable | undefined {
  if (isOverlarge(schema)) return undefined;
  try {
    const copy = new Copy(schema);
    return { schema: copy.schema(schema, 0) as Schema, weight: copy.weight };
  } catch (error) {
    if (error instanceof Uncheckable) return undefined;
    throw error;
  }
}

/** Returns whether a schema is too large. Stops at the limit. */
export const isOverlarge = (schema: unknown): boolean => jsonSizeOf(schema, 1, MAX_CHARS) > MAX_CHARS;

/** Counts the values to check in a value, including itself; long strings count as several. Stops above `max`. */
export const valuesIn = (value: unknown, max: number): number => jsonSizeOf(value, CHARS_PER_STEP, max);

/** Matches the `$schema` of drafts 03 to 07. */
const OLD_DIALECT = /^https?:\/\/json-schema\.org\/draft-0[3-7]\//;

/** Copies one schema. References are replaced by copies of their targets. */
class Copy {
  readonly #root: unknown;
  readonly #isOld: boolean;
  readonly #following = new Set<string>();
  #schemas = 0;
  weight = 0;

  constructor(root: unknown) {
    this.#root = root;
    const dialect = isObject(root) ? root['$schema'] : undefined;
    this.#isOld = typeof dialect === 'string' && OLD_DIALECT.test(dialect);
  }

  schema(written: unknown, depth: number): Json | boolean {
    if (typeof written === 'boolean') return written;
    if (!isObject(written) || depth > MAX_DEPTH) throw new Uncheckable();
    const value = this.#isOld ? asOldDialect(written) : written;
    if ('$dynamicRef' in value || '$recursiveRef' in value) throw new Uncheckable();
    // Below an `$id`, references are relative to it.
    if (depth > 0 && typeof value['$id'] === 'string') throw new Uncheckable();
    const copy = plainOf(value);
    // Done before the parts are copied, so that multiplying references end early.
    this.#count(copy);
    this.#members(value, copy, depth);
    this.#items(value, copy, depth);
    const all = this.#combined(value, depth);
    if (all.length > 0) copy['allOf'] = all;
    return copy;
  }

  #count({ required, dependentRequired, enum: choices, const: only }: Json): void {
    this.weight += 1 + (Array.isArray(required) ? required.length : 0);
    for (const value of [dependentRequired, choices, only])
      if (value !== undefined) this.weight += valuesIn(value, MAX_WEIGHT);
    if (++this.#schemas > MAX_SCHEMAS || this.weight > MAX_WEIGHT) throw new Uncheckable();
  }

  #members(value: Json, copy: Json, depth: number): void {
    const { properties, additionalProperties, patternProperties, propertyNames } = value;
    if (properties !== undefined) copy['properties'] = this.#map(properties, depth);
    // With patterns, it is unknown which members are additional.
    if (additionalProperties !== undefined && patternProperties === undefined)
      copy['additionalProperties'] = this.schema(additionalProperties, depth + 1);
    if (propertyNames !== undefined) copy['propertyNames'] = this.schema(propertyNames, depth + 1);
    if (value['dependentSchemas'] !== undefined)
      copy['dependentSchemas'] = this.#map(value['dependentSchemas'], depth);
  }

  /** In draft-07, and in many schemas that do not declare it, a list of `items` is what 2020-12 calls `prefixItems`. */
  #items(value: Json, copy: Json, depth: number): void {
    const { items, prefixItems, additionalItems } = value;
    const isTuple = Array.isArray(items);
    const tuple = isTuple ? items : prefixItems;
    const rest = isTuple ? additionalItems : items;
    if (tuple !== undefined) copy['prefixItems'] = this.#list(tuple, depth);
    if (rest !== undefined) copy['items'] = this.schema(rest, depth + 1);
  }

  #combined(value: Json, depth: number): (Json | boolean)[] {
    const { $ref, allOf, anyOf, oneOf } = value;
    const all = allOf === undefined ? [] : this.#list(allOf, depth);
    for (const forms of [anyOf, oneOf]) {
      if (forms === undefined) continue;
      const copies = this.#list(forms, depth);
      this.weight += STEPS_OF_FORM * copies.length;
      all.push({ ...NO_KEYWORDS, anyOf: copies });
    }
    if ($ref !== undefined) all.push(this.#followed($ref, depth));
    return all;
  }

  #list(value: unknown, depth: number): (Json | boolean)[] {
    if (!Array.isArray(value) || value.length === 0) throw new Uncheckable();
    return value.map(member => this.schema(member, depth + 1));
  }

  #map(value: unknown, depth: number): Json {
    if (!isObject(value)) throw new Uncheckable();
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, this.schema(member, depth + 1)]),
    );
  }

  #followed(reference: unknown, depth: number): Json | boolean {
    if (typeof reference !== 'string' || !reference.startsWith('#/') || this.#following.has(reference))
      throw new Uncheckable();
    let target: unknown = this.#root;
    for (const name of namesIn(reference)) {
      if (typeof target !== 'object' || target === null || !Object.hasOwn(target, name))
        throw new Uncheckable();
      target = (target as Json)[name];
    }
    this.#following.add(reference);
    const copy = this.schema(target, depth + 1);
    this.#following.delete(reference);
    return copy;
  }
}

/**
 * Reads a schema like the drafts before 2019-09: keywords next to `$ref` are ignored, and some keywords do not exist yet.
 * Below an `id` (draft-04's `$id`), references are relative to it.
 */
function asOldDialect(schema: Json): Json {
  if ('$ref' in schema) return { $ref: schema['$ref'] };
  const { prefixItems: _items, dependentRequired: _names, dependentSchemas: _schemas, ...known } = schema;
  return typeof known['id'] === 'string' ? { ...known, $id: known['id'] } : known;
}

function plainOf(value: Json): Json {
  const copy: Json = { ...NO_KEYWORDS };
  for (const [keyword, isValid] of Object.entries(PLAIN)) {
    if (!Object.hasOwn(value, keyword)) continue;
    if (!isValid(value[keyword])) throw new Uncheckable();
    copy[keyword] = value[keyword];
  }
  return copy;
}

/** Splits a JSON pointer in a URI fragment into names (RFC 6901 §4 and §6). @throws Uncheckable if it is invalid */
export function namesIn(fragment: string): string[] {
  try {
    return fragment
      .split('/')
      .slice(1)
      .map(part => decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~'));
  } catch {
    throw new Uncheckable();
  }
}
