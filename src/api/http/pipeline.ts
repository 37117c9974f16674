import type { IncomingMessage, ServerResponse } from 'node:http';
import { parse as parseQuery } from 'node:querystring';
import { admit, authenticate, countUnclassed, type Policy } from '../../core/access/admit.ts';
import type { Caller, Principal } from '../../core/access/caller.ts';
import type { QuotaState } from '../../core/access/quota.ts';
import type { RateLimitState } from '../../core/access/rate-limits.ts';
import type { Core } from '../../core/core.ts';
import { JsonParts } from '../../platform/json/limits.ts';
import { Places } from '../../platform/queues.ts';
import { sanitise } from '../../platform/sanitize.ts';
import type { Cancellation } from '../../platform/time.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { challengeFor, resourceAt } from '../authorization/resources.ts';
import { decodedBody, letGoBy, readJsonBody, holdAnswer, type MemoryBudget } from './body.ts';
import {
  idempotencyKey,
  NDJSON,
  parseInput,
  SILENT,
  type Endpoint,
  type FindRoute,
  type Input,
  type ProgressListener,
  type StreamedBody,
} from './endpoint.ts';
import { problemOf, renderError, rpcIdOf, toReported, type RpcId } from './render-error.ts';
import {
  bearerOf,
  clientSignal,
  localsOf,
  requestedTimeoutMs,
  singleHeader,
  addHeaders,
  limitHeaders,
  sendParts,
  sendText,
  writeHead,
  wireOf,
  type Wire,
} from './request.ts';

/** Handles one request completely, including errors. */
export type Handler<Request extends IncomingMessage = IncomingMessage> = (
  request: Request,
  response: ServerResponse,
  path: string,
) => Promise<void>;

const nobodyAsked = (): RpcId => null;

/** An authenticated request in the pipeline. */
export class Exchange<Request extends IncomingMessage = IncomingMessage> {
  readonly request: Request;
  readonly response: ServerResponse;
  readonly path: string;
  readonly principal: Principal;
  /** Aborts when the client has disconnected. */
  readonly signal: Cancellation;
  readonly #core: Core;
  #rpcId = nobodyAsked;

  constructor(core: Core, of: Pick<Exchange<Request>, 'request' | 'response' | 'path' | 'principal'>) {
    this.#core = core;
    this.request = of.request;
    this.response = of.response;
    this.path = of.path;
    this.principal = of.principal;
    this.signal = clientSignal(of.response);
  }

  /** The id for a JSON-RPC error response. */
  get rpcId(): RpcId {
    return this.#rpcId();
  }

  /**
   * Sets how the id is found. Not a property to assign to: V8 allocates a function literal that is assigned to a property in the
   * old generation, where it keeps its whole request until the next full collection.
   */
  findRpcId(find: () => RpcId): void {
    this.#rpcId = find;
  }

