import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import type { FoundServer } from '../../core/search/present.ts';
import { addTool, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, shorten, type ShownServer } from './shown-tools.ts';
import type { SearchServersOutput } from './tools.ts';

/** About 2,000 tokens of JSON (a token is roughly 3.5 characters of it). */
const MAX_CHARACTERS = 7_000;
const TOOLS_PER_SERVER = 5;
/** Shows a server's tools whose relevance is at least this share of its best one's. */
const NEAR_BEST = 0.75;
const MAX_STATUS_MESSAGE = 100;
/** A server without its description: id, name, scores and the JSON around them. */
const WITHOUT_DESCRIPTION = 300;

const NOTHING_FITS =
  'No server of the catalogue fits. If a service could do it, search again in English for one step at a time, as an action and its object ("create a calendar event"), without the people, places and figures of this case, or by the name of a service. Otherwise answer without a server; do not call one that was not found.';
const NOT_LISTED = 'search_servers with server_id lists tools that are not shown.';
export const SETUP_NEEDED = 'setup_needed: cannot be called from here yet.';

interface Found {
  readonly answer: SearchServersOutput;
  readonly queryLogId: string;
}

/**
 * The REST search, cut to what an agent's context can bear: every server first, then tools in rounds (the best tool of
 * each server, then the second best, …) with their schemas, until the answer is full.
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
      ...(access.status === 'setup_needed' ? { access: access.status } : {}),
      ...(deprecated === undefined ? {} : { deprecated }),
      ...(status_message === undefined
        ? {}
        : { status_message: shorten(status_message, MAX_STATUS_MESSAGE) }),
      ...(health === undefined || health.status === 'ok' ? {} : { health: health.status }),
      tools: [],
      more_tools: core.catalogue.get(id)?.tools.length ?? 0,
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
    servers.some(({ tools }) => tools.length === 0) ? NOT_LISTED : undefined,
    servers.some(({ access }) => access.status === 'setup_needed') ? SETUP_NEEDED : undefined,
  ].filter(hint => hint !== undefined);
  return hints.length === 0 ? undefined : hints.join(' ');
}

/** The more servers, the less of each. */
const maxDescription = (servers: readonly unknown[]) =>
  Math.max(
    30,
    Math.min(MAX_DESCRIPTION_CHARS, Math.floor(MAX_CHARACTERS / servers.length) - WITHOUT_DESCRIPTION),
  );
