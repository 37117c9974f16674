import { LRUCache } from 'lru-cache';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import type { Metrics } from '../metrics.ts';
import type { Actor, Audit, AuditEntry } from './audit.ts';
import type { Principal } from './caller.ts';
import { QuotaExceeded } from './quota.ts';
import { RateLimited } from './rate-limits.ts';

/** How often a refusal of the same kind is recorded, at most. */
const OF_KEY_MS = 3_600_000;
const OF_SIGN_IN_MS = 60_000;
const MAX_KINDS = 1_000;

/** The reasons for which requests of a valid key are refused whatever they ask for. */
const REASONS: ReadonlySet<ErrorCode> = new Set(['insufficient_scope', 'rate_limited', 'quota_exceeded']);

interface RefusalsOptions {
  readonly audit: Audit;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Shows operators which requests were refused. All are counted in the metrics. The audit log has the first of an hour for each key
 * and reason, and the first sign-in to the console of a minute, so that requests cannot fill it.
 */
export class Refusals {
  readonly #parts: RefusalsOptions;
  /** When each kind was last recorded, and how many came since. */
  readonly #kinds = new LRUCache<string, { readonly atMs: number; further: number }>({ max: MAX_KINDS });

  constructor(parts: RefusalsOptions) {
    this.#parts = parts;
  }

  /** Counts a request without a valid key. */
  countStranger(): void {
    this.#parts.metrics.events.refused('unauthorized');
  }

  /** Counts and records that a request of a key was refused for one of the reasons. Other errors are ignored. */
  async ofKey(error: unknown, { keyId, tenantId }: Principal, actor: Omit<Actor, 'keyId'>): Promise<void> {
    if (!(error instanceof SwitchboardError) || !REASONS.has(error.code)) return;
    const { code } = error;
    // The limits count their own.
    if (code === 'insufficient_scope') this.#parts.metrics.events.refused(code);
    const limit = limitOf(error);
    const kind = [keyId, code, limit].join(' ');
    const meta = { reason: code, ...(limit === undefined ? {} : { limit }) };
    await this.#record(kind, OF_KEY_MS, { ...actor, keyId, tenantId }, { event: 'request_refused', meta });
  }

  /** Counts and records a sign-in to the console by a wrong key, or by a link that was used or has expired. */
  async ofSignIn(by: 'key' | 'link', actor: Actor): Promise<void> {
    // A wrong key has been counted where it was refused.
    if (by === 'link') this.countStranger();
    const entry = { event: 'console_signed_in', meta: { by } } as const;
    await this.#record(`console ${by}`, OF_SIGN_IN_MS, actor, entry);
  }

  async #record(
    kind: string,
    everyMs: number,
    actor: Actor,
    { event, meta }: Pick<AuditEntry, 'event' | 'meta'>,
  ): Promise<void> {
    const { audit, clock, log } = this.#parts;
    const atMs = monotonicMs(clock);
    const known = this.#kinds.get(kind);
    if (known && atMs - known.atMs < everyMs) {
      known.further++;
      return;
    }
    this.#kinds.set(kind, { atMs, further: 0 });
    const details = known && known.further > 0 ? { ...meta, further: known.further } : meta;
    await audit
      .record(actor, { event, outcome: 'refused', ...(details ? { meta: details } : {}) })
      .catch((error: unknown) => log.error({ err: error }, 'refusal not recorded'));
  }
}

/** Returns the name of the limit that was exceeded, if it is one of the key. */
function limitOf(error: SwitchboardError): string | undefined {
  if (error instanceof RateLimited) return error.state.class;
  return error instanceof QuotaExceeded ? error.state.use : undefined;
}
