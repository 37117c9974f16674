import type { Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { toSwitchboardError } from '../../../errors.ts';
import type { ProxyLimits } from '../limits.ts';
import { EXCERPT_BYTES } from './envelope.ts';
import { outOfTime } from './failures.ts';
import { Exchange, isRedirect, type ExchangeRequest, type Outcome } from './http.ts';

/** The client's side of a streamed response, like Node's ServerResponse. */
export interface Sink {
  writeHead(status: number, headers: Readonly<Record<string, string>>): unknown;
  flushHeaders(): void;
  /** Returns false if the writer must wait for `drain`. */
  write(chunk: Buffer): boolean;
  end(): unknown;
  /** Breaks the response off, so that its reader does not mistake this for the end. */
  destroy(): unknown;
  once(event: 'drain', listener: () => void): unknown;
}

/** A request whose response is streamed to a sink. */
export interface StreamRequest extends ExchangeRequest {
  readonly body: Buffer | undefined;
  /** The longest pause without data. */
  readonly idleMs: number;
  /** True if it uses a connection outside the slots, because it has none. */
  readonly apart: boolean;
  readonly sink: Sink;
  /** If false, the body of a successful response is dropped if it is not a message. */
  readonly wantsBody: boolean;
  /**
   * Returns the headers to forward, or undefined for a response that is not passed on. Redirects never are, nor are bodies
   * other than JSON and event streams.
   */
  readonly onHead: (status: number, headers: IncomingHttpHeaders) => Record<string, string> | undefined;
}

export interface Streamed {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** True if the whole response went to the sink, which is otherwise unused. */
  readonly passed: boolean;
  /** The raw beginning of an error in plain text or JSON that was not passed on. */
  readonly excerpt: string;
}

/**
 * Streams the response to a sink. It buffers only what the sink has not accepted yet, and reads no more from the server until
 * it has. A failure before the headers leaves the sink unused; a later one destroys it.
 */
export class StreamedExchange extends Exchange<StreamRequest, Streamed> {
  readonly #idle: NodeJS.Timeout | undefined;
  /** `holding`: a body that is not a message is passed on only if it turns out to be empty. */
  #state: 'waiting' | 'holding' | 'passing' | 'over' = 'waiting';
  #flushed = false;
  /** The text of a refused error received so far. */
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

  /** No more of the refused error's text will arrive. */
  protected override onRestEnd(): void {
    if (this.#excerpt) this.#resolve(false);
  }

  protected override settle(): void {
    super.settle();
    clearTimeout(this.#idle);
    // The response broke off: its reader must not mistake this for the end.
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
    // The headers are sent with the first bytes of the body if those arrived together, otherwise alone, because a stream may
    // be silent for long.
    process.nextTick(() => {
      if (!this.#flushed && this.#state === 'passing') sink.flushHeaders();
    });
  }

  /** Sloppy servers send "Accepted" or "OK" where MCP has no body. */
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

/** Matches one media type. Of several joined by commas, browsers use the last. */
const MESSAGE_TYPE = /^(application\/([\w.-]+\+)?json|text\/event-stream)\s*(;[^,]*)?$/i;
const QUOTABLE_TYPE = /^(text\/plain|application\/([\w.-]+\+)?json)\s*(;[^,]*)?$/i;

const hasType = (headers: IncomingHttpHeaders, pattern: RegExp) =>
  typeof headers['content-type'] === 'string' && pattern.test(headers['content-type']);

/** Returns whether a response is declared as JSON or an event stream, the two types in MCP's transport. */
export const isMessage = (headers: IncomingHttpHeaders): boolean => hasType(headers, MESSAGE_TYPE);
