import { catalogueCommands } from './catalogue-commands.ts';
import { UsageError, type Command, type DatabaseCommand } from './command.ts';
import { databaseCommands } from './database-commands.ts';
import { keyCommands, tenantCommands } from './access-commands.ts';
import { connectionCommands } from './connection-commands.ts';
import { toolCommands } from './tool-commands.ts';
import { webhookCommands } from './webhook-commands.ts';

interface Found {
  servers: {
    id: string;
    name: string;
    description: string;
    final_score: number;
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
  args: ['QUERY'],
  options: { limit: { type: 'string', help: 'How many servers to show, 1 to 50. Default: 10.' } },
  help: 'Searches the catalogue.',
  async run({ admin, args: [query = ''], options }) {
    const limit = options['limit'];
    if (limit !== undefined && !/^\d+$/.test(String(limit)))
      throw new UsageError('--limit must be a whole number from 1 to 50');
    const json = { query, ...(limit === undefined ? {} : { limit: Number(limit) }) };
    const found = (await admin.request('POST', '/search', { json })) as Found;
    const blocks = found.servers.map(server => {
      const { id, name, description, final_score, deprecated, health, access, tools } = server;
      const state = health === undefined || health.status === 'ok' ? '' : `, ${health.status}`;
      const best = tools.slice(0, 3).map(tool => tool.name);
      return [
        `${final_score.toFixed(3)}  ${id} (${name}) [${access.status}]${deprecated ? ', deprecated' : ''}${state}`,
        `       ${description}`,
        ...needsOf(server).map(need => `       ${need}`),
        ...(best.length === 0 ? [] : [`       tools: ${best.join(', ')}`]),
      ].join('\n');
    });
    return { json: found, text: blocks.length > 0 ? blocks.join('\n') : NOTHING_FITS };
  },
};

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

type Commands = Readonly<Record<string, Command | DatabaseCommand>>;

/** All commands by subject, in the order in which `--help` and docs/cli.md show them. */
export const COMMAND_GROUPS: Readonly<Record<string, Commands>> = {
  Keys: keyCommands,
  Connections: connectionCommands,
  Tenants: tenantCommands,
  Webhooks: webhookCommands,
  Catalogue: catalogueCommands,
  'Search and call': { search, ...toolCommands },
  Database: databaseCommands,
};

export const commands: Commands = Object.fromEntries(Object.values(COMMAND_GROUPS).flatMap(Object.entries));
