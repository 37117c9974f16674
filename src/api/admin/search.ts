import { z } from 'zod';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { UPSTREAM_ERRORS } from '../../errors.ts';
import {
  endpoint,
  jsonObject,
  MIB,
  queryText,
  searchLimit,
  serverId,
  type Endpoint,
} from '../http/endpoint.ts';
import { scores, searchAnswer, withHint } from '../http/search-schemas.ts';
import { ADMIN, ADMIN_READ, CALL_ERRORS } from './fields.ts';

const about = z.object({
  server_id: z.string(),
  outcome: z
    .enum(['shown', 'below_limit', 'not_a_candidate', 'unanswerable', 'inactive', 'unreachable', 'unknown'])
    .describe(
      'shown: it is in the answer. below_limit: it ranks lower. not_a_candidate: others match better by words and by meaning. unanswerable: nothing in the catalogue seems to serve the query, so that the answer is empty. inactive, unreachable: it was deactivated, by an operator or by health checks. unknown: no server has the id.',
    ),
  detail: z.string().describe('The outcome as a sentence, with what can be done.'),
  rank: z.int().nullable().describe('Its place in the whole ranking; 1 is the first.'),
  candidates: z.int().describe('The number of servers in the whole ranking.'),
  final_score: z.number().nullable(),
  scores: scores.nullable().describe('The parts of its score, or of the score that it would have.'),
  dead: z.boolean().describe('Three health checks in a row failed, which halves its score.'),
  deprecated: z.boolean().describe('Its registry advises against it, which takes a fifth of its score.'),
});

const search = endpoint({
  ...ADMIN_READ,
  method: 'post',
  path: '/search',
  operationId: 'explainSearch',
  summary: 'Try a search',
  description:
    'As POST /v1/search, for the tenant local. With about, it also says how one server ranks, or why it is not in the answer.',
  errors: ['unavailable'],
  bodySchema: z.strictObject({
    query: queryText,
    limit: searchLimit,
    max_tools: z.int().min(0).max(1000).optional().describe('Tools at most per server. Absent: all.'),
    explain: z.boolean().optional().describe('true: shows the parts of the scores.'),
    about: serverId.optional().describe('A server, to learn why it is or is not in the answer.'),
  }),
  responseSchema: searchAnswer.extend({ about: about.optional() }),
  handle: async (core, caller, { body: { max_tools: maxTools, about: id, ...asked } }) => {
    const answer = await core.search.search(caller, { ...asked, maxTools });
    return {
      ...withHint(answer),
      ...(id === undefined ? {} : { about: await aboutServer(core, caller, { ...asked, id }) }),
    };
  },
});

async function aboutServer(
  core: Core,
  caller: Caller,
  { id, query, limit }: { readonly id: string; readonly query: string; readonly limit: number },
) {
  const head = core.catalogue.get(id);
  const unranked = {
    rank: null,
    candidates: 0,
    final_score: null,
    scores: null,
    dead: false,
    deprecated: false,
  };
  if (!head) return { server_id: id, ...outcomeOf('unknown'), ...unranked };
  if (!head.active)
    return { server_id: id, ...outcomeOf(head.unreachable ? 'unreachable' : 'inactive'), ...unranked };
  const standing = await core.search.standingOf(caller, query, id);
  const { rank = null, of, own, isDead, isDeprecated } = standing;
  return {
    server_id: id,
    ...outcomeOf(outcomeAt(standing, limit)),
    rank,
    candidates: of,
    final_score: own?.final_score ?? null,
    scores: own?.scores ?? null,
    dead: isDead,
    deprecated: isDeprecated,
  };
}

function outcomeAt(
  { rank, isAnswerable }: { readonly rank: number | undefined; readonly isAnswerable: boolean },
  limit: number,
): keyof typeof DETAILS {
  if (rank !== undefined) return rank <= limit ? 'shown' : 'below_limit';
  return isAnswerable ? 'not_a_candidate' : 'unanswerable';
}

const outcomeOf = (outcome: keyof typeof DETAILS) => ({ outcome, detail: DETAILS[outcome] });

const DETAILS = {
  shown: 'The server is in the answer.',
  below_limit: 'The server ranks below the limit. Compare its scores with those of the servers above it.',
  not_a_candidate:
    'Many other servers are nearer to the query, by words and by meaning. A description or tools that name the task would help.',
  unanswerable:
    'Nothing in the catalogue seems to serve this query, so that no server is returned. The scores show what this one would have had.',
  inactive: 'The server is inactive. Activate it to have it found.',
  unreachable:
    'Health checks deactivated the server because it was unreachable for 30 days. A successful check reactivates it.',
  unknown: 'No server of the catalogue has this id.',
} as const;

const call = endpoint({
  ...ADMIN,
  method: 'post',
  path: '/call',
  operationId: 'tryCall',
  summary: 'Try a call',
  description:
    'Calls a tool for the tenant local and for no user, to see whether it works. The call counts towards no quota.',
  maxBodyBytes: 4 * MIB,
  errors: ['invalid_params', ...CALL_ERRORS, ...UPSTREAM_ERRORS],
  bodySchema: z.strictObject({
    server_id: serverId,
    name: z.string().min(1).max(1024).describe("The tool's name."),
    arguments: jsonObject.default({}).describe('The arguments, as its schema defines them.'),
  }),
  responseSchema: z.looseObject({ content: z.array(jsonObject), isError: z.boolean() }),
  handle: ({ proxy }, caller, { body: { server_id, name, arguments: args } }) =>
    proxy.callTool(caller, { serverId: server_id, name, arguments: args }),
});

export const searchEndpoints: readonly Endpoint[] = [search, call];
