import { isObject } from '../../../platform/json/limits.ts';

const HEADER_TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const MAX_DEPTH = 16;

/**
 * Returns the `Mcp-Param-*` headers of a tools/call (2026-07-28, Streamable HTTP, "Schema extension"). They repeat the
 * arguments whose schema has `x-mcp-header`. Absent and null arguments and invalid declarations give none.
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
  // There are few arguments, but a schema may have a hundred thousand properties.
  for (const name of Object.keys(value)) {
    if (Object.hasOwn(properties, name)) collect(properties[name], value[name], depth + 1, emit);
  }
}

const isMirrored = (value: unknown): value is Primitive =>
  typeof value === 'string' || typeof value === 'boolean' || Number.isSafeInteger(value);

const MIRRORED_TYPES = new Set<unknown>(['string', 'integer', 'boolean']);
/** Far above usual depths. A deeper tool is skipped. */
const MAX_SCHEMA_DEPTH = 64;

/**
 * Returns why a tool must not be used with a modern server, if there is a reason: clients must reject definitions with an
 * invalid `x-mcp-header` (2026-07-28, Streamable HTTP, "Schema extension").
 */
export function headerProblem(schema: unknown): string | undefined {
  const names = new Set<string>();
  const visit = (node: unknown, depth: number, reachable: boolean): string | undefined => {
    if (typeof node !== 'object' || node === null) return undefined;
    if (depth > MAX_SCHEMA_DEPTH) return `is nested more than ${MAX_SCHEMA_DEPTH} levels deep`;
    const own = 'x-mcp-header' in node ? problemAt(node, reachable && depth > 0, names) : undefined;
    return (
      own ??
      firstOf(node, (key, member) => {
        if (DATA.has(key)) return undefined;
        if (!NAMED.has(key) || !isObject(member)) return visit(member, depth + 1, false);
        // The author names these members: one may have the name of a keyword or of the extension.
        return firstOf(member, (_name, property) =>
          visit(property, depth + 1, reachable && key === 'properties'),
        );
      })
    );
  };
  return visit(schema, 0, true);
}

const NAMED = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
const DATA = new Set(['default', 'const', 'enum', 'examples']);

function problemAt(
  node: { readonly 'x-mcp-header': unknown; readonly type?: unknown },
  allowed: boolean,
  names: Set<string>,
): string | undefined {
  const header = node['x-mcp-header'];
  if (!allowed) return 'x-mcp-header is not on an argument';
  if (typeof header !== 'string' || !HEADER_TOKEN.test(header))
    return 'x-mcp-header is not a valid header name';
  if (!MIRRORED_TYPES.has(node.type))
    return 'x-mcp-header is on a type other than string, integer or boolean';
  if (names.has(header.toLowerCase())) return 'x-mcp-header uses the same name twice';
  names.add(header.toLowerCase());
  return undefined;
}

/** Avoids a list of the members, because there may be a hundred thousand. */
function firstOf(
  members: object,
  problemOf: (key: string, member: unknown) => string | undefined,
): string | undefined {
  for (const key in members) {
    const problem = problemOf(key, (members as Record<string, unknown>)[key]);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
