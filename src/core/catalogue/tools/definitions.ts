import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { jsonSizeOf } from '../../../platform/json/limits.ts';
import { cleanText, isPlain } from '../../../platform/sanitize.ts';
import { annotationsOf, worseOf, type CataloguedTool, type Tool } from '../entry.ts';
import { storageProblem } from '../import-file.ts';
import { suspicionsOf } from './suspicious.ts';

/** A tool as listed by its server (MCP `Tool`), with all fields. */
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
/** Limits the size of all definitions of a server. */
const MAX_TOTAL_BYTES = 2 * 1024 * 1024;
/** Yields to the event loop after this many tools. */
const SLICE_TOOLS = 20;

/**
 * Limits the values and characters of a definition. A larger one is not hashed, stored or examined, because a tool may have
 * megabytes.
 */
const MAX_DEFINITION_SIZE = 256 * 1024;

const isHuge = (definition: Definition): boolean =>
  jsonSizeOf(definition, 1, MAX_DEFINITION_SIZE) > MAX_DEFINITION_SIZE;

/** Returns the SHA-256, in base64url, of everything a model and its user are told about a tool. The order of members is ignored. */
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
  // A member may be called __proto__, which assignment would not copy.
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(members.map(([key, member]) => [key, inOrder(member)]));
}

/**
 * Returns a tool with cleaned texts and the suspicion rules that its original texts match. Returns undefined for a name with
 * hidden characters: the cleaned name could not be called, and the original must not be shown.
 */
export function cleanTool(tool: CataloguedTool, definition: unknown = tool): CataloguedTool | undefined {
  if (!isPlain(tool.name)) return undefined;
  // Keeps earlier matches, because the rules would not match the cleaned text again.
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

/** Members of a JSON Schema whose own members are named by its author. */
const NAMED = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);
/** Members that contain data, which must not be changed. */
const DATA = new Set(['default', 'const', 'enum', 'examples']);

/** Returns a schema with cleaned texts, or the same object if there is nothing to clean. The depth was checked before. */
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

/**
 * Returns a server's own tools in the form of the catalogue. Tools that are too large, or cannot be stored or shown, are skipped.
 */
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
  if (isHuge(definition)) return 'a definition of more than 256 Ki characters';
  const { name, description, inputSchema, outputSchema, annotations } = definition;
  if (name === '' || name.length > MAX_NAME_CHARS) return `a name of ${name.length} characters`;
  if (description.length > MAX_DESCRIPTION_CHARS) return `a description of ${description.length} characters`;
  return (
    storageProblem([name, inputSchema, outputSchema, annotations]) ??
    (Buffer.byteLength(JSON.stringify(inputSchema)) > MAX_SCHEMA_BYTES
      ? 'a schema larger than 64 KiB'
      : undefined)
  );
}
