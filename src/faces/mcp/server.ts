import { ProtocolError, ProtocolErrorCode, Server, type CallToolResult } from '@modelcontextprotocol/server';
import { requireScope } from '../../core/access/authorise.ts';
import type { Identity } from '../../core/access/api-keys.ts';
import type { Caller } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError, toSwitchboardError } from '../../errors.ts';
import type { Log } from '../../infra/log.ts';
import { parseInput } from '../input.ts';
import { toCaller } from '../http.ts';
import { searchServers } from './search-servers.ts';
import { callRemoteToolInput, searchServersInput, toolsOf, type CallRemoteToolOutput } from './tools.ts';

const TOOLS_TTL_MS = 300_000;
const HINT = { ttlMs: TOOLS_TTL_MS, cacheScope: 'public' } as const;

interface FaceOptions {
  readonly core: Core;
  readonly log: Log;
  readonly version: string;
  readonly identity: Identity;
  readonly requestId: string;
  /** Aborts when the client has gone: the SDK's own signal can be lost to a garbage collection. */
  readonly signal: AbortSignal;
}

/** The MCP server of one request: two tools over the same core, keys and limits as REST. */
export function createFaceServer(options: FaceOptions): Server {
  const { core, version } = options;
  const server = new Server(
    { name: 'switchboard', title: 'Switchboard', version },
    {
      capabilities: { tools: {} },
      instructions:
        'Find a remote server for the task with search_servers, then call its tool with call_remote_tool.',
      cacheHints: { 'tools/list': HINT, 'server/discover': HINT },
    },
  );
  server.setRequestHandler('tools/list', () => ({ tools: toolsOf(core.catalogue) }));
  server.setRequestHandler('tools/call', async (request, context) => {
    const { name, arguments: input = {} } = request.params;
    const signal = AbortSignal.any([options.signal, context.mcpReq.signal]);
    const caller = toCaller(options.identity, options.requestId, signal);
    if (name === 'search_servers') return answer(options, caller, () => search(core, caller, input));
    if (name === 'call_remote_tool')
      return answer(options, caller, () => callRemoteTool(core, caller, input));
    throw new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      `Unknown tool ${JSON.stringify(name)}. The tools here are search_servers and call_remote_tool; call_remote_tool calls the others.`,
    );
  });
  return server;
}

async function search(core: Core, caller: Caller, input: unknown): Promise<CallToolResult> {
  const parsed = parseInput(searchServersInput, input);
  requireScope(caller, 'search');
  await core.rateLimits.spend(caller.keyId, 'search');
  const found = await searchServers(core, caller, parsed);
  return { content: [{ type: 'text', text: JSON.stringify(found) }], structuredContent: found };
}

async function callRemoteTool(core: Core, caller: Caller, input: unknown): Promise<CallToolResult> {
  const { server_id, tool_name, arguments: args } = parseInput(callRemoteToolInput, input);
  requireScope(caller, 'proxy');
  await core.rateLimits.spend(caller.keyId, 'proxy');
  const result = await core.proxy.callTool(caller, { serverId: server_id, name: tool_name, arguments: args });
  const structured: CallRemoteToolOutput = {
    server_id,
    tool_name,
    is_error: result.isError,
    ...('structuredContent' in result ? { structured_content: result['structuredContent'] } : {}),
  };
  return {
    content: result.content as CallToolResult['content'],
    structuredContent: structured,
    ...(result.isError ? { isError: true } : {}),
  };
}

/** A mistake or a failure is a tool result that the model can read and act on, not a protocol error (SEP-1303). */
async function answer(
  { log, requestId }: FaceOptions,
  caller: Caller,
  run: () => Promise<CallToolResult>,
): Promise<CallToolResult> {
  try {
    return await run();
  } catch (thrown) {
    const error = toSwitchboardError(thrown);
    if (error.code === 'internal' && !caller.signal.aborted)
      log.error({ err: thrown, requestId }, 'tool call failed');
    return { content: [{ type: 'text', text: textOf(error) }], isError: true };
  }
}

const textOf = (error: SwitchboardError) =>
  `${error.detail} (${error.code}${error.retryAfterSec === undefined ? '' : `, retry after ${error.retryAfterSec} s`})`;
