import { z } from 'zod';
import { isObject } from '../../../platform/json-limits.ts';
import { SwitchboardError } from '../../../errors.ts';
import { endpoint, MIB } from '../endpoint.ts';
import { queryLogId, wrongType } from '../../http/input.ts';
import { isRpcId } from '../../http/problem.ts';
import { serverId, SERVER_ERRORS } from './shared.ts';

const rpcError = z.object({ code: z.int(), message: z.string(), data: z.unknown().optional() });

const BAD_ID =
  'must be a string of at most 1024 characters or a number; send a whole number beyond 2^53 - 1 as a string';

export const mcpCall = endpoint({
  method: 'post',
  path: '/v1/mcp/call',
  operationId: 'mcpCall',
  tag: 'Proxy',
  summary: 'Call any JSON-RPC method of a server',
  description:
    'Forwards one JSON-RPC request to a catalogued MCP server and returns its answer, result or error, with HTTP 200. ' +
    'What goes wrong on the way to the server (time-out, refused connection, broken answer) is also a 200, with error.code ' +
    '-32000 and error.data {origin, reason, retryable, retry_after}. A tool of revision 2026-07-28 may ask back: say what can ' +
    'be answered in params._meta["io.modelcontextprotocol/clientCapabilities"] (such as {"elicitation":{"form":{}}}); on a result ' +
    'with resultType "input_required" make the same call again with inputResponses (an answer under each key of inputRequests) ' +
    'and the requestState, unchanged, in params. Every other error body is problem details and a ' +
    'JSON-RPC error at once.',
  scope: 'proxy',
  rateClass: 'proxy',
  use: 'calls',
  maxBodyBytes: 4 * MIB,
  errors: ['invalid_params', ...SERVER_ERRORS],
  jsonRpc: true,
  bodySchema: z.strictObject({
    server_id: serverId,
    method: z
      .string(wrongType('must be a string: a JSON-RPC method name'))
      .min(1)
      .max(256)
      .meta({ examples: ['tools/list'] }),
    // Checked by the handler: JSON-RPC has a code of its own for it.
    params: z.unknown().optional().meta({ type: 'object' }),
    id: z.union([z.string().max(1024, BAD_ID), z.number().refine(isRpcId, BAD_ID)], BAD_ID).default(1),
    jsonrpc: z.literal('2.0').optional(),
    query_log_id: queryLogId,
  }),
  responseSchema: z.object({
    jsonrpc: z.literal('2.0'),
    id: z.union([z.string(), z.number()]),
    result: z.unknown().optional(),
    error: rpcError.optional(),
  }),
  handle: async (core, caller, { server_id, method, params, id, query_log_id }) => {
    if (params !== undefined && !isObject(params))
      throw new SwitchboardError('invalid_params', 'params: must be an object');
    const input = {
      serverId: server_id,
      queryLogId: query_log_id,
      method,
      ...(params === undefined ? {} : { params }),
    };
    return { jsonrpc: '2.0', id, ...(await core.proxy.call(caller, input)) };
  },
});
