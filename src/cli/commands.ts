import { readFile } from 'node:fs/promises';
import { fetch } from 'undici';
import { SCOPES } from '../core/caller.ts';
import { CommandFailed, type AdminClient } from './admin-client.ts';
import { table, type Io } from './io.ts';

/** Wrong words on the command line: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

export interface Invocation {
  readonly admin: AdminClient;
  readonly io: Io;
  readonly args: readonly string[];
  readonly options: Readonly<Record<string, string | boolean | undefined>>;
}

export interface Command {
  /** Positional arguments by name; a trailing `?` marks one that may be absent. */
  readonly args: readonly string[];
  readonly options?: Readonly<Record<string, { type: 'string' | 'boolean'; help: string }>>;
  readonly help: string;
  /** Resolves with the answer for `--json`, its text for people, and whether all of it went well. */
  run(invocation: Invocation): Promise<{ json: unknown; text: string; failed?: boolean }>;
}

interface KeyInfo {
  id: string;
  name: string;
  scopes: string[];
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  key?: string;
}

const keysCreate: Command = {
  args: [],
  options: {
    name: { type: 'string', help: 'what the key is for' },
    scopes: {
      type: 'string',
      help: `comma-separated, of ${SCOPES.join(', ')} (default: search,proxy,identity)`,
    },
    expires: { type: 'string', help: 'ISO 8601 time after which it is refused' },
  },
  help: 'make an API key; it is shown once',
  async run({ admin, options }) {
    const scopes = String(options['scopes'] ?? 'search,proxy,identity')
      .split(',')
      .map(scope => scope.trim());
    const json = { name: options['name'] ?? 'unnamed', scopes, expires_at: options['expires'] };
    const created = (await admin.request('POST', '/keys', { json })) as KeyInfo;
    return { json: created, text: `API key (shown once): ${created.key}` };
  },
};

const keysList: Command = {
  args: [],
  help: 'list the API keys',
  async run({ admin }) {
    const answer = (await admin.request('GET', '/keys')) as { keys: KeyInfo[] };
    const state = (key: KeyInfo) => {
      if (key.revoked_at !== null) return 'revoked';
      return key.expires_at !== null && Date.parse(key.expires_at) <= Date.now() ? 'expired' : 'active';
    };
    const rows = answer.keys.map(key => [key.id, state(key), key.scopes.join(','), key.created_at, key.name]);
    return { json: answer, text: table([['ID', 'STATE', 'SCOPES', 'CREATED', 'NAME'], ...rows]) };
  },
};

const keysRevoke: Command = {
  args: ['ID'],
  help: 'end an API key at once',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/keys/${encodeURIComponent(id)}/revoke`);
    return { json, text: `Revoked ${id}.` };
  },
};

interface ImportReport {
  imported: number;
  deactivated: number;
  problems: { line: number; reason: string }[];
  unknown_fields: string[];
}

const catalogueImport: Command = {
  args: ['FILE|URL'],
  options: { replace: { type: 'boolean', help: 'make every server that is not in the file inactive' } },
  help: 'add or rewrite servers from JSON Lines; done once they are searchable',
  async run({ admin, io, args: [source = ''], options }) {
    const text = /^https?:\/\//.test(source) ? await download(source) : await readFile(source, 'utf8');
    io.complain('Importing; new texts are embedded, which takes a while for thousands of tools.');
    const path = `/catalogue/import?replace=${options['replace'] === true}`;
    const report = (await admin.request('POST', path, { text })) as ImportReport;
    for (const { line, reason } of report.problems) io.complain(`line ${line}: ${reason}`);
    if (report.unknown_fields.length > 0)
      io.complain(`ignored unknown fields: ${report.unknown_fields.join(', ')}`);
    const gone = report.deactivated > 0 ? `, ${report.deactivated} made inactive` : '';
    const bad = report.problems.length > 0 ? `, ${report.problems.length} bad lines skipped` : '';
    const failed = report.problems.length > 0 || report.imported === 0;
    return { json: report, text: `${report.imported} servers imported${gone}${bad}.`, failed };
  },
};

const catalogueAdd: Command = {
  args: ['ID', 'URL'],
  options: {
    name: { type: 'string', help: 'display name (default: the id)' },
    description: {
      type: 'string',
      help: 'what a user can do with it: search goes by this (default: the name)',
    },
    transport: { type: 'string', help: 'streamable-http or sse (default: detect)' },
    auth: { type: 'string', help: 'none, user_oauth, static_header, own_oauth or unknown' },
    categories: { type: 'string', help: 'comma-separated' },
  },
  help: 'add one server with the tools it lists, or change or bring back the one of that id',
  async run({ admin, args: [id = '', url = ''], options }) {
    const entry = entryFrom(await entryOf(admin, id), id, url, options);
    const report = (await admin.request('POST', '/catalogue/import', {
      text: JSON.stringify(entry),
    })) as ImportReport;
    const [problem] = report.problems;
    if (problem) throw new UsageError(problem.reason);
    try {
      const { tools } = (await admin.request('POST', `/catalogue/${encodeURIComponent(id)}/tools`)) as {
        tools: number;
      };
      return { json: { id, added: true, tools }, text: `Added ${id} with ${tools} tools.` };
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      const text = `Added ${id} without its tools, which could not be listed: ${error.message}`;
      return { json: { id, added: true, tools: 0, problem: error.message }, text };
    }
  },
};

/** What is not given stays as it was; tools belong to the address they were listed at. */
function entryFrom(
  known: Record<string, unknown> | undefined,
  id: string,
  url: string,
  options: Invocation['options'],
) {
  const { name, description, transport, auth, categories } = options;
  const given = {
    name,
    description,
    transport,
    auth: auth === undefined ? undefined : { kind: auth },
    categories: categories === undefined ? undefined : String(categories).split(','),
  };
  const onlyGiven = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const defaults = { name: id, description: name ?? id };
  const kept = known?.['remote_url'] === url ? known : { ...known, tools: [] };
  return { ...defaults, ...kept, ...onlyGiven, id, remote_url: url };
}

/** What the catalogue has under the id already. */
async function entryOf(admin: AdminClient, id: string): Promise<Record<string, unknown> | undefined> {
  try {
    return (await admin.request('GET', `/catalogue/${encodeURIComponent(id)}`)) as Record<string, unknown>;
  } catch (error) {
    if (error instanceof CommandFailed && error.code === 'server_not_found') return undefined;
    throw error;
  }
}

const catalogueDeactivate: Command = {
  args: ['ID'],
  help: 'take a server out of search and calls (410 from then on)',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/catalogue/${encodeURIComponent(id)}/deactivate`);
    return { json, text: `Deactivated ${id}.` };
  },
};

