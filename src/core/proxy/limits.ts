/** Every bound of the proxy. Times in milliseconds, sizes in bytes. */
export interface ProxyLimits {
  /** One call from start to end: queue, detection, handshake, the call itself and its one retry. Callers may name another. */
  readonly totalTimeoutMs: number;
  /** One answer's body, and all pages of one tools listing together. */
  readonly maxResponseBytes: number;
  readonly maxHeaderBytes: number;
  readonly maxHeaderCount: number;
  /** Calls one tenant may have under way to one origin; all tenants together twice as many. Further ones wait their turn. */
  readonly connectionsPerOrigin: number;
  /** Calls of one tenant that wait for one origin, and again twice as many in all; further ones are refused as `unavailable`. */
  readonly maxQueuedPerOrigin: number;
  readonly maxSessions: number;
  readonly maxSessionsPerTenant: number;
  readonly maxSessionsPerServer: number;
  readonly sessionIdleMs: number;
  /** How long a stream of events may be open before it names the endpoint that makes it one of HTTP+SSE. */
  readonly endpointTimeoutMs: number;
  /** How long a verdict on a server's era holds. */
  readonly eraTtlMs: number;
  /** Answers to server requests, cancellations, session ends: nobody waits for them. */
  readonly sideTimeoutMs: number;
  /** Requests (ping, sampling, …) an upstream may send within one answer, or that may wait for our reply in one event stream. */
  readonly maxServerRequests: number;
  readonly maxToolPages: number;
  /** A server is asked for its tools on our own account no more often than this for each view of it; Infinity: never. */
  readonly toolRefreshIntervalMs: number;
  /** How long the call of a tool that nobody knows waits for the server's own list; a third of its time at most. */
  readonly toolListWaitMs: number;
  /** One passed-through request, its answer's stream included. Callers may name a shorter time. */
  readonly passTotalMs: number;
  /**
   * The longest pause in which the server sends no byte of a passed-through answer, or the client takes none. A caller that
   * names a longer time for the whole request raises it to that.
   */
  readonly passIdleMs: number;
  /** The longest pause in streams that stay open until something happens (GET, `subscriptions/listen`), which have no total. */
  readonly streamIdleMs: number;
  /** How often it is asked whether an open stream's key and user still hold. */
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
