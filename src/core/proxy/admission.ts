import { LRUCache } from 'lru-cache';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { Breaker, type BreakerLimits, type Entered } from '../../platform/breaker.ts';
import { monotonicMs, type Clock, type Cancellation } from '../../platform/time.ts';
import { FairSlots } from '../../platform/queues.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Caller } from '../access/caller.ts';
import type { ServerHead } from '../catalogue/entry.ts';
import type { ProxyLimits } from './limits.ts';
import {
  AnsweredWrongly,
  HttpFailure,
  MAX_RATE_LIMIT_SEC,
  MAX_UNAVAILABLE_SEC,
  NotConnected,
} from './upstream/failures.ts';
import { partsOf, urlOf } from './upstream/http.ts';

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

/** Permission for one call. Give it back however the call ended, to make room for the next. */
export interface Pass {
  /** Reports that the server responded, even with an error. */
  answered(): void;
  /** Reports any failure of the call. Only the server's own faults count against it. */
  failed(thrown: unknown): void;
  giveBack(): void;
}

/** The server was not called. */
export class NotAdmitted extends SwitchboardError {}

type Applicant = Pick<Caller, 'tenantId' | 'subject' | 'timeoutMs'>;
type Asked = Pick<ServerHead, 'id' | 'remoteUrl'>;

/**
 * Admits calls to their servers. A call is refused while its server asks to wait (`Retry-After`) or has failed repeatedly,
 * and queued while too many others are running.
 *
 * A failure that a call may have caused itself (a timeout, HTTP 5xx, a broken response) counts only for the call's own
 * tenant, so that one tenant's calls to a broken tool do not block the others. An unreachable server is blocked for everyone.
 */
export class Admission {
  readonly #circuits: Circuits;
  readonly #slots: FairSlots;
  readonly #totalTimeoutMs: number;

  constructor(limits: ProxyLimits, clock: Clock, log: Log) {
    this.#circuits = new Circuits(clock, log);
    this.#slots = new FairSlots(limits.connectionsPerOrigin, limits.maxQueuedPerOrigin, tooManyWait);
    this.#totalTimeoutMs = limits.totalTimeoutMs;
  }

  /** The running and waiting calls. */
  get slots(): { busy: number; waiting: number } {
    return this.#slots.use;
  }

  /** The breakers of servers, globally and per tenant: `open` while calls are refused. */
  get circuits(): { open: number; closed: number } {
    return this.#circuits.use;
  }

  /**
   * Admits a call: at once if there is a free slot, otherwise as soon as there is one.
   * @throws NotAdmitted `upstream_unavailable` or `upstream_rate_limited`; SwitchboardError `unavailable` if too many are
   * already waiting; the signal's reason if it aborts first
   */
  enter(server: Asked, caller: Applicant, signal: Cancellation): Pass | Promise<Pass> {
    this.#circuits.refuse(server, caller);
    const slot = this.#slots.take(partsOf(urlOf(server.remoteUrl)).origin, caller.tenantId, signal);
    return slot instanceof Promise ? this.#waited(server, caller, slot) : this.#pass(server, caller, slot);
  }

  async #waited(server: Asked, caller: Applicant, slot: Promise<() => void>): Promise<Pass> {
    const release = await slot;
    try {
      // Other calls may have failed in the meantime.
      this.#circuits.refuse(server, caller);
    } catch (error) {
      release();
      throw error;
    }
    return this.#pass(server, caller, release);
  }

  #pass(server: Asked, caller: Applicant, release: () => void): Pass {
    // A caller that waits for half of the limit, as `/mcp` does, waits long enough for a verdict.
    const isShortened = (caller.timeoutMs ?? Infinity) < this.#totalTimeoutMs / 2;
    return new Admitted(this.#circuits, { server, caller, isShortened }, release);
  }
}

interface Visit {
  readonly server: Asked;
  readonly caller: Applicant;
  readonly isShortened: boolean;
}

class Admitted implements Pass {
  readonly #circuits: Circuits;
  readonly #visit: Visit;
  readonly #release: () => void;
  readonly #entries: Entries;

  constructor(circuits: Circuits, visit: Visit, release: () => void) {
    this.#circuits = circuits;
    this.#visit = visit;
    this.#release = release;
    this.#entries = circuits.enter(visit);
  }

  answered(): void {
    this.#circuits.answered(this.#visit, this.#entries);
  }

  failed(thrown: unknown): void {
    this.#circuits.failed(this.#visit, this.#entries, thrown);
  }

  giveBack(): void {
    this.#circuits.leave(this.#visit, this.#entries);
    this.#release();
  }
}

/** A call's entries in its two breakers. Without breakers, as almost always, only the time is known. */
interface Entries {
  readonly server: Entered;
  readonly tenant: Entered;
}

