import { isObject } from '../platform/json/limits.ts';
import { sanitise } from '../platform/sanitize.ts';
import type { AdminClient } from './admin-client.ts';
import { UsageError, type Command } from './command.ts';
import { jsonLine, table } from './terminal.ts';

interface ShownTool {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  readonly annotations?: { readonly readOnlyHint?: boolean; readonly destructiveHint?: boolean };
  /** Why the tool should not be trusted. */
  readonly warnings?: readonly unknown[];
}

interface Stored {
  readonly tools: readonly ShownTool[];
  readonly access: { readonly status: string };
}

const MAX_NAME = 60;
const MAX_ARGUMENTS = 60;
const MAX_DESCRIPTION = 100;

const tools: Command = {
  args: ['SERVER'],
  help: "Lists a server's tools with their arguments, optional ones in brackets. `--json` has the whole schemas.",
  async run({ admin, args: [server = ''] }) {
    const path = `/catalogue/${encodeURIComponent(server)}`;
    const { tools: stored, access } = (await admin.request('GET', path)) as Stored;
    const found = stored.length > 0 ? stored : await toolsAsked(admin, server);
    const json = { server_id: server, tools: found };
    if (found.length === 0) return { json, text: `${server} lists no tools.` };
    const rows = found.map(tool => [
      sanitise(tool.name, MAX_NAME),
      sanitise(argumentsOf(tool), MAX_ARGUMENTS),
      sanitise(tool.description, MAX_DESCRIPTION),
    ]);
    const text = table([['TOOL', 'ARGUMENTS', 'DESCRIPTION'], ...rows]);
    const next = NOT_CONNECTED[access.status]?.(server) ?? firstCall(server, found);
    return { json, text: next === undefined ? text : `${text}\n\n${next}` };
  },
};

/** The command that makes a server's tools callable, by the status of its access. */
const NOT_CONNECTED: Readonly<Record<string, ((server: string) => string) | undefined>> = {
  connect: server => `Not connected yet: npx switchboard connect ${server}`,
  setup_needed: server => `Cannot be called yet: npx switchboard connect ${server} says what to set up first`,
};

async function toolsAsked(admin: AdminClient, server: string): Promise<readonly ShownTool[]> {
  await admin.request('POST', `/catalogue/${encodeURIComponent(server)}/tools`);
  return storedTools(admin, server);
}

/** Returns the tools of a server that the catalogue has. @throws CommandFailed if there is no such server */
export async function storedTools(admin: AdminClient, server: string): Promise<readonly ShownTool[]> {
  const entry = await admin.request('GET', `/catalogue/${encodeURIComponent(server)}`);
  return (entry as Stored).tools;
}

function argumentsOf(tool: ShownTool): string {
  const { required, properties } = parametersOf(tool);
  const optional = Object.keys(properties).filter(name => !required.includes(name));
  return [...required, ...optional.map(name => `[${name}]`)].join(' ');
}

function parametersOf({ input_schema: { required, properties } }: ShownTool) {
  return {
    required: Array.isArray(required) ? required.filter(name => typeof name === 'string') : [],
    properties: isObject(properties) ? properties : {},
  };
}

/** Names that need no quotes in a shell. Servers choose them, and people copy them from the terminal. */
const TYPABLE = /^\w[\w./-]{0,63}$/;

/**
 * Returns a line with a call that can be typed as it is: of the tool that reads and needs the fewest arguments or, if none is known
 * to only read, of the server's first.
 * @returns undefined if no tool's name can be typed
 */
export function firstCall(server: string, all: readonly ShownTool[]): string | undefined {
  const isSafe = (tool: ShownTool) =>
    tool.annotations?.destructiveHint !== true &&
    tool.warnings === undefined &&
    [tool.name, ...parametersOf(tool).required].every(name => TYPABLE.test(name));
  const isReading = (tool: ShownTool) => tool.annotations?.readOnlyHint === true;
  const safe = all.filter(isSafe);
  const readers = safe.filter(isReading);
  const [easiest] = readers.toSorted(
    (one, other) => parametersOf(one).required.length - parametersOf(other).required.length,
  );
  const tool = easiest ?? safe[0];
  if (!tool) return undefined;
  const { required, properties } = parametersOf(tool);
  const input = Object.fromEntries(required.map(name => [name, exampleOf(properties[name])]));
  return `Try it: npx switchboard call ${server} ${tool.name} '${JSON.stringify(input)}'`;
}

const EXAMPLES: Readonly<Record<string, unknown>> = {
  number: 1,
  integer: 1,
  boolean: true,
  array: [],
  object: {},
};

