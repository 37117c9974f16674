import { setTimeout as delay } from 'node:timers/promises';
import { Agent, type Dispatcher } from 'undici';
import { SwitchboardError } from '../../../errors.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import { abortReason } from '../../../platform/race-abort.ts';
import { NotConnected } from './failures.ts';
import { Exchange, type HttpAnswer, type HttpRequest } from './buffered-response.ts';
import { blockedRedirect, type Guard } from '../../../platform/outbound/guard.ts';
import type { ProxyLimits } from '../limits.ts';
import { Stream, type Streamed, type StreamRequest } from './streamed-response.ts';

/** Connections an origin has beyond its slots (`Slots`), for messages that calls under way wait for. */
const SIDE_CONNECTIONS = 8;

/** The wait before a connection that was refused is tried once more. */
const RECONNECT_MS = 100;

/**
 * HTTP over undici's pools, with the outbound guard on every connection. HTTP/1.1 only: cancelling is closing one
 * connection, the number of connections bounds the calls, and no peer can ask for a request to be sent again (GOAWAY).
 * undici itself never sends a POST twice: it writes it once, and only one not yet written moves to another connection.
 */
export class Wire {
  readonly #agent: Agent;
  /** For streams that stay open, and for what is passed through beside the slots: connections that no call waits for. */
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
      // What bounds them is the number of sessions and of passed-through streams; some sessions are being opened, or end
      // with their last call.
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
   * One exchange. A 307 or 308 to the same origin is followed once, with the same method and body (RFC 9110 §15.4.8: the
   * first target did not take the request); no other redirect is.
   */
  async send(request: HttpRequest): Promise<HttpAnswer> {
    const answer = await this.#connected(request.signal, () => this.#exchange(request, request.url));
    if (answer.status < 300 || answer.status > 399) return answer;
    const target = redirectTarget(request.url, answer);
    const again = await this.#exchange(request, target);
    if (again.status >= 300 && again.status <= 399) throw refusedRedirect('redirects more than once');
    return again;
  }

  /** One exchange whose answer goes to the request's sink as it comes; otherwise as `send`. */
  async stream(request: StreamRequest): Promise<Streamed> {
    const answer = await this.#connected(request.signal, () => this.#stream(request, request.url));
    if (answer.status < 300 || answer.status > 399) return answer;
    const again = await this.#stream(request, redirectTarget(request.url, answer));
    if (again.status >= 300 && again.status <= 399) throw refusedRedirect('redirects more than once');
    return again;
  }

  /** A connection refused is tried once more: nothing was written. */
  async #connected<T>(signal: AbortSignal, exchange: () => Promise<T>): Promise<T> {
    try {
      return await exchange();
    } catch (error) {
      if (!(error instanceof NotConnected) || !error.passing) throw error;
    }
    await delay(RECONNECT_MS, undefined, { signal }).catch(() => {
      throw abortReason(signal);
    });
    return exchange();
  }

  #exchange(request: HttpRequest, url: URL): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      this.#guard.check(url);
      const exchange = new Exchange(request, this.#limits, { resolve, reject });
      const agent = request.stream ? this.#streams : this.#agent;
      withoutSpan(() => agent.dispatch(optionsOf(request, url), exchange));
    });
  }

  #stream(request: StreamRequest, url: URL): Promise<Streamed> {
    return new Promise((resolve, reject) => {
      this.#guard.check(url);
      const stream = new Stream(request, this.#limits, { resolve, reject });
      const agent = request.apart ? this.#streams : this.#agent;
      withoutSpan(() => agent.dispatch(optionsOf(request, url), stream));
    });
  }

  /** Cuts what is still under way. */
  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#streams.destroy()]);
  }
}

const optionsOf = (
  request: Pick<HttpRequest | StreamRequest, 'method' | 'headers' | 'body'>,
  url: URL,
): Dispatcher.DispatchOptions => ({
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
  if (answer.status !== 307 && answer.status !== 308) {
    throw refusedRedirect(`redirects with HTTP ${answer.status}, which would turn the POST into a GET`);
  }
  return target;
}

const refusedRedirect = (why: string) =>
  new SwitchboardError(
    'upstream_http_error',
    `The MCP server ${why}; this is not followed. Its catalogued URL may be out of date.`,
  );
