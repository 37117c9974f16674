import { createMcpHandler } from '@modelcontextprotocol/server';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { Router, type Request, type Response } from 'express';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { inSpan } from '../../platform/telemetry/tracing.ts';
import { authenticate, presented } from '../http/authenticate.ts';
import { readJsonBody, type Room } from '../http/body.ts';
import type { Held } from '../http/memory-budget.ts';
import { clientSignal, localsOf, requestedTimeoutMs } from '../http/http.ts';
import { errorOf, isRpcId, rpcIdOf, sendMcpError, type RpcId } from '../http/problem.ts';
import { countedAnswer } from '../http/backpressure.ts';
import { CallsUnderWay } from './inflight-calls.ts';
import { givingSessionIds } from './elicitation.ts';
import { LastSearches } from './last-searches.ts';
import { createFaceServer, isToolCall, type FaceRequest } from './server.ts';
import { shortErrors } from './truncate-sdk-errors.ts';
import { spanOf } from './span.ts';
import { Spending } from './charge-once.ts';

const MAX_BODY_BYTES = 4 * 1024 * 1024;

/** What the transport asks clients to accept. */
const ANSWERS = ['application/json', 'text/event-stream'];

interface McpOptions {
  readonly core: Core;
  readonly log: Log;
  readonly version: string;
  /** Whether `read_remote_tool` is offered. */
  readonly readTool: boolean;
  readonly held: Held;
}

/** `/mcp`: both protocol eras on one URL, stateless. Every answer but an event stream is JSON. */
export function mcpRouter({ core, log, version, readTool, held }: McpOptions): Router {
  const { bodies, answers } = held;
  const calls = new CallsUnderWay();
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
    { onerror: error => log.debug({ err: error }, 'mcp request refused') },
  );
  const node = toNodeHandler({ fetch: shortErrors(givingSessionIds(handler.fetch)) });
  const router = Router({ caseSensitive: true });
  router.all('/', async (request: Request, response: Response) => {
    const locals = localsOf(response);
    const { requestId } = locals;
    locals.route = '/mcp';
    let rpcId: RpcId = null;
    try {
      const principal = await authenticate(core, { ...presented(request), ip: request.ip });
      locals.principal = principal;
      await core.rateLimits.requireUnspent('unclassed', principal.keyId);
      const spending = new Spending(core, principal);
      try {
        const timeoutMs = requestedTimeoutMs(request);
        const message = await readMessage(request, response, {
          maxBytes: MAX_BODY_BYTES,
          bodies,
          keyId: principal.keyId,
        });
        rpcId = rpcIdOf(message, null);
        if (!isToolCall(message)) await spending.onNoTool();
        const signal = clientSignal(response);
        const isBehind = () => response.writableNeedDrain;
        const extra = { principal, spending, requestId, ip: request.ip, timeoutMs, signal, isBehind };
        const counted = countedAnswer(answers, response, principal.keyId);
        const serve = () => node(withAuth(request, extra), counted, message);
        const span = spanOf(message);
        await (span ? inSpan(span, serve) : serve());
      } finally {
        await spending.onNoTool();
      }
    } catch (thrown) {
      if (response.destroyed || response.headersSent) return;
      const error = errorOf(thrown);
      if (error.code === 'internal') log.error({ err: thrown, requestId }, 'mcp request failed');
      sendMcpError(response, error, rpcId);
    }
  });
  return router;
}

/** @throws SwitchboardError what the request is refused with. */
async function readMessage(request: Request, response: Response, room: Room): Promise<unknown> {
  requirePost(request, response);
  negotiate(request);
  // Read here and not by the SDK, which would walk JSON of any depth and take broken UTF-8.
  const message = await readJsonBody(request, response, room);
  requireSingle(message);
  return message;
}

/** The token field stays empty: nothing behind this point needs the key or the identity token. */
const withAuth = (request: Request, extra: FaceRequest) =>
  Object.assign(request, {
    auth: {
      token: '',
      clientId: extra.principal.keyId,
      scopes: [...extra.principal.scopes],
      extra: { ...extra },
    },
  });

/** There is no session to open a stream in (GET) or to end (DELETE). */
function requirePost(request: Request, response: Response): void {
  if (request.method === 'POST') return;
  response.set('Allow', 'POST');
  throw new SwitchboardError('method_not_allowed', `${request.method} is not possible here. Use POST.`);
}

/** Clients that name no type, or a pattern that both fit, are served too; the SDK looks for the very names. */
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
