import { z } from 'zod';
import { isObject, JsonParts } from '../../platform/json/limits.ts';
import { SwitchboardError, UPSTREAM_ERRORS } from '../../errors.ts';
import {
  checkReadOrFind,
  endpoint,
  findText,
  jsonObject,
  KIB,
  MIB,
  queryLogId,
  queryNumber,
  serverId,
  toolWarnings,
  wrongType,
  type Endpoint,
} from '../http/endpoint.ts';
import { isRpcId } from '../http/render-error.ts';
import {
  DEFAULT_READ_CHARS,
  MAX_READ_CHARS,
  type FoundLines,
  type KeptPart,
} from '../../core/results/results.ts';

const COMMON = {
  method: 'post',
  tag: 'Proxy',
  scope: 'proxy',
  rateLimit: 'proxy',
  quota: 'calls',
  user: 'by-call',
  maxBodyBytes: 4 * MIB,
  cache: 'no-store',
  timeoutHeader: true,
} as const;

const SERVER_ERRORS = [
  'identity_token_required',
  'identity_token_invalid',
  'connection_required',
  'operator_setup_needed',
  'server_not_found',
  'server_inactive',
  'rate_limited',
  'quota_exceeded',
  'provider_not_configured',
  'unavailable',
] as const;

const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });

const BAD_ID =
  'must be a string of at most 1024 characters or a number; send whole numbers above 2^53 - 1 as strings';

const SAFE_RANGE = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER };

