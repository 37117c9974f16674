import { SwitchboardError } from '../../errors.ts';
import { asSentence, sanitise } from '../../platform/sanitize.ts';
import {
  errorOf,
  MISSING_CAPABILITY,
  type Params,
  type RpcAnswer,
  type RpcError,
} from './upstream/envelope.ts';
import { isObject } from './upstream/json.ts';
import { AnsweredWrongly, brokeProtocol, sentTooMuch } from './upstream/failures.ts';
import type { ProxyLimits } from './limits.ts';
import type { UpstreamReply } from './upstream/upstreams.ts';

/** A tool as its server lists it, with all its fields. */
export interface ListedTool {
  readonly name: string;
  /** '' when the server gives none. */
  readonly description: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly [field: string]: unknown;
}

/** A tool's result as its server sent it, with all its fields. */
export interface ToolResult {
  readonly content: readonly unknown[];
  readonly isError: boolean;
  readonly [field: string]: unknown;
}

/** The server wants the client's input before it can finish (2026-07-28, multi round-trip requests), with all its fields. */
export interface InputRequired {
  readonly resultType: 'input_required';
  readonly [field: string]: unknown;
}

/** A tool call. `resume` is how a caller that can answer `input_required` goes on with a call it got that for. */
export interface ToolCall {
  readonly name: string;
  readonly arguments?: Params;
  /** Refused unless its server marks the tool as read-only (`readOnlyHint`). */
  readonly readOnly?: true;
  /** What the caller can answer, as MCP's ClientCapabilities. Absent: nothing, and `input_required` is a failure. */
  readonly capabilities?: Params;
  readonly resume?: { readonly inputResponses?: Params; readonly requestState?: string };
  /** Told of the server's progress while it works. Must not throw. */
  readonly onProgress?: (progress: Progress) => void;
}

