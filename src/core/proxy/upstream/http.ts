import type { Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { toSwitchboardError } from '../../../errors.ts';
import { abortReason } from '../../../platform/race-abort.ts';
import type { ProxyLimits } from '../limits.ts';
import { brokeProtocol, connectionFailure, outOfTime, sentTooMuch, type Stage } from './failures.ts';
import { GrowingBuffer, SseParser, type SseEvent } from './sse.ts';

/** A server could send answers below 200 without end, each with headers of its own. None of them is the answer. */
const MAX_INTERIM_ANSWERS = 200;

/** So much more is read of an answer that is settled: enough for the server to end it, which keeps the connection. */
const REST_BYTES = 64 * 1024;
const REST_MS = 500;

/** An error's text is read much further than it is shown, so that a token in it is found whole. */
const EXCERPT_BYTES = 16 * 1024;

interface Request {
  readonly url: URL;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  /** Ends the exchange, which then rejects with the signal's reason. */
  readonly signal: AbortSignal;
  /** Called when the request is about to be written: from here on, the server may have seen it. */
  readonly onSent?: () => void;
}

/** A request whose answer is read here. */
export interface HttpRequest extends Request {
  readonly body?: string;
  /** Takes the events of an SSE answer one by one, and returns true when it needs no more. Without it, the body is collected. */
  readonly onEvent?: (event: SseEvent) => boolean;
  /** The answer is a stream that stays open between calls: it takes no connection of theirs, and each event may be of full size. */
  readonly apart?: true;
  /** Called when the answer is a stream of events, and begins. */
  readonly onOpen?: () => void;
  /** Called for each piece of a stream of events. An error it throws ends the exchange. */
  readonly onBytes?: (bytes: number) => void;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The content type without parameters, in lower case; '' when there is none. */
  readonly mediaType: string;
  /** Empty for an SSE answer whose events were taken one by one. */
  readonly body: Buffer;
  /** The number of bytes of body received. */
  readonly bytes: number;
  /** The end of an SSE answer: `onEvent` had enough, or it came after an event, or in the middle of one. */
  readonly stream: 'none' | 'taken' | 'ended' | 'cut';
  /** The id to resume an SSE answer with. */
  readonly lastEventId: string | undefined;
  /** The wait that the server wants before an SSE answer is resumed. */
  readonly retryMs: number | undefined;
}

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
export interface StreamRequest extends Request {
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

interface Outcome<T> {
  resolve(answer: T): void;
  reject(error: Error): void;
}

/**
 * Turns the events of one request, as undici reports them, into one outcome. The first outcome counts. The rest of the answer
 * is then read for a moment more, within bounds.
 */
abstract class Exchange<R extends Request, T> implements Dispatcher.DispatchHandler {
  protected readonly request: R;
  protected readonly limits: ProxyLimits;
  protected readonly outcome: Outcome<T>;
  protected status = 0;
  protected headers: IncomingHttpHeaders = {};
  protected isSettled = false;
  #failure: Error | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #stage: Stage = 'unsent';
  #interimAnswers = 0;
  #restBytes = 0;
  #restTimer: NodeJS.Timeout | undefined;

  constructor(request: R, limits: ProxyLimits, outcome: Outcome<T>) {
    this.request = request;
    this.limits = limits;
    this.outcome = outcome;
    const { signal } = request;
    if (signal.aborted) {
      this.isSettled = true;
      this.#failure = abortReason(signal);
      outcome.reject(this.#failure);
    } else signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  /** Takes the head of an answer that keeps the limits. */
  protected abstract onHead(): void;
  /** Takes a piece of the body. */
  protected abstract onBody(chunk: Buffer, controller: Dispatcher.DispatchController): void;
  /** The answer is complete. */
  protected abstract onEnd(): void;
  /** Takes a piece that came after the exchange was settled. */
  protected onRest(_chunk: Buffer): void {}
  /** Nothing more comes. */
  protected onRestEnd(): void {}

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // The request was given up while it waited for a connection: nothing has been written yet, and nothing will be.
    if (this.#failure) {
      controller.abort(this.#failure);
      return;
    }
    this.#stage = 'sent';
    this.request.onSent?.();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (this.isSettled) return;
    if (status < 200) {
      if (++this.#interimAnswers > MAX_INTERIM_ANSWERS)
        this.fail(brokeProtocol('sent too many interim answers'));
      return;
    }
    this.#stage = 'answering';
    this.status = status;
    this.headers = headers;
    if (Object.keys(headers).length > this.limits.maxHeaderCount)
      this.fail(brokeProtocol('sent too many response headers'));
    else if (!isIdentity(headers['content-encoding']))
      this.fail(brokeProtocol('sent a compressed answer that was not asked for'));
    else this.onHead();
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.isSettled) this.letBy(chunk);
    else this.onBody(chunk, controller);
  }

  onResponseEnd(): void {
    if (!this.isSettled) this.onEnd();
    this.#endRest();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#reject(connectionFailure(error, this.#stage));
    this.#endRest();
  }

  /** Ends the exchange with an error. */
  protected fail(error: Error): void {
    if (this.#reject(error)) this.#controller?.abort(error);
  }

  protected settle(): void {
    this.isSettled = true;
    this.request.signal.removeEventListener('abort', this.#onAbort);
  }

  /** Settles the exchange before its end: the rest is let by, and cut off if it is long or slow. */
  protected settleEarly(): void {
    this.settle();
    this.#restTimer = setTimeout(() => this.#cut(), REST_MS).unref();
  }

  /** Passes over a piece of a settled exchange. */
  protected letBy(chunk: Buffer): void {
    this.#restBytes += chunk.length;
    this.onRest(chunk);
    if (this.#restBytes > REST_BYTES) this.#cut();
  }

  #reject(error: Error): boolean {
    if (this.isSettled) return false;
    this.#failure = error;
    this.settle();
    this.outcome.reject(error);
    return true;
  }

  #endRest(): void {
    clearTimeout(this.#restTimer);
    this.onRestEnd();
  }

  #cut(): void {
    this.#endRest();
    this.#controller?.abort(new Error('the rest of the answer is not needed'));
  }

  readonly #onAbort = (): void => this.fail(abortReason(this.request.signal));
}

/** Collects the answer, or hands its events over one by one. */
export class BufferedExchange extends Exchange<HttpRequest, HttpAnswer> {
  readonly #body = new GrowingBuffer();
  #mediaType = '';
  #bytes = 0;
  #events: SseParser | undefined;

  protected override onHead(): void {
    this.#mediaType = mediaTypeOf(this.headers['content-type']);
    if (Number(this.headers['content-length']) > this.limits.maxResponseBytes) this.#failTooLarge();
    else if (this.#isEventStream) {
      this.#events = new SseParser();
      this.request.onOpen?.();
    }
  }

  /** An error in the shape of a stream is no stream to stay on. */
  get #isEventStream(): boolean {
    const { onEvent, apart } = this.request;
    return (
      this.#mediaType === 'text/event-stream' && onEvent !== undefined && !(apart && this.status !== 200)
    );
  }

  protected override onBody(chunk: Buffer): void {
    this.#bytes += chunk.length;
    const held = this.request.apart && this.#events ? this.#events.pendingBytes + chunk.length : this.#bytes;
    if (held > this.limits.maxResponseBytes) this.#failTooLarge();
    else if (this.#events) this.#readEvents(this.#events, chunk);
    else this.#body.append(chunk);
  }

  protected override onEnd(): void {
    this.settle();
    if (this.#events) this.#answer(this.#events.midEvent ? 'cut' : 'ended');
    else this.#answer('none');
  }

  #readEvents(events: SseParser, chunk: Buffer): void {
    try {
      this.request.onBytes?.(chunk.length);
      for (const event of events.push(chunk)) {
        if (!this.request.onEvent?.(event)) continue;
        this.settleEarly();
        this.#answer('taken');
        return;
      }
    } catch (error) {
      this.fail(
        error instanceof SyntaxError
          ? brokeProtocol('sent an event that is not valid UTF-8', error)
          : toSwitchboardError(error),
      );
    }
  }

  #failTooLarge(): void {
    this.fail(sentTooMuch(`sent more than ${this.limits.maxResponseBytes} bytes`));
  }

  #answer(stream: HttpAnswer['stream']): void {
    this.outcome.resolve({
      status: this.status,
      headers: this.headers,
      mediaType: this.#mediaType,
      body: this.#body.take(),
      bytes: this.#bytes,
      stream,
      lastEventId: this.#events?.lastEventId,
      retryMs: this.#events?.retryMs,
    });
  }
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

export const isRedirect = (status: number): boolean => status >= 300 && status <= 399;

const mediaTypeOf = (header: string | string[] | undefined): string => {
  const value = Array.isArray(header) ? header[0] : header;
  return value?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
};

const isIdentity = (header: string | string[] | undefined): boolean =>
  header === undefined ||
  header === '' ||
  (typeof header === 'string' && header.trim().toLowerCase() === 'identity');
