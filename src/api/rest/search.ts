import { z } from 'zod';
import { knownTools } from '../../core/catalogue/tools/warnings.ts';
import { VERDICTS } from '../../core/feedback-types.ts';
import {
  endpoint,
  MIB,
  type Endpoint,
  queryText,
  searchLimit,
  serverId,
  wrongType,
} from '../http/endpoint.ts';
import { searchAnswer, withHint } from '../http/search-schemas.ts';

const COMMON = {
  method: 'post',
  tag: 'Search',
  scope: 'search',
  rateLimit: 'search',
  user: 'checked',
  maxBodyBytes: MIB,
} as const;

const searchBody = z.strictObject({
  query: queryText,
  limit: searchLimit,
  max_tools: z
    .int(wrongType('must be a whole number from 0 to 1000'))
    .min(0)
    .max(1000)
    .optional()
    .describe('The maximum number of tools to return per server, most relevant first. Absent: all.'),
  explain: z
    .boolean(wrongType('must be true or false'))
    .optional()
    .describe('true: `scores` also has meaning, words, use and reduction, of which final_score is made.'),
});

/** The best server of a search, in the body of what follows it. */
const BEST = {
  server_id: '$response.body#/servers/0/id',
  query_log_id: '$response.body#/metadata/query_log_id',
};

const search = endpoint({
  ...COMMON,
  path: '/v1/search',
  operationId: 'search',
  summary: 'Search the catalogue',
  description:
    'Ranks the active servers of the catalogue by meaning, keywords and usage. Tools are ordered by relevance. The list is empty when nothing in the ' +
    'catalogue matches: then search for a single step, as an action and its object ("create a calendar event"), or for a server by name.',
  quota: 'searches',
  errors: ['rate_limited', 'quota_exceeded', 'internal', 'unavailable'],
  bodySchema: searchBody,
  responseSchema: searchAnswer,
  links: {
    listTools: {
      operationId: 'listTools',
      description: 'Asks the best server itself for its tools.',
      requestBody: BEST,
    },
    callTool: {
      operationId: 'callTool',
      description: 'Calls the best tool of the best server. Its input_schema describes the arguments.',
      requestBody: { ...BEST, name: '$response.body#/servers/0/tools/0/name' },
    },
    searchFeedback: {
      operationId: 'searchFeedback',
      description: 'Says whether the best server helped.',
      requestBody: { ...BEST, outcome: 'helpful' },
    },
  },
  handle: async (core, caller, { body: { query, limit, max_tools, explain } }) => {
    const input = { query, limit, maxTools: max_tools, explain };
    return withHint(await core.search.search(caller, input));
  },
});

const searchFeedback = endpoint({
  ...COMMON,
  path: '/v1/search/feedback',
  operationId: 'searchFeedback',
  summary: 'Say whether a search result helped',
  description:
    'Records feedback on one server, or one of its tools, from a search of the last 30 days. A server that the search did not return, or a tool ' +
    'that the server is known not to have, is a 400. New feedback on the same search, server and tool replaces the old. Feedback has a small effect on later ' +
    'rankings, up to a cap for each tenant. Proxied calls that carry the query_log_id report automatically whether they worked.',
  errors: ['query_not_found', 'rate_limited'],
  bodySchema: z.strictObject({
    query_log_id: z
      .string(wrongType("must be a string: the query_log_id from a search's metadata"))
      .min(1)
      .max(64)
      .describe("The query_log_id from the search's metadata."),
    server_id: serverId,
    tool: z
      .string(wrongType("must be a string: the tool's name"))
      .min(1)
      .max(512)
      .optional()
      .describe(
        "The name of the tool that the feedback is about. Any name is accepted if the server's tools are not known. Absent: the whole server.",
      ),
    outcome: z
      .enum(VERDICTS)
      .describe(
        'helpful: it did what was searched for. not_helpful: it was relevant but did not help. irrelevant: it is unrelated to the search; this does not count against the server.',
      ),
  }),
  responseSchema: z.object({ success: z.literal(true) }),
  handle: async (core, caller, { body: { query_log_id, server_id, tool, outcome } }) => {
    await core.search.feedback(caller, {
      queryLogId: query_log_id,
      serverId: server_id,
      tool,
      knownTools: knownTools((await core.catalogue.read([server_id])).get(server_id)),
      outcome,
    });
    return { success: true };
  },
});

export const searchEndpoints: readonly Endpoint[] = [search, searchFeedback];
