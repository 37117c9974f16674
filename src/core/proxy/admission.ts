import { LRUCache } from 'lru-cache';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { monotonicMs, type Clock } from '../../platform/clock.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Caller } from '../access/caller.ts';
import type { Server } from '../catalogue/entry.ts';
import { Breaker, type BreakerLimits, type Entered } from '../../platform/breaker.ts';
import {
  AnsweredWrongly,
  HttpFailure,
  MAX_RATE_LIMIT_SEC,
  MAX_UNAVAILABLE_SEC,
  NotConnected,
} from './upstream/failures.ts';
import type { ProxyLimits } from './limits.ts';
import { FairSlots } from '../../platform/fair-slots.ts';
import { urlOf } from './upstream/http-client.ts';

/** Servers, tenants and users something is held against; the one not asked for the longest goes first. */
const MAX_KEPT = 10_000;
const BREAKER: BreakerLimits = {
  failuresInARow: 5,
  window: { ms: 30_000, minCalls: 20 },
  firstOpenMs: 5_000,
  maxOpenMs: 60_000,
  maxProbeMs: 10_000,
};

/** What failures say: of the server for everybody, of the server for this tenant, that it lives, or nothing. */
type Evidence = 'down' | 'failing' | 'answered' | 'none';

/** Leave to make one call. Disposing it, however the call ended, is what makes room for the next. */
export interface Pass extends Disposable {
  /** The server has answered, be it with an error of its own. */
  answered(): void;
  /** What the call failed with, of any kind: only what is the server's own fault counts against it. */
  failed(thrown: unknown): void;
}

/** The server was not asked. */
export class NotAdmitted extends SwitchboardError {}

type Applicant = Pick<Caller, 'tenantId' | 'subject' | 'timeoutMs'>;
type Asked = Pick<Server, 'id' | 'remoteUrl'>;

/**
 * Whether a call goes out to its server now: not while the server asks to wait (`Retry-After`) or has failed again and
 * again, and in turn when many are under way.
 *
 * What a call may have brought about itself (a time-out, HTTP 5xx, a broken answer) is held against the server for its own
 * tenant only, so that one tenant's calls of a broken tool do not close the server to the others; that it cannot be
 * reached, for everybody.
 */
export class Admission {
  readonly #circuits = new LRUCache<string, Breaker>({ max: MAX_KEPT });
  /** Until when calls are held back (of the monotonic clock, milliseconds), and what for. */
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

  /** Calls under way, and those that wait for their turn. */
  get slots(): { busy: number; waiting: number } {
    return this.#slots.use;
  }

  /** How many servers, or servers for one tenant, are not called for now, and how many more something is held against. */
  get circuits(): { open: number; closed: number } {
    let open = 0;
    for (const circuit of this.#circuits.values()) if (circuit.isOpen) open++;
    return { open, closed: this.#circuits.size - open };
  }

  /** One call as `enter` describes it. */
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
   * @throws NotAdmitted `upstream_unavailable` or `upstream_rate_limited`; SwitchboardError `unavailable` when too many wait
   *   already; the signal's reason when it ends before the call's turn comes.
   */
  async enter(server: Asked, caller: Applicant, signal: AbortSignal): Promise<Pass> {
    const keys = keysOf(server.remoteUrl, caller);
    this.#refuse(keys);
    const release = await this.#slots.take(urlOf(server.remoteUrl).origin, caller.tenantId, signal);
    try {
      // While it waited, others have found out more.
      this.#refuse(keys);
      return this.#pass(server, keys, caller, release);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Most of the time there is none: what a look-up costs each call a few times over is saved. */
  #circuitOf(key: string): Breaker | undefined {
    return this.#circuits.size === 0 ? undefined : this.#circuits.get(key);
  }

  #refuse({ server, tenant, owner }: Keys): void {
    if (this.#holds.size === 0 && this.#circuits.size === 0) return;
    const nowMs = monotonicMs(this.#clock);
    for (const key of [tenant, owner]) {
      const hold = this.#holds.get(key);
      if (hold && hold.untilMs > nowMs) throw heldBack(hold.status, toSeconds(hold.untilMs - nowMs));
    }
    for (const key of [server, tenant]) {
      const circuit = this.#circuitOf(key);
      const waitMs = circuit?.waitMs(nowMs) ?? 0;
      if (circuit && waitMs > 0) throw unavailable(toSeconds(waitMs), circuit.lastFailure);
    }
  }

  #pass(asked: Asked, keys: Keys, caller: Applicant, release: () => void): Pass {
    const nowMs = monotonicMs(this.#clock);
    const enter = (key: string): Entered =>
      this.#circuitOf(key)?.enter(nowMs) ?? { atMs: nowMs, probes: false };
    const server = { key: keys.server, entered: enter(keys.server) };
    const tenant = { key: keys.tenant, entered: enter(keys.tenant), tenantId: caller.tenantId };
    // Who waits for half of the limit, as the MCP face does, has waited long enough to tell.
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
        for (const { key, entered } of [server, tenant]) this.#circuitOf(key)?.leave(entered);
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
    const closed = this.#circuitOf(part.key)?.succeeded(part.entered, monotonicMs(this.#clock)) ?? false;
    if (closed) this.#log.info(fieldsOf(asked, part), 'upstream answers again');
  }

  #failed(asked: Asked, part: Part, failure: string): void {
    const circuit = this.#circuitOf(part.key) ?? new Breaker(BREAKER);
    this.#circuits.set(part.key, circuit);
    if (circuit.failed(part.entered, monotonicMs(this.#clock), failure)) {
      this.#log.warn(
        { ...fieldsOf(asked, part), code: failure },
        'upstream failed repeatedly: calls are refused until it answers',
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

/** The lengths keep apart what could be put together in two ways: URLs and tenants' names are not ours. */
const keysOf = (url: string, { tenantId, subject }: Applicant): Keys => ({
  server: url,
  tenant: `${url.length} ${url} ${tenantId}`,
  owner: `${url.length} ${url} ${tenantId.length} ${tenantId} ${subject?.userId ?? ''}`,
});

/** The path of its URL may hold a secret; many servers share an origin. */
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
        `The MCP server is rate limiting and asked not to be called again so soon. Try again in ${retryAfterSec} s.`,
        { retryAfterSec },
      )
    : new NotAdmitted(
        'upstream_unavailable',
        `The MCP server said that it is unavailable (HTTP 503) and is not called for now. Try again in ${retryAfterSec} s.`,
        { retryAfterSec },
      );

const unavailable = (retryAfterSec: number, lastFailure: string) =>
  new NotAdmitted(
    'upstream_unavailable',
    `The MCP server failed repeatedly, last with ${lastFailure}, and is not called for now. It is tried again in ${retryAfterSec} s.`,
    { retryAfterSec },
  );

const tooManyWait = () =>
  new SwitchboardError(
    'unavailable',
    'Too many calls to this MCP server are waiting already. Try again later.',
  );
