import {
  ProtocolError,
  ProtocolErrorCode,
  type CallToolResult,
  type InputRequiredResult,
  type Server,
  type Tool,
} from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Policy } from '../../core/access/admit.ts';
import type { Caller, Principal } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { NotReadOnly } from '../../core/proxy/proxy.ts';
import { readAsDeclared } from '../../core/proxy/arguments/check-arguments.ts';
import { isObject } from '../../platform/json/limits.ts';
import { quoted } from '../../platform/sanitize.ts';
import { toAbortSignal, type Cancellation } from '../../platform/time.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { activeSpan } from '../../platform/telemetry/tracing.ts';
import { parseInput, withoutNulls } from '../http/endpoint.ts';
import type { Exchange } from '../http/pipeline.ts';
import { toolErrorText, toReported } from '../http/render-error.ts';
import { callRemoteTool } from './call-remote-tool.ts';
import { metaKey } from './content.ts';
import { cannotBeAsked } from './input-required.ts';
import { isOwnServer, readOnCall, type Reader } from './own-server.ts';
import { adviceOnTimeOut } from './progress.ts';
import { FaceServer } from './sdk-server.ts';
import { searchServers, toolsOfServer } from './search-servers.ts';
import type { InflightCalls, LastSearches } from './sessions.ts';
import { askToSignIn, urlElicitationOf } from './sign-in.ts';
import {
  callRemoteToolInput,
  searchServersInput,
  TOOL_NAMES,
  toolsOf,
  type CallContext,
  type Input,
  type SearchServersOutput,
  type ToolName,
} from './tools.ts';

const TOOLS_TTL_MS = 300_000;
const HINT = { ttlMs: TOOLS_TTL_MS, cacheScope: 'public' } as const;

/** Codex shows its models only the first 250 characters, before they have seen any tool. */
const INSTRUCTIONS =
  'Outside services for most tasks: weather, maps, travel, e-mail, chat, calendars, documents, databases, code, cloud, payments, sales, news, ' +
  'web search. Find a tool with search_servers, then call it with call_remote_tool.';

const SEARCH: Policy = { scope: 'search', rateLimit: 'search', quota: 'searches', user: 'checked' };
const CALL: Policy = { scope: 'proxy', rateLimit: 'proxy', quota: 'calls', user: 'by-call' };

/** Data about the HTTP request. */
export interface FaceRequest {
  readonly principal: Principal;
  /** Passes a call through the gate, as in REST. */
  readonly admit: Exchange['admit'];
  readonly requestId: string;
  /** The caller's timeout, in milliseconds. */
  readonly timeoutMs: number | undefined;
  /** Aborts when the client has disconnected: the SDK's own signal may be garbage collected. */
  readonly signal: Cancellation;
  /** The session id that the client sent. */
  readonly session: string | undefined;
  /** Returns whether the client has unread messages. */
  readonly isBehind: () => boolean;
}

/** The parts that all requests share. */
export interface FaceParts {
  readonly core: Core;
  readonly calls: InflightCalls;
  readonly searches: LastSearches;
  /** true: offers `read_remote_tool`. */
  readonly readTool: boolean;
  readonly log: Log;
  readonly version: string;
}

export interface FaceOptions extends FaceParts, FaceRequest {
  readonly era: 'legacy' | 'modern';
}

/** Returns whether a message is a well-formed call of a tool of ours. */
export const isToolCall = ({ method, params }: Input): boolean =>
  method === 'tools/call' && isObject(params) && TOOL_NAMES.some(name => name === params['name']);

/** Creates the MCP server of one request. Its tools use the same core, keys and limits as REST. */
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
  // A cancelled request gets no response (2025-11-25, Cancellation). It is this server's only request, and its stream ends with it.
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
      const signal = AbortSignal.any([toAbortSignal(options.signal), context.mcpReq.signal]);
      const result = await callTool({ ...options, signal }, tool, given, context);
      // Revisions 2025-xx encode non-object structured content differently.
      return 'content' in result ? server.projectCallToolResult(result as CallToolResult, undefined) : result;
    };
    return calls.run(options, context.mcpReq.id, end, work);
  });
  return server;
}

/** Calls a tool of ours. @throws ProtocolError for protocol-level errors */
export const callTool = (
  options: FaceOptions,
  tool: Tool,
  given: Input,
  context: CallContext,
): Promise<ToolAnswer> => answer(options, tool.name as ToolName, inputOf(given, tool), context);

/** Reads arguments leniently: see `readAsDeclared`. */
function inputOf(given: Input, { inputSchema }: Tool): Input {
  const input = withoutNulls(given);
  return readAsDeclared(inputSchema, input) ?? input;
}

const unknownTool = (name: string, tools: readonly Tool[]): ProtocolError =>
  new ProtocolError(
    ProtocolErrorCode.InvalidParams,
    `Unknown tool ${quoted(name)}. The tools here are ${tools.map(tool => tool.name).join(' and ')}; call_remote_tool calls the others.`,
  );

type ToolAnswer = CallToolResult | InputRequiredResult;

/**
 * Admits a call as in REST and runs it. Errors become tool results that the model can read and act on, not protocol errors
 * (SEP-1303).
 * @throws ProtocolError for protocol-level errors
 */
