import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { Agent, type Dispatcher } from 'undici';
import { SwitchboardError } from '../../../errors.ts';
import { abortReason } from '../../../platform/race-abort.ts';
import { blockedRedirect, type Guard } from '../../../platform/outbound/guard.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import type { ProxyLimits } from '../limits.ts';
import { NotConnected } from './failures.ts';
import {
  BufferedExchange,
  isRedirect,
  StreamedExchange,
  type HttpAnswer,
  type HttpRequest,
  type Streamed,
  type StreamRequest,
} from './http.ts';

/** Connections an origin has beyond its slots, for messages that calls under way wait for. */
const SIDE_CONNECTIONS = 8;

/** The wait before a refused connection is tried once more. */
const RECONNECT_MS = 100;

const parsedUrls = new LRUCache<string, URL>({ max: 1_000 });

/** Returns a catalogued URL, parsed once and not at each call. It is shared: nobody may change it. */
export function urlOf(text: string): URL {
  const known = parsedUrls.get(text);
  if (known) return known;
  const url = new URL(text);
  parsedUrls.set(text, url);
  return url;
}

/** The class of an exchange: one that buffers its answer, or one that streams it. */
type ExchangeOf<R, T> = new (
  request: R,
  limits: ProxyLimits,
  outcome: { resolve(answer: T): void; reject(error: Error): void },
) => Dispatcher.DispatchHandler;

/**
 * HTTP over undici's pools, with the outbound guard on every connection. HTTP/1.1 only: cancelling is closing one
 * connection, the number of connections bounds the calls, and no peer can ask for a request to be sent again (GOAWAY).
 * undici itself never sends a POST twice: it writes it once, and only one not yet written moves to another connection.
 */
export class HttpClient {
  readonly #agent: Agent;
  /** Has the connections that no call waits for: streams that stay open, and what is passed through beside the slots. */
  readonly #streams: Agent;
  readonly #guard: Guard;
  readonly #limits: ProxyLimits;

  constructor(guard: Guard, limits: ProxyLimits) {
    this.#guard = guard;
    this.#limits = limits;
    const common = {
      connect: guard.connect,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: limits.maxHeaderBytes,
      // The signal ends an exchange: undici's own limits would cut off servers that work in silence.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    this.#streams = new Agent({
      ...common,
      // The numbers of sessions and of passed-through streams bound them. Some sessions are being opened, or end with their
      // last call.
      connections: limits.maxSessions + limits.maxQueuedPerOrigin + 2 * limits.maxStreams,
    });
    this.#agent = new Agent({
      ...common,
      connections: 2 * limits.connectionsPerOrigin + SIDE_CONNECTIONS,
      // Shorter than the 5 s of common servers (uvicorn) that close idle connections without having announced it: a call
      // that meets the closing half-way fails, as it may have run.
      keepAliveTimeout: 4_000,
      keepAliveMaxTimeout: 60_000,
    });
  }

  /**
   * Makes one exchange. A 307 or 308 to the same origin is followed once, with the same method and body (RFC 9110 §15.4.8:
   * the first target did not take the request); no other redirect is.
   * @throws SwitchboardError for a failure of the connection, or an answer over the limits; the signal's reason.
   */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return this.#follow(request, BufferedExchange);
  }

  /** Makes one exchange as `send` does, and passes the answer on to the request's sink as it comes. */
  stream(request: StreamRequest): Promise<Streamed> {
    return this.#follow(request, StreamedExchange);
  }

  /** Cuts the exchanges under way. */
  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#streams.destroy()]);
  }

  async #follow<R extends HttpRequest | StreamRequest, T extends HttpAnswer | Streamed>(
    request: R,
    Kind: ExchangeOf<R, T>,
  ): Promise<T> {
    const answer = await this.#connected(request, Kind);
    if (!isRedirect(answer.status)) return answer;
    const again = await this.#exchange(request, redirectTarget(request.url, answer), Kind);
    if (isRedirect(again.status)) throw refusedRedirect('redirects more than once');
    return again;
  }

  /** Tries a connection that was refused once more: nothing was written. */
  async #connected<R extends HttpRequest | StreamRequest, T>(request: R, Kind: ExchangeOf<R, T>): Promise<T> {
    const { url, signal } = request;
    try {
      return await this.#exchange(request, url, Kind);
    } catch (error) {
      if (!(error instanceof NotConnected) || !error.passing) throw error;
    }
    await delay(RECONNECT_MS, undefined, { signal }).catch(() => {
      throw abortReason(signal);
    });
    return this.#exchange(request, url, Kind);
  }

  #exchange<R extends HttpRequest | StreamRequest, T>(
    request: R,
    url: URL,
    Kind: ExchangeOf<R, T>,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#guard.check(url);
      const exchange = new Kind(request, this.#limits, { resolve, reject });
      const agent = request.apart ? this.#streams : this.#agent;
      withoutSpan(() => agent.dispatch(optionsOf(request, url), exchange));
    });
  }
}

const optionsOf = (request: HttpRequest | StreamRequest, url: URL): Dispatcher.DispatchOptions => ({
  origin: url.origin,
  path: `${url.pathname}${url.search}`,
  method: request.method,
  headers: request.headers,
  body: request.body ?? null,
});

function redirectTarget(from: URL, answer: Pick<HttpAnswer, 'status' | 'headers'>): URL {
  const { location } = answer.headers;
  const target = typeof location === 'string' ? URL.parse(location, from.href) : null;
  if (!target) throw refusedRedirect(`answered HTTP ${answer.status} without a usable Location`);
  if (target.origin !== from.origin) throw blockedRedirect();
  if (answer.status !== 307 && answer.status !== 308)
    throw refusedRedirect(`redirects with HTTP ${answer.status}, which would turn the POST into a GET`);
  return target;
}

const refusedRedirect = (why: string) =>
  new SwitchboardError(
    'upstream_http_error',
    `The MCP server ${why}; this is not followed. Its catalogued URL may be out of date.`,
  );
