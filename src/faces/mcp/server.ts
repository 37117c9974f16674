import {
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type InputRequiredResult,
  type Server,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { requireScope } from '../../core/access/authorise.ts';
import type { Principal } from '../../core/access/api-keys.ts';
import type { Caller } from '../../core/caller.ts';
import type { Core } from '../../core/core.ts';
import { quoted } from '../../core/text.ts';
import type { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../infra/log.ts';
import { activeSpan } from '../../infra/tracing.ts';
import { parseInput } from '../input.ts';
import { toCaller } from '../http.ts';
import { errorOf } from '../problem.ts';
import { callRemoteTool } from './call-remote-tool.ts';
import type { CallsUnderWay } from './calls-under-way.ts';
import { FaceServer } from './face-server.ts';
import { cannotBeAsked } from './input-required.ts';
import { adviceOnTimeOut } from './progress.ts';
import { searchServers } from './search-servers.ts';
import type { Spending } from './spending.ts';
import { searchServersInput, toolsOf } from './tools.ts';

const TOOLS_TTL_MS = 300_000;
const HINT = { ttlMs: TOOLS_TTL_MS, cacheScope: 'public' } as const;

/** What is known of the HTTP request. */
export interface FaceRequest {
  readonly principal: Principal;
  readonly spending: Spending;
  readonly requestId: string;
  readonly ip: string | undefined;
  /** How long the caller says it waits at most, in milliseconds. */
  readonly timeoutMs: number | undefined;
  /** Aborts when the client has gone: the SDK's own signal can be lost to a garbage collection. */
  readonly signal: AbortSignal;
  /** Whether the client has yet to take what was sent to it. */
  readonly isBehind: () => boolean;
}

interface FaceOptions extends FaceRequest {
  readonly core: Core;
  readonly calls: CallsUnderWay;
  readonly log: Log;
  readonly version: string;
  readonly era: 'legacy' | 'modern';
  /** Of the HTTP request. */
  readonly headers: Headers | undefined;
}

/** The two tools: the class of calls each belongs to, and the scope it needs. */
const TOOLS = { search_servers: 'search', call_remote_tool: 'proxy' } as const;

const toolCall = z.object({
  method: z.literal('tools/call'),
  params: z.object({ name: z.literal(Object.keys(TOOLS)) }),
});
/** Whether a message is for a tool, if nothing is wrong with it. */
export const isToolCall = (message: unknown): boolean => toolCall.safeParse(message).success;

/** The MCP server of one request: two tools over the same core, keys and limits as REST. */
export function createFaceServer(options: FaceOptions): Server {
  const { core, calls, era, version } = options;
  const server = new FaceServer(
    { name: 'switchboard', title: 'Switchboard', version },
    {
      capabilities: { tools: {} },
      instructions:
        'Find a remote server for the task with search_servers, then call its tool with call_remote_tool.',
      cacheHints: { 'tools/list': HINT, 'server/discover': HINT },
    },
  );
  // A cancelled request gets no answer (2025-11-25, Cancellation): this server has no other, and its stream ends with it.
  const end = () => void server.close().catch(() => {});
  if (era === 'legacy')
    server.setNotificationHandler('notifications/cancelled', ({ params }) =>
      calls.cancel(options, params.requestId),
    );
  server.setRequestHandler('tools/list', () => ({ tools: toolsOf(core.catalogue) }));
  server.setRequestHandler('tools/call', async (request, context) => {
    const { name, arguments: input = {} } = request.params;
    const caller = callerOf(options, context);
    if (name === 'search_servers')
      return answer(options, caller, TOOLS[name], () => search(core, caller, input));
    if (name === 'call_remote_tool')
      return calls.run(options, context.mcpReq.id, end, () =>
        answer(options, caller, TOOLS[name], () => callRemoteTool(options, caller, input, context)),
      );
    throw new ProtocolError(
      ProtocolErrorCode.InvalidParams,
      `Unknown tool ${quoted(name)}. The tools here are search_servers and call_remote_tool; call_remote_tool calls the others.`,
    );
  });
  return server;
}

/**
 * A sign-in asked for here is finished on a page of ours, whatever the tenant's way: the link goes through an agent, and
 * who opens it must see for which application and user it is (MCP, Elicitation, "Phishing").
 */
const callerOf = ({ principal, requestId, ip, signal }: FaceOptions, context: ServerContext): Caller => ({
  ...toCaller(principal, { requestId, ip, signal: AbortSignal.any([signal, context.mcpReq.signal]) }),
  signInMode: 'page',
});

type ToolAnswer = CallToolResult | InputRequiredResult;

async function search(core: Core, caller: Caller, input: unknown): Promise<CallToolResult> {
  const parsed = parseInput(searchServersInput, input, 'The arguments');
  await core.identity.credentials.requireLive(caller);
  const found = await searchServers(core, caller, parsed);
  return { content: [{ type: 'text', text: JSON.stringify(found) }], structuredContent: found };
}

/** A mistake or a failure is a tool result that the model can read and act on, not a protocol error (SEP-1303). */
async function answer(
  options: FaceOptions,
  caller: Caller,
  needs: 'search' | 'proxy',
  run: () => Promise<ToolAnswer>,
): Promise<ToolAnswer> {
  try {
    requireScope(caller, needs);
    await options.spending.onTool(needs);
    return await run();
  } catch (thrown) {
    // A sign-in as the protocol asks for it, or a state that is not ours.
    if (thrown instanceof ProtocolError) throw thrown;
    const error = errorOf(thrown);
    activeSpan()?.failed(error.code);
    const { log, requestId } = options;
    if (error.code === 'internal' && !caller.signal.aborted)
      log.error({ err: thrown, requestId }, 'tool call failed');
    return { content: [{ type: 'text', text: textOf(error, options) }], isError: true };
  }
}

const textOf = (error: SwitchboardError, options: FaceOptions) =>
  `${error.detail} (${error.code}${error.retryAfterSec === undefined ? '' : `, retry after ${error.retryAfterSec} s`})${adviceOn(error, options)}`;

/** -32021: what the client has not declared, a careful server does not even ask for. */
const missingCapability = z.object({ code: z.literal(-32_021) });

function adviceOn(error: SwitchboardError, { era, timeoutMs }: FaceOptions): string {
  if (error.code === 'upstream_timeout') return `\n${adviceOnTimeOut(error, timeoutMs)}`;
  return missingCapability.safeParse(error.upstreamError).success ? `\n${cannotBeAsked(era)}` : '';
}