async function answer(
  options: FaceOptions,
  name: ToolName,
  input: Input,
  context: CallContext,
): Promise<ToolAnswer> {
  const { signal } = options;
  try {
    return name === 'search_servers'
      ? await search(options, input, context)
      : await call(options, { input, context, readOnly: name === 'read_remote_tool' });
  } catch (thrown) {
    // The protocol requires an error for a sign-in and for a foreign state.
    if (thrown instanceof ProtocolError) throw thrown;
    const error = toReported(thrown, signal.aborted ? undefined : options.log, options.requestId);
    activeSpan()?.failed(error.code);
    const text = toolErrorText(error) + adviceOn(error, options, input);
    return { content: [{ type: 'text', text }], isError: true };
  }
}

/**
 * Returns the caller of a tool. Sign-ins must be completed on our own page, whatever the tenant's mode: the link is relayed by an
 * agent, and whoever opens it must see which application and user it is for (MCP, Elicitation, "Phishing").
 */
const callerOf = (admitted: Caller, { signal }: FaceOptions): Caller => ({
  ...admitted,
  signal,
  signInMode: 'page',
});

async function search(options: FaceOptions, input: Input, context: CallContext): Promise<ToolAnswer> {
  const { core, searches } = options;
  // One server's own tools are listed live, which counts as a call.
  const isCall = input['server_id'] !== undefined;
  const { query: _none, ...unasked } = input;
  // Some models send '' for omitted values.
  const asked = isCall && input['query'] === '' ? unasked : input;
  const {
    caller: admitted,
    input: { query, server_id: serverId, limit },
  } = await options.admit(
    isCall ? CALL : SEARCH,
    () => parseInput(searchServersInput, asked, 'The arguments'),
    ({ server_id }) => callsOf(server_id),
  );
  const caller = callerOf(admitted, options);
  if (serverId !== undefined) {
    try {
      return resultOf(await toolsOfServer(core, caller, { serverId, query, timeoutMs: options.timeoutMs }));
    } catch (error) {
      return askForConnection(error, options, context, { serverId });
    }
  }
  const { answer: found, queryLogId } = await searchServers(core, caller, { query: query ?? '', limit });
  searches.note(
    options,
    queryLogId,
    found.servers.map(({ id }) => id),
  );
  return { ...resultOf(found), _meta: { [metaKey('query_log_id')]: queryLogId } };
}

/** Counts a call, unless it reads more of a result, which belongs to the original call. */
const callsOf = (serverId: string | undefined): number =>
  serverId !== undefined && isOwnServer(serverId) ? 0 : 1;

/** Returns a result in both forms; clients choose which of them their model sees. */
const resultOf = (found: SearchServersOutput): CallToolResult => ({
  content: [{ type: 'text', text: JSON.stringify(found) }],
  structuredContent: found,
});

async function call(
  options: FaceOptions,
  { input, context, readOnly }: { input: unknown; context: CallContext; readOnly: boolean },
): Promise<ToolAnswer> {
  const { caller: admitted, input: parsed } = await options.admit(
    CALL,
    () => parseInput(callRemoteToolInput, input, 'The arguments'),
    ({ server_id }) => callsOf(server_id),
  );
  const { server_id: serverId, tool_name: toolName } = parsed;
  const queryLogId = parsed.query_log_id ?? options.searches.leadingTo(options, serverId);
  const { core, era, timeoutMs, isBehind } = options;
  const surroundings = { core, era, timeoutMs, isBehind, queryLogId, readOnly, reader: readerOf(options) };
  try {
    return await callRemoteTool(surroundings, callerOf(admitted, options), parsed, context);
  } catch (error) {
    return askForConnection(error, options, context, { serverId, toolName });
  }
}

const readerOf = ({ readTool }: FaceOptions): Reader => (readTool ? 'read_remote_tool' : 'call_remote_tool');

/** Asks for a sign-in if that is what a call failed for. @throws the error otherwise */
function askForConnection(
  error: unknown,
  { core, era, session }: Pick<FaceOptions, 'core' | 'era' | 'session'>,
  context: CallContext,
  asked: { readonly serverId: string; readonly toolName?: string },
): ToolAnswer {
  if (!(error instanceof SwitchboardError) || error.code !== 'connection_required') throw error;
  return askToSignIn(error, {
    ...asked,
    titleOf: provider => core.identity.providers.titleOf(provider),
    elicitation: urlElicitationOf(era, session, context),
    // With a state of ours, these are replies to the server's input requests.
    inputResponses: context.mcpReq.requestState() === undefined ? context.mcpReq.inputResponses : undefined,
  });
}

/** -32021: a careful server does not ask for undeclared capabilities. */
const missingCapability = z.object({ code: z.literal(-32_021) });
const CALL_FIELDS: ReadonlySet<string> = new Set(Object.keys(callRemoteToolInput.shape));

/** Returns the next step for a model, if the error itself does not say it. */
function adviceOn(error: SwitchboardError, options: FaceOptions, input: Input): string {
  const { era, timeoutMs } = options;
  if (error instanceof NotReadOnly)
    return error.isListed
      ? '\nIf the user agrees, call it with call_remote_tool.'
      : '\nTry again later, or use another server.';
  if (error.code === 'upstream_timeout' && 'tool_name' in input)
    return `\n${adviceOnTimeOut(error, timeoutMs)}`;
  const { tool_name: toolName, server_id: serverId } = input;
  if (toolName === 'read_result' && typeof serverId === 'string' && !isOwnServer(serverId))
    return `\nTo continue a truncated result: ${readOnCall(readerOf(options), { handle: 'res_…', offset: 0 })}`;
  if (error.code === 'invalid_request' && 'tool_name' in input)
    return Object.keys(input).every(name => CALL_FIELDS.has(name))
      ? ''
      : "\nPut the tool's own arguments into arguments.";
  return missingCapability.safeParse(error.upstreamError).success ? `\n${cannotBeAsked(era)}` : '';
}
