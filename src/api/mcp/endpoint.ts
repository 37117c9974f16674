import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import accepts from 'accepts';
import type { IncomingMessage } from 'node:http';
import { knownMethod } from '../../core/proxy/reporting.ts';
import { SwitchboardError } from '../../errors.ts';
import { isObject } from '../../platform/json/limits.ts';
import { activeSpan, inSpan, type Span } from '../../platform/telemetry/tracing.ts';
import type { WorkerSeat } from '../../platform/workers/seat.ts';
import { readJsonBody, countedAnswer } from '../http/body.ts';
import { MIB } from '../http/endpoint.ts';
import {
  methodNotAllowed,
  pipeline,
  type Exchange,
  type Handler,
  type PipelineOptions,
} from '../http/pipeline.ts';
import { isRpcId, rpcIdOf } from '../http/render-error.ts';
import { localsOf, requestedTimeoutMs, singleHeader } from '../http/request.ts';
import { shortErrors } from './sdk-server.ts';
import { answerDirectly, directCallOf } from './direct-call.ts';
import { createFaceServer, isToolCall, type FaceParts, type FaceRequest } from './server.ts';
import { givingSessionIds, InflightCalls, LastSearches, SESSION_HEADER } from './sessions.ts';
import { TOOL_NAMES, toolsOf, type Input } from './tools.ts';

/** The media types that clients must accept. */
const ANSWERS = ['application/json', 'text/event-stream'];
const ALL_ANSWERS = ANSWERS.join(', ');

interface McpOptions extends PipelineOptions {
  readonly version: string;
  /** true: offers `read_remote_tool`. */
  readonly readTool?: boolean;
  /** The other workers on the same port: a client's next request may arrive there. */
  readonly worker?: WorkerSeat | undefined;
}

/**
 * Serves `/mcp`: both protocol eras on one URL, stateless. Every response except an event stream is JSON. The SDK serves all
 * requests but ordinary tool calls (`directCallOf`), which it would make several times as expensive.
 */
export function mcpHandler({ core, log, budget, version, readTool = false, worker }: McpOptions): Handler {
  const calls = new InflightCalls(worker);
  const parts: FaceParts = { core, calls, searches: new LastSearches(), readTool, log, version };
  const tools = toolsOf(parts);
  const handler = createMcpHandler(
    ({ authInfo, era }) => {
      if (!authInfo?.extra) throw new Error('the MCP handler was reached without authentication');
      return createFaceServer({ ...parts, era, ...(authInfo.extra['face'] as FaceRequest) });
    },
    { onerror: error => log.debug({ err: error }, 'refused an MCP request') },
  );
  const node = toNodeHandler({ fetch: shortErrors(givingSessionIds(handler.fetch)) });

  async function serve(exchange: Exchange, admit: Exchange['admit'], onOther: () => Promise<void>) {
    const { request, response, principal, signal } = exchange;
    const timeoutMs = requestedTimeoutMs(request);
    if (request.method !== 'POST') throw methodNotAllowed(response, request.method, 'POST');
    negotiate(request);
    // The SDK would traverse JSON of any depth and accept invalid UTF-8.
    const message = await readJsonBody(request, response, {
      maxBytes: 4 * MIB,
      budget,
      keyId: principal.keyId,
    });
    requireSingle(message);
    exchange.findRpcId(() => rpcIdOf(message, null));
    localsOf(response).rpc = summaryOf(message);
    if (!isToolCall(message)) await onOther();
    const { requestId } = localsOf(response);
    const isBehind = () => response.writableNeedDrain;
    const session = singleHeader(request, SESSION_HEADER);
    const face: FaceRequest = { principal, admit, requestId, timeoutMs, signal, isBehind, session };
    const direct = directCallOf(message, request.headers, tools);
    const answer = () =>
      direct
        ? answerDirectly({ ...parts, ...face, era: 'legacy' }, direct, { response, budget })
        : node(withAuth(request, face), countedAnswer(budget, response, principal.keyId), message);
    const span = spanOf(message);
    await (span ? inSpan(span, answer) : answer());
  }

  return pipeline({ core, log, route: '/mcp' }, async exchange => {
    const { keyId } = exchange.principal;
    await core.rateLimits.requireUnspent('unclassed', keyId);
    // A request counts once: in the class of the called tool, or as unclassified. Only the SDK knows which, because it
    // refuses some calls before the tool is reached.
    let isCounted = false;
    const countAsOther = async () => {
      isCounted = true;
      await core.rateLimits.take('unclassed', keyId);
    };
    const admit: Exchange['admit'] = (policy, parse, callsIn) => {
      isCounted = true;
      return exchange.admit(policy, parse, callsIn);
    };
    try {
      await serve(exchange, admit, countAsOther);
    } finally {
      if (!isCounted) await countAsOther();
    }
  });
}

