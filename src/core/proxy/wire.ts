import { setTimeout as delay } from 'node:timers/promises';
import { Agent, type Dispatcher } from 'undici';
import { SwitchboardError } from '../../errors.ts';
import { abortReason } from './budget.ts';
import { NotConnected } from './failures.ts';
import { Exchange, type HttpAnswer, type HttpRequest } from './exchange.ts';
import { blockedRedirect, type Guard } from '../outbound/guard.ts';
import type { ProxyLimits } from './limits.ts';

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
  /** For streams that stay open: their number is that of the sessions. */
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
    };
    this.#streams = new Agent({
      ...common,
      // The sessions bound them; some more are being opened, or end with their last call.
      connections: limits.maxSessions + limits.maxQueuedPerOrigin,
      // Their clock is the budget of whoever waits for something on them.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    this.#agent = new Agent({
      ...common,
      connections: 2 * limits.connectionsPerOrigin + SIDE_CONNECTIONS,
      // The budget of each call is the clock; these end a silence that a long budget would wait out.
      headersTimeout: limits.idleTimeoutMs,
      bodyTimeout: limits.idleTimeoutMs,
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
    const answer = await this.#connected(request);
    if (answer.status < 300 || answer.status > 399) return answer;
    const target = redirectTarget(request.url, answer);
    const again = await this.#exchange(request, target);
    if (again.status >= 300 && again.status <= 399) throw refusedRedirect('redirects more than once');
    return again;
  }

  /** A connection refused is tried once more: nothing was written. */
  async #connected(request: HttpRequest): Promise<HttpAnswer> {
    try {
      return await this.#exchange(request, request.url);
    } catch (error) {
      if (!(error instanceof NotConnected) || !error.passing) throw error;
    }
    const { signal } = request;
    await delay(RECONNECT_MS, undefined, { signal }).catch(() => {
      throw abortReason(signal);
    });
    return this.#exchange(request, request.url);
  }

  async #exchange(request: HttpRequest, url: URL): Promise<HttpAnswer> {
    this.#guard.check(url);
    const options: Dispatcher.DispatchOptions = {
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method: request.method,
      headers: request.headers,
      body: request.body ?? null,
    };
    return new Promise((resolve, reject) => {
      const exchange = new Exchange(request, this.#limits, { resolve, reject });
      (request.stream ? this.#streams : this.#agent).dispatch(options, exchange);
    });
  }

  /** Cuts what is still under way. */
  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#streams.destroy()]);
  }
}

function redirectTarget(from: URL, answer: HttpAnswer): URL {
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
