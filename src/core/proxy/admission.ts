import { LRUCache } from 'lru-cache';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { Breaker, type BreakerLimits, type Entered } from '../../platform/breaker.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import { FairSlots } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Caller } from '../access/caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { ProxyLimits } from './limits.ts';
import {
  AnsweredWrongly,
  HttpFailure,
  MAX_RATE_LIMIT_SEC,
  MAX_UNAVAILABLE_SEC,
  NotConnected,
} from './upstream/failures.ts';
import { urlOf } from './upstream/http.ts';

/** The maximum number of tracked servers, tenants and users. The least recently used entry is dropped first. */
const MAX_KEPT = 10_000;
const BREAKER: BreakerLimits = {
  failuresInARow: 5,
  window: { ms: 30_000, minCalls: 20 },
  firstOpenMs: 5_000,
  maxOpenMs: 60_000,
  maxProbeMs: 10_000,
};

/** The evidence in an outcome: the server is down for everyone, it fails for this tenant, it responds, or nothing. */
type Evidence = 'down' | 'failing' | 'answered' | 'none';

/** Permission for one call. Dispose of it however the call ended, to make room for the next. */
export interface Pass extends Disposable {
  /** Reports that the server responded, even with an error. */
  answered(): void;
  /** Reports any failure of the call. Only the server's own faults count against it. */
  failed(thrown: unknown): void;
}

/** The server was not called. */
export class NotAdmitted extends SwitchboardError {}

type Applicant = Pick<Caller, 'tenantId' | 'subject' | 'timeoutMs'>;
type Asked = Pick<Server, 'id' | 'remoteUrl'>;

/**
 * Admits calls to their servers. A call is refused while its server asks to wait (`Retry-After`) or has failed repeatedly,
 * and queued while too many others are running.
 *
 * A failure that a call may have caused itself (a timeout, HTTP 5xx, a broken response) counts only for the call's own
 * tenant, so that one tenant's calls to a broken tool do not block the others. An unreachable server is blocked for everyone.
 */