/** The token field stays empty, because later code needs neither the key nor the identity token. */
const withAuth = (request: IncomingMessage, face: FaceRequest) =>
  Object.assign(request as IncomingMessage & { method: string; url: string }, {
    auth: {
      token: '',
      clientId: face.principal.keyId,
      scopes: [...face.principal.scopes],
      extra: { face },
    },
  });

/** Accepts a missing Accept header and wildcards, although the SDK requires both exact names. */
function negotiate(request: IncomingMessage): void {
  if (request.headers.accept === ALL_ANSWERS) return;
  const refused = ANSWERS.find(type => accepts(request).type(type) === false);
  if (refused !== undefined) {
    throw new SwitchboardError(
      'not_acceptable',
      `The Accept header does not allow ${refused}. Send Accept: ${ALL_ANSWERS}.`,
    );
  }
  request.headers.accept = ALL_ANSWERS;
}

/** @throws SwitchboardError `invalid_request` for messages that the SDK would accept, or respond to with an invalid id */
function requireSingle(message: unknown): asserts message is Input {
  if (Array.isArray(message))
    throw new SwitchboardError('invalid_request', 'Batches are not supported. Send one message per request.');
  if (typeof message !== 'object' || message === null)
    throw new SwitchboardError('invalid_request', 'The body must be a JSON-RPC message: a JSON object.');
  if (!('id' in message) || (isRpcId(message.id) && !isFraction(message.id))) return;
  throw new SwitchboardError(
    'invalid_request',
    'id: must be a string or a whole number from -(2^53 - 1) to 2^53 - 1',
  );
}

const isFraction = (id: string | number) => typeof id === 'number' && !Number.isInteger(id);

/** Returns a message's method, tool and target for the log, such as `tools/call call_remote_tool notes/create_note`. */
function summaryOf({ method, params }: Input): string | undefined {
  if (typeof method !== 'string') return undefined;
  const known = knownMethod(method);
  const name = toolNameIn(params);
  if (name === undefined) return known;
  const { arguments: args } = params as Input;
  const target = isObject(args) ? targetOf(args['server_id'], args['tool_name']) : '';
  return target === '' ? `${known} ${name}` : `${known} ${name} ${target}`;
}

function targetOf(server: unknown, tool: unknown): string {
  if (!isPlainName(server)) return isPlainName(tool) ? tool : '';
  return isPlainName(tool) ? `${server}/${tool}` : server;
}

const toolNameIn = (params: unknown) =>
  isObject(params) ? TOOL_NAMES.find(name => name === params['name']) : undefined;

const isPlainName = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w.-]{1,128}$/.test(value);

/**
 * Creates the span of a message (OpenTelemetry, "Semantic conventions for MCP"). A trace context in the message's `_meta`
 * takes precedence over that of the HTTP request.
 */
function spanOf({ method: sent, params }: Input): Span | undefined {
  const parent = activeSpan();
  if (!parent || typeof sent !== 'string' || (params !== undefined && !isObject(params))) return undefined;
  const method = knownMethod(sent);
  const tool = method === 'tools/call' ? toolNameIn(params) : undefined;
  return parent.child(tool === undefined ? method : `${method} ${tool}`, {
    kind: 'server',
    from: params?.['_meta'],
    attributes: {
      'mcp.method.name': method,
      'gen_ai.tool.name': tool,
      'gen_ai.operation.name': method === 'tools/call' ? 'execute_tool' : undefined,
    },
  });
}
