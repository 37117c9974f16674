import type { Caller } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import type { SearchServersOutput } from './tools.ts';

/** About 2,000 tokens of JSON (a token is roughly 3.5 characters of it). */
const MAX_CHARACTERS = 7_000;
const TOOLS_PER_SERVER = 5;
const MAX_DESCRIPTION = 400;
const MAX_NAME = 80;
const MAX_STATUS_MESSAGE = 100;
/** Ids, names, scores and the JSON around them. */
const WITHOUT_DESCRIPTION = 300;

const NOTHING_FITS =
  'No server of the catalogue fits. If a service could do it, search again in English for one step at a time, as an action and its object ("create a calendar event"), without the people, places and figures of this case, or by the name of a service. Otherwise answer without a server; do not call one that was not found.';

/**
 * The REST search, cut to what an agent's context can bear: every server first, then tools in rounds (the best tool of
 * each server, then the second best, …) with their schemas, until the answer is full.
 */
export async function searchServers(
  core: Core,
  caller: Caller,
  input: { query: string; limit: number },
): Promise<SearchServersOutput> {
  const { servers, metadata } = await core.search.search(caller, input);
  const answer: SearchServersOutput = {
    servers: servers.map(server => ({
      id: server.id,
      name: shorten(server.name, MAX_NAME),
      description: shorten(server.description, maxDescription(servers)),
      final_score: server.final_score,
      ...(server.deprecated === undefined ? {} : { deprecated: server.deprecated }),
      ...(server.status_message === undefined
        ? {}
        : { status_message: shorten(server.status_message, MAX_STATUS_MESSAGE) }),
      ...(server.health === undefined || server.health.status === 'ok'
        ? {}
        : { health: server.health.status }),
      tools: [],
      more_tools: server.tools.length,
    })),
    total_candidates: metadata.total_candidates,
    query_log_id: metadata.query_log_id,
  };
  if (servers.length === 0) answer.hint = NOTHING_FITS;
  else if (servers.some(server => server.tools.length === 0))
    answer.hint =
      'Where tools is empty and more_tools 0, the tools are not known yet: call_remote_tool with any tool_name answers with their names, unless the server wants a sign-in first.';
  let used = JSON.stringify(answer).length;
  for (let round = 0; round < TOOLS_PER_SERVER; round++) {
    for (const [at, server] of servers.entries()) {
      const tool = server.tools[round];
      const target = answer.servers[at];
      if (!tool || !target) continue;
      const whole = {
        name: tool.name,
        description: shorten(tool.description, MAX_DESCRIPTION),
        input_schema: tool.input_schema,
        ...(tool.warnings === undefined ? {} : { warnings: [...tool.warnings] }),
      };
      const { input_schema: _left, ...bare } = whole;
      const chosen = [whole, bare].find(form => used + JSON.stringify(form).length < MAX_CHARACTERS);
      if (!chosen) continue;
      used += JSON.stringify(chosen).length + 1;
      target.tools.push(chosen);
      target.more_tools--;
    }
  }
  return answer;
}

/** The more servers, the less of each. */
const maxDescription = (servers: readonly unknown[]) =>
  Math.max(30, Math.min(MAX_DESCRIPTION, Math.floor(MAX_CHARACTERS / servers.length) - WITHOUT_DESCRIPTION));

const shorten = (text: string, max: number) =>
  text.length <= max ? text : `${text.slice(0, max - 1).toWellFormed()}…`;