/** Returns a value of a parameter's type; for texts, its first choice or an ellipsis. */
function exampleOf(schema: unknown): unknown {
  const { type, enum: choices } = isObject(schema) ? schema : {};
  const [choice] = Array.isArray(choices) ? (choices as readonly unknown[]) : [];
  if (typeof choice === 'string' && TYPABLE.test(choice)) return choice;
  const [first] = [type].flat();
  return typeof first === 'string' && Object.hasOwn(EXAMPLES, first) ? EXAMPLES[first] : '…';
}

const call: Command = {
  args: ['SERVER', 'TOOL', 'JSON?'],
  help: 'Calls a tool with a JSON object of arguments. It needs no key and cannot act for an end user.',
  async run({ admin, args: [server = '', tool = '', json = '{}'] }) {
    const input = { server_id: server, name: tool, arguments: parseArguments(json) };
    const result = (await admin.request('POST', '/call', { json: input })) as {
      content: { type: string; text?: string }[];
      isError: boolean;
    };
    const text = result.content.map(block => block.text ?? jsonLine(block)).join('\n');
    return { json: result, text, failed: result.isError };
  },
};

/** @throws UsageError for anything but a JSON object */
function parseArguments(text: string): object {
  try {
    const parsed: unknown = JSON.parse(text);
    if (isObject(parsed)) return parsed;
  } catch {
    // Refused below.
  }
  throw new UsageError(
    `The arguments must be a JSON object, such as '{"message":"hi"}', not ${text}. Quote it for the shell.`,
  );
}

interface Found {
  servers: {
    id: string;
    name: string;
    description: string;
    final_score: number;
    scores: { meaning?: number; words?: number; use?: number; reduction?: number };
    deprecated?: true;
    health?: { status: string };
    access: { kind: string; status: string };
    tools: { name: string }[];
  }[];
}

const NOTHING_FITS = `No server in the catalogue matches. Search in English for a single step, as an action and its object, without names, places or numbers:
  npx switchboard search "create a calendar event"
Or search for a server by its name.`;

const search: Command = {
  args: ['QUERY+'],
  options: {
    limit: { type: 'string', help: 'How many servers to show, 1 to 50. Default: 10.' },
    explain: { type: 'boolean', help: 'Shows what each score is made of: meaning, words and use.' },
  },
  help: 'Searches the catalogue.',
  async run({ admin, args, options }) {
    const limit = options['limit'];
    if (limit !== undefined && !/^\d+$/.test(String(limit)))
      throw new UsageError('--limit must be a whole number from 1 to 50');
    const explain = options['explain'] === true;
    const json = { query: args.join(' '), ...(limit === undefined ? {} : { limit: Number(limit) }), explain };
    const found = (await admin.request('POST', '/search', { json })) as Found;
    const blocks = found.servers.map(server => {
      const { id, name, description, final_score, deprecated, health, access } = server;
      const state = health === undefined || health.status === 'ok' ? '' : `, ${health.status}`;
      const best = server.tools.slice(0, 3).map(tool => tool.name);
      return [
        `${final_score.toFixed(3)}  ${id} (${name}) [${access.status}]${deprecated ? ', deprecated' : ''}${state}`,
        ...(explain ? [`       ${scoreOf(server)}`] : []),
        `       ${description}`,
        ...needsOf(server).map(need => `       ${need}`),
        ...(best.length === 0 ? [] : [`       tools: ${best.join(', ')}`]),
      ].join('\n');
    });
    return { json: found, text: blocks.length > 0 ? blocks.join('\n') : NOTHING_FITS };
  },
};

/** Says what a score is made of. */
function scoreOf({ scores: { meaning = 0, words = 0, use = 0, reduction = 0 } }: Found['servers'][number]) {
  const shown = (part: number) => part.toFixed(3);
  return `(meaning ${shown(meaning)} + words ${shown(words)}) x use ${shown(use)}${reduction === 1 ? '' : ` x reduction ${shown(reduction)}`}`;
}

/** Says what has to be done before a server can be called. */
function needsOf({ id, access: { kind, status } }: Found['servers'][number]): string[] {
  const isProvider = kind === 'provider';
  if (status === 'connect') {
    if (isProvider) return ['acts for end users, with an account of theirs: no command can call it'];
    return [`needs a ${kind === 'oauth' ? 'sign-in' : 'key'}: npx switchboard connect ${id}`];
  }
  if (status !== 'setup_needed') return [];
  const step = isProvider
    ? 'set up its identity provider in SWITCHBOARD_PROVIDERS first'
    : `npx switchboard connect ${id} says what to set up first`;
  return [`cannot be called yet: ${step}`];
}

export const toolCommands = { search, tools, call };