const mcpCall = endpoint({
  ...COMMON,
  path: '/v1/mcp/call',
  operationId: 'mcpCall',
  summary: 'Call any JSON-RPC method of a server',
  description:
    'Forwards one JSON-RPC request to a catalogued MCP server and returns its response, result or error, with HTTP 200. ' +
    'A failure to reach the server (timeout, refused connection, invalid response) is also a 200, with error.code ' +
    '-32000 and error.data {origin, reason, retryable, retry_after}. A tool of a 2026-07-28 server may ask for input. Declare what you can ' +
    'answer in params._meta["io.modelcontextprotocol/clientCapabilities"], such as {"elicitation":{"form":{}}}. On a result with ' +
    'resultType "input_required" repeat the call with inputResponses (a reply for each key of inputRequests) ' +
    'and the unchanged requestState in params. The body of every other error is both problem details and a ' +
    'JSON-RPC error.',
  errors: ['invalid_params', ...SERVER_ERRORS],
  bodySchema: z.strictObject({
    server_id: serverId,
    method: z
      .string(
        wrongType(
          'must be a string: a JSON-RPC method, such as tools/list. To call a tool by its name, use POST /v1/mcp/tools/call',
        ),
      )
      .min(1)
      .max(256)
      .meta({ examples: ['tools/list'] }),
    // Validated by the handler, because JSON-RPC has its own error code for it.
    params: z.unknown().optional().meta({ type: 'object' }),
    id: z
      .union([z.string().max(1024, BAD_ID), z.number().refine(isRpcId, BAD_ID).meta(SAFE_RANGE)], BAD_ID)
      .default(1),
    jsonrpc: z.literal('2.0').optional(),
    query_log_id: queryLogId,
  }),
  responseSchema: z.object({
    jsonrpc: z.literal('2.0'),
    id: z.union([z.string(), z.number()]),
    result: z.unknown().optional(),
    error: rpcError.optional(),
  }),
  handle: async (core, caller, { body: { server_id, method, params, id, query_log_id } }) => {
    if (params !== undefined && !isObject(params))
      throw new SwitchboardError('invalid_params', 'params: must be an object');
    const input = {
      serverId: server_id,
      queryLogId: query_log_id,
      method,
      ...(params === undefined ? {} : { params }),
    };
    const answer = await core.proxy.call(caller, input);
    if (!('result' in answer && answer.large)) return { jsonrpc: '2.0', id, ...answer };
    const { parts } = answer.large.json;
    return new JsonParts(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`, ...parts, '}');
  },
});

const toolsCall = endpoint({
  ...COMMON,
  path: '/v1/mcp/tools/call',
  operationId: 'callTool',
  summary: 'Call one tool of a server',
  description:
    'Runs a tool and returns its result. If the tool reports a failure, the response is a 200 with isError true.',
  errors: ['invalid_params', ...SERVER_ERRORS, ...UPSTREAM_ERRORS],
  bodySchema: z.strictObject({
    server_id: serverId,
    name: z
      .string(wrongType("must be a string: the tool's name"))
      .min(1)
      .max(1024)
      .describe("The tool's name."),
    arguments: jsonObject.optional().describe("The arguments, as the tool's inputSchema defines them."),
    query_log_id: queryLogId,
  }),
  responseSchema: z.looseObject({ content: z.array(jsonObject), isError: z.boolean() }),
  handle: (core, caller, { body: { server_id, name, arguments: args, query_log_id } }) =>
    core.proxy.callTool(caller, {
      serverId: server_id,
      queryLogId: query_log_id,
      name,
      ...(args === undefined ? {} : { arguments: args }),
    }),
});

const toolsList = endpoint({
  ...COMMON,
  path: '/v1/mcp/tools/list',
  operationId: 'listTools',
  summary: "List a server's tools",
  description: 'Asks the server itself and reads all pages of its list.',
  errors: [...SERVER_ERRORS, ...UPSTREAM_ERRORS.filter(code => code !== 'upstream_input_required')],
  bodySchema: z.strictObject({ server_id: serverId, query_log_id: queryLogId }),
  responseSchema: z.object({
    tools: z.array(
      z.looseObject({
        name: z.string(),
        description: z.string(),
        inputSchema: jsonObject,
        warnings: toolWarnings,
      }),
    ),
  }),
  links: {
    callTool: {
      operationId: 'callTool',
      description: 'Calls the first tool. Its inputSchema describes the arguments.',
      requestBody: { server_id: '$request.body#/server_id', name: '$response.body#/tools/0/name' },
    },
  },
  handle: (core, caller, { body: { server_id, query_log_id } }) =>
    core.proxy.listTools(caller, { serverId: server_id, queryLogId: query_log_id }),
});

const OFFSET = 'must be a whole number, 0 or more';
const CHARS = `must be a whole number from 1 to ${MAX_READ_CHARS}`;

const query = z
  .strictObject({
    offset: queryNumber(OFFSET).optional().describe('The character to continue from. Default 0.'),
    max_chars: queryNumber(CHARS, { min: 1, max: MAX_READ_CHARS })
      .default(DEFAULT_READ_CHARS)
      .describe(
        `The maximum number of characters to return, 1 to ${MAX_READ_CHARS}. With find, for all matches together.`,
      ),
    find: findText
      .optional()
      .describe('Plain text to find instead of returning the next part. Case does not matter.'),
    from: queryNumber(OFFSET).optional().describe('With find: skips matches before this offset. Default 0.'),
  })
  .superRefine(checkReadOrFind);

const ofEach = {
  total_characters: z.int().describe('The length of the whole result.'),
  expires_at: z.iso.datetime().describe('When the stored result is deleted.'),
};
const part = z.object({
  handle: z.string(),
  offset: z.int(),
  text: z.string(),
  next_offset: z.int().optional().describe('The offset of the next part. Absent: this is the end.'),
  ...ofEach,
});
const found = z.object({
  handle: z.string(),
  matches: z
    .array(z.object({ offset: z.int().describe('The offset of this text.'), text: z.string() }))
    .describe(
      'The matching lines, each with the line before and after. Long lines are cut to the text around the match.',
    ),
  more_matches: z.boolean().describe('true: there are more matches than fit into max_chars.'),
  next_from: z.int().optional().describe('The value of from that returns the remaining matches.'),
  ...ofEach,
});

const lengthAndEnd = ({ totalChars, expiresAtMs }: KeptPart | FoundLines) => ({
  total_characters: totalChars,
  expires_at: new Date(expiresAtMs).toISOString(),
});

const readResult = endpoint({
  method: 'get',
  path: '/v1/results/:handle',
  operationId: 'readResult',
  tag: 'Proxy',
  summary: 'Read more of a stored result',
  description:
    'Reads a stored result in parts, or finds text in it. A tool result that is too long for an agent is truncated, and the full result is stored for 10 minutes under a ' +
    'handle (res_…). Only the key and the user that made the call can read it. Offsets and lengths count Unicode code points.',
  scope: 'proxy',
  rateLimit: 'proxy',
  user: 'checked',
  cache: 'no-store',
  timeoutHeader: true,
  maxBodyBytes: KIB,
  errors: ['invalid_request', 'identity_token_invalid', 'result_not_found', 'rate_limited', 'unavailable'],
  querySchema: query,
  responseSchema: z.union([part, found]),
  handle: async (core, caller, { params, query: { offset = 0, max_chars: maxChars, find, from = 0 } }) => {
    const handle = params['handle'] ?? '';
    if (find === undefined) {
      const one = await core.results.read(caller, { handle, offset, maxChars });
      const { text, nextOffset } = one;
      return {
        handle,
        offset,
        text,
        ...(nextOffset === undefined ? {} : { next_offset: nextOffset }),
        ...lengthAndEnd(one),
      };
    }
    const one = await core.results.find(caller, { handle, find, from, maxChars });
    const { matches, nextFrom } = one;
    return {
      handle,
      matches,
      more_matches: nextFrom !== undefined,
      ...(nextFrom === undefined ? {} : { next_from: nextFrom }),
      ...lengthAndEnd(one),
    };
  },
});

export const toolEndpoints: readonly Endpoint[] = [mcpCall, toolsCall, toolsList, readResult];
