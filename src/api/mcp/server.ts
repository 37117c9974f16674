import {
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type InputRequiredResult,
  type Server,
  type ServerContext,
  type Tool,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import { requireScope } from '../../core/access/authorise.ts';
import type { Principal } from '../../core/access/caller.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { NotReadOnly } from '../../core/proxy/proxy.ts';
import { readAsDeclared } from '../../core/proxy/arguments/read-as-declared.ts';
import { quoted } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { activeSpan } from '../../platform/telemetry/tracing.ts';
import { toCaller } from '../http/http.ts';
import { parseInput, withoutNulls } from '../http/input.ts';
import { errorOf } from '../http/problem.ts';
import { callRemoteTool } from './call-remote-tool.ts';
import type { CallsUnderWay } from './inflight-calls.ts';
import { urlElicitationOf } from './elicitation.ts';
import { FaceServer } from './sdk-server.ts';
import { cannotBeAsked } from './input-required.ts';
import { isOwnServer, readOnCall, type Reader } from './own-server.ts';
import type { LastSearches } from './last-searches.ts';
import { metaKey } from './meta.ts';
import { adviceOnTimeOut } from './progress.ts';
import { searchServers } from './search-servers.ts';
import { toolsOfServer } from './server-tools.ts';
import { askToSignIn } from './sign-in.ts';
import type { Spending } from './charge-once.ts';
import {
  callRemoteToolInput,
  searchServersInput,
  TOOL_SCOPES,
  toolsOf,
  type SearchServersOutput,
  type ToolName,
} from './tools.ts';

const TOOLS_TTL_MS = 300_000;
const HINT = { ttlMs: TOOLS_TTL_MS, cacheScope: 'public' } as const;

/** Codex shows its models no more than the first 250 characters, before they have seen any tool. */
const INSTRUCTIONS =
  'Outside services for most tasks: weather, maps, travel, e-mail, chat, calendars, documents, databases, code, cloud, payments, sales, news, ' +
  'web search. Find a tool with search_servers, then call it with call_remote_tool.';

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
  readonly searches: LastSearches;
  /** Whether `read_remote_tool` is offered. */
  readonly readTool: boolean;
  readonly log: Log;
  readonly version: string;
  readonly era: 'legacy' | 'modern';
  /** Of the HTTP request. */
  readonly headers: Headers | undefined;
}

const toolCall = z.object({
  method: z.literal('tools/call'),
  params: z.object({ name: z.literal(Object.keys(TOOL_SCOPES)) }),
});
/** Whether a message is for a tool, if nothing is wrong with it. */
export const isToolCall = (message: unknown): boolean => toolCall.safeParse(message).success;

/** The MCP server of one request: its tools stand over the same core, keys and limits as REST. */
export function createFaceServer(options: FaceOptions): Server {
  const { calls, era, version } = options;
  const server = new FaceServer(
    { name: 'switchboard', title: 'Switchboard', version },
    {
      capabilities: { tools: {} },
      instructions: INSTRUCTIONS,
      cacheHints: { 'tools/list': HINT, 'server/discover': HINT },
    },
  );
  // A cancelled request gets no answer (2025-11-25, Cancellation): this server has no other, and its stream ends with it.
  const end = () => void server.close().catch(() => {});
  if (era === 'legacy')
    server.setNotificationHandler('notifications/cancelled', ({ params }) =>
      calls.cancel(options, params.requestId),
    );
  const tools = toolsOf(options);
  server.setRequestHandler('tools/list', () => ({ tools }));
  server.setRequestHandler('tools/call', async (request, context) => {
    const { name, arguments: given = {} } = request.params;
    const tool = tools.find(one => one.name === name);
    if (!tool) throw unknownTool(name, tools);
    const work = async () => {
      const result = await answer(options, tool.name as ToolName, inputOf(given, tool), context);
      // Structured content that is no object has another form in revisions 2025-xx.
      return 'content' in result ? server.projectCallToolResult(result as CallToolResult, undefined) : result;
    };
    return calls.run(options, context.mcpReq.id, end, work);
  });
  return server;
}

/** Reads arguments as models write them: see `readAsDeclared`. */
function inputOf(given: Input, { inputSchema }: Tool): Input {
  const input = withoutNulls(given);
  return readAsDeclared(inputSchema, input) ?? input;
}

const unknownTool = (name: string, tools: readonly Tool[]): ProtocolError =>
  new ProtocolError(
    ProtocolErrorCode.InvalidParams,
    `Unknown tool ${quoted(name)}. The tools here are ${tools.map(tool => tool.name).join(' and ')}; call_remote_tool calls the others.`,
  );

/**
 * A sign-in asked for here is finished on a page of ours, whatever the tenant's way: the link goes through an agent, and
 * who opens it must see for which application and user it is (MCP, Elicitation, "Phishing").
 */
const callerOf = ({ principal, requestId, ip, signal }: FaceOptions, context: ServerContext): Caller => ({
  ...toCaller(principal, { requestId, ip, signal: AbortSignal.any([signal, context.mcpReq.signal]) }),
  signInMode: 'page',
});

type ToolAnswer = CallToolResult | InputRequiredResult;

/**
 * Admits a call as REST does (scope, rate, input, quota) and makes it. A mistake or a failure is a tool result that the model can
 * read and act on, not a protocol error (SEP-1303).
 * @throws ProtocolError for what the protocol wants as an error.
 */
