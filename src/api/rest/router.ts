import type { IncomingMessage, ServerResponse } from 'node:http';
import { parse as parseQuery } from 'node:querystring';
import { requireScope } from '../../core/access/authorise.ts';
import type { Principal } from '../../core/access/caller.ts';
import type { Caller } from '../../core/access/caller.ts';
import type { Core } from '../../core/core.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { authenticate, bearerOf, presented } from '../http/authenticate.ts';
import { readJsonBody } from '../http/body.ts';
import type { Held } from '../http/memory-budget.ts';
import {
  addHeaders,
  clientSignal,
  localsOf,
  quotaHeaders,
  rateLimitHeaders,
  requestedTimeoutMs,
  sendText,
  singleHeader,
  toCaller,
} from '../http/http.ts';
import { idempotencyKey, parseInput } from '../http/input.ts';
import { errorOf, rpcIdOf, sendProblem, sendRpcError, type RpcId } from '../http/problem.ts';
import { NDJSON, SILENT, type Telling } from '../admin/progress.ts';
import { countAnswer } from '../http/backpressure.ts';
import type { Endpoint } from './endpoint.ts';
import { findRoute } from './routes.ts';
import { sendLines, streamedAnswers } from './streamed.ts';

/** The one path whose errors are JSON-RPC responses as well, also for those who come with no key or another method. */
export const isRpcPath = (path: string): boolean => path === '/v1/mcp/call';

/** The registry API, whose clients send a key as a Bearer token, or none where it is public. */
export const isRegistryPath = (path: string): boolean => path.startsWith('/v0.1/');

/** Problem details; to clients of the registry API they are its own error object, too. */
export function sendRestProblem(
  response: ServerResponse,
  error: SwitchboardError,
  requestId: string,
  path: string,
): void {
  sendProblem(response, error, requestId, isRegistryPath(path) ? { error: error.detail } : {});
}

/** Whose answers hold secrets, or are for nobody else to see. */
const NOT_STORED: ReadonlySet<Endpoint['tag']> = new Set(['Proxy', 'Identity', 'Admin']);

/** All of `/v1` and `/v0.1`. Authentication comes before routing: without a key nobody learns which paths exist. */
export function restHandler(core: Core, log: Log, { bodies, answers }: Held, isRegistryPublic: boolean) {
  const answerStreamed = streamedAnswers(core, log);
  return async (request: IncomingMessage, response: ServerResponse, path: string): Promise<void> => {
    const rpc: { id: RpcId } = { id: null };
    try {
      const isOpen = isRegistryPublic && isRegistryPath(path);
      const principal = await authenticated(core, request, response, { path, isOpen });
      const { endpoint, params, allowed } = findRoute(request.method ?? '', path);
      if (endpoint) localsOf(response).route = endpoint.path;
      else {
        await core.rateLimits.take('unclassed', principal.keyId);
        throw noEndpoint(request, response, path, allowed);
      }
      if (NOT_STORED.has(endpoint.tag)) addHeaders(response, { 'Cache-Control': 'no-store' });
      const caller = await admit(core, endpoint, principal, request, response);
      if (endpoint.stream) {
        const query = queryOf(endpoint, request);
        return await answerStreamed({ stream: endpoint.stream, caller, query }, request, response);
      }
      const room = { maxBytes: endpoint.maxBodyBytes, bodies, keyId: principal.keyId };
      const body = endpoint.bodySchema && (await readJsonBody(request, response, room));
      rpc.id = rpcIdOf(body, 1);
      const work = await prepare(core, endpoint, caller, body, { params, principal, request, response });
      if (endpoint.isLong === true && request.headers.accept === NDJSON)
        return await sendLines(response, work, log);
      const answer = await work(SILENT);
      const text = JSON.stringify(answer);
      countAnswer(answers, response, principal.keyId, text);
      sendText(response, 200, 'application/json', text);
    } catch (thrown) {
      refuse(response, thrown, { log, path, rpcId: rpc.id });
    }
  };
}

