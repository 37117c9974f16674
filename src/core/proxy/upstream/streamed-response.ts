import type { Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { toSwitchboardError } from '../../../errors.ts';
import { abortReason } from '../../../platform/race-abort.ts';
import { isIdentity } from './buffered-response.ts';
import { brokeProtocol, connectionFailure, outOfTime, type Stage } from './failures.ts';
import { InterimAnswers } from './informational-responses.ts';
import type { ProxyLimits } from '../limits.ts';

/** Where an answer is streamed to, as Node's ServerResponse does it. */
export interface Sink {
  writeHead(status: number, headers: Readonly<Record<string, string>>): unknown;
  flushHeaders(): void;
  /** False: wait for `drain`. */
  write(chunk: Uint8Array): boolean;
  end(): unknown;
  /** Ends it in a way that whoever reads cannot take for the end. */
  destroy(): unknown;
  once(event: 'drain', listener: () => void): unknown;
}

export interface StreamRequest {
  readonly url: URL;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | undefined;
  /** Ends the exchange; its reason is what `stream` rejects with. */
  readonly signal: AbortSignal;
  /** How long nothing may move. */
  readonly idleMs: number;
  /** Over a connection that no call waits for: for what holds no slot, and is bounded by whoever asks. */
  readonly apart: boolean;
  readonly sink: Sink;
  /** Otherwise a good answer with a body that is no message is passed on without it. */
  readonly wantsBody: boolean;
  /** The request is about to be written: from here on, the server may have seen it. */
  readonly onSent: () => void;
  /**
   * The headers to pass on; undefined: this answer is not passed on. Redirects never are, nor is a body that is neither JSON
   * nor a stream of events.
   */
  readonly onHead: (status: number, headers: IncomingHttpHeaders) => Record<string, string> | undefined;
}

export interface Streamed {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Whether it went to the sink, whole; the sink is untouched otherwise. */
  readonly passed: boolean;
  /** The beginning of an error in plain text or JSON that was not passed on, as it came. */
  readonly excerpt: string;
}

/** One media type, as browsers too read it: of several, joined by commas, they take the last. */
const MESSAGE_TYPE = /^(application\/([\w.-]+\+)?json|text\/event-stream)\s*(;[^,]*)?$/i;
const QUOTABLE_TYPE = /^(text\/plain|application\/([\w.-]+\+)?json)\s*(;[^,]*)?$/i;

const hasType = (headers: IncomingHttpHeaders, pattern: RegExp) =>
  typeof headers['content-type'] === 'string' && pattern.test(headers['content-type']);

/** Whether an answer says that it is what MCP's transport knows: JSON or a stream of events. */
export const isMessage = (headers: IncomingHttpHeaders): boolean => hasType(headers, MESSAGE_TYPE);

/** What is read of an error's text: far more than is shown of it, so that a token in it is found whole. */
const EXCERPT_BYTES = 16 * 1024;

/** What is read of an answer that is not passed on, so that the server can end it and keep the connection. */
const DRAIN_BYTES = 64 * 1024;
const DRAIN_MS = 500;

interface Outcome {
  resolve(answer: Streamed): void;
  reject(error: Error): void;
}

/**
 * One request's events from undici, passed on to a sink as they come: nothing is kept but what the sink has not taken yet,
 * and the server is not read from until it has. A failure before the head leaves the sink untouched, one after it destroys it.
 */
export class Stream implements Dispatcher.DispatchHandler {
  readonly #request: StreamRequest;
  readonly #limits: ProxyLimits;
  readonly #outcome: Outcome;
  readonly #idle: NodeJS.Timeout;
  readonly #interim = new InterimAnswers();
  #controller: Dispatcher.DispatchController | undefined;
  #stage: Stage = 'unsent';
  /** `holding`: what is no message is passed on only when it turns out to be empty. */
  #state: 'waiting' | 'holding' | 'passing' | 'refused' | 'done' = 'waiting';
  #status = 0;
  #headers: IncomingHttpHeaders = {};
  #flushed = false;
  #failure: Error | undefined;
  #drainedBytes = 0;
  #drain: NodeJS.Timeout | undefined;
  #excerpt: Buffer | undefined;

  constructor(request: StreamRequest, limits: ProxyLimits, outcome: Outcome) {
    this.#request = request;
    this.#limits = limits;
    this.#outcome = outcome;
    this.#idle = setTimeout(() => this.#fail(outOfTime(request.idleMs)), request.idleMs);
    if (request.signal.aborted) this.#onAbort();
    else request.signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Given up while it waited for a connection: nothing has been written yet, and nothing will be.
    if (this.#failure) {
      controller.abort(this.#failure);
      return;
    }
    this.#stage = 'sent';
    this.#request.onSent();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (this.#state !== 'waiting') return;
    if (status < 200) {
      const tooMany = this.#interim.took();
      if (tooMany) this.#fail(tooMany);
      return;
    }
    this.#stage = 'answering';
    this.#status = status;
    this.#headers = headers;
    this.#idle.refresh();
    if (Object.keys(headers).length > this.#limits.maxHeaderCount) {
      this.#fail(brokeProtocol('sent too many response headers'));
    } else if (!isIdentity(headers['content-encoding'])) {
      this.#fail(brokeProtocol('sent a compressed answer that was not asked for'));
    } else if (isMessage(headers) || isRedirect(status)) this.#passHead();
    else this.#state = 'holding';
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#state === 'holding' && chunk.length > 0) this.#meetForeignBody();
    if (this.#state === 'refused') this.#drop(chunk);
    if (this.#state !== 'passing') return;
    this.#flushed = true;
    this.#idle.refresh();
    if (this.#request.sink.write(chunk)) return;
    controller.pause();
    this.#request.sink.once('drain', () => {
      if (this.#state !== 'passing') return;
      this.#idle.refresh();
      controller.resume();
    });
  }

  onResponseEnd(): void {
    if (this.#state === 'holding') this.#passHead();
    if (this.#state === 'passing') {
      this.#request.sink.end();
      this.#finish();
      this.#resolve(true);
    }
    this.#endDrain();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#state !== 'refused' && this.#state !== 'done')
      this.#settle(connectionFailure(error, this.#stage));
    this.#endDrain();
  }

  #passHead(): void {
    const { sink, onHead } = this.#request;
    try {
      const head = isRedirect(this.#status) ? undefined : onHead(this.#status, this.#headers);
      if (head === undefined) return this.#refuse();
      sink.writeHead(this.#status, head);
    } catch (error) {
      return this.#fail(toSwitchboardError(error));
    }
    this.#state = 'passing';
    // With the first bytes of the body, where they came along; else alone, as a stream may be silent for long.
    process.nextTick(() => {
      if (!this.#flushed && this.#state === 'passing') sink.flushHeaders();
    });
  }

  /** Sloppy servers write "Accepted" or "OK" where MCP has no body. */
  #meetForeignBody(): void {
    if (this.#request.wantsBody || this.#status >= 300) return this.#refuse();
    const { 'content-type': _type, 'content-length': _length, ...headers } = this.#headers;
    this.#headers = headers;
    this.#passHead();
    if (this.#state !== 'passing') return;
    this.#request.sink.end();
    this.#resolve(true);
    this.#letGo();
  }

  #letGo(): void {
    this.#finish();
    this.#state = 'refused';
    this.#drain = setTimeout(() => this.#cut(), DRAIN_MS).unref();
  }

  #refuse(): void {
    this.#letGo();
    if (this.#status >= 400 && hasType(this.#headers, QUOTABLE_TYPE)) this.#excerpt = Buffer.alloc(0);
    else this.#resolve(false);
  }

  #drop(chunk: Buffer): void {
    this.#drainedBytes += chunk.length;
    if (this.#excerpt && this.#excerpt.length < EXCERPT_BYTES)
      this.#excerpt = Buffer.concat([this.#excerpt, chunk.subarray(0, EXCERPT_BYTES)]);
    if (this.#drainedBytes > DRAIN_BYTES) this.#cut();
  }

  /** Nothing more comes of an answer that is not passed on: its text is whole, or as much as will be. */
  #endDrain(): void {
    clearTimeout(this.#drain);
    if (this.#state === 'refused') this.#resolve(false);
  }

  #resolve(passed: boolean): void {
    const excerpt = this.#excerpt?.toString('utf8', 0, EXCERPT_BYTES) ?? '';
    this.#outcome.resolve({ status: this.#status, headers: this.#headers, passed, excerpt });
  }

  readonly #onAbort = (): void => this.#fail(abortReason(this.#request.signal));

  #fail(error: Error): void {
    if (this.#state === 'done' || this.#state === 'refused') return;
    this.#settle(error);
    this.#controller?.abort(error);
  }

  #settle(error: Error): void {
    if (this.#state === 'passing') this.#request.sink.destroy();
    this.#failure = error;
    this.#finish();
    this.#outcome.reject(error);
  }

  #finish(): void {
    this.#state = 'done';
    clearTimeout(this.#idle);
    this.#request.signal.removeEventListener('abort', this.#onAbort);
  }

  #cut(): void {
    this.#endDrain();
    this.#controller?.abort(new Error('this answer is not passed on'));
  }
}

const isRedirect = (status: number) => status >= 300 && status <= 399;