async function answer(
  options: FaceOptions,
  name: ToolName,
  input: Input,
  context: ServerContext,
): Promise<ToolAnswer> {
  const caller = callerOf(options, context);
  try {
    return name === 'search_servers'
      ? await search(options, caller, input, context)
      : await call(options, caller, { input, context, readOnly: name === 'read_remote_tool' });
  } catch (thrown) {
    // A sign-in as the protocol asks for it, or a state that is not ours.
    if (thrown instanceof ProtocolError) throw thrown;
    const error = errorOf(thrown);
    activeSpan()?.failed(error.code);
    const { log, requestId } = options;
    if (error.code === 'internal' && !caller.signal.aborted)
      log.error({ err: thrown, requestId }, 'tool call failed');
    return { content: [{ type: 'text', text: textOf(error, options, input) }], isError: true };
  }
}

async function search(
  { core, spending, searches, ...options }: FaceOptions,
  caller: Caller,
  input: Input,
  context: ServerContext,
): Promise<ToolAnswer> {
  // One server's own tools are asked of the server: that is a call.
  const isCall = input['server_id'] !== undefined;
  const scope = isCall ? 'proxy' : TOOL_SCOPES.search_servers;
  requireScope(caller, scope);
  await spending.onTool(scope);
  const { query: _none, ...unasked } = input;
  // Some models send '' for what they leave out.
  const asked = isCall && input['query'] === '' ? unasked : input;
  const { query, server_id: serverId, limit } = parseInput(searchServersInput, asked, 'The arguments');
  if (serverId === undefined || !isOwnServer(serverId)) await spending.onUse(isCall ? 'calls' : 'searches');
  if (serverId !== undefined)
    return orSignIn({ core, ...options }, context, { serverId }, async () =>
      resultOf(await toolsOfServer(core, caller, { serverId, query, timeoutMs: options.timeoutMs })),
    );
  await core.identity.credentials.requireLive(caller);
  const { answer: found, queryLogId } = await searchServers(core, caller, { query: query ?? '', limit });
  searches.note(
    options,
    queryLogId,
    found.servers.map(({ id }) => id),
  );
  return { ...resultOf(found), _meta: { [metaKey('query_log_id')]: queryLogId } };
}

/** The same in both forms: which of them a client shows to its model is the client's choice. */
const resultOf = (found: SearchServersOutput): CallToolResult => ({
  content: [{ type: 'text', text: JSON.stringify(found) }],
  structuredContent: found,
});

async function call(
  options: FaceOptions,
  caller: Caller,
  { input, context, readOnly }: { input: unknown; context: ServerContext; readOnly: boolean },
): Promise<ToolAnswer> {
  const { spending, searches } = options;
  requireScope(caller, TOOL_SCOPES.call_remote_tool);
  await spending.onTool(TOOL_SCOPES.call_remote_tool);
  const parsed = parseInput(callRemoteToolInput, input, 'The arguments');
  const { server_id: serverId, tool_name: toolName } = parsed;
  // Reading on in what a call brought is part of that call.
  if (!isOwnServer(serverId)) await spending.onUse('calls');
  const queryLogId = parsed.query_log_id ?? searches.leadingTo(options, serverId);
  return orSignIn(options, context, { serverId, toolName }, () =>
    callRemoteTool({ ...options, queryLogId, readOnly, reader: readerOf(options) }, caller, parsed, context),
  );
}

const readerOf = ({ readTool }: FaceOptions): Reader => (readTool ? 'read_remote_tool' : 'call_remote_tool');

/** Asks for the sign-in that a server wants, where that is what it fails with. */
async function orSignIn(
  { core, era, headers }: Pick<FaceOptions, 'core' | 'era' | 'headers'>,
  context: ServerContext,
  asked: { readonly serverId: string; readonly toolName?: string },
  work: () => Promise<ToolAnswer>,
): Promise<ToolAnswer> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof SwitchboardError) || error.code !== 'connection_required') throw error;
    return askToSignIn(error, {
      ...asked,
      titleOf: provider => core.identity.providers.titleOf(provider),
      elicitation: urlElicitationOf(era, headers, context),
      // With a state of ours, these answer what the server asked.
      inputResponses: context.mcpReq.requestState() === undefined ? context.mcpReq.inputResponses : undefined,
    });
  }
}

type Input = Readonly<Record<string, unknown>>;

const textOf = (error: SwitchboardError, options: FaceOptions, input: Input) =>
  `${error.detail} (${error.code}${error.retryAfterSec === undefined ? '' : `, retry after ${error.retryAfterSec} s`})${adviceOn(error, options, input)}`;

/** -32021: what the client has not declared, a careful server does not even ask for. */
const missingCapability = z.object({ code: z.literal(-32_021) });
const CALL_FIELDS: ReadonlySet<string> = new Set(Object.keys(callRemoteToolInput.shape));

/** The next step for a model, where the error by itself does not say it. */
function adviceOn(error: SwitchboardError, options: FaceOptions, input: Input): string {
  const { era, timeoutMs } = options;
  if (error instanceof NotReadOnly)
    return error.isListed
      ? '\nIf the user wants it, call it with call_remote_tool.'
      : '\nTry again later, or use another server.';
  if (error.code === 'upstream_timeout' && 'tool_name' in input)
    return `\n${adviceOnTimeOut(error, timeoutMs)}`;
  const { tool_name: toolName, server_id: serverId } = input;
  if (toolName === 'read_result' && typeof serverId === 'string' && !isOwnServer(serverId))
    return `\nTo read on in a result that was cut: ${readOnCall(readerOf(options), { handle: 'res_…', offset: 0 })}`;
  if (error.code === 'invalid_request' && 'tool_name' in input)
    return Object.keys(input).every(name => CALL_FIELDS.has(name))
      ? ''
      : "\nThe tool's own arguments go into arguments.";
  return missingCapability.safeParse(error.upstreamError).success ? `\n${cannotBeAsked(era)}` : '';
}
