import { readFile } from 'node:fs/promises';
import { fetch } from 'undici';
import { CommandFailed, type AdminClient } from './admin-client.ts';
import { UsageError, type Command, type Invocation } from './command.ts';
import { workProgress } from './progress.ts';
import { catalogueProbe } from './probe-command.ts';
import { catalogueSync } from './sync-command.ts';

interface ImportReport {
  imported: number;
  deactivated: number;
  problems: { line: number; reason: string }[];
  unknown_fields: string[];
  warnings: string[];
}

const catalogueImport: Command = {
  args: ['FILE|URL'],
  options: { replace: { type: 'boolean', help: 'make every server that is not in the file inactive' } },
  help: 'add or rewrite servers from JSON Lines; done once they are searchable',
  changes: true,
  async run({ admin, io, args: [source = ''], options }) {
    const text = /^https?:\/\//.test(source) ? await download(source) : await contentOf(source);
    io.complain('Importing; new texts are embedded, which takes a while for thousands of tools.');
    const path = `/catalogue/import?replace=${options['replace'] === true}`;
    const progress = workProgress(io);
    const heard = { onProgress: progress.show, onNotice: (notice: string) => io.complain(notice) };
    const report = (await admin.work(path, { text }, heard).finally(progress.end)) as ImportReport;
    for (const { line, reason } of report.problems) io.complain(`line ${line}: ${reason}`);
    if (report.unknown_fields.length > 0)
      io.complain(`ignored unknown fields: ${report.unknown_fields.join(', ')}`);
    for (const warning of report.warnings) io.complain(`warning: ${warning}`);
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
    auth: {
      type: 'string',
      help: 'none, static_header, own_oauth or unknown; user_oauth goes with --provider',
    },
    provider: { type: 'string', help: 'acts for end users, with their account at this identity provider' },
    scopes: { type: 'string', help: 'comma-separated: what it needs of that account' },
    categories: { type: 'string', help: 'comma-separated' },
  },
  help: 'add one server with the tools it lists, or change or bring back the one of that id',
  changes: true,
  async run({ admin, io, args: [id = '', url = ''], options }) {
    const entry = entryFrom(await entryOf(admin, id), id, url, options);
    const heard = { onProgress: () => {}, onNotice: (notice: string) => io.complain(notice) };
    const report = (await admin.work(
      '/catalogue/import',
      { text: JSON.stringify(entry) },
      heard,
    )) as ImportReport;
    const [problem] = report.problems;
    if (problem) throw new UsageError(problem.reason);
    const { warnings } = report;
    for (const warning of warnings) io.complain(`warning: ${warning}`);
    if (actsForUsers(entry)) {
      const text = `Added ${id}. It acts for end users: its tools are not listed here.`;
      return { json: { id, added: true, tools: 0, warnings }, text };
    }
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
  const { name, description, transport, categories } = options;
  const given = {
    name,
    description,
    transport,
    auth: authFrom(options),
    categories: categories === undefined ? undefined : String(categories).split(','),
  };
  const onlyGiven = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const defaults = { name: id, description: name ?? id };
  const kept = known?.['remote_url'] === url ? known : { ...known, tools: [] };
  return { ...defaults, ...kept, ...onlyGiven, id, remote_url: url };
}

/** Such a server is called with a user's token, and commands act for no user. */
function actsForUsers(entry: Readonly<Record<string, unknown>>): boolean {
  const auth = entry['auth'] as { kind?: unknown; provider?: unknown } | undefined;
  return auth?.kind === 'user_oauth' && auth.provider !== undefined;
}

function authFrom({ auth, provider, scopes }: Invocation['options']) {
  if (provider === undefined) {
    if (scopes !== undefined) throw new UsageError('--scopes are those of a --provider');
    if (auth === 'user_oauth')
      throw new UsageError(
        '--auth user_oauth needs --provider: the identity provider whose tokens the server takes',
      );
    return auth === undefined ? undefined : { kind: auth };
  }
  if (auth !== undefined && auth !== 'user_oauth') throw new UsageError('--provider means --auth user_oauth');
  const wanted = scopes === undefined ? {} : { scopes: String(scopes).split(',') };
  return { kind: 'user_oauth', provider, ...wanted };
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
  changes: true,
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

const UNREADABLE: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'this user may not read it',
};

async function contentOf(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    throw new CommandFailed(`${file} could not be read: ${UNREADABLE[code] ?? message}.`);
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

export const catalogueCommands = {
  'catalogue import': catalogueImport,
  'catalogue add': catalogueAdd,
  'catalogue sync': catalogueSync,
  'catalogue probe': catalogueProbe,
  'catalogue deactivate': catalogueDeactivate,
  'catalogue show': catalogueShow,
};
