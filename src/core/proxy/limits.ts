/** The limits of the proxy. Times are in milliseconds, sizes in bytes. */
export interface ProxyLimits {
  /** The total time of one call: queue, detection, handshake, the call and its one retry. Callers can override it. */
  readonly totalTimeoutMs: number;
  /** The maximum size of a response body, and of all pages of a tools listing together. */
  readonly maxResponseBytes: number;
  readonly maxHeaderBytes: number;
  readonly maxHeaderCount: number;
  /**
   * The maximum number of running calls of one tenant to one origin. All tenants together have twice as many; further calls wait.
   */
  readonly connectionsPerOrigin: number;
  /**
   * The maximum number of waiting calls of one tenant for one origin, and twice as many in total. Further calls are refused
   * as `unavailable`.
   */
  readonly maxQueuedPerOrigin: number;
  readonly maxSessions: number;
  readonly maxSessionsPerTenant: number;
  readonly maxSessionsPerServer: number;
  readonly sessionIdleMs: number;
  /** How long an event stream may take to send the endpoint event of HTTP+SSE. */
  readonly endpointTimeoutMs: number;
  /** How long a detected era is valid. */
  readonly eraTtlMs: number;
  /** The timeout of messages that nobody waits for: replies to server requests, cancellations, session ends. */
  readonly sideTimeoutMs: number;
  /**
   * The maximum number of requests (ping, sampling, …) of an upstream within one response, or waiting for our reply in one
   * event stream.
   */
  readonly maxServerRequests: number;
  readonly maxToolPages: number;
  /** The minimum time between two of our own listings for one view of a server; Infinity for none. */
  readonly toolRefreshIntervalMs: number;
  /** How long the call of an unknown tool waits for the server's list; at most a third of the call's time. */
  readonly toolListWaitMs: number;
  /** The total time of a passed-through request and its response stream. Callers can shorten it. */
  readonly passTotalMs: number;
  /**
   * The longest pause in which the server sends nothing of a passed-through response, or the client reads nothing. A caller's
   * longer total time raises it to that.
   */
  readonly passIdleMs: number;
  /** The longest pause in open streams (GET, `subscriptions/listen`), which have no total time. */
  readonly streamIdleMs: number;
  /** The interval of checking that an open stream's key and user are still valid. */
  readonly streamRecheckMs: number;
  readonly maxStreams: number;
  readonly maxStreamsPerKey: number;
}

export const DEFAULT_LIMITS: ProxyLimits = {
  totalTimeoutMs: 60_000,
  maxResponseBytes: 8 * 1024 * 1024,
  maxHeaderBytes: 16 * 1024,
  maxHeaderCount: 100,
  connectionsPerOrigin: 64,
  maxQueuedPerOrigin: 1_000,
  maxSessions: 1_000,
  maxSessionsPerTenant: 100,
  maxSessionsPerServer: 500,
  sessionIdleMs: 5 * 60_000,
  endpointTimeoutMs: 10_000,
  eraTtlMs: 24 * 60 * 60_000,
  sideTimeoutMs: 5_000,
  maxServerRequests: 64,
  maxToolPages: 50,
  toolRefreshIntervalMs: 60_000,
  toolListWaitMs: 5_000,
  passTotalMs: 5 * 60_000,
  passIdleMs: 60_000,
  streamIdleMs: 5 * 60_000,
  streamRecheckMs: 60_000,
  maxStreams: 10_000,
  maxStreamsPerKey: 20,
};