  /** Passes the request through the gate (`admit`) and adds the rate limit headers to the response. */
  admit<Parsed>(
    policy: Policy,
    parse: () => Parsed | Promise<Parsed>,
    callsIn?: (input: Parsed) => number,
  ): Promise<{ caller: Caller; input: Parsed }> {
    const { requestId, ip } = localsOf(this.response);
    const { signal } = this;
    const onLimit = (state: RateLimitState | QuotaState) => addHeaders(this.response, limitHeaders(state));
    return admit(this.#core, this.principal, policy, { requestId, ip, signal, parse, callsIn, onLimit });
  }
}

export interface PipelineOptions {
  readonly core: Core;
  readonly log: Log;
  readonly budget: MemoryBudget;
}

interface PipelineParts extends Pick<PipelineOptions, 'core' | 'log'> {
  /** Identifies the caller. Default: by API key and identity token. */
  readonly principalOf?: Authenticator;
  /** The name of the route in metrics, if it is known before authentication. */
  readonly route?: string;
  /** Default: the format for the path. */
  readonly wire?: Wire;
}

export type Authenticator = (
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
) => Principal | Promise<Principal>;

/**
 * Returns a handler for requests with a key. It authenticates a request, passes it to `handle` and renders any error.
 * `handle` finds the endpoint and admits the request.
 */
export function pipeline<Request extends IncomingMessage = IncomingMessage>(
  { core, log, principalOf = byKey(core), route, wire }: PipelineParts,
  handle: (exchange: Exchange<Request>) => Promise<void>,
): Handler<Request> {
  return async (request, response, path) => {
    const locals = localsOf(response);
    if (route !== undefined) locals.route = route;
    if (wire !== undefined) locals.wire = wire;
    let exchange: Exchange<Request> | undefined;
    try {
      const found = principalOf(request, response, path);
      const principal = found instanceof Promise ? await found : found;
      exchange = new Exchange(core, { request, response, path, principal });
      await handle(exchange);
    } catch (thrown) {
      renderError(response, thrown, {
        wire: locals.wire ?? wireOf(path),
        log,
        rpcId: exchange?.rpcId ?? null,
        challengeOf: status => challengeOf(core, { request, path, status }),
      });
    }
  };
}

/** Returns what leads a client without a key to the sign-in. */
function challengeOf(
  { identity: { grants } }: Core,
  refused: { request: IncomingMessage; path: string; status: number },
): string | undefined {
  return grants && challengeFor({ grants, ...refused });
}

/**
 * Authenticates a request by its headers, and records the key for the log. REST clients send `X-API-Key`, with the user's
 * identity token as a Bearer token. Clients of MCP and of a registry may have only a Bearer token, which is the key if there
 * is no `X-API-Key`.
 */
export const byKey =
  (core: Core): Authenticator =>
  (request, response, path) => {
    const locals = localsOf(response);
    const { ip } = locals;
    const key = singleHeader(request, 'x-api-key');
    const bearer = bearerOf(request);
    const found = authenticate(
      core,
      path.startsWith('/v1/')
        ? { key, token: bearer, ip }
        : {
            key: key ?? bearer,
            token: key === undefined ? undefined : bearer,
            keyMayBeBearer: true,
            resource: key !== undefined || isKey(bearer) ? undefined : resourceOf(core, path),
            ip,
          },
    );
    const record = (principal: Principal) => (locals.principal = principal);
    return found instanceof Promise ? found.then(record) : record(found);
  };

/** Returns whether a Bearer token is no access token of an MCP client: most are keys, for which nothing more is done. */
const isKey = (bearer: string | undefined): boolean => bearer !== undefined && !bearer.startsWith('ey');

/** Returns the address of an MCP endpoint, if clients can sign in to it. */
function resourceOf({ identity: { grants } }: Core, path: string): string | undefined {
  return grants && resourceAt(grants.publicUrl, path)?.url;
}

interface EndpointOptions extends PipelineOptions, Pick<PipelineParts, 'principalOf' | 'wire'> {
  readonly find: FindRoute;
  /** How many streamed bodies are read at a time. Default: one, because their data may be large. */
  readonly maxStreams?: number;
}

/** Serves a table of endpoints. Authentication precedes routing, so that callers without a key cannot discover paths. */
export function serveEndpoints({
  core,
  log,
  budget,
  find,
  maxStreams = 1,
  ...parts
}: EndpointOptions): Handler {
  const streams = new Places(maxStreams);

  async function serveJson(
    one: Endpoint & { stream?: undefined },
    params: Input['params'],
    exchange: Exchange,
  ): Promise<void> {
    const { request, response, principal } = exchange;
    const { caller, input } = await exchange.admit(policyOf(one, params), async () => {
      const parsed = partsOf(one, request);
      const room = { maxBytes: one.maxBodyBytes, budget, keyId: principal.keyId };
      const sent = one.bodySchema && (await readJsonBody(request, response, room));
      exchange.findRpcId(() => rpcIdOf(sent, 1));
      return { ...parsed, body: one.bodySchema && parseInput(one.bodySchema, sent) };
    });
    const { body, query, idempotencyKey: key, timeoutMs } = input;
    const { arrivedMs } = localsOf(response);
    const work = (progress: ProgressListener) =>
      one.run(core, timeoutMs === undefined ? caller : { ...caller, timeoutMs }, {
        body,
        query,
        idempotencyKey: key,
        params,
        arrivedMs,
        progress,
      });
    if (one.isLong === true) return answerLong(exchange, caller, work);
    sendAnswer(exchange, await work(SILENT));
  }

  async function serveStream(
    one: Endpoint & { stream: StreamedBody },
    params: Input['params'],
    exchange: Exchange,
  ): Promise<void> {
    const { request, response } = exchange;
    try {
      const { caller, input } = await exchange.admit(policyOf(one, params), () => {
        requireType(one.stream, request.headers['content-type']);
        return partsOf(one, request);
      });
      const place = streams.enter('');
      if (typeof place === 'string')
        throw new SwitchboardError('unavailable', one.stream.busy, { retryAfterSec: 5 });
      using _place = place;
      // The stream is not destroyed if it is not read to its end, because the response uses the same connection.
      const body = decodedBody(request).iterator({ destroyOnReturn: false });
      await answerLong(exchange, caller, await one.stream.read(core, caller, body, input.query));
    } catch (error) {
      await letGoBy(request);
      if (!response.headersSent) addHeaders(response, { Connection: 'close' });
      throw error;
    }
  }

  function sendAnswer({ response, principal }: Exchange, answer: unknown): void {
    const json = answer instanceof JsonParts ? answer : JSON.stringify(answer);
    holdAnswer(budget, response, principal.keyId, json);
    if (typeof json === 'string') sendText(response, 200, 'application/json', json);
    else sendParts(response, json);
  }

  /** Responds with progress lines if the caller accepts them. */
  async function answerLong(
    exchange: Exchange,
    { signal }: Caller,
    work: (progress: ProgressListener) => Promise<unknown>,
  ): Promise<void> {
    const { request, response } = exchange;
    const { requestId, wire } = localsOf(response);
    const logged = (progress: ProgressListener) =>
      work(progress).catch((error: unknown) => {
        if (signal.aborted && error === signal.reason)
          log.info({ requestId }, 'long request cancelled by its caller');
        throw error;
      });
    if (!acceptsLines(request.headers.accept)) return sendAnswer(exchange, await logged(SILENT));
    writeHead(response, 200, { 'Content-Type': NDJSON });
    await answerInLines(response, logged, thrown =>
      problemOf(
        toReported(thrown, response.destroyed ? undefined : log, requestId),
        requestId,
        wire ?? wireOf(exchange.path),
      ),
    );
  }

  async function refuse({ request, response, path, principal }: Exchange, allowed: readonly string[]) {
    throw await countUnclassed(core, principal, noEndpoint(request, response, path, allowed));
  }

  return pipeline({ core, log, ...parts }, exchange => {
    const { request, response, path } = exchange;
    const { endpoint, params, allowed } = find(request.method ?? '', path);
    if (!endpoint) return refuse(exchange, allowed);
    localsOf(response).route = endpoint.path;
    if (endpoint.cache !== undefined) addHeaders(response, { 'Cache-Control': endpoint.cache });
    return endpoint.stream ? serveStream(endpoint, params, exchange) : serveJson(endpoint, params, exchange);
  });
}

const policyOf = ({ scope, rateLimit, quota, user }: Endpoint, params: Input['params']): Policy => ({
  scope,
  rateLimit: typeof rateLimit === 'function' ? rateLimit(params) : rateLimit,
  quota,
  user,
});

/** Reads everything in a request except the body and the path. @throws SwitchboardError `invalid_request` */
function partsOf({ querySchema, timeoutHeader, idempotent }: Endpoint, request: IncomingMessage) {
  const { url = '', headers } = request;
  const at = url.indexOf('?');
  const query = at < 0 ? '' : url.slice(at + 1);
  return {
    query: querySchema && parseInput(querySchema, parsedQuery(query), 'The query string'),
    timeoutMs: timeoutHeader && requestedTimeoutMs(request),
    idempotencyKey:
      idempotent && parseInput(idempotencyKey, headers['idempotency-key'], 'The header Idempotency-Key'),
  };
}

/** Parses a query string; `parseQuery` alone would replace what is not UTF-8. @throws SwitchboardError `invalid_request` */
function parsedQuery(query: string): ReturnType<typeof parseQuery> {
  try {
    decodeURIComponent(query);
  } catch (cause) {
    throw new SwitchboardError('invalid_request', 'The query string is not percent-encoded UTF-8.', {
      cause,
    });
  }
  return parseQuery(query);
}

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
      `${sanitise(path)} does not exist. /openapi.json lists all endpoints.`,
    );
  return methodNotAllowed(response, method, methods);
}

