import { Router, type Request, type RequestHandler, type Response } from 'express';
import { requireScope } from '../../core/access/authorise.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../infra/log.ts';
import { authenticate, bearerOf } from '../authentication.ts';
import { idempotencyKey, parseInput } from '../input.ts';
import {
  clientSignal,
  localsOf,
  rateLimitHeaders,
  requestedTimeoutMs,
  singleHeader,
  toCaller,
} from '../http.ts';
import { readJsonBody } from '../body.ts';
import type { Endpoint, RequestParts } from './endpoint.ts';
import { endpoints } from './endpoints/index.ts';
import { errorOf, rpcIdOf, sendProblem, sendRpcError, type RpcId } from '../problem.ts';

/** All of `/v1`. Authentication comes before routing: without a key nobody learns which paths exist. */
export function restRouter(core: Core, log: Log): Router {
  const router = Router({ caseSensitive: true, strict: true });
  router.use(authenticated(core));
  const methods = Map.groupBy(endpoints, one => one.path);
  for (const [path, atPath] of methods) {
    const route = router.route(path.replace(/^\/v1/, ''));
    for (const one of atPath) route[one.method](serve(core, log, one));
    const allowed = atPath.map(one => one.method.toUpperCase()).join(', ');
    route.all((request, response) => {
      response.set('Allow', allowed);
      throw new SwitchboardError(
        'method_not_allowed',
        `${request.method} is not possible here. Use ${allowed}.`,
      );
    });
  }
  router.use((request: Request) => {
    throw new SwitchboardError(
      'route_not_found',
      `There is no ${request.baseUrl}${request.path}. /openapi.json lists what there is.`,
    );
  });
  return router;
}

const authenticated =
  (core: Core): RequestHandler =>
  async (request, response, next) => {
    const credentials = { key: singleHeader(request, 'x-api-key'), token: bearerOf(request), ip: request.ip };
    localsOf(response).principal = await authenticate(core, credentials);
    next();
  };

function serve(core: Core, log: Log, one: Endpoint): RequestHandler {
  return async (request, response) => {
    const { requestId } = localsOf(response);
    let rpcId: RpcId = null;
    try {
      if (one.tag === 'Identity') response.set('Cache-Control', 'no-store');
      const caller = await admit(core, one, request, response);
      const body =
        one.bodySchema === undefined ? undefined : await readJsonBody(request, response, one.maxBodyBytes);
      rpcId = rpcIdOf(body, 1);
      const input = one.bodySchema === undefined ? undefined : parseInput(one.bodySchema, body);
      response.json(await one.run(core, caller, input, partsOf(one, request, response)));
    } catch (thrown) {
      if (response.destroyed || response.headersSent) return;
      const error = errorOf(thrown);
      if (error.code === 'internal') log.error({ err: thrown, requestId }, 'request failed');
      if (one.jsonRpc) sendRpcError(response, error, requestId, rpcId);
      else sendProblem(response, error, requestId);
    }
  };
}

async function admit(core: Core, one: Endpoint, request: Request, response: Response) {
  const { principal, requestId } = localsOf(response);
  if (!principal) throw new Error('a route was reached without authentication');
  requireScope(principal, one.scope);
  if (one.rateClass !== undefined) {
    const state = await core.rateLimits.spend(principal.keyId, one.rateClass);
    if (state) response.set(rateLimitHeaders(state));
  }
  const caller = toCaller(principal, {
    requestId,
    ip: request.ip,
    signal: clientSignal(response),
    timeoutMs: one.tag === 'Proxy' ? requestedTimeoutMs(request) : undefined,
  });
  // A proxied call asks this in the query that loads the user's connection.
  if (one.tag !== 'Proxy') await core.identity.credentials.requireLive(caller);
  return caller;
}

function partsOf(one: Endpoint, request: Request, response: Response): RequestParts {
  return {
    params: request.params as Record<string, string>,
    query:
      one.querySchema === undefined
        ? {}
        : (parseInput(one.querySchema, request.query) as Record<string, string>),
    idempotencyKey:
      one.idempotent === true ? parseInput(idempotencyKey, request.headers['idempotency-key']) : undefined,
    arrivedMs: localsOf(response).arrivedMs,
  };
}
