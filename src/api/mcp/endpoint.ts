import { toAbortSignal } from '../../platform/time.ts';
import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import type { Request } from 'express';
import { z } from 'zod';
import { knownMethod } from '../../core/proxy/reporting.ts';
import { SwitchboardError } from '../../errors.ts';
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
import { localsOf, requestedTimeoutMs } from '../http/request.ts';
import { shortErrors } from './sdk-server.ts';
import { createFaceServer, isToolCall, type FaceRequest } from './server.ts';
import { givingSessionIds, InflightCalls, LastSearches } from './sessions.ts';
import { TOOL_NAMES } from './tools.ts';

/** The media types that clients must accept. */
const ANSWERS = ['application/json', 'text/event-stream'];

interface McpOptions extends PipelineOptions {
  readonly version: string;
  /** true: offers `read_remote_tool`. */
  readonly readTool?: boolean;
  /** The other workers on the same port: a client's next request may arrive there. */
  readonly worker?: WorkerSeat | undefined;
}

/** Serves `/mcp`: both protocol eras on one URL, stateless. Every response except an event stream is JSON. */
export function mcpHandler({
  core,
  log,
  budget,
  version,
  readTool = false,
  worker,
}: McpOptions): Handler<Request> {
  const calls = new InflightCalls(worker);
  const searches = new LastSearches();
  const handler = createMcpHandler(
    ({ authInfo, era, requestInfo }) => {
      if (!authInfo?.extra) throw new Error('the MCP handler was reached without authentication');
      return createFaceServer({
        core,
        calls,
        searches,
        readTool,
        log,
        version,
        era,
        headers: requestInfo?.headers,
        ...(authInfo.extra['face'] as FaceRequest),
      });
    },
    { onerror: error => log.debug({ err: error }, 'refused an MCP request') },
  );
  const node = toNodeHandler({ fetch: shortErrors(givingSessionIds(handler.fetch)) });

  async function serve(exchange: Exchange<Request>, admit: Exchange['admit'], onOther: () => Promise<void>) {
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
    const face: FaceRequest = {
      principal,
      admit,
      requestId,
      timeoutMs,
      signal: toAbortSignal(signal),
      isBehind,
    };
    const counted = countedAnswer(budget, response, principal.keyId);
    const answer = () => node(withAuth(request, face), counted, message);
    const span = spanOf(message);
    await (span ? inSpan(span, answer) : answer());
  }

  return pipeline<Request>({ core, log, route: '/mcp' }, async exchange => {
    const { keyId } = exchange.principal;
    await core.rateLimits.requireUnspent('unclassed', keyId);
    // A request counts once: in the class of the called tool, or as unclassified. Only the SDK knows which, because it
    // refuses some calls before the tool is reached.
    let isCounted = false;
    const countAsOther = async () => {
      if (isCounted) return;
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
      await countAsOther();
    }
  });
}

/** The token field stays empty, because later code needs neither the key nor the identity token. */
const withAuth = (request: Request, face: FaceRequest) =>
  Object.assign(request, {
    auth: {
      token: '',
      clientId: face.principal.keyId,
      scopes: [...face.principal.scopes],
      extra: { face },
    },
  });

/** Accepts a missing Accept header and wildcards, although the SDK requires both exact names. */
function negotiate(request: Request): void {
  const refused = ANSWERS.find(type => request.accepts(type) === false);
  if (refused !== undefined) {
    throw new SwitchboardError(
      'not_acceptable',
      `The Accept header does not allow ${refused}. Send Accept: ${ANSWERS.join(', ')}.`,
    );
  }
  request.headers.accept = ANSWERS.join(', ');
}

/** @throws SwitchboardError `invalid_request` for messages that the SDK would accept, or respond to with an invalid id */
function requireSingle(message: unknown): void {
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

const traced = z.object({
  method: z.string().transform(knownMethod),
  params: z.object({ name: z.unknown().optional(), _meta: z.unknown().optional() }).optional(),
});

const logged = z.object({
  method: z.string().transform(knownMethod),
  params: z
    .object({
      name: z.enum(TOOL_NAMES).optional().catch(undefined),
      arguments: z.record(z.string(), z.unknown()).optional().catch(undefined),
    })
    .optional()
    .catch(undefined),
});

/** Returns a message's method, tool and target for the log, such as `tools/call call_remote_tool notes/create_note`. */
function summaryOf(message: unknown): string | undefined {
  const parsed = logged.safeParse(message).data;
  if (!parsed) return undefined;
  const { name, arguments: args } = parsed.params ?? {};
  if (name === undefined) return parsed.method;
  const target = [args?.['server_id'], args?.['tool_name']].filter(isPlainName).join('/');
  return [parsed.method, name, target].filter(part => part !== '').join(' ');
}

const isPlainName = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w.-]{1,128}$/.test(value);

/**
 * Creates the span of a message (OpenTelemetry, "Semantic conventions for MCP"). A trace context in the message's `_meta`
 * takes precedence over that of the HTTP request.
 */
function spanOf(message: unknown): Span | undefined {
  const parent = activeSpan();
  const parsed = parent && traced.safeParse(message).data;
  if (!parsed) return undefined;
  const { method, params } = parsed;
  const tool = method === 'tools/call' ? TOOL_NAMES.find(name => name === params?.name) : undefined;
  return parent.child(tool === undefined ? method : `${method} ${tool}`, {
    kind: 'server',
    from: params?._meta,
    attributes: {
      'mcp.method.name': method,
      'gen_ai.tool.name': tool,
      'gen_ai.operation.name': method === 'tools/call' ? 'execute_tool' : undefined,
    },
  });
}
