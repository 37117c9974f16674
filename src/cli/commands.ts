import { CommandFailed } from './admin-client.ts';
import { catalogueCommands } from './catalogue-commands.ts';
import { UsageError, type Command, type DatabaseCommand } from './command.ts';
import { databaseCommands } from './database-commands.ts';
import { keyCommands, tenantCommands } from './access-commands.ts';
import { connectionCommands } from './connection-commands.ts';
import { webhookCommands } from './webhook-commands.ts';

interface Found {
  servers: {
    id: string;
    name: string;
    description: string;
    final_score: number;
    deprecated?: true;
    health?: { status: string };
    access: { status: string };
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
        ...(access.status === 'connect'
          ? [`       needs a key or a sign-in: npx switchboard connect ${id}`]
          : []),
        ...(access.status === 'setup_needed'
          ? ['       cannot be called yet: the operator has to set up its sign-in']
          : []),
        ...(best.length === 0 ? [] : [`       tools: ${best.join(', ')}`]),
      ].join('\n');
    });
    return { json: found, text: blocks.length > 0 ? blocks.join('\n') : NOTHING_FITS };
  },
};

const call: Command = {
  args: ['SERVER', 'TOOL', 'JSON?'],
  help: 'Calls a tool with a JSON object of arguments. It needs no key and cannot act for an end user.',
  async run({ admin, args: [server = '', tool = '', json = '{}'] }) {
    const input = { server_id: server, name: tool, arguments: parseArguments(json) };
    const result = (await admin.request('POST', '/call', { json: input }).catch((error: unknown) => {
      throw withoutUser(error, server);
    })) as {
      content: { type: string; text?: string }[];
      isError: boolean;
    };
    const text = result.content.map(block => block.text ?? JSON.stringify(block)).join('\n');
    return { json: result, text, failed: result.isError };
  },
};

/** Replaces the advice to send a token, which a command cannot do. */
function withoutUser(error: unknown, server: string): unknown {
  if (!(error instanceof CommandFailed) || error.code !== 'identity_token_required') return error;
  return new CommandFailed(
    `${server} acts for end users, which the command line cannot do. Call it over the REST API or /mcp, with a user's identity token or a key from keys create --user.`,
    error.code,
  );
}

type Commands = Readonly<Record<string, Command | DatabaseCommand>>;

/** All commands by subject, in the order in which `--help` and docs/cli.md show them. */
export const COMMAND_GROUPS: Readonly<Record<string, Commands>> = {
  Keys: keyCommands,
  Connections: connectionCommands,
  Tenants: tenantCommands,
  Webhooks: webhookCommands,
  Catalogue: catalogueCommands,
  'Search and call': { search, call },
  Database: databaseCommands,
};

export const commands: Commands = Object.fromEntries(Object.values(COMMAND_GROUPS).flatMap(Object.entries));

/** @throws UsageError for anything but a JSON object */
function parseArguments(text: string): object {
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) return parsed;
  } catch {
    // Refused below.
  }
  throw new UsageError(
    `The arguments must be a JSON object, such as '{"message":"hi"}', not ${text}. Quote it for the shell.`,
  );
}
