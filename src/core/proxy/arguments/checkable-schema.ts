import type { Schema } from '@cfworker/json-schema';
import { isObject, jsonSizeOf } from '../../../platform/json-limits.ts';

/** The schemas in a schema, those that references lead to counted each time. */
const MAX_SCHEMAS = 600;
/** The schemas, with every required name and every value of an enumeration: the check of one value takes so many steps. */
const MAX_WEIGHT = 2_000;
const MAX_DEPTH = 32;
const MAX_CHARS = 64 * 1024;
/** Comparing so many letters takes about as long as any other step. */
const CHARS_PER_STEP = 64;
/** A form of a choice that does not fit leaves an error behind even where another does: so many steps. */
const STEPS_OF_FORM = 5;

/** The schema cannot be checked against within bounds. */
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

/** The keywords that are taken over as they are, each with a check of its value. */
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
 * Each copy has all keywords that a copy can have, in one order. The library reads every keyword of every schema, which takes a third
 * less where all schemas are of one shape.
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
  /** The steps that the check of one value takes at most, be it an argument or a value within one. */
  readonly weight: number;
}

/**
 * Copies a tool's schema so that it is safe to check with: the copy refuses nothing that the schema itself allows, its check
 * takes bounded time, and it holds no reference. The dialect is JSON Schema 2020-12, which MCP takes a schema for that names
 * none; `asOldDialect` translates those before 2019-09. Left out, so unchecked: regular expressions (a catastrophic one holds
 * the event loop for ever), `format`, `uniqueItems` (quadratic), conditions, negations, `contains`, and keywords that depend
 * on them. `oneOf` counts as `anyOf`. Only references within the schema are followed, never one over the network.
 * @returns undefined for a schema that cannot be checked with: too large, too deep, recursive, broken, or with references
 *   elsewhere
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

/** Returns whether a schema is too large to check with. It looks at nothing above the bound. */
export const isOverlarge = (schema: unknown): boolean => jsonSizeOf(schema, 1, MAX_CHARS) > MAX_CHARS;

/** Counts the values to check in a value, itself included; long texts count as several. Stops above `max`. */
export const valuesIn = (value: unknown, max: number): number => jsonSizeOf(value, CHARS_PER_STEP, max);

/** Matches the `$schema` of drafts 03 to 07. */
const OLD_DIALECT = /^https?:\/\/json-schema\.org\/draft-0[3-7]\//;

/** Copies one schema. A copy of its target takes the place of each reference, so that nothing is left to resolve. */
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
    // Below an id of their own, references lead elsewhere.
    if (depth > 0 && typeof value['$id'] === 'string') throw new Uncheckable();
    const copy = plainOf(value);
    // Before its parts are copied, so that references that multiply end early.
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
    // Where patterns allow members, it is not known here which are additional.
    if (additionalProperties !== undefined && patternProperties === undefined)
      copy['additionalProperties'] = this.schema(additionalProperties, depth + 1);
    if (propertyNames !== undefined) copy['propertyNames'] = this.schema(propertyNames, depth + 1);
    if (value['dependentSchemas'] !== undefined)
      copy['dependentSchemas'] = this.#map(value['dependentSchemas'], depth);
  }

  /** In draft-07, and in many schemas that do not say so, a list of `items` is what 2020-12 calls `prefixItems`. */
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
 * Reads a schema as the drafts before 2019-09 do: nothing beside `$ref` counts, and some names are no keywords yet. Below an
 * `id` (draft-04's `$id`), references lead elsewhere.
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

/** Splits a JSON pointer in a URI fragment into names (RFC 6901 §4 and §6). @throws Uncheckable when it is none. */
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
