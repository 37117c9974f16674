import { z } from 'zod';
import { endpoint, MIB } from '../endpoint.ts';
import { jsonObject, queryLogId, wrongType } from '../../http/input.ts';
import { serverId, SERVER_ERRORS, UPSTREAM_ERRORS } from './shared.ts';

export const toolsCall = endpoint({
  method: 'post',
  path: '/v1/mcp/tools/call',
  operationId: 'callTool',
  tag: 'Proxy',
  summary: 'Call one tool of a server',
  description:
    'Runs a tool and returns its result. A tool that reports its own failure is a 200 with isError true.',
  scope: 'proxy',
  rateClass: 'proxy',
  use: 'calls',
  maxBodyBytes: 4 * MIB,
  errors: ['invalid_params', ...SERVER_ERRORS, ...UPSTREAM_ERRORS],
  bodySchema: z.strictObject({
    server_id: serverId,
    name: z
      .string(wrongType("must be a string: the tool's name"))
      .min(1)
      .max(1024)
      .describe("The tool's name."),
    arguments: jsonObject.optional().describe("What the tool's inputSchema asks for."),
    query_log_id: queryLogId,
  }),
  responseSchema: z.looseObject({ content: z.array(jsonObject), isError: z.boolean() }),
  handle: (core, caller, { server_id, name, arguments: args, query_log_id }) =>
    core.proxy.callTool(caller, {
      serverId: server_id,
      queryLogId: query_log_id,
      name,
      ...(args === undefined ? {} : { arguments: args }),
    }),
});
