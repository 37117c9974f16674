import { isObject } from './json.ts';

const HEADER_TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const MAX_DEPTH = 16;

/**
 * The `Mcp-Param-*` headers of a tools/call (2026-07-28, Streamable HTTP, "Schema extension"): arguments whose schema
 * property carries `x-mcp-header` are repeated in a header. Absent and null arguments, and declarations the spec does not
 * allow, give none.
 */
export function paramHeaders(
  schema: unknown,
  args: unknown,
  encode: (value: string) => string,
): Record<string, string> {
  const headers: Record<string, string> = {};
  collect(schema, args, 0, (name, value) => {
    headers[`mcp-param-${name.toLowerCase()}`] = encode(String(value));
  });
  return headers;
}

type Primitive = string | number | boolean;

function collect(
  schema: unknown,
  value: unknown,
  depth: number,
  emit: (name: string, value: Primitive) => void,
): void {
  if (!isObject(schema) || depth > MAX_DEPTH) return;
  const header = schema['x-mcp-header'];
  if (typeof header === 'string' && HEADER_TOKEN.test(header) && isMirrored(value)) emit(header, value);
  const { properties } = schema;
  if (!isObject(properties) || !isObject(value)) return;
  for (const [name, property] of Object.entries(properties)) {
    if (Object.hasOwn(value, name)) collect(property, value[name], depth + 1, emit);
  }
}

const isMirrored = (value: unknown): value is Primitive =>
  typeof value === 'string' || typeof value === 'boolean' || Number.isSafeInteger(value);