export class Admission {
  readonly #breakers = new LRUCache<string, Breaker>({ max: MAX_KEPT });
  /** The times until which calls are blocked (by the monotonic clock, in milliseconds), each with its HTTP status. */
  readonly #holds = new LRUCache<string, { readonly untilMs: number; readonly status: number }>({
    max: MAX_KEPT,
  });
  readonly #slots: FairSlots;
  readonly #totalTimeoutMs: number;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(limits: ProxyLimits, clock: Clock, log: Log) {
    this.#slots = new FairSlots(limits.connectionsPerOrigin, limits.maxQueuedPerOrigin, tooManyWait);
    this.#totalTimeoutMs = limits.totalTimeoutMs;
    this.#clock = clock;
    this.#log = log;
  }

  /** The running and waiting calls. */
  get slots(): { busy: number; waiting: number } {
    return this.#slots.use;
  }

  /** The breakers of servers, globally and per tenant: `open` while calls are refused. */
  get circuits(): { open: number; closed: number } {
    let open = 0;
    for (const breaker of this.#breakers.values()) if (breaker.isOpen) open++;
    return { open, closed: this.#breakers.size - open };
  }

  /** Runs one call under the conditions of `enter`. */
  async run<T>(server: Asked, caller: Applicant, signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    using pass = await this.enter(server, caller, signal);
    try {
      const result = await call();
      pass.answered();
      return result;
    } catch (error) {
      pass.failed(error);
      throw error;
    }
  }

  /**
   * Waits for a slot.
   * @throws NotAdmitted `upstream_unavailable` or `upstream_rate_limited`; SwitchboardError `unavailable` if too many are
   * already waiting; the signal's reason if it aborts first
   */
  async enter(server: Asked, caller: Applicant, signal: AbortSignal): Promise<Pass> {
    const keys = keysOf(server.remoteUrl, caller);
    this.#refuse(keys);
    const release = await this.#slots.take(urlOf(server.remoteUrl).origin, caller.tenantId, signal);
    try {
      // Other calls may have failed while this one was waiting.
      this.#refuse(keys);
      return this.#pass(server, keys, caller, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Usually there is no breaker, which saves each call several lookups. */
  #breakerOf(key: string): Breaker | undefined {
    return this.#breakers.size === 0 ? undefined : this.#breakers.get(key);
  }

  #refuse({ server, tenant, owner }: Keys): void {
    if (this.#holds.size === 0 && this.#breakers.size === 0) return;
    const nowMs = monotonicMs(this.#clock);
    for (const key of [tenant, owner]) {
      const hold = this.#holds.get(key);
      if (hold && hold.untilMs > nowMs) throw heldBack(hold.status, toSeconds(hold.untilMs - nowMs));
    }
    for (const key of [server, tenant]) {
      const breaker = this.#breakerOf(key);
      const waitMs = breaker?.waitMs(nowMs) ?? 0;
      if (breaker && waitMs > 0) throw unavailable(toSeconds(waitMs), breaker.lastFailure);
    }
  }

  #pass(asked: Asked, keys: Keys, caller: Applicant, release: () => void): Pass {
    const nowMs = monotonicMs(this.#clock);
    const enter = (key: string): Entered =>
      this.#breakerOf(key)?.enter(nowMs) ?? { atMs: nowMs, probes: false };
    const server = { key: keys.server, entered: enter(keys.server) };
    const tenant = { key: keys.tenant, entered: enter(keys.tenant), tenantId: caller.tenantId };
    // A caller that waits for half of the limit, as `/mcp` does, waits long enough for a verdict.
    const isShortened = (caller.timeoutMs ?? Infinity) < this.#totalTimeoutMs / 2;
    const answered = () => {
      for (const part of [server, tenant]) this.#succeeded(asked, part);
    };
    return {
      answered,
      failed: thrown => {
        if (!(thrown instanceof SwitchboardError)) return;
        if (thrown instanceof HttpFailure) this.#hold(keys, thrown);
        const evidence = evidenceOf(thrown, isShortened);
        if (evidence === 'answered') answered();
        if (evidence === 'down') this.#failed(asked, server, thrown.code);
        if (evidence === 'failing') this.#failed(asked, tenant, thrown.code);
      },
      [Symbol.dispose]: () => {
        for (const { key, entered } of [server, tenant]) this.#breakerOf(key)?.leave(entered);
        release();
      },
    };
  }

  #hold({ tenant, owner }: Keys, { httpStatus, retryAfterSec = 0 }: HttpFailure): void {
    const [key, maxSec] =
      httpStatus === 429
        ? [owner, MAX_RATE_LIMIT_SEC]
        : [tenant, httpStatus === 503 ? MAX_UNAVAILABLE_SEC : 0];
    const waitSec = Math.min(retryAfterSec, maxSec);
    if (waitSec === 0) return;
    this.#holds.set(key, { untilMs: monotonicMs(this.#clock) + waitSec * 1_000, status: httpStatus });
  }

  #succeeded(asked: Asked, part: Part): void {
    const closed = this.#breakerOf(part.key)?.succeeded(part.entered, monotonicMs(this.#clock)) ?? false;
    if (closed) this.#log.info(fieldsOf(asked, part), 'upstream answers again');
  }

  #failed(asked: Asked, part: Part, failure: string): void {
    const breaker = this.#breakerOf(part.key) ?? new Breaker(BREAKER);
    this.#breakers.set(part.key, breaker);
    if (breaker.failed(part.entered, monotonicMs(this.#clock), failure)) {
      this.#log.warn(
        { ...fieldsOf(asked, part), code: failure },
        'upstream failed repeatedly: calls are refused until it recovers',
      );
    }
  }
}

interface Keys {
  readonly server: string;
  readonly tenant: string;
  readonly owner: string;
}

interface Part {
  readonly key: string;
  readonly entered: Entered;
  readonly tenantId?: string;
}

/** The lengths make the keys unambiguous: URLs and tenants' names are not ours. */
const keysOf = (url: string, { tenantId, subject }: Applicant): Keys => ({
  server: url,
  tenant: `${url.length} ${url} ${tenantId}`,
  owner: `${url.length} ${url} ${tenantId.length} ${tenantId} ${subject?.userId ?? ''}`,
});

/** Only the origin is logged, because a URL's path may contain a secret. The id is added because many servers share an origin. */
const fieldsOf = ({ id, remoteUrl }: Asked, { tenantId }: Part) => ({
  serverId: id,
  url: urlOf(remoteUrl).origin,
  tenantId,
});

const EVIDENCE: Partial<Record<ErrorCode, Evidence>> = {
  upstream_unreachable: 'failing',
  upstream_protocol: 'failing',
  upstream_http_error: 'answered',
  upstream_error: 'answered',
  upstream_input_required: 'answered',
};

function evidenceOf(thrown: SwitchboardError, isShortened: boolean): Evidence {
  if (thrown instanceof NotConnected) return 'down';
  if (thrown instanceof AnsweredWrongly) return 'answered';
  if (thrown instanceof HttpFailure) return thrown.httpStatus >= 500 ? 'failing' : 'answered';
  if (thrown.code === 'upstream_timeout') return isShortened ? 'none' : 'failing';
  return EVIDENCE[thrown.code] ?? 'none';
}

const toSeconds = (ms: number) => Math.ceil(ms / 1_000);

const heldBack = (status: number, retryAfterSec: number) =>
  status === 429
    ? new NotAdmitted(
        'upstream_rate_limited',
        `The MCP server's rate limit was exceeded. Try again in ${retryAfterSec} s.`,
        { retryAfterSec },
      )
    : new NotAdmitted(
        'upstream_unavailable',
        `The MCP server is unavailable (HTTP 503), so no calls are sent to it for now. Try again in ${retryAfterSec} s.`,
        { retryAfterSec },
      );

const unavailable = (retryAfterSec: number, lastFailure: string) =>
  new NotAdmitted(
    'upstream_unavailable',
    `The MCP server failed repeatedly, last with ${lastFailure}, so no calls are sent to it for now. Try again in ${retryAfterSec} s.`,
    { retryAfterSec },
  );

const tooManyWait = () =>
  new SwitchboardError(
    'unavailable',
    'Too many calls to this MCP server are already waiting. Try again later.',
  );
