import type { Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { toSwitchboardError } from '../../../errors.ts';
import { abortReason } from '../../../platform/race-abort.ts';
import { brokeProtocol, connectionFailure, sentTooMuch, type Stage } from './failures.ts';
import { GrowingBuffer } from './growing-buffer.ts';
import { InterimAnswers } from './informational-responses.ts';
import type { ProxyLimits } from '../limits.ts';
import { SseParser } from './sse.ts';

export interface HttpRequest {
  readonly url: URL;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Ends the exchange; its reason is what `send` rejects with. */
  readonly signal: AbortSignal;
  /** Takes the events of an SSE answer one by one; `true` when it needs no more. Without it, the body is collected. */
  readonly onEvent?: (event: { event: string; data: string }) => boolean;
  /** The request is about to be written: from here on, the server may have seen it. */
  readonly onSent?: () => void;
  /**
   * A stream of events that stays open between calls: it takes no connection of theirs, it may be silent, and
   * the size limit holds for each event.
   */
  readonly stream?: true;
  /** The answer is a stream of events, and begins. */
  readonly onOpen?: () => void;
  /** So many bytes of events have come. What it throws ends the exchange. */
  readonly onBytes?: (bytes: number) => void;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The content type without parameters, in lower case; '' when there is none. */
  readonly mediaType: string;
  /** Empty for an SSE answer whose events were taken one by one. */
  readonly body: Buffer;
  /** Bytes of body received. */
  readonly bytes: number;
  /** How an SSE answer ended: taken (`onEvent` had enough), at an event's end, or in the middle of one. */
  readonly stream: 'none' | 'taken' | 'ended' | 'cut';
  /** Of an SSE answer: the id to resume it with, and the wait that the server wants before that. */
  readonly lastEventId: string | undefined;
  readonly retryMs: number | undefined;
}

/** What may still come after the event that was waited for: enough to let the server end the stream and keep the connection. */
const DRAIN_BYTES = 64 * 1024;
const DRAIN_MS = 500;

interface Outcome {
  resolve(answer: HttpAnswer): void;
  reject(error: Error): void;
}

/** One request's events from undici, turned into one answer. The first outcome counts; what comes later is let go by. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly #request: HttpRequest;
  readonly #limits: ProxyLimits;
  readonly #outcome: Outcome;
  #controller: Dispatcher.DispatchController | undefined;
  #settled: Error | 'answered' | undefined;
  #stage: Stage = 'unsent';
  #status = 0;
  #headers: IncomingHttpHeaders = {};
  #mediaType = '';
  readonly #interim = new InterimAnswers();
  readonly #body = new GrowingBuffer();
  #bytes = 0;
  #events: SseParser | undefined;
  #drain: NodeJS.Timeout | undefined;
  #drainedBytes = 0;

  constructor(request: HttpRequest, limits: ProxyLimits, outcome: Outcome) {
    this.#request = request;
    this.#limits = limits;
    this.#outcome = outcome;
    if (request.signal.aborted) this.#onAbort();
    else request.signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Given up while it waited for a connection: nothing has been written yet, and nothing will be.
    if (this.#settled instanceof Error) {
      controller.abort(this.#settled);
      return;
    }
    this.#stage = 'sent';
    this.#request.onSent?.();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (status < 200) {
      const tooMany = this.#interim.took();
      if (tooMany) this.#fail(tooMany);
      return;
    }
    this.#stage = 'answering';
    this.#status = status;
    this.#headers = headers;
    this.#mediaType = mediaTypeOf(headers['content-type']);
    if (Object.keys(headers).length > this.#limits.maxHeaderCount) {
      this.#fail(brokeProtocol('sent too many response headers'));
    } else if (!isIdentity(headers['content-encoding'])) {
      this.#fail(brokeProtocol('sent a compressed answer that was not asked for'));
    } else if (Number(headers['content-length']) > this.#limits.maxResponseBytes) {
      this.#failTooLarge();
    } else if (this.#isForEvents) {
      this.#events = new SseParser();
      this.#request.onOpen?.();
    }
  }

  /** An error in the shape of a stream is no stream to stay on. */
  get #isForEvents(): boolean {
    const { onEvent, stream } = this.#request;
    return (
      this.#mediaType === 'text/event-stream' && onEvent !== undefined && !(stream && this.#status !== 200)
    );
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled !== undefined) {
      this.#drainedBytes += chunk.length;
      if (this.#drainedBytes > DRAIN_BYTES) this.#cut();
      return;
    }
    this.#bytes += chunk.length;
    const held =
      this.#request.stream && this.#events ? this.#events.pendingBytes + chunk.length : this.#bytes;
    if (held > this.#limits.maxResponseBytes) this.#failTooLarge();
    else if (this.#events) this.#readEvents(this.#events, chunk);
    else this.#body.append(chunk);
  }

  onResponseEnd(): void {
    if (this.#events) this.#answer(this.#events.midEvent ? 'cut' : 'ended');
    else this.#answer('none');
    clearTimeout(this.#drain);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#settle(connectionFailure(error, this.#stage));
    clearTimeout(this.#drain);
  }

  #readEvents(events: SseParser, chunk: Buffer): void {
    try {
      this.#request.onBytes?.(chunk.length);
      for (const event of events.push(chunk)) {
        if (!this.#request.onEvent?.(event)) continue;
        this.#answer('taken');
        // A server that ends its stream now keeps its connection; one that goes on is cut off.
        this.#drain = setTimeout(() => this.#cut(), DRAIN_MS).unref();
        return;
      }
    } catch (error) {
      this.#fail(
        error instanceof SyntaxError
          ? brokeProtocol('sent an event that is not valid UTF-8', error)
          : toSwitchboardError(error),
      );
    }
  }

  readonly #onAbort = (): void => this.#fail(abortReason(this.#request.signal));

  #failTooLarge(): void {
    this.#fail(sentTooMuch(`sent more than ${this.#limits.maxResponseBytes} bytes`));
  }

  #fail(error: Error): void {
    if (this.#settle(error)) this.#controller?.abort(error);
  }

  #cut(): void {
    this.#controller?.abort(new Error('the rest of the answer is not needed'));
  }

  #answer(stream: HttpAnswer['stream']): void {
    if (this.#settled !== undefined) return;
    this.#settled = 'answered';
    this.#unlisten();
    this.#outcome.resolve({
      status: this.#status,
      headers: this.#headers,
      mediaType: this.#mediaType,
      body: this.#body.take(),
      bytes: this.#bytes,
      stream,
      lastEventId: this.#events?.lastEventId,
      retryMs: this.#events?.retryMs,
    });
  }

  #settle(error: Error): boolean {
    if (this.#settled !== undefined) return false;
    this.#settled = error;
    this.#unlisten();
    this.#outcome.reject(error);
    return true;
  }

  #unlisten(): void {
    this.#request.signal.removeEventListener('abort', this.#onAbort);
  }
}

const mediaTypeOf = (header: string | string[] | undefined): string => {
  const value = Array.isArray(header) ? header[0] : header;
  return value?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
};

export const isIdentity = (header: string | string[] | undefined): boolean =>
  header === undefined ||
  header === '' ||
  (typeof header === 'string' && header.trim().toLowerCase() === 'identity');