/** The parameters of `notifications/progress` but for its token. */
export interface Progress {
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

const META = 'io.modelcontextprotocol/';

/** The parameters of `tools/call`. The token must be unique among the calls under way in one session. */
export function toolCallParams(call: ToolCall, progressToken: string): Params {
  const meta = {
    ...(call.onProgress ? { progressToken } : {}),
    ...(call.capabilities ? { [`${META}clientCapabilities`]: call.capabilities } : {}),
  };
  return {
    name: call.name,
    ...(call.arguments === undefined ? {} : { arguments: call.arguments }),
    ...call.resume,
    ...(Object.keys(meta).length === 0 ? {} : { _meta: meta }),
  };
}

/** The progress in a notification, if it is one of this call's. */
export function progressOf(token: string, method: string, params: unknown): Progress | undefined {
  if (method !== 'notifications/progress' || !isObject(params)) return undefined;
  const { progressToken, progress, total, message } = params;
  if (progressToken !== token || typeof progress !== 'number') return undefined;
  return {
    progress,
    ...(typeof total === 'number' ? { total } : {}),
    ...(typeof message === 'string' ? { message } : {}),
  };
}

const MAX_DETAIL_CHARS = 1_000;
const MAX_LISTED_TOOLS = 10_000;

/** What a caller that cannot be asked does with a tool that asks. */
const HOW_TO_ANSWER = `Use POST /v1/mcp/call: declare what you can answer in params._meta["${META}clientCapabilities"], and make the call again with the inputResponses and the requestState; or use an MCP client that declares the capability, at /mcp.`;

/** Of a call that was not sent again. */
export const LOST_SESSION =
  'The session with the server was lost. The call was not sent again, as it cannot be known whether it ran. Make the call again where that does no harm: it gets a new session.';

/** The upstream's result. @throws SwitchboardError `upstream_error` with the upstream's own error for a JSON-RPC error. */
function resultOf(answer: RpcAnswer): unknown {
  if ('result' in answer) return answer.result;
  throw reportedError(answer.error);
}

const reportedError = (error: RpcError, advice = ''): SwitchboardError =>
  new SwitchboardError('upstream_error', detailOf(error, advice), { upstreamError: error });

/** A server does not ask who has not said that it can answer (2026-07-28): it refuses, and names what is missing. */
function capabilityMissing(error: RpcError): SwitchboardError {
  const required = isObject(error.data) ? error.data['requiredCapabilities'] : undefined;
  return new SwitchboardError('upstream_input_required', detailOf(error, HOW_TO_ANSWER), {
    upstreamError: error,
    members: isObject(required) ? { required_capabilities: required } : {},
  });
}

function detailOf(error: RpcError, advice: string): string {
  const said = sanitise(error.message, MAX_DETAIL_CHARS) || `The MCP server reported error ${error.code}.`;
  return advice === '' ? said : `${asSentence(said)} ${advice}`;
}

/**
 * What a reply to `tools/call` means for the caller.
 * @param canAnswer whether `input_required` is of use to the caller.
 * @throws SwitchboardError `upstream_error` for a JSON-RPC error; `upstream_input_required` with the upstream's result as the
 * member `input_required`, or with its error where it did not ask; `upstream_protocol` for what is not a CallToolResult.
 */
export function toolOutcome(reply: UpstreamReply, canAnswer: boolean): ToolResult | InputRequired {
  const error = errorOf(reply.answer);
  // Where the caller can declare what it can answer, its own face knows best how.
  if (error?.code === MISSING_CAPABILITY && !canAnswer) throw capabilityMissing(error);
  if (error && reply.lostSession) throw reportedError(error, LOST_SESSION);
  return toToolResult(resultOf(reply.answer), canAnswer);
}

function toToolResult(result: unknown, canAnswer: boolean): ToolResult | InputRequired {
  if (!isObject(result)) throw new AnsweredWrongly('answered tools/call with a result that is not an object');
  const { content } = result;
  if (Array.isArray(content)) return { ...result, content, isError: result['isError'] === true };
  if (result['resultType'] === 'input_required') {
    if (canAnswer) return { ...result, resultType: 'input_required' };
    throw new SwitchboardError(
      'upstream_input_required',
      `The tool asks for input before it can finish, which this way of calling it cannot give. ${HOW_TO_ANSWER}`,
      { members: { input_required: result } },
    );
  }
  throw new AnsweredWrongly('answered tools/call without a content array');
}

/** All of a server's tools, and how far and how long they hold. */
export interface Listing {
  readonly tools: readonly ListedTool[];
  readonly bytes: number;
  /** Absent: the server does not say. */
  readonly ttlMs: number | undefined;
  /** The same for everybody, says the server. */
  readonly isPublic: boolean;
  /** Revision 2026-07-28. */
  readonly isModern: boolean;
}

/**
 * All pages of tools/list. A server whose pages never end is stopped: by the number of pages, their size together, or a
 * cursor that comes twice.
 */
export async function listAllTools(
  ask: (params: Params | undefined) => Promise<UpstreamReply>,
  limits: Pick<ProxyLimits, 'maxToolPages' | 'maxResponseBytes'>,
): Promise<Listing> {
  const tools: ListedTool[] = [];
  const cursors = new Set<string>();
  const pages: Record<string, unknown>[] = [];
  let bytes = 0;
  let cursor: string | undefined;
  while (pages.length < limits.maxToolPages) {
    const reply = await ask(cursor === undefined ? undefined : { cursor });
    bytes += reply.bytes;
    if (bytes > limits.maxResponseBytes)
      throw sentTooMuch(`lists more than ${limits.maxResponseBytes} bytes of tools`);
    const result = resultOf(reply.answer);
    if (!isObject(result) || !Array.isArray(result['tools']))
      throw brokeProtocol('answered tools/list without a tools array');
    if (tools.length + result['tools'].length > MAX_LISTED_TOOLS)
      throw sentTooMuch(`lists more than ${MAX_LISTED_TOOLS} tools`);
    for (const tool of result['tools']) tools.push(toListedTool(tool));
    const { tools: _read, nextCursor: next, ...page } = result;
    pages.push(page);
    if (typeof next !== 'string') return { tools, bytes, ...holdingOf(pages) };
    if (cursors.has(next)) throw brokeProtocol('repeats a cursor in tools/list');
    cursors.add(next);
    cursor = next;
  }
  throw sentTooMuch(`lists more than ${limits.maxToolPages} pages of tools`);
}

/** The pages hold together as long as the one that holds shortest. */
function holdingOf(pages: readonly Record<string, unknown>[]): Omit<Listing, 'tools' | 'bytes'> {
  const ttls = pages.map(page => page['ttlMs']).filter(ttl => typeof ttl === 'number' && ttl >= 0);
  return {
    ttlMs: ttls.length === 0 ? undefined : Math.min(...(ttls as number[])),
    isPublic: pages.every(page => page['cacheScope'] === 'public'),
    isModern: pages.some(page => typeof page['resultType'] === 'string'),
  };
}

function toListedTool(tool: unknown): ListedTool {
  if (!isObject(tool) || typeof tool['name'] !== 'string') throw brokeProtocol('lists a tool without a name');
  // `warnings` are ours to give: what a tool itself calls so is left out.
  const { name, description, inputSchema, warnings: _theirs, ...others } = tool;
  return {
    ...others,
    name,
    description: typeof description === 'string' ? description : '',
    inputSchema: isObject(inputSchema) ? inputSchema : { type: 'object' },
  };
}