/** Returns the error for an unsupported method, and adds the supported ones to the response. */
export function methodNotAllowed(
  response: ServerResponse,
  method: string | undefined,
  allowed: string,
): SwitchboardError {
  addHeaders(response, { Allow: allowed });
  return new SwitchboardError('method_not_allowed', `${method} is not allowed here. Use ${allowed}.`);
}

/** @throws SwitchboardError `unsupported_media_type` for any other declared type */
function requireType({ types }: StreamedBody, contentType = ''): void {
  const [type = ''] = contentType.toLowerCase().split(';');
  if (types.includes(type.trim())) return;
  throw new SwitchboardError(
    'unsupported_media_type',
    `Send the body in UTF-8 as Content-Type: ${types.join(' or ')}.`,
  );
}

/** Returns whether a caller asks for progress lines. A wildcard does not. */
const acceptsLines = (accept = ''): boolean =>
  accept.split(',').some(range => {
    const [type, ...parameters] = range.split(';').map(part => part.trim().toLowerCase());
    return type === NDJSON && !parameters.some(parameter => /^q=0(?:\.0*)?$/.test(parameter));
  });

/** The minimum interval between progress lines; the line of a finished step is always sent. */
const EVERY_MS = 100;

/**
 * Responds with progress lines `{"progress": {done, of}}`, `{"listed": …}` and `{"notice": …}`, and a last line `{"result":
 * …}` or `{"problem": …}`.
 * @param toProblem converts an error to problem details
 */
async function answerInLines(
  response: ServerResponse,
  work: (progress: ProgressListener) => Promise<unknown>,
  toProblem: (thrown: unknown) => unknown,
): Promise<void> {
  response.flushHeaders();
  const write = (line: object) => {
    // Unread lines are buffered in memory, but they are few and short.
    if (!response.destroyed) response.write(`${JSON.stringify(line)}\n`);
  };
  let writtenAt = -Infinity;
  const writeSometimes = (line: object, isLast: boolean) => {
    const now = performance.now();
    if (now - writtenAt < EVERY_MS && !isLast) return;
    writtenAt = now;
    write(line);
  };
  const onProgress: ProgressListener['onProgress'] = progress =>
    writeSometimes({ progress }, progress.done === progress.of);
  const onListed = (listed: number) => writeSometimes({ listed }, false);
  try {
    write({ result: await work({ onProgress, onListed, onNotice: notice => write({ notice }) }) });
  } catch (error) {
    write({ problem: toProblem(error) });
  }
  response.end();
}
