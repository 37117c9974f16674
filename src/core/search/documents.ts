import type { Server } from '../catalogue/entry.ts';
import { splitIdentifier } from './tokenize.ts';

/** The fields of a server that search reads. */
export type Described = Pick<Server, 'name' | 'description' | 'tools'>;

/** One document, once for each kind of search. */
interface SearchDocument {
  /** For `tokenize`, which splits identifiers itself. */
  readonly keywords: string;
  /** Prose for the embedder. */
  readonly prose: string;
}

export interface ServerDocuments {
  /** Keywords of the server with all its tools: a request often touches several of them. */
  readonly whole: string;
  /** The server's own text first, then one document a tool, in the order of `server.tools`. */
  readonly parts: readonly SearchDocument[];
}

/** About the 256 tokens after which the embedder cuts off. */
const MAX_PROSE_LENGTH = 1_000;
/** A bound on work, far above what is usual. */
const MAX_KEYWORDS_LENGTH = 4_000;
const MAX_WHOLE_LENGTH = 50_000;
/** All argument names and descriptions of a tool together: a long schema must not outweigh what the tool says of itself. */
const MAX_ARGUMENTS_LENGTH = 500;

/** The texts search works on: the only place that decides which parts of a catalogue entry can be found. */
export function documentsOf(server: Described): ServerDocuments {
  const ownText = `${server.name}. ${server.description}`;
  const tools = server.tools.map(tool => ({
    keywords: `${tool.name} ${tool.description} ${argumentsOf(tool.input_schema)}`.slice(
      0,
      MAX_KEYWORDS_LENGTH,
    ),
    prose: `${splitIdentifier(tool.name)}. ${tool.description}`.slice(0, MAX_PROSE_LENGTH),
  }));
  return {
    whole: [ownText, ...tools.map(({ keywords }) => keywords)].join(' ').slice(0, MAX_WHOLE_LENGTH),
    parts: [
      { keywords: ownText.slice(0, MAX_KEYWORDS_LENGTH), prose: ownText.slice(0, MAX_PROSE_LENGTH) },
      ...tools,
    ],
  };
}

/** The names of a tool's arguments and what their schema says of them, top level only. */
function argumentsOf(schema: Readonly<Record<string, unknown>>): string {
  const { properties } = schema;
  if (!isObject(properties)) return '';
  const parts = Object.entries(properties).map(([name, property]) => {
    const description = isObject(property) ? property['description'] : undefined;
    return typeof description === 'string' ? `${name} ${description}` : name;
  });
  return parts.join(' ').slice(0, MAX_ARGUMENTS_LENGTH);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
