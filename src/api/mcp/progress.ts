import { sanitise } from '../../platform/sanitize.ts';
import type { Progress } from '../../core/proxy/proxy.ts';
import type { SwitchboardError } from '../../errors.ts';
import { TIMEOUT_HEADER } from '../http/request.ts';

/** Many clients give up after 60 s. */
const WITHOUT_PROGRESS_MS = 55_000;

const MIN_INTERVAL_MS = 100;
const HEARTBEAT_MS = 15_000;
/** Added by a heartbeat: small enough not to interfere with the server's values. */
const HEARTBEAT_STEP = 0.001;
const MAX_MESSAGE_CHARS = 300;

/** Returns the default timeout of a call, in milliseconds. Clients that receive progress wait longer. */
export const callTimeoutMs = (requestedMs: number | undefined, hasProgress: boolean): number =>
  requestedMs ?? (hasProgress ? TIMEOUT_HEADER.maxMs : WITHOUT_PROGRESS_MS);

/** Tells a model what to do about a timeout, and which limit applied. */
export function adviceOnTimeOut(
  { timeLimitMs, retryable }: Pick<SwitchboardError, 'timeLimitMs' | 'retryable'>,
  requestedMs: number | undefined,
): string {
  const advice = `Ask the tool for less data${retryable ? ', or try again later' : ''}.`;
  if (timeLimitMs === undefined) return advice;
  if (timeLimitMs === requestedMs)
    return `${advice} This client set the limit itself, in the header ${TIMEOUT_HEADER.name}.`;
  if (timeLimitMs === WITHOUT_PROGRESS_MS)
    return `${advice} A client that sends a progressToken or the header ${TIMEOUT_HEADER.name} gets up to 5 minutes.`;
  return advice;
}

/**
 * Forwards a server's progress to a client that asked for it. Values only increase (Progress, "Progress flow"). At most ten
 * notifications per second are sent, always including the last, and one every 15 s while the server is silent. Nothing is
 * sent while the client has unread messages, so that they cannot pile up.
 */
export class ProgressRelay {
  readonly #notify: (progress: Progress) => Promise<void>;
  readonly #isBehind: () => boolean;
  readonly #startedAt = performance.now();
  readonly #heartbeat: NodeJS.Timeout;
  #pause: NodeJS.Timeout | undefined;
  #highest: number | undefined;
  #total: number | undefined;
  #waiting: Progress | undefined;
  #sending = Promise.resolve();
  #hasEnded = false;

  /**
   * @param notify may fail if the client has disconnected: the call ends by its own signal
   * @param isBehind returns whether the client has unread messages
   */
  constructor(notify: (progress: Progress) => Promise<void>, isBehind: () => boolean) {
    this.#notify = notify;
    this.#isBehind = isBehind;
    this.#heartbeat = setTimeout(() => this.#beat(), HEARTBEAT_MS);
  }

  /** Handles a notification from the server. Never throws. */
  report({ progress, total, message }: Progress): void {
    if (!Number.isFinite(progress) || this.#hasEnded) return;
    this.#total = total !== undefined && Number.isFinite(total) ? total : undefined;
    this.#take(progress, message === undefined ? '' : sanitise(message, MAX_MESSAGE_CHARS));
  }

  #beat(): void {
    const seconds = Math.round((performance.now() - this.#startedAt) / 1000);
    const last = this.#highest ?? 0;
    // Large values increase by a fraction of themselves, because the small step would be lost.
    const next = last + Math.max(HEARTBEAT_STEP, Math.abs(last) * 1e-9);
    this.#take(next, `Still waiting for the server (${seconds} s so far).`);
    this.#heartbeat.refresh();
  }

  #take(progress: number, message: string): void {
    if (this.#highest !== undefined && progress <= this.#highest) return;
    this.#highest = progress;
    const total = this.#total !== undefined && this.#total >= progress ? { total: this.#total } : {};
    this.#waiting = { progress, ...total, ...(message === '' ? {} : { message }) };
    if (this.#pause === undefined) this.#flush();
  }

  #flush(): void {
    if (!this.#waiting) return;
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      this.#flush();
    }, MIN_INTERVAL_MS);
    if (!this.#isBehind()) this.#send(this.#waiting);
  }

  #send(progress: Progress): void {
    this.#waiting = undefined;
    this.#heartbeat.refresh();
    this.#sending = this.#notify(progress).catch(() => {});
  }

  /** Sends the last pending notification, after which the result may follow. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearTimeout(this.#pause);
    if (this.#waiting) this.#send(this.#waiting);
    clearTimeout(this.#heartbeat);
    this.#hasEnded = true;
    await this.#sending;
  }
}
