import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { jsonSizeOf } from '../../../platform/json-limits.ts';
import { cleanText, isPlain } from '../../../platform/sanitize.ts';
import { annotationsOf, worseOf, type CataloguedTool, type Tool } from '../entry.ts';
import { storageProblem } from '../import-file.ts';
import { suspicionsOf } from './suspicious.ts';

/** A tool as its server lists it (MCP `Tool`), with all its fields. */
export interface Definition {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

const MAX_TOOLS = 1_000;
const MAX_NAME_CHARS = 256;
const MAX_DESCRIPTION_CHARS = 20_000;
const MAX_SCHEMA_BYTES = 64 * 1024;
/** All definitions of a server together. */
const MAX_TOTAL_BYTES = 2 * 1024 * 1024;
/** The event loop gets a turn after so many tools. */
const SLICE_TOOLS = 20;

/** Values and letters of a whole definition. Above, nothing is hashed, written or gone through: a listing may have megabytes in one tool. */
const MAX_DEFINITION_SIZE = 256 * 1024;

const isHuge = (definition: Definition): boolean =>
  jsonSizeOf(definition, 1, MAX_DEFINITION_SIZE) > MAX_DEFINITION_SIZE;

/** SHA-256 of what a model and its user are told of a tool, in base64url. The order of members makes no difference. */
export function hashOf(definition: Definition): string {
  if (isHuge(definition)) return 'too large';
  const { name, title, description, inputSchema, outputSchema, annotations } = definition;
  const told = { name, title, description, inputSchema, outputSchema, annotations };
  return createHash('sha256')
    .update(JSON.stringify(inOrder(told)))
    .digest('base64url');
}

function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== 'object' || value === null) return value;
  // From entries, not by assignment: a member may be called __proto__.
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(members.map(([key, member]) => [key, inOrder(member)]));
}

/**
 * A tool as it is indexed and shown, and what is suspicious in it as it came. Nothing for a name that is not what it looks
 * like: cleaned it could not be called, and as it is it must not be shown.
 */
export function cleanTool(tool: CataloguedTool, definition: unknown = tool): CataloguedTool | undefined {
  if (!isPlain(tool.name)) return undefined;
  // What was found before it was cleaned and stored is not found again.
  const suspicious = new Set([...(tool.suspicious ?? []), ...suspicionsOf(definition)]);
  return {
    name: tool.name,
    description: cleanText(tool.description),
    input_schema: cleanSchema(tool.input_schema) as Tool['input_schema'],
    ...(tool.annotations === undefined ? {} : { annotations: tool.annotations }),
    ...(suspicious.size === 0 ? {} : { suspicious: [...suspicious] }),
    ...(tool.live === undefined ? {} : { live: tool.live }),
  };
}

/** Members whose own members are named by the author, not by JSON Schema. */
const NAMED = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
/** Members that hold data, which must stay as they are. */
const DATA = new Set(['default', 'const', 'enum', 'examples']);

/** A schema with its texts cleaned, itself where there is nothing to clean; the depth was checked before. */
export function cleanSchema(value: unknown, named = false): unknown {
  if (Array.isArray(value)) {
    const members = value.map(member => cleanSchema(member));
    return members.every((member, at) => member === value[at]) ? (value as unknown) : members;
  }
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).map(
    ([key, member]: [string, unknown]) => [key, cleanMember(key, member, named)] as const,
  );
  const isClean = members.every(([key, member]) => member === (value as Record<string, unknown>)[key]);
  return isClean ? value : Object.fromEntries(members);
}

function cleanMember(key: string, member: unknown, named: boolean): unknown {
  if (named) return cleanSchema(member);
  if (DATA.has(key)) return member;
  if ((key === 'description' || key === 'title') && typeof member === 'string') return cleanText(member);
  return cleanSchema(member, NAMED.has(key));
}

interface ReadDefinitions {
  readonly tools: CataloguedTool[];
  readonly leftOut: readonly { readonly tool: string; readonly reason: string }[];
}

/** A server's own tools as the catalogue holds them; what is too large or cannot be stored or shown is left out. */
export async function readDefinitions(definitions: readonly Definition[]): Promise<ReadDefinitions> {
  const tools = new Map<string, CataloguedTool>();
  const leftOut: { tool: string; reason: string }[] = [];
  let room = MAX_TOTAL_BYTES;
  for (const [at, definition] of definitions.slice(0, MAX_TOOLS).entries()) {
    if (at % SLICE_TOOLS === SLICE_TOOLS - 1) await setImmediate();
    const { name, description, inputSchema } = definition;
    const before = tools.get(name);
    const own = annotationsOf(definition['annotations']);
    const annotations = before ? worseOf(before.annotations, own) : own;
    const problem = problemOf(definition);
    const bytes = problem === undefined ? sizeOf(definition) : 0;
    const reason = problem ?? (bytes > room ? 'the definitions together are too large' : undefined);
    const tool =
      reason === undefined
        ? cleanTool(
            {
              name,
              description,
              input_schema: inputSchema,
              annotations,
              live: { hash: hashOf(definition) },
            },
            definition,
          )
        : undefined;
    if (tool) {
      room -= bytes;
      tools.set(name, tool);
    } else
      leftOut.push({
        tool: cleanText(name).slice(0, 100),
        reason: reason ?? 'invisible characters in its name',
      });
  }
  if (definitions.length > MAX_TOOLS)
    leftOut.push({ tool: `${definitions.length - MAX_TOOLS} more`, reason: `more than ${MAX_TOOLS} tools` });
  return { tools: [...tools.values()], leftOut };
}

const sizeOf = ({ description, inputSchema }: Definition) =>
  description.length + Buffer.byteLength(JSON.stringify(inputSchema));

function problemOf(definition: Definition): string | undefined {
  if (isHuge(definition)) return 'a definition of over 256 Ki characters';
  const { name, description, inputSchema, outputSchema, annotations } = definition;
  if (name === '' || name.length > MAX_NAME_CHARS) return `a name of ${name.length} characters`;
  if (description.length > MAX_DESCRIPTION_CHARS) return `a description of ${description.length} characters`;
  return (
    storageProblem([name, inputSchema, outputSchema, annotations]) ??
    (Buffer.byteLength(JSON.stringify(inputSchema)) > MAX_SCHEMA_BYTES ? 'a schema over 64 KiB' : undefined)
  );
}