const catalogueShow: Command = {
  args: ['ID'],
  help: 'show a server as the catalogue has it',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('GET', `/catalogue/${encodeURIComponent(id)}`);
    return { json, text: JSON.stringify(json, null, 2) };
  },
};

interface Found {
  servers: {
    id: string;
    name: string;
    description: string;
    final_score: number;
    tools: { name: string }[];
  }[];
}

const search: Command = {
  args: ['QUERY'],
  options: { limit: { type: 'string', help: '1 to 50 (default 10)' } },
  help: 'search the catalogue',
  async run({ admin, args: [query = ''], options }) {
    const limit = options['limit'];
    if (limit !== undefined && !/^\d+$/.test(String(limit)))
      throw new UsageError('--limit must be a whole number from 1 to 50');
    const json = { query, ...(limit === undefined ? {} : { limit: Number(limit) }) };
    const found = (await admin.request('POST', '/search', { json })) as Found;
    const blocks = found.servers.map(({ id, name, description, final_score, tools }) => {
      const best = tools
        .slice(0, 3)
        .map(tool => tool.name)
        .join(', ');
      return `${final_score.toFixed(3)}  ${id} (${name})\n       ${description}${best === '' ? '' : `\n       tools: ${best}`}`;
    });
    return { json: found, text: blocks.length > 0 ? blocks.join('\n') : 'Nothing fits.' };
  },
};

const call: Command = {
  args: ['SERVER', 'TOOL', 'JSON?'],
  help: "call a server's tool with a JSON object of arguments",
  async run({ admin, args: [server = '', tool = '', json = '{}'] }) {
    const result = (await admin.request('POST', '/call', {
      json: { server_id: server, name: tool, arguments: parseJson(json) },
    })) as {
      content: { type: string; text?: string }[];
      isError: boolean;
    };
    const text = result.content.map(block => block.text ?? JSON.stringify(block)).join('\n');
    return { json: result, text, failed: result.isError };
  },
};

export const commands: Readonly<Record<string, Command>> = {
  'keys create': keysCreate,
  'keys list': keysList,
  'keys revoke': keysRevoke,
  'catalogue import': catalogueImport,
  'catalogue add': catalogueAdd,
  'catalogue deactivate': catalogueDeactivate,
  'catalogue show': catalogueShow,
  search,
  call,
};

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`${text} is not valid JSON`);
  }
}

async function download(url: string): Promise<string> {
  try {
    const response = await fetch(url);
    if (response.ok) return await response.text();
    throw new CommandFailed(`${url} answered ${response.status}.`);
  } catch (error) {
    if (error instanceof CommandFailed) throw error;
    const cause =
      error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
    throw new CommandFailed(`${url} could not be fetched: ${cause}.`);
  }
}
