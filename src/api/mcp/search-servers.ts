import { readDefinitions } from '../../core/catalogue/tools/definitions.ts';
import { RESERVED_SERVER_ID, type Access, type Server } from '../../core/catalogue/entry.ts';
import { warningsOf } from '../../core/catalogue/tools/warnings.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import type { ListedTool } from '../../core/proxy/proxy.ts';
import type { Described } from '../../core/search/documents.ts';
import type { FoundServer } from '../../core/search/search.ts';
import { fitting, quoted } from '../../platform/sanitize.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { isOwnServer, OWN_TOOLS } from './own-server.ts';
import {
  addTool,
  MAX_DESCRIPTION_CHARS,
  MAX_NAME_CHARS,
  shorten,
  type ShownServer,
  type ToolToShow,
} from './shown.ts';
import type { SearchServersOutput } from './tools.ts';

/** Limits a result to about 2,000 tokens: a token is roughly 3.5 characters of JSON. */
const MAX_CHARACTERS = 7_000;
const TOOLS_PER_SERVER = 5;
/** Shows a server's tools whose relevance is at least this share of its best one's. */
const NEAR_BEST = 0.75;
const MAX_STATUS_MESSAGE = 100;
/** The characters of a server without its description: id, name, scores, access and the surrounding JSON. */
const WITHOUT_DESCRIPTION = 320;

const NOTHING_FITS =
  'No server in the catalogue matches. If a service could do this, search again in English for a single step, as an action and its object ("create a calendar event"), without names, places or numbers, or search for a service by name. Otherwise answer without a server. Do not call a server that no search returned.';
const NOT_LISTED = 'To list more tools of a server, call search_servers with its server_id.';
/** Hints on the kinds of access that keep a call from its server. */
const ACCESS_HINTS = {
  connect: 'connect: the server needs an account or a key first; a call returns how to connect it.',
  setup_needed: 'setup_needed: the server cannot be called from here yet.',
} as const;

const accessHints = (statuses: ReadonlySet<unknown>): string[] =>
  Object.entries(ACCESS_HINTS).flatMap(([status, hint]) => (statuses.has(status) ? [hint] : []));

interface Found {
  readonly answer: SearchServersOutput;
  readonly queryLogId: string;
}

/**
 * Runs the REST search and reduces its result for an agent's context: every server first, then tools in rounds (the best tool
 * of each server, then the second best, …) with their schemas, until the limit is reached.
 */
export async function searchServers(
  core: Core,
  caller: Caller,
  input: { query: string; limit: number },
): Promise<Found> {
  const { servers, metadata } = await core.search.search(caller, { ...input, nearBest: NEAR_BEST });
  const shown = servers.map((server): ShownServer => {
    const { id, name, description, final_score, access, deprecated, status_message, health } = server;
    return {
      id,
      name: shorten(name, MAX_NAME_CHARS),
      description: shorten(description, maxDescription(servers)),
      final_score: Math.round(final_score * 100) / 100,
      access: access.status,
      ...(deprecated === undefined ? {} : { deprecated }),
      ...(status_message === undefined
        ? {}
        : { status_message: shorten(status_message, MAX_STATUS_MESSAGE) }),
      ...(health === undefined || health.status === 'ok' ? {} : { health: health.status }),
      tools: [],
      more_tools: core.catalogue.get(id)?.toolCount ?? 0,
    };
  });
  const hint = hintOn(servers);
  const answer: SearchServersOutput = { servers: shown, ...(hint === undefined ? {} : { hint }) };
  let left = MAX_CHARACTERS - JSON.stringify(answer).length;
  for (let round = 0; round < TOOLS_PER_SERVER; round++)
    for (const [at, server] of shown.entries())
      left -= addTool(server.tools, servers[at]?.tools[round], left);
  for (const server of shown) {
    const more = (server.more_tools ?? 0) - server.tools.length;
    if (more > 0) server.more_tools = more;
    else delete server.more_tools;
  }
  return { answer, queryLogId: metadata.query_log_id };
}

function hintOn(servers: readonly FoundServer[]): string | undefined {
  if (servers.length === 0) return NOTHING_FITS;
  const hints = [
    ...(servers.some(({ tools }) => tools.length === 0) ? [NOT_LISTED] : []),
    ...accessHints(new Set(servers.map(({ access }) => access.status))),
  ];
  return hints.length === 0 ? undefined : hints.join(' ');
}

/** Returns the maximum length of a description: the more servers, the shorter. */
const maxDescription = (servers: readonly unknown[]) =>
  Math.max(
    30,
    Math.min(MAX_DESCRIPTION_CHARS, Math.floor(MAX_CHARACTERS / servers.length) - WITHOUT_DESCRIPTION),
  );

/** Limits the listing of one server to about 3,000 tokens: more than for a search, because the server was requested explicitly. */
const MAX_LISTING_CHARACTERS = 10_000;
/** Characters reserved for the names of tools shown without schemas. */
const MAX_NAMES_CHARACTERS = 3_000;
/** How long a server may take to list its tools, in milliseconds: an exploring agent should not wait long. */
const LIST_MS = 15_000;

/** Errors that occur before a server that acts for users is called. */
const SIGN_IN: ReadonlySet<ErrorCode> = new Set([
  'connection_required',
  'identity_token_required',
  'provider_not_configured',
]);

interface Asked {
  readonly serverId: string;
  readonly query: string | undefined;
  /** The client's timeout, in milliseconds. */
  readonly timeoutMs: number | undefined;
}

