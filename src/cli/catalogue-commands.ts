import { readFile } from 'node:fs/promises';
import { fetch } from 'undici';
import { sanitise } from '../platform/sanitize.ts';
import { CommandFailed, type AdminClient } from './admin-client.ts';
import { UsageError, type Command, type Invocation } from './command.ts';
import { plural, workProgress } from './terminal.ts';

interface ImportReport {
  imported: number;
  deactivated: number;
  problems: { line: number; reason: string }[];
  unknown_fields: string[];
  warnings: string[];
}

const catalogueImport: Command = {
  args: ['FILE|URL'],
  options: {
    replace: {
      type: 'boolean',
      help: 'Deactivates every server that is not in the file. Servers with a bad line stay unchanged.',
    },
  },
  help: 'Adds or updates servers from a [JSON Lines](catalogue.md#file-format) file. Returns once they are searchable.',
  changes: true,
  async run({ admin, io, args: [source = ''], options }) {
    const content = /^https?:\/\//.test(source) ? await download(source) : await contentOf(source);
    io.complain('Importing. Embedding new texts takes a while for thousands of tools.');
    const path = `/catalogue/import?replace=${options['replace'] === true}`;
    const report = (await admin.work(path, { text: content }, io, workProgress(io))) as ImportReport;
    for (const { line, reason } of report.problems) io.complain(`line ${line}: ${reason}`);
    if (report.unknown_fields.length > 0)
      io.complain(`ignored unknown fields: ${report.unknown_fields.map(name => sanitise(name)).join(', ')}`);
    for (const warning of report.warnings) io.complain(`warning: ${warning}`);
    const counts = [
      [report.deactivated, 'made inactive'],
      [report.problems.length, `bad ${plural(report.problems.length, 'line')} skipped`],
    ] as const;
    const failed = report.problems.length > 0 || report.imported === 0;
    const { imported } = report;
    const text = [`${imported} ${plural(imported, 'server')} imported`, ...counted(counts)].join(', ');
    return { json: report, text: `${text}.`, failed };
  },
};

/** Returns the non-zero counts with their labels. */
const counted = (counts: readonly (readonly [number, string])[]): string[] =>
  counts.flatMap(([count, what]) => (count === 0 ? [] : `${count} ${what}`));

const catalogueAdd: Command = {
  args: ['ID', 'URL'],
  options: {
    name: { type: 'string', help: 'Display name. Default: the id.' },
    description: {
      type: 'string',
      help: 'What a user can do with the server. Used by search. Default: the name.',
    },
    transport: { type: 'string', help: '`streamable-http` or `sse`. Default: detected.' },
    auth: {
      type: 'string',
      help: '`none`, `credentials`, `oauth` or `unknown`. For `provider`, use `--provider`.',
    },
    provider: {
      type: 'string',
      help: 'Identity provider whose accounts the server uses to act for end users.',
    },
    scopes: { type: 'string', help: 'Comma-separated scopes that the server needs.' },
    categories: { type: 'string', help: 'Comma-separated categories.' },
  },
  help: 'Adds, updates or reactivates a server, with the tools it lists. Omitted options stay unchanged.',
  changes: true,
  async run({ admin, io, args: [id = '', url = ''], options }) {
    const entry = entryFrom(await entryOf(admin, id), id, url, options);
    const body = { text: JSON.stringify(entry) };
    const report = (await admin.work('/catalogue/import', body, io)) as ImportReport;
    const [problem] = report.problems;
    if (problem) throw new UsageError(problem.reason);
    const { warnings } = report;
    for (const warning of warnings) io.complain(`warning: ${warning}`);
    if (actsForUsers(entry)) {
      const text = `Added ${id}. Its tools were not listed, because it acts for end users only.`;
      return { json: { id, added: true, tools: 0, warnings }, text };
    }
    try {
      const listed = await admin.request('POST', `/catalogue/${encodeURIComponent(id)}/tools`);
      const { tools } = listed as { tools: number };
      return {
        json: { id, added: true, tools },
        text: `Added ${id} with ${tools} ${plural(tools, 'tool')}.`,
      };
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      const text = `Added ${id} without its tools, which could not be listed: ${error.message}`;
      return { json: { id, added: true, tools: 0, problem: error.message }, text };
    }
  },
};

/** Returns the entry to import. Omitted fields stay unchanged; tools are kept only if the address stays the same. */
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

/** A server that acts for end users needs a user's token, which a command does not have. */
function actsForUsers(entry: Readonly<Record<string, unknown>>): boolean {
  const auth = entry['auth'] as { kind?: unknown; provider?: unknown } | undefined;
  return auth?.kind === 'user_oauth' && auth.provider !== undefined;
}

