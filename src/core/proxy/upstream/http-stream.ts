import type { Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { toSwitchboardError } from '../../../errors.ts';
import type { ProxyLimits } from '../limits.ts';
import { outOfTime } from './failures.ts';
import { Exchange, isRedirect, type ExchangeRequest, type Outcome } from './http.ts';

/** An error's text is read much further than it is shown, so that a token in it is found whole. */
const EXCERPT_BYTES = 16 * 1024;

/** The client's side of a streamed answer, as Node's ServerResponse has it. */
export interface Sink {
  writeHead(status: number, headers: Readonly<Record<string, string>>): unknown;
  flushHeaders(): void;
  /** Returns false when the writer must wait for `drain`. */
  write(chunk: Uint8Array): boolean;
  end(): unknown;
  /** Ends the answer so that its reader cannot take this for the end. */
  destroy(): unknown;
  once(event: 'drain', listener: () => void): unknown;
}

/** A request whose answer is passed on to a sink. */
export interface StreamRequest extends ExchangeRequest {
  readonly body: Buffer | undefined;
  /** The longest pause in which nothing moves. */
  readonly idleMs: number;
  /** True when it goes over a connection that no call waits for, as it holds no slot. */
  readonly apart: boolean;
  readonly sink: Sink;
  /** When false, a successful answer with a body that is no message is passed on without that body. */
  readonly wantsBody: boolean;
  /**
   * Returns the headers to pass on, or undefined for an answer that is not passed on. Redirects never are, nor is a body that
   * is neither JSON nor a stream of events.
   */
  readonly onHead: (status: number, headers: IncomingHttpHeaders) => Record<string, string> | undefined;
}

export interface Streamed {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** True when the whole answer went to the sink, which is untouched otherwise. */
  readonly passed: boolean;
  /** The beginning of an error in plain text or JSON that was not passed on, as it came. */
  readonly excerpt: string;
}

/**
 * Passes the answer on to a sink as it comes. It keeps only what the sink has not taken yet, and does not read from the
 * server until the sink has. A failure before the head leaves the sink untouched; a later one destroys it.
 */
export class StreamedExchange extends Exchange<StreamRequest, Streamed> {
  readonly #idle: NodeJS.Timeout | undefined;
  /** `holding`: a body that is no message is passed on only if it turns out to be empty. */
  #state: 'waiting' | 'holding' | 'passing' | 'over' = 'waiting';
  #flushed = false;
  /** The text of a refused error, as far as it has come. */
  #excerpt: Buffer | undefined;

  constructor(request: StreamRequest, limits: ProxyLimits, outcome: Outcome<Streamed>) {
    super(request, limits, outcome);
    const { idleMs } = request;
    if (!this.isSettled) this.#idle = setTimeout(() => this.fail(outOfTime(idleMs)), idleMs);
  }

  protected override onHead(): void {
    this.#idle?.refresh();
    if (isRedirect(this.status)) this.#refuse();
    else if (isMessage(this.headers)) this.#passHead();
    else this.#state = 'holding';
  }

  protected override onBody(chunk: Buffer, controller: Dispatcher.DispatchController): void {
    if (this.#state === 'holding' && chunk.length > 0) {
      this.#meetForeignBody();
      this.letBy(chunk);
    }
    if (this.#state !== 'passing') return;
    this.#flushed = true;
    this.#idle?.refresh();
    if (this.request.sink.write(chunk)) return;
    controller.pause();
    this.request.sink.once('drain', () => {
      if (this.#state !== 'passing') return;
      this.#idle?.refresh();
      controller.resume();
    });
  }

  protected override onEnd(): void {
    if (this.#state === 'holding') this.#passHead();
    if (this.#state !== 'passing') return;
    this.#endSink();
    this.settle();
  }

  protected override onRest(chunk: Buffer): void {
    if (this.#excerpt && this.#excerpt.length < EXCERPT_BYTES)
      this.#excerpt = Buffer.concat([this.#excerpt, chunk.subarray(0, EXCERPT_BYTES)]);
  }

  /** The text of a refused error is as whole now as it will be. */
  protected override onRestEnd(): void {
    if (this.#excerpt) this.#resolve(false);
  }

  protected override settle(): void {
    super.settle();
    clearTimeout(this.#idle);
    // The answer broke off: its reader must not take this for the end.
    if (this.#state === 'passing') this.request.sink.destroy();
    this.#state = 'over';
  }

  #passHead(): void {
    const { sink, onHead } = this.request;
    try {
      const head = onHead(this.status, this.headers);
      if (head === undefined) return this.#refuse();
      sink.writeHead(this.status, head);
    } catch (error) {
      return this.fail(toSwitchboardError(error));
    }
    this.#state = 'passing';
    // The head goes with the first bytes of the body where they came along, else alone, as a stream may be silent for long.
    process.nextTick(() => {
      if (!this.#flushed && this.#state === 'passing') sink.flushHeaders();
    });
  }

  /** Sloppy servers write "Accepted" or "OK" where MCP has no body. */
  #meetForeignBody(): void {
    if (this.request.wantsBody || this.status >= 300) return this.#refuse();
    const { 'content-type': _type, 'content-length': _length, ...headers } = this.headers;
    this.headers = headers;
    this.#passHead();
    if (this.#state !== 'passing') return;
    this.#endSink();
    this.settleEarly();
  }

  #endSink(): void {
    this.#state = 'over';
    this.request.sink.end();
    this.#resolve(true);
  }

  #refuse(): void {
    this.settleEarly();
    if (this.status >= 400 && hasType(this.headers, QUOTABLE_TYPE)) this.#excerpt = Buffer.alloc(0);
    else this.#resolve(false);
  }

  #resolve(passed: boolean): void {
    const excerpt = this.#excerpt?.toString('utf8', 0, EXCERPT_BYTES) ?? '';
    this.outcome.resolve({ status: this.status, headers: this.headers, passed, excerpt });
  }
}

/** Matches one media type. Of several joined by commas, browsers take the last. */
const MESSAGE_TYPE = /^(application\/([\w.-]+\+)?json|text\/event-stream)\s*(;[^,]*)?$/i;
const QUOTABLE_TYPE = /^(text\/plain|application\/([\w.-]+\+)?json)\s*(;[^,]*)?$/i;

const hasType = (headers: IncomingHttpHeaders, pattern: RegExp) =>
  typeof headers['content-type'] === 'string' && pattern.test(headers['content-type']);

/** Returns whether an answer says that it is JSON or a stream of events, which are the two that MCP's transport knows. */
export const isMessage = (headers: IncomingHttpHeaders): boolean => hasType(headers, MESSAGE_TYPE);
