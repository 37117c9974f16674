import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import type { Request } from 'express';
import { z } from 'zod';
import { knownMethod } from '../../core/proxy/reporting.ts';
import { SwitchboardError } from '../../errors.ts';
import { activeSpan, inSpan, type Span } from '../../platform/telemetry/tracing.ts';
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

/** The media types that the transport asks clients to accept. */
const ANSWERS = ['application/json', 'text/event-stream'];

interface McpOptions extends PipelineOptions {
  readonly version: string;
  /** true: `read_remote_tool` is offered. */
  readonly readTool?: boolean;
}

/** Serves `/mcp`: both protocol eras on one URL, stateless. Every answer but an event stream is JSON. */
export function mcpHandler({ core, log, budget, version, readTool = false }: McpOptions): Handler<Request> {
  const calls = new InflightCalls();
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
        ...(authInfo.extra as unknown as FaceRequest),
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
    // The SDK would walk JSON of any depth and take broken UTF-8.
    const message = await readJsonBody(request, response, {
      maxBytes: 4 * MIB,
      budget,
      keyId: principal.keyId,
    });
    requireSingle(message);
    exchange.rpcId = () => rpcIdOf(message, null);
    if (!isToolCall(message)) await onOther();
    const { requestId } = localsOf(response);
    const isBehind = () => response.writableNeedDrain;
    const face: FaceRequest = { principal, admit, requestId, timeoutMs, signal, isBehind };
    const counted = countedAnswer(budget, response, principal.keyId);
    const answer = () => node(withAuth(request, face), counted, message);
    const span = spanOf(message);
    await (span ? inSpan(span, answer) : answer());
  }

  return pipeline<Request>({ core, log, route: '/mcp' }, async exchange => {
    const { keyId } = exchange.principal;
    await core.rateLimits.requireUnspent('unclassed', keyId);
    // A request counts once: in the class of the tool that it calls, or in none. Only the SDK can say which: it refuses some calls
    // before their tool hears of them.
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

/** The token field stays empty: nothing behind this point needs the key or the identity token. */
const withAuth = (request: Request, face: FaceRequest) =>
  Object.assign(request, {
    auth: {
      token: '',
      clientId: face.principal.keyId,
      scopes: [...face.principal.scopes],
      extra: { ...face },
    },
  });

/** Serves clients that name no type, or a pattern that both fit, too: the SDK looks for the very names. */
function negotiate(request: Request): void {
  const refused = ANSWERS.find(type => request.accepts(type) === false);
  if (refused !== undefined) {
    throw new SwitchboardError(
      'not_acceptable',
      `The Accept header excludes ${refused}. Send Accept: ${ANSWERS.join(', ')}.`,
    );
  }
  request.headers.accept = ANSWERS.join(', ');
}

/** @throws SwitchboardError `invalid_request` for what the SDK would take, or answer with an id that is none. */
function requireSingle(message: unknown): void {
  if (Array.isArray(message))
    throw new SwitchboardError('invalid_request', 'Batches are not supported. Send one message a request.');
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

/**
 * Returns a message's part of the trace of its request (OpenTelemetry, "Semantic conventions for MCP"). A client that traces says so in
 * the message's `_meta` rather than in headers, and the trace that is named there goes before that of the HTTP request.
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