function authFrom({ auth, provider, scopes }: Invocation['options']) {
  if (provider === undefined) {
    if (scopes !== undefined) throw new UsageError('--scopes requires --provider');
    if (auth === 'user_oauth' || auth === 'provider')
      throw new UsageError(
        '--auth provider requires --provider: the identity provider whose tokens the server accepts',
      );
    return auth === undefined ? undefined : { kind: auth };
  }
  if (auth !== undefined && auth !== 'user_oauth' && auth !== 'provider')
    throw new UsageError('--provider implies --auth provider: omit --auth');
  const wanted = scopes === undefined ? {} : { scopes: String(scopes).split(',') };
  return { kind: 'user_oauth', provider, ...wanted };
}

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
  help: 'Deactivates a server: searches no longer find it, and calls return 410. `import` or `add` reactivates it.',
  changes: true,
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/catalogue/${encodeURIComponent(id)}/deactivate`);
    return { json, text: `Deactivated ${id}.` };
  },
};

const catalogueShow: Command = {
  args: ['ID'],
  help: 'Shows an entry. With `--json`, prints a line that `import` accepts.',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('GET', `/catalogue/${encodeURIComponent(id)}`);
    return { json, text: JSON.stringify(json, null, 2) };
  },
};

const UNREADABLE: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EISDIR: 'it is a folder',
  EACCES: 'permission denied',
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

interface SyncReport {
  registry: string;
  mode: 'full' | 'incremental';
  received: number;
  synced: number;
  deactivated: number;
  left: number;
  skipped: { deleted: number; no_remote: number; needs_configuration: number };
  problems: { name?: string; reason: string }[];
  bad: number;
  refused?: string;
}

/** The maximum number of problems shown for a sync; `--json` shows all. */
const MAX_PROBLEMS = 10;

const catalogueSync: Command = {
  args: ['URL'],
  options: {
    full: {
      type: 'boolean',
      help: 'Fetches all servers, not only those that changed since the last sync.',
    },
    force: {
      type: 'boolean',
      help: 'Syncs even if many servers would become inactive. Implies `--full`.',
    },
  },
  help: 'Imports the servers of a [registry](catalogue.md#registries), such as another Switchboard.',
  changes: true,
  async run({ admin, io, args: [url = ''], options }) {
    if (!/^https?:\/\//.test(url)) throw new UsageError(`${url} must be an http(s) URL`);
    const json = { url, full: options['full'] === true, force: options['force'] === true };
    io.complain('Syncing. Embedding new texts takes a while for thousands of servers.');
    const report = (await admin.work('/catalogue/sync', { json }, io, workProgress(io))) as SyncReport;
    for (const { name, reason } of report.problems.slice(0, MAX_PROBLEMS))
      io.complain(`${name ?? 'an entry'}: ${reason}`);
    return { json: report, text: textOfSync(report), failed: report.refused !== undefined };
  },
};

function textOfSync(report: SyncReport): string {
  const { refused, mode, received, synced, deactivated, left, skipped, bad } = report;
  if (refused !== undefined) return `Refused: ${refused}`;
  const more = counted([
    [deactivated, 'made inactive'],
    [
      left,
      'skipped (already present from the operator, the shipped catalogue or another registry, or inactive as unreachable)',
    ],
    [skipped.no_remote, 'without a remote address'],
    [skipped.needs_configuration, 'with variables that cannot be filled'],
    [skipped.deleted, 'deleted there'],
    [bad, bad === 1 ? 'bad entry skipped' : 'bad entries skipped'],
  ]);
  const listed = received === 1 ? '1 entry' : `${received} entries`;
  return `${[`${synced} ${plural(synced, 'server')} synced (${mode}, ${listed} listed)`, ...more].join(', ')}.`;
}

const catalogueReindex: Command = {
  args: [],
  help: 'Embeds all texts again. Needed after the [embedding API](search.md#embedding-with-an-api) has changed its model under the same name.',
  changes: true,
  async run({ admin, io }) {
    io.complain('Embedding all texts of the catalogue. This takes a while for thousands of tools.');
    const work = await admin.work('/catalogue/reindex', { json: {} }, io, workProgress(io));
    const { servers } = work as { servers: number };
    const text = `Reindexed ${servers} ${plural(servers, 'server')}. If other workers or processes use this database, restart them.`;
    return { json: { servers }, text };
  },
};

interface ProbeReport {
  visited: number;
  ok: number;
  needs_sign_in: number;
  not_mcp: number;
  unreachable: number;
  no_verdict: number;
  deactivated: number;
  reactivated: number;
  failing: { id: string; status: string; reason: string }[];
  doubted?: string;
}

/** The maximum number of failing servers shown; `--json` shows all. */
const MAX_FAILING = 20;

const catalogueProbe: Command = {
  args: ['ID*'],
  help: 'Runs a [health check](catalogue.md#health-checks) on all servers, or on those named.',
  changes: true,
  async run({ admin, io, args }) {
    const json = args.length === 0 ? {} : { ids: args };
    const display = workProgress(io, { what: 'servers checked' });
    const report = (await admin.work('/catalogue/probe', { json }, io, display)) as ProbeReport;
    return { json: report, text: textOfProbe(report), failed: report.doubted !== undefined };
  },
};

function textOfProbe(report: ProbeReport): string {
  const { visited, failing, doubted } = report;
  const counts = counted([
    [report.ok, 'ok'],
    [report.needs_sign_in, 'want a sign-in'],
    [report.not_mcp, 'no MCP'],
    [report.unreachable, 'unreachable'],
    [report.no_verdict, 'inconclusive (such as HTTP 429)'],
    [report.deactivated, 'made inactive'],
    [report.reactivated, 'active again'],
  ]);
  const more = failing.length - MAX_FAILING;
  return [
    `${visited} ${plural(visited, 'server')} checked: ${counts.join(', ') || 'none'}.`,
    ...failing.slice(0, MAX_FAILING).map(({ id, status, reason }) => `  ${id}: ${status}. ${reason}`),
    ...(more > 0 ? [`  and ${more} more. Use --json to list them.`] : []),
    ...(doubted === undefined ? [] : [`Doubted: ${doubted}.`]),
  ].join('\n');
}

export const catalogueCommands = {
  'catalogue import': catalogueImport,
  'catalogue add': catalogueAdd,
  'catalogue sync': catalogueSync,
  'catalogue reindex': catalogueReindex,
  'catalogue probe': catalogueProbe,
  'catalogue deactivate': catalogueDeactivate,
  'catalogue show': catalogueShow,
};
