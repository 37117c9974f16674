import { z } from 'zod';
import { VERDICTS } from '../../../core/outcomes.ts';
import { endpoint, MIB } from '../endpoint.ts';
import { serverId } from './shared.ts';

export const searchFeedback = endpoint({
  method: 'post',
  path: '/v1/search/feedback',
  operationId: 'searchFeedback',
  tag: 'Search',
  summary: 'Say whether a search result helped',
  description:
    'Notes a verdict on one server (or one of its tools) that a search of the last 30 days has found. Of the same search, server and tool the ' +
    'last verdict holds. It counts a little in later rankings, each tenant up to a cap. Proxied calls that carry the query_log_id say by ' +
    'themselves whether they worked.',
  scope: 'search',
  rateClass: 'search',
  maxBodyBytes: MIB,
  errors: ['query_not_found', 'rate_limited'],
  bodySchema: z.strictObject({
    query_log_id: z
      .string("must be a string: the query_log_id of a search's metadata")
      .min(1, 'must not be empty')
      .max(64, 'must have at most 64 characters')
      .describe("The query_log_id of the search's metadata."),
    server_id: serverId,
    tool: z
      .string("must be a string: the tool's name")
      .min(1, 'must not be empty')
      .max(512, 'must have at most 512 characters')
      .optional()
      .describe('The tool that the verdict is on. Absent: the server as a whole.'),
    outcome: z
      .enum(VERDICTS, `must be one of ${VERDICTS.join(', ')}`)
      .describe(
        'helpful: it did what the search was for. not_helpful: it was to the point and did not. irrelevant: it has nothing to do with the search; this does not count against the server.',
      ),
  }),
  responseSchema: z.object({ success: z.literal(true) }),
  handle: async (core, caller, { query_log_id, server_id, tool, outcome }) => {
    await core.search.feedback(caller, { queryLogId: query_log_id, serverId: server_id, tool, outcome });
    return { success: true };
  },
});