function refuse(
  response: ServerResponse,
  thrown: unknown,
  { log, path, rpcId }: { log: Log; path: string; rpcId: RpcId },
): void {
  if (response.destroyed || response.headersSent) return;
  const { requestId } = localsOf(response);
  const error = errorOf(thrown);
  if (error.code === 'internal') log.error({ err: thrown, requestId }, 'request failed');
  if (isRpcPath(path)) sendRpcError(response, error, requestId, rpcId);
  else sendRestProblem(response, error, requestId, path);
}

async function authenticated(
  core: Core,
  request: IncomingMessage,
  response: ServerResponse,
  { path, isOpen }: { path: string; isOpen: boolean },
) {
  const locals = localsOf(response);
  const credentials = isRegistryPath(path)
    ? presented(request)
    : { key: singleHeader(request, 'x-api-key'), token: bearerOf(request) };
  if (isOpen && credentials.key === undefined) return anyone(locals.ip);
  locals.principal = await authenticate(core, { ...credentials, ip: locals.ip });
  return locals.principal;
}

/** Who comes without a key where none is needed; the budget is the address's. */
const anyone = (ip = 'unknown'): Principal => ({
  tenantId: '',
  keyId: `ip ${ip}`,
  scopes: new Set(['search']),
});

function noEndpoint(
  { method }: IncomingMessage,
  response: ServerResponse,
  path: string,
  allowed: readonly string[],
): SwitchboardError {
  const methods = allowed.join(', ');
  if (methods === '')
    return new SwitchboardError(
      'route_not_found',
      `There is no ${sanitise(path)}. /openapi.json lists what there is.`,
    );
  addHeaders(response, { Allow: methods });
  return new SwitchboardError('method_not_allowed', `${method} is not possible here. Use ${methods}.`);
}

async function admit(
  core: Core,
  one: Endpoint,
  principal: Principal,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<Caller> {
  if (one.rateClass !== undefined) {
    const state = await core.rateLimits.spend(principal.keyId, one.rateClass);
    if (state) addHeaders(response, rateLimitHeaders(state));
  }
  requireScope(principal, one.scope);
  const { requestId, ip } = localsOf(response);
  const caller = toCaller(principal, {
    requestId,
    ip,
    signal: clientSignal(response),
    timeoutMs: one.tag === 'Proxy' ? requestedTimeoutMs(request) : undefined,
  });
  // A proxied call asks this in the query that loads the user's connection.
  if (one.tag !== 'Proxy') await core.identity.credentials.requireLive(caller);
  return caller;
}

/** Checks what has come, and gives the work that is left. */
async function prepare(
  core: Core,
  one: Endpoint,
  caller: Caller,
  body: unknown,
  {
    params,
    principal,
    request,
    response,
  }: {
    params: Readonly<Record<string, string>>;
    principal: Principal;
    request: IncomingMessage;
    response: ServerResponse;
  },
): Promise<(telling: Telling) => Promise<unknown>> {
  const input = one.bodySchema && parseInput(one.bodySchema, body);
  const query = queryOf(one, request);
  if (one.use !== undefined) {
    const state = await core.apiKeys.use.spend(principal, one.use);
    if (state) addHeaders(response, quotaHeaders(state));
  }
  const parts = {
    params,
    query: query ?? {},
    idempotencyKey:
      one.idempotent === true
        ? parseInput(idempotencyKey, request.headers['idempotency-key'], 'The header Idempotency-Key')
        : undefined,
    arrivedMs: localsOf(response).arrivedMs,
  };
  return telling => one.run(core, caller, input, { ...parts, telling });
}

/** @throws SwitchboardError `invalid_request`. */
function queryOf({ querySchema }: Endpoint, { url = '' }: IncomingMessage) {
  const at = url.indexOf('?');
  const text = at < 0 ? '' : url.slice(at + 1);
  return querySchema && parseInput(querySchema, parseQuery(text), 'The query string');
}
