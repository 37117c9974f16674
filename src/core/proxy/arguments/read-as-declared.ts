import { isObject } from '../../../platform/json-limits.ts';

const NUMBER = /^-?\d{1,15}(?:\.\d{1,15})?$/;

/**
 * Reads arguments as models write them, by what a schema declares of the top level: numbers and truth values that came as strings where it
 * wants nothing else, and null for what may be left out. Undefined: nothing is to be read otherwise.
 */
export function readAsDeclared(
  schema: Readonly<Record<string, unknown>>,
  args: Readonly<Record<string, unknown>>,
): Record<string, unknown> | undefined {
  const { properties, required } = schema;
  if (!isObject(properties)) return undefined;
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

function readText(text: string, types: ReadonlySet<unknown>): unknown {
  if (types.has('string')) return text;
  if ((types.has('integer') || types.has('number')) && NUMBER.test(text) && String(Number(text)) === text)
    return Number(text);
  return types.has('boolean') && (text === 'true' || text === 'false') ? text === 'true' : text;
}

/** The types that a schema allows, by `type` or by those of its `anyOf`; undefined where it does not say. */
function typesOf(schema: unknown): ReadonlySet<unknown> | undefined {
  if (!isObject(schema)) return undefined;
  const { type, anyOf } = schema;
  if (typeof type === 'string') return new Set([type]);
  if (Array.isArray(type)) return new Set(type);
  if (!Array.isArray(anyOf)) return undefined;
  const types = anyOf.map(one => (isObject(one) ? one['type'] : undefined));
  return types.every(one => typeof one === 'string') ? new Set(types) : undefined;
}