/**
 * Returns the current tools of one server with their schemas: the best for the query first, otherwise in the server's order.
 * If the server does not respond, returns the tools known from the catalogue.
 * @throws SwitchboardError `server_not_found`, `server_inactive`; the error of the listing if no tools are known
 */
export async function toolsOfServer(
  core: Core,
  caller: Caller,
  { serverId, query, timeoutMs }: Asked,
): Promise<SearchServersOutput> {
  const { server, access, tools, problem } = isOwnServer(serverId)
    ? ownServer()
    : await listed(core, { ...caller, timeoutMs: Math.min(timeoutMs ?? LIST_MS, LIST_MS) }, serverId);
  const order = query === undefined ? tools.keys() : await orderOf(core, caller, query, { ...server, tools });
  const ordered = [...order].flatMap(position => tools[position] ?? []);
  const shown: ShownServer = {
    id: server.id,
    name: shorten(server.name, MAX_NAME_CHARS),
    description: shorten(server.description, MAX_DESCRIPTION_CHARS),
    ...(access === undefined ? {} : { access }),
    tools: [],
  };
  let left = MAX_LISTING_CHARACTERS - MAX_NAMES_CHARACTERS - JSON.stringify(shown).length;
  const others: string[] = [];
  for (const tool of ordered) {
    const used = others.length > 0 ? 0 : addTool(shown.tools, tool, left);
    left -= used;
    if (used === 0) others.push(tool.name);
  }
  const names = fitting(others, MAX_NAMES_CHARACTERS, '"",'.length);
  if (names.length > 0) shown.other_tools = names;
  if (others.length > 0) shown.more_tools = others.length;
  const hint = listingHintOn({ problem, access, hasOthers: others.length > 0, isEmpty: tools.length === 0 });
  return { servers: [shown], ...(hint === '' ? {} : { hint }) };
}

const listingHintOn = ({
  problem = '',
  access,
  hasOthers,
  isEmpty,
}: Pick<Listed, 'problem' | 'access'> & { hasOthers: boolean; isEmpty: boolean }): string =>
  [
    problem,
    ...accessHints(new Set([access])),
    hasOthers ? 'To see the schemas of other tools, repeat this call with a different query.' : '',
    isEmpty ? 'The server lists no tools.' : '',
  ]
    .filter(hint => hint !== '')
    .join(' ');

/**
 * Orders tools by relevance. Tools that cannot be ranked keep the server's order, so that the listing never fails for this reason.
 */
const orderOf = (core: Core, caller: Caller, query: string, server: Described): Promise<Iterable<number>> =>
  core.search.orderTools(caller, query, server).catch((error: unknown) => {
    if (caller.signal.aborted) throw error;
    return server.tools.keys();
  });

interface Listed {
  readonly server: Pick<Server, 'id' | 'name' | 'description'>;
  /** Absent: it is Switchboard itself. */
  readonly access?: Access['status'] | undefined;
  readonly tools: readonly ToolToShow[];
  /** Why the tools may be out of date. */
  readonly problem?: string | undefined;
}

async function listed(core: Core, caller: Caller, serverId: string): Promise<Listed> {
  const server = await core.catalogue.readActive(serverId);
  const access = (await core.identity.accessFor(caller))(server).status;
  try {
    const { tools } = await core.proxy.listTools(caller, { serverId });
    return { server, access, ...(await readListed(tools)) };
  } catch (error) {
    // The known tools are useful even without the account that the server requires.
    const isOut = error instanceof SwitchboardError && (error.isUpstreamFailure || SIGN_IN.has(error.code));
    if (!isOut || server.tools.length === 0) throw error;
    const tools = server.tools.map(tool => ({ ...tool, warnings: warningsOf(tool, Date.now()) }));
    const { auth_url: link } = error.members;
    const where = typeof link === 'string' ? ` auth_url: ${link}` : '';
    const problem = `These tools may be out of date, because the server could not list them: ${error.detail}${where}`;
    return { server, access, tools, problem };
  }
}

/** Processes tools like the catalogue: cleaned, with warnings, and without oversized or invalid ones. */
async function readListed(sent: readonly ListedTool[]): Promise<Pick<Listed, 'tools' | 'problem'>> {
  const { tools, leftOut } = await readDefinitions(sent);
  const changed = new Set(sent.filter(hasChanged).map(({ name }) => name));
  const shown = tools.map((tool): ToolToShow => {
    const warnings = warningsOf(tool, Date.now());
    if (changed.has(tool.name)) warnings.unshift('definition_changed');
    return Object.assign(tool, { warnings });
  });
  if (leftOut.length === 0) return { tools: shown };
  const [{ tool, reason }] = leftOut as [(typeof leftOut)[number]];
  return {
    tools: shown,
    problem: `${leftOut.length} ${leftOut.length === 1 ? 'tool was' : 'tools were'} left out, such as ${quoted(tool)} (${reason}).`,
  };
}

const hasChanged = ({ warnings }: ListedTool): boolean =>
  Array.isArray(warnings) && warnings.includes('definition_changed');

const ownServer = (): Listed => ({
  server: {
    id: RESERVED_SERVER_ID,
    name: 'Switchboard',
    description: 'Returns the next part of truncated results.',
  },
  tools: OWN_TOOLS.map(({ name, description = '', inputSchema, annotations }) => ({
    name,
    description,
    input_schema: inputSchema,
    annotations,
  })),
});
