import type { Tool } from '../../core/catalogue/entry.ts';
import { isObject } from '../../platform/json/limits.ts';
import type { SearchServersOutput } from './tools.ts';

export type ShownServer = SearchServersOutput['servers'][number];
type ShownTool = ShownServer['tools'][number];
export type ToolToShow = Tool & { readonly warnings?: readonly string[] };

export const MAX_DESCRIPTION_CHARS = 400;
export const MAX_NAME_CHARS = 80;
/** The minimum space for showing a tool. */
const MIN_TOOL_CHARS = 40;

/** Adds a tool if it fits. @returns its characters of JSON */
export function addTool(to: ShownTool[], tool: ToolToShow | undefined, left: number): number {
  if (!tool || left < MIN_TOOL_CHARS) return 0;
  const { warnings = [] } = tool;
  const bare: ShownTool = {
    name: tool.name,
    description: shorten(tool.description, MAX_DESCRIPTION_CHARS),
    ...effectsOf(tool),
    ...(warnings.length === 0 ? {} : { warnings: [...warnings] }),
  };
  const bareChars = JSON.stringify(bare).length;
  const { schema, chars } = leanOf(tool.input_schema);
  const wholeChars = bareChars + ',"input_schema":'.length + chars;
  if (wholeChars < left) to.push({ ...bare, input_schema: schema });
  else if (bareChars < left) to.push(bare);
  else return 0;
  return 1 + (wholeChars < left ? wholeChars : bareChars);
}

function effectsOf({ annotations = {} }: Tool): Pick<ShownTool, 'read_only' | 'destructive'> {
  if (annotations.destructiveHint === true) return { destructive: true };
  return annotations.readOnlyHint === true ? { read_only: true } : {};
}

interface LeanSchema {
  readonly schema: Record<string, unknown>;
  /** The length of its JSON. */
  readonly chars: number;
}

const leanSchemas = new WeakMap<object, LeanSchema>();

/** Creates the lean form once per schema, because the same tools are shown repeatedly. */
function leanOf(inputSchema: Tool['input_schema']): LeanSchema {
  const known = leanSchemas.get(inputSchema);
  if (known) return known;
  const schema = leanSchema(inputSchema) as Record<string, unknown>;
  const lean = { schema, chars: JSON.stringify(schema).length };
  leanSchemas.set(inputSchema, lean);
  return lean;
}

export const shorten = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max - 1).toWellFormed()}…`;

/** Members whose own members are named by the author, not by JSON Schema. */
const NAMED = new Set([
  'properties',
  'patternProperties',
  '$defs',
  'definitions',
  'dependencies',
  'dependentRequired',
  'dependentSchemas',
]);
/** Members with data, which stays unchanged. */
const DATA = new Set(['default', 'const', 'enum', 'examples', 'required']);
/** Members that do not help a model to build arguments. */
const NOISE = new Set(['$schema', '$id', '$comment', 'title']);

/**
 * Returns a tool's input schema without members that only cost tokens: dialects, titles, `additionalProperties: false`, empty
 * lists and texts, and the null alternative that generators add to optional arguments. The accepted arguments stay the same.
 */
export function leanSchema(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(leanSchema);
  if (!isObject(schema)) return schema;
  const members = Object.entries(optional(schema)).flatMap(([key, value]) => {
    if (isNoise(key, value)) return [];
    if (DATA.has(key)) return [[key, value] as const];
    if (NAMED.has(key) && isObject(value))
      return [
        [
          key,
          Object.fromEntries(Object.entries(value).map(([name, one]) => [name, leanSchema(one)])),
        ] as const,
      ];
    return [[key, leanSchema(value)] as const];
  });
  return Object.fromEntries(members);
}

function isNoise(key: string, value: unknown): boolean {
  if (key === 'additionalProperties') return value === false;
  if (NOISE.has(key)) return true;
  if (key === 'default') return value === null;
  if (key === 'description') return value === '';
  return (key === 'required' || key === 'properties') && isEmpty(value);
}

const isEmpty = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

/** Returns `{anyOf: [X, null], default: null}` as X. */
function optional(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const { anyOf, ...others } = schema;
  if (!Array.isArray(anyOf) || others['default'] !== null) return schema;
  const [only, ...more] = (anyOf as unknown[]).filter(one => !(isObject(one) && one['type'] === 'null'));
  return isObject(only) && more.length === 0 ? { ...only, ...others } : schema;
}

/**
 * Limits the size of a result in an agent's context, in bytes of UTF-8. Clients truncate longer results, and then the rest is
 * lost: Codex keeps 48,000 bytes, Claude Code 50,000 characters, and 10,000 characters of an error (measured 2026-11).
 */
export const MAX_SHOWN_BYTES = 44_000;
export const MAX_SHOWN_ERROR_BYTES = 9_000;

/** Formats a number with thousands separators. */
export const count = (value: number): string => value.toLocaleString('en-US');

/** Returns the first code points of a text that fit into this many bytes of UTF-8. */
export function headOf(words: string, maxBytes: number): string {
  let bytes = 0;
  let at = 0;
  while (at < words.length) {
    const point = words.codePointAt(at) ?? 0;
    bytes += bytesOf(point);
    if (bytes > maxBytes) break;
    at += point > 0xff_ff ? 2 : 1;
  }
  return words.slice(0, at);
}

function bytesOf(codePoint: number): number {
  if (codePoint < 0x80) return 1;
  if (codePoint < 0x8_00) return 2;
  return codePoint > 0xff_ff ? 4 : 3;
}