/** The breakers of servers, for everyone and for each tenant, and the times until which servers asked to wait. */
class Circuits {
  readonly #breakers = new LRUCache<string, Breaker>({ max: MAX_KEPT });
  /** The times until which calls are blocked (by the monotonic clock, in milliseconds), each with its HTTP status. */
  readonly #holds = new LRUCache<string, { readonly untilMs: number; readonly status: number }>({
    max: MAX_KEPT,
  });
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  get use(): { open: number; closed: number } {
    let open = 0;
    for (const breaker of this.#breakers.values()) if (breaker.isOpen) open++;
    return { open, closed: this.#breakers.size - open };
  }

  /** @throws NotAdmitted if calls to the server are refused */
  refuse(asked: Asked, caller: Applicant): void {
    if (this.#holds.size === 0 && this.#breakers.size === 0) return;
    const { server, tenant, owner } = keysOf(asked.remoteUrl, caller);
    const nowMs = monotonicMs(this.#clock);
    for (const key of [tenant, owner]) {
      const hold = this.#holds.get(key);
      if (hold && hold.untilMs > nowMs) throw heldBack(hold.status, toSeconds(hold.untilMs - nowMs));
    }
    for (const key of [server, tenant]) {
      const breaker = this.#breakers.get(key);
      const waitMs = breaker?.waitMs(nowMs) ?? 0;
      if (breaker && waitMs > 0) throw unavailable(toSeconds(waitMs), breaker.lastFailure);
    }
  }

  enter({ server, caller }: Visit): Entries {
    const nowMs = monotonicMs(this.#clock);
    const none = { atMs: nowMs, probes: false };
    // This saves each call the keys.
    if (this.#breakers.size === 0) return { server: none, tenant: none };
    const keys = keysOf(server.remoteUrl, caller);
    const enter = (key: string): Entered => this.#breakers.get(key)?.enter(nowMs) ?? none;
    return { server: enter(keys.server), tenant: enter(keys.tenant) };
  }

  leave({ server, caller }: Visit, entries: Entries): void {
    if (this.#breakers.size === 0) return;
    const keys = keysOf(server.remoteUrl, caller);
    this.#breakers.get(keys.server)?.leave(entries.server);
    this.#breakers.get(keys.tenant)?.leave(entries.tenant);
  }

  answered({ server, caller }: Visit, entries: Entries): void {
    if (this.#breakers.size === 0) return;
    const keys = keysOf(server.remoteUrl, caller);
    const nowMs = monotonicMs(this.#clock);
    if (this.#breakers.get(keys.server)?.succeeded(entries.server, nowMs))
      this.#log.info(fieldsOf(server), 'upstream answers again');
    if (this.#breakers.get(keys.tenant)?.succeeded(entries.tenant, nowMs))
      this.#log.info({ ...fieldsOf(server), tenantId: caller.tenantId }, 'upstream answers again');
  }

  failed(visit: Visit, entries: Entries, thrown: unknown): void {
    if (!(thrown instanceof SwitchboardError)) return;
    const { server, caller, isShortened } = visit;
    const keys = keysOf(server.remoteUrl, caller);
    if (thrown instanceof HttpFailure) this.#hold(keys, thrown);
    const evidence = evidenceOf(thrown, isShortened);
    if (evidence === 'answered') this.answered(visit, entries);
    if (evidence === 'down' && this.#count(keys.server, entries.server, thrown.code))
      this.#warn(fieldsOf(server), thrown.code);
    if (evidence === 'failing' && this.#count(keys.tenant, entries.tenant, thrown.code))
      this.#warn({ ...fieldsOf(server), tenantId: caller.tenantId }, thrown.code);
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

  /** Counts a failure. Returns true if it opened the breaker. */
  #count(key: string, entered: Entered, failure: string): boolean {
    const breaker = this.#breakers.get(key) ?? new Breaker(BREAKER);
    this.#breakers.set(key, breaker);
    return breaker.failed(entered, monotonicMs(this.#clock), failure);
  }

  #warn(fields: object, code: string): void {
    this.#log.warn({ ...fields, code }, 'upstream failed repeatedly: calls are refused until it recovers');
  }
}

interface Keys {
  readonly server: string;
  readonly tenant: string;
  readonly owner: string;
}

/** The lengths make the keys unambiguous: URLs and tenants' names are not ours. */
const keysOf = (url: string, { tenantId, subject }: Applicant): Keys => ({
  server: url,
  tenant: `${url.length} ${url} ${tenantId}`,
  owner: `${url.length} ${url} ${tenantId.length} ${tenantId} ${subject?.userId ?? ''}`,
});

/** Only the origin is logged, because a URL's path may contain a secret. The id is added because many servers share an origin. */
const fieldsOf = ({ id, remoteUrl }: Asked) => ({ serverId: id, url: urlOf(remoteUrl).origin });

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
