import { z } from 'zod';
import { jsonObject, queryText, searchLimit, wrongType } from '../../input.ts';
import { endpoint, MIB } from '../endpoint.ts';
import { warnings } from './shared.ts';

const searchBody = z.strictObject({
  query: queryText,
  limit: searchLimit,
  max_tools: z
    .int(wrongType('must be a whole number from 0 to 1000'))
    .min(0)
    .max(1000)
    .optional()
    .describe('At most this many tools a server, the most relevant first. Absent: all.'),
});

const foundTool = z.object({
  name: z.string(),
  description: z.string(),
  input_schema: jsonObject,
  warnings,
});

const foundServer = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  remote_url: z.string(),
  tools: z.array(foundTool),
  scores: z.object({
    semantic: z
      .number()
      .min(0)
      .max(1)
      .describe(
        'How likely a server found with this meaning is relevant (with an embedding API: the cosine).',
      ),
    popularity: z.number().min(0).max(1),
  }),
  final_score: z.number(),
});

const searchAnswer = z.object({
  servers: z.array(foundServer).describe('Ranked, best first.'),
  metadata: z.object({
    latency_ms: z.int(),
    cache_hit: z.boolean(),
    total_candidates: z.int(),
    query_log_id: z.string(),
  }),
});

export const search = endpoint({
  method: 'post',
  path: '/v1/search',
  operationId: 'search',
  tag: 'Search',
  summary: 'Search the catalogue',
  description:
    'Ranks the active servers of the catalogue by meaning, words and use. Tools are ordered by relevance. An empty list: nothing in the catalogue fits.',
  scope: 'search',
  rateClass: 'search',
  maxBodyBytes: MIB,
  errors: ['rate_limited', 'internal', 'unavailable'],
  bodySchema: searchBody,
  responseSchema: searchAnswer,
  handle: (core, caller, { query, limit, max_tools }) =>
    core.search.search(caller, { query, limit, ...(max_tools === undefined ? {} : { maxTools: max_tools }) }),
});
