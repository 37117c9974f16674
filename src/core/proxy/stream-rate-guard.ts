import { brokeProtocol } from './upstream/failures.ts';

/** What a stream may carry that no call brings about: keep-alives, a few notifications. In bytes, events and milliseconds. */
const WINDOW_MS = 10_000;
const WINDOW_BYTES = 64 * 1024;
const WINDOW_EVENTS = 1_000;
/** Beside its answer: progress and log messages. */
const CALL_EVENTS = 10_000;

/**
 * How much a server may send in a stream that stays open: so much for each call that waits, and a little in any ten seconds.
 * Without this bound, a server that nobody asks anything could keep the process busy for as long as the stream lives.
 */
export class StreamAllowance {
  readonly #callBytes: number;
  readonly #nowMs: () => number;
  /** What the calls that wait have brought and the server has not used up. */
  #bytes = 0;
  #events = 0;
  /** What was sent beyond that. */
  #window = { sinceMs: -Infinity, bytes: 0, events: 0 };

  /** @param nowMs of a clock that never goes back */
  constructor(callBytes: number, nowMs: () => number) {
    this.#callBytes = callBytes;
    this.#nowMs = nowMs;
  }

  callBegins(): void {
    this.#bytes += this.#callBytes;
    this.#events += CALL_EVENTS;
  }

  /** What calls leave over is not saved up. */
  callEnds(stillWaiting: number): void {
    this.#bytes = Math.min(this.#bytes, stillWaiting * this.#callBytes);
    this.#events = Math.min(this.#events, stillWaiting * CALL_EVENTS);
  }

  /** @throws SwitchboardError `upstream_protocol`: the stream must end. */
  took(bytes: number, events: number): void {
    const left = { bytes: this.#bytes - bytes, events: this.#events - events };
    this.#bytes = Math.max(0, left.bytes);
    this.#events = Math.max(0, left.events);
    if (left.bytes >= 0 && left.events >= 0) return;
    const nowMs = this.#nowMs();
    if (nowMs - this.#window.sinceMs >= WINDOW_MS) this.#window = { sinceMs: nowMs, bytes: 0, events: 0 };
    this.#window.bytes += Math.max(0, -left.bytes);
    this.#window.events += Math.max(0, -left.events);
    if (this.#window.bytes > WINDOW_BYTES || this.#window.events > WINDOW_EVENTS)
      throw brokeProtocol('sent much more in its event stream than it was asked for');
  }
}
