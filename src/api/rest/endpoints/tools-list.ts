import { z } from 'zod';
import { endpoint, MIB } from '../endpoint.ts';
import { jsonObject, queryLogId } from '../../http/input.ts';
import { serverId, SERVER_ERRORS, UPSTREAM_ERRORS, warnings } from './shared.ts';

export const toolsList = endpoint({
  method: 'post',
  path: '/v1/mcp/tools/list',
  operationId: 'listTools',
  tag: 'Proxy',
  summary: "List a server's tools",
  description: 'Asks the server itself, following its pages to the end.',
  scope: 'proxy',
  rateClass: 'proxy',
  use: 'calls',
  maxBodyBytes: 4 * MIB,
  errors: [...SERVER_ERRORS, ...UPSTREAM_ERRORS.filter(code => code !== 'upstream_input_required')],
  bodySchema: z.strictObject({ server_id: serverId, query_log_id: queryLogId }),
  responseSchema: z.object({
    tools: z.array(
      z.looseObject({ name: z.string(), description: z.string(), inputSchema: jsonObject, warnings }),
    ),
  }),
  handle: (core, caller, { server_id, query_log_id }) =>
    core.proxy.listTools(caller, { serverId: server_id, queryLogId: query_log_id }),
});
