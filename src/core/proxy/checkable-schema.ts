import { isObject } from './json.ts';

/** Schemas in a schema, those that references lead to counted each time: what compiling and one check may cost. */
const MAX_SCHEMAS = 300;
const MAX_DEPTH = 32;
const MAX_CHARS = 64 * 1024;

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

/** Keywords taken over as they are, and what their value must be. */
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
 * A copy of a tool's schema that is safe to compile and to check with: it refuses nothing that the schema itself allows, and
 * takes bounded time. JSON Schema 2020-12, and draft-07 where its keywords differ. Left out, so unchecked: regular
 * expressions (a catastrophic one holds the event loop for ever), `format`, `uniqueItems` (quadratic), conditions, negations,
 * `contains`, and keywords that depend on them; `oneOf` counts as `anyOf`. Only references within the schema are followed,
 * never one over the network.
 * @returns nothing for a schema that cannot be checked: too large, too deep, recursive, broken, or with references elsewhere.
 */
export function checkableSchema(schema: unknown): Json | undefined {
  let text: string;
  try {
    text = JSON.stringify(schema);
    if (text.length > MAX_CHARS) return undefined;
    return new Copy(schema).schema(schema, 0) as Json;
  } catch (error) {
    if (error instanceof Uncheckable || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** One schema being copied. References are replaced by copies of what they lead to, so that nothing is left to resolve. */
class Copy {
  readonly #root: unknown;
  readonly #following = new Set<string>();
  #schemas = 0;

  constructor(root: unknown) {
    this.#root = root;
  }

  schema(value: unknown, depth: number): Json | boolean {
    if (typeof value === 'boolean') return value;
    if (!isObject(value) || depth > MAX_DEPTH || ++this.#schemas > MAX_SCHEMAS) throw new Uncheckable();
    if ('$dynamicRef' in value || '$recursiveRef' in value) throw new Uncheckable();
    // Below an id of their own, references lead elsewhere.
    if (depth > 0 && typeof value['$id'] === 'string') throw new Uncheckable();
    const copy = plainOf(value);
    this.#members(value, copy, depth);
    this.#items(value, copy, depth);
    const all = this.#combined(value, depth);
    if (all.length > 0) copy['allOf'] = all;
    return copy;
  }

  #members(value: Json, copy: Json, depth: number): void {
    const { properties, additionalProperties, patternProperties, propertyNames } = value;
    if (properties !== undefined) copy['properties'] = this.#map(properties, depth);
    // What a pattern allows is not known here, so nothing is additional.
    if (additionalProperties !== undefined && patternProperties === undefined)
      copy['additionalProperties'] = this.schema(additionalProperties, depth + 1);
    if (propertyNames !== undefined) copy['propertyNames'] = this.schema(propertyNames, depth + 1);
    if (value['dependentSchemas'] !== undefined)
      copy['dependentSchemas'] = this.#map(value['dependentSchemas'], depth);
  }

  /** In draft-07 (and in many schemas that do not say so) a list of `items` is what 2020-12 calls `prefixItems`. */
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
    if (anyOf !== undefined) all.push({ anyOf: this.#list(anyOf, depth) });
    if (oneOf !== undefined) all.push({ anyOf: this.#list(oneOf, depth) });
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
    for (const part of reference.slice(2).split('/')) {
      const name = unescapePointer(part);
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

function plainOf(value: Json): Json {
  const copy: Json = {};
  for (const [keyword, isValid] of Object.entries(PLAIN)) {
    if (!Object.hasOwn(value, keyword)) continue;
    if (!isValid(value[keyword])) throw new Uncheckable();
    copy[keyword] = value[keyword];
  }
  return copy;
}

/** RFC 6901 §4 and §6. */
function unescapePointer(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    throw new Uncheckable();
  }
}
