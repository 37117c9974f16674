import { SwitchboardError, toSwitchboardError } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Guard } from '../../platform/outbound/guard.ts';
import { Deadline } from '../proxy/upstream/deadline.ts';
import { DEFAULT_LIMITS, type ProxyLimits } from '../proxy/limits.ts';
import { ToolDefinitions } from '../proxy/tool-definitions.ts';
import { listAllTools, type ListedTool } from '../proxy/tools.ts';
import { UpstreamClient } from '../proxy/upstream/client.ts';
import { HttpClient } from '../proxy/upstream/http-client.ts';
import { verdictOf, type Verdict } from './classify.ts';

/** Those of calls, in a shorter time and with few connections. */
const VISIT_LIMITS: ProxyLimits = {
  ...DEFAULT_LIMITS,
  totalTimeoutMs: 15_000,
  endpointTimeoutMs: 5_000,
  sideTimeoutMs: 2_000,
  connectionsPerOrigin: 1,
  maxSessions: 10,
  toolRefreshIntervalMs: Infinity,
};

/** What was found. */
export interface Visit {
  readonly verdict: Verdict;
  /** From the first request to the list of tools; absent: there was no answer of the server. */
  readonly latencyMs?: number;
  /** Those that may be used, where the server lists any. */
  readonly tools?: readonly ListedTool[];
  /** No answer in time: it took all the time there is for a visit. */
  readonly timedOut?: boolean;
  /** Why it is not `ok`, in a sentence; it may quote the server. */
  readonly reason?: string;
}

interface VisitParts {
  readonly guard: Guard;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits?: Partial<ProxyLimits> | undefined;
}

/** Nobody's sessions: those of a visit end with it. */
const VISITOR = { tenantId: 'probing' };

/**
 * Visits servers as the proxy calls them (transports, revisions, outbound guard, bounds), but over connections of its own, for no user
 * and without a credential: `server/discover` or the handshake, then `tools/list`, and nothing else. What is known of servers that
 * fail repeatedly, and what is counted, is of real calls alone.
 */
export class Visits {
  readonly #parts: VisitParts;
  readonly #limits: ProxyLimits;
  readonly #log: Log;
  readonly #wire: HttpClient;

  constructor(parts: VisitParts) {
    this.#parts = parts;
    this.#limits = { ...VISIT_LIMITS, ...parts.limits };
    // What calls say at each server once would be said at each visit.
    this.#log = parts.log.child({}, { level: 'warn' });
    this.#wire = new HttpClient(parts.guard, this.#limits);
  }

  /** @throws the signal's reason once it aborts, and nothing else */
  async visit(server: Server, signal: AbortSignal): Promise<Visit> {
    const { clock } = this.#parts;
    const limits = this.#limits;
    // Its own each time: a visit is to find out, not to know already.
    const definitions = new ToolDefinitions({ clock, log: this.#log, limits });
    const upstreams = new UpstreamClient(this.#wire, limits, clock, this.#log, definitions);
    const startedAtMs = monotonicMs(clock);
    const latency = () => ({ latencyMs: Math.round(monotonicMs(clock) - startedAtMs) });
    try {
      using deadline = new Deadline(limits.totalTimeoutMs, signal);
      const view = { server, caller: VISITOR, connectionId: undefined };
      const call = { caller: VISITOR, server, credential: undefined, method: 'tools/list' };
      const listing = await listAllTools(params => upstreams.request({ ...call, params }, deadline), limits);
      return { verdict: 'ok', ...latency(), tools: definitions.keep(view, listing) };
    } catch (thrown) {
      signal.throwIfAborted();
      const verdict = verdictOf(thrown, server, upstreams.hasEntered(server.remoteUrl));
      if (!(thrown instanceof SwitchboardError))
        this.#log.error({ err: thrown, serverId: server.id }, 'visit failed');
      const { detail, code } = toSwitchboardError(thrown);
      const timedOut = code === 'upstream_timeout';
      return { verdict, ...(verdict === 'unreachable' ? {} : latency()), timedOut, reason: detail };
    } finally {
      await upstreams.close();
    }
  }

  /** Cuts what is still under way. */
  close(): Promise<void> {
    return this.#wire.close();
  }
}
