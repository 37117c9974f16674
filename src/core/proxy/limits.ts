/** The bounds of the proxy. Times are in milliseconds, sizes in bytes. */
export interface ProxyLimits {
  /** The time of one call from start to end: queue, detection, handshake, the call and its one retry. Callers may name another. */
  readonly totalTimeoutMs: number;
  /** The size of one answer's body, and of all pages of one tools listing together. */
  readonly maxResponseBytes: number;
  readonly maxHeaderBytes: number;
  readonly maxHeaderCount: number;
  /** The calls of one tenant under way to one origin. All tenants together have twice as many; further calls wait their turn. */
  readonly connectionsPerOrigin: number;
  /** The calls of one tenant that wait for one origin, and twice as many in all. Further calls are refused as `unavailable`. */
  readonly maxQueuedPerOrigin: number;
  readonly maxSessions: number;
  readonly maxSessionsPerTenant: number;
  readonly maxSessionsPerServer: number;
  readonly sessionIdleMs: number;
  /** The time a stream of events may be open before it names the endpoint that makes it one of HTTP+SSE. */
  readonly endpointTimeoutMs: number;
  /** The time for which a detected era holds. */
  readonly eraTtlMs: number;
  /** The time for messages that nobody waits for: answers to server requests, cancellations, session ends. */
  readonly sideTimeoutMs: number;
  /** The requests (ping, sampling, …) of an upstream within one answer, or that wait for our reply in one event stream. */
  readonly maxServerRequests: number;
  readonly maxToolPages: number;
  /** The time between two listings on our own behalf for one view of a server; Infinity for none at all. */
  readonly toolRefreshIntervalMs: number;
  /** The time for which the call of an unknown tool waits for the server's own list; a third of the call's time at most. */
  readonly toolListWaitMs: number;
  /** The time of one passed-through request with its answer's stream. Callers may name a shorter one. */
  readonly passTotalMs: number;
  /**
   * The longest pause in which the server sends no byte of a passed-through answer, or the client takes none. A caller that
   * names a longer time for the whole request raises it to that.
   */
  readonly passIdleMs: number;
  /** The longest pause in streams that stay open until something happens (GET, `subscriptions/listen`), which have no total. */
  readonly streamIdleMs: number;
  /** The time between two checks that an open stream's key and user still hold. */
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
  maxStreams: 1_000,
  maxStreamsPerKey: 20,
};
