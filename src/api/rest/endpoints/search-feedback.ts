import { z } from 'zod';
import { knownTools } from '../../../core/catalogue/tools/known.ts';
import { VERDICTS } from '../../../core/feedback-types.ts';
import { wrongType } from '../../http/input.ts';
import { endpoint, MIB } from '../endpoint.ts';
import { serverId } from './shared.ts';

export const searchFeedback = endpoint({
  method: 'post',
  path: '/v1/search/feedback',
  operationId: 'searchFeedback',
  tag: 'Search',
  summary: 'Say whether a search result helped',
  description:
    'Notes a verdict on one server (or one of its tools) that a search of the last 30 days has found; a server that was not in its answer, or a ' +
    'tool that the server is known not to have, is 400. Of the same search, server and tool the ' +
    'last verdict holds. It counts a little in later rankings, each tenant up to a cap. Proxied calls that carry the query_log_id say by ' +
    'themselves whether they worked.',
  scope: 'search',
  rateClass: 'search',
  maxBodyBytes: MIB,
  errors: ['query_not_found', 'rate_limited'],
  bodySchema: z.strictObject({
    query_log_id: z
      .string(wrongType("must be a string: the query_log_id of a search's metadata"))
      .min(1)
      .max(64)
      .describe("The query_log_id of the search's metadata."),
    server_id: serverId,
    tool: z
      .string(wrongType("must be a string: the tool's name"))
      .min(1)
      .max(512)
      .optional()
      .describe(
        'The tool that the verdict is on, by a name that the server has (any, where its tools are not known). Absent: the server as a whole.',
      ),
    outcome: z
      .enum(VERDICTS)
      .describe(
        'helpful: it did what the search was for. not_helpful: it was to the point and did not. irrelevant: it has nothing to do with the search; this does not count against the server.',
      ),
  }),
  responseSchema: z.object({ success: z.literal(true) }),
  handle: async (core, caller, { query_log_id, server_id, tool, outcome }) => {
    await core.search.feedback(caller, {
      queryLogId: query_log_id,
      serverId: server_id,
      tool,
      knownTools: knownTools(core.catalogue.get(server_id)),
      outcome,
    });
    return { success: true };
  },
});
