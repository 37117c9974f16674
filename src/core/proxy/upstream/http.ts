import { Agent, type Dispatcher } from 'undici';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import { setTimeout as delay } from 'node:timers/promises';
import { SwitchboardError, toSwitchboardError } from '../../../errors.ts';
import { abortReason, type Cancellation, toAbortSignal } from '../../../platform/time.ts';
import type { ProxyLimits } from '../limits.ts';
import { brokeProtocol, connectionFailure, NotConnected, sentTooMuch, type Stage } from './failures.ts';
import { Chunks } from './chunks.ts';
import { LargeAnswerScan } from './large-answer.ts';
import { GrowingBuffer, LARGE_BYTES, SseParser, type SseEvent } from './sse.ts';
import { blockedRedirect, type Guard } from '../../../platform/outbound/guard.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';

/** A server could send interim responses (below 200) endlessly, each with headers. */
const MAX_INTERIM_ANSWERS = 200;

/** How much more of a settled response is read: enough for the server to end it, which keeps the connection alive. */
const REST_BYTES = 64 * 1024;
const REST_MS = 500;

export interface ExchangeRequest {
  readonly url: URL;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  /** Aborts the exchange, which then rejects with the signal's reason. */
  readonly signal: Cancellation;
  /** Called when the request is about to be written: from then on, the server may have seen it. */
  readonly onSent?: (() => void) | undefined;
}

/** A request whose response is read here. */
export interface HttpRequest extends ExchangeRequest {
  readonly body?: string;
  /** Receives the events of an SSE response one by one, and returns true if it needs no more. Without it, the body is collected. */
  readonly onEvent?: (event: SseEvent) => boolean;
  /** Scans a large JSON response or event as it arrives (`HttpAnswer.large`, `SseEvent.large`). */
  readonly scansLarge?: true;
  /** A long-lived stream. It takes no call's connection, and the size limit applies to each event. */
  readonly apart?: true;
  /** Called when the response is an event stream and starts. */
  readonly onOpen?: () => void;
  /** Called for each chunk of an event stream. Throwing an error aborts the exchange. */
  readonly onBytes?: (bytes: number) => void;
}

interface LargeBody {
  readonly scan: LargeAnswerScan;
  readonly bytes: Chunks;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The content type without parameters, in lower case; '' if there is none. */
  readonly mediaType: string;
  /** Empty for an SSE response whose events were consumed one by one. */
  readonly body: Buffer;
  /** A large JSON response as it was scanned, if the request wants that. Its `body` is joined whenever it is read. */
  readonly large?: LargeBody;
  /** The number of received body bytes. */
  readonly bytes: number;
  /** How an SSE response ended: `onEvent` had enough, or it ended after or in the middle of an event. */
  readonly stream: 'none' | 'taken' | 'ended' | 'cut';
  /** The id for resuming an SSE response. */
  readonly lastEventId: string | undefined;
  /** The server's requested wait before an SSE response is resumed. */
  readonly retryMs: number | undefined;
}

export interface Outcome<T> {
  resolve(answer: T): void;
  reject(error: Error): void;
}

/**
 * Turns the events of one request, as reported by undici, into one outcome. The first outcome counts. The rest of the response is
 * then read for a moment, within limits.
 */
export abstract class Exchange<R extends ExchangeRequest, T> implements Dispatcher.DispatchHandler {
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

  /** Handles response headers that are within the limits. */
  protected abstract onHead(): void;
  /** Handles a chunk of the body. */
  protected abstract onBody(chunk: Buffer, controller: Dispatcher.DispatchController): void;
  /** The response is complete. */
  protected abstract onEnd(): void;
  /** Handles a chunk that arrived after the exchange was settled. */
  protected onRest(_chunk: Buffer): void {}
  /** Nothing more will arrive. */
  protected onRestEnd(): void {}

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // The request was cancelled while it waited for a connection: nothing was or will be written.
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
        this.fail(brokeProtocol('sent too many interim responses'));
      return;
    }
    this.#stage = 'answering';
    this.status = status;
    this.headers = headers;
    if (countOf(headers) > this.limits.maxHeaderCount)
      this.fail(brokeProtocol('sent too many response headers'));
    else if (!isIdentity(headers['content-encoding']))
      this.fail(brokeProtocol('sent a compressed response that was not requested'));
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
    if (!this.isSettled) this.#reject(connectionFailure(error, this.#stage));
    this.#endRest();
  }

  /** Aborts the exchange with an error. */
  protected fail(error: Error): void {
    if (this.#reject(error)) this.#controller?.abort(error);
  }

  protected settle(): void {
    this.isSettled = true;
    this.request.signal.removeEventListener('abort', this.#onAbort);
  }

  /** Settles the exchange before its end: the rest is discarded, and cut off if it is long or slow. */
  protected settleEarly(): void {
    this.settle();
    this.#restTimer = setTimeout(() => this.#cut(), REST_MS).unref();
  }

  /** Discards a chunk of a settled exchange. */
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
    this.#controller?.abort(new Error('the rest of the response is not needed'));
  }

  readonly #onAbort = (): void => this.fail(abortReason(this.request.signal));
}

const NO_BYTES = Buffer.alloc(0);

/** Scanning so many bytes takes .1 ms for texts and up to 6 ms for JSON of nothing but brackets. Node may receive 2 MiB at once. */
const BYTES_PER_TURN = 128 * 1024;

/** Collects the response, or emits its events one by one. */
class BufferedExchange extends Exchange<HttpRequest, HttpAnswer> {
  /** Most responses arrive in one chunk, which is not copied. */
  #only: Buffer | undefined;
  #body: GrowingBuffer | undefined;
  #mediaType = '';
  #bytes = 0;
  #events: SseParser | undefined;
  #large: LargeBody | undefined;
  /** The number of bytes when others last had a turn. */
  #pausedAt = 0;

  protected override onHead(): void {
    this.#mediaType = mediaTypeOf(this.headers['content-type']);
    if (Number(this.headers['content-length']) > this.limits.maxResponseBytes) this.#failTooLarge();
    else if (this.#isEventStream) {
      this.#events = new SseParser(this.request);
      this.request.onOpen?.();
    }
  }

  /** An error declared as an event stream is not a stream to keep open. */
  get #isEventStream(): boolean {
    const { onEvent, apart } = this.request;
    return (
      this.#mediaType === 'text/event-stream' && onEvent !== undefined && !(apart && this.status !== 200)
    );
  }

  protected override onBody(chunk: Buffer, controller: Dispatcher.DispatchController): void {
    this.#bytes += chunk.length;
    const held = this.request.apart && this.#events ? this.#events.pendingBytes + chunk.length : this.#bytes;
    if (held > this.limits.maxResponseBytes) this.#failTooLarge();
    else if (this.#events) this.#readEvents(this.#events, chunk, controller);
    else this.#keep(chunk, controller);
  }

  #keep(chunk: Buffer, controller: Dispatcher.DispatchController): void {
    if (this.request.scansLarge && this.#bytes >= LARGE_BYTES && this.#mediaType === 'application/json')
      this.#keepLarge(chunk, controller);
    else if (this.#body) this.#body.append(chunk);
    else if (!this.#only) this.#only = chunk;
    else {
      this.#body = new GrowingBuffer();
      this.#body.append(this.#only);
      this.#body.append(chunk);
    }
  }

  /** Scans a chunk of a large response, and before the first all that has arrived until then. */
  #keepLarge(chunk: Buffer, controller: Dispatcher.DispatchController): void {
    if (!this.#large) {
      this.#large = { scan: new LargeAnswerScan({ allowBom: true }), bytes: new Chunks() };
      const before = this.#body?.take() ?? this.#only;
      if (before) this.#readLarge(this.#large, before);
    }
    this.#readLarge(this.#large, chunk);
    this.#giveTurn(controller);
  }

  #readLarge({ scan, bytes }: LargeBody, chunk: Buffer): void {
    scan.push(chunk);
    bytes.append(chunk);
  }

  /** Lets others have a turn if much was scanned. */
  #giveTurn(controller: Dispatcher.DispatchController): void {
    if (this.#bytes - this.#pausedAt < BYTES_PER_TURN) return;
    this.#pausedAt = this.#bytes;
    controller.pause();
    setImmediate(() => controller.resume());
  }

  protected override onEnd(): void {
    this.settle();
    if (this.#events) this.#answer(this.#events.midEvent ? 'cut' : 'ended');
    else this.#answer('none');
  }

  #readEvents(events: SseParser, chunk: Buffer, controller: Dispatcher.DispatchController): void {
    try {
      this.request.onBytes?.(chunk.length);
      for (const event of events.push(chunk)) {
        if (!this.request.onEvent?.(event)) continue;
        this.settleEarly();
        this.#answer('taken');
        return;
      }
      if (this.request.scansLarge) this.#giveTurn(controller);
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
    const answer = this.#answerOf(stream);
    this.outcome.resolve(this.#large ? withLarge(answer, this.#large) : answer);
  }

  #answerOf(stream: HttpAnswer['stream']): HttpAnswer {
    return {
      status: this.status,
      headers: this.headers,
      mediaType: this.#mediaType,
      body: this.#body?.take() ?? this.#only ?? NO_BYTES,
      bytes: this.#bytes,
      stream,
      lastEventId: this.#events?.lastEventId,
      retryMs: this.#events?.retryMs,
    };
  }
}

const withLarge = (answer: HttpAnswer, large: LargeBody): HttpAnswer => ({
  ...answer,
  large,
  get body() {
    return Buffer.concat(large.bytes.slice(0, large.bytes.length));
  },
});

/** Counts without the list of names that Object.keys makes. */
function countOf(headers: IncomingHttpHeaders): number {
  let count = 0;
  for (const _name in headers) count++;
  return count;
}

export const isRedirect = (status: number): boolean => status >= 300 && status <= 399;

const mediaTypeOf = (header: string | string[] | undefined): string => {
  const value = Array.isArray(header) ? header[0] : header;
  return value?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
};

const isIdentity = (header: string | string[] | undefined): boolean =>
  header === undefined ||
  header === '' ||
  (typeof header === 'string' && header.trim().toLowerCase() === 'identity');

/** Extra connections per origin besides its slots, for messages that running calls wait for. */
const SIDE_CONNECTIONS = 8;

/** The wait before a refused connection is retried once. */
const RECONNECT_MS = 100;

/** How many URLs are kept: more than a catalogue has in use at a time. */
const MAX_PARSED_URLS = 10_000;
const parsedUrls = new Map<string, URL>();

/** Returns a catalogued URL, parsed once instead of per call. It is shared and must not be modified. */
export function urlOf(text: string): URL {
  const known = parsedUrls.get(text);
  if (known) return known;
  const url = new URL(text);
  if (parsedUrls.size >= MAX_PARSED_URLS) parsedUrls.clear();
  parsedUrls.set(text, url);
  return url;
}

interface Dispatched extends ExchangeRequest {
  readonly body?: string | Buffer | undefined;
  readonly apart?: boolean;
}

/** The class of an exchange: one that buffers its response, or one that streams it. */
type ExchangeOf<R, T> = new (
  request: R,
  limits: ProxyLimits,
  outcome: Outcome<T>,
) => Dispatcher.DispatchHandler;

type Head = Pick<HttpAnswer, 'status' | 'headers'>;

/**
 * HTTP with undici's pools and the outbound guard on every connection. HTTP/1.1 only: cancelling closes one connection, the number
 * of connections limits the calls, and no peer can ask for a request to be repeated (GOAWAY). undici itself never sends a POST
 * twice: only one that is not yet written moves to another connection.
 */
export class HttpClient {
  readonly #agent: Agent;
  /** Used by connections that no call waits for: open streams, and pass-through requests outside the slots. */
  readonly #streams: Agent;
  readonly #guard: Guard;
  readonly #limits: ProxyLimits;

  constructor(guard: Guard, limits: ProxyLimits) {
    this.#guard = guard;
    this.#limits = limits;
    const common = {
      connect: guard.connect,
      pipelining: 1,
      allowH2: false,
      maxHeaderSize: limits.maxHeaderBytes,
      // The signal ends an exchange: undici's own timeouts would cut off servers that work silently.
      headersTimeout: 0,
      bodyTimeout: 0,
    };
    this.#streams = new Agent({
      ...common,
      // Limited by the numbers of sessions and of passed-through streams. Some sessions are being opened, or end with their last
      // call.
      connections: limits.maxSessions + limits.maxQueuedPerOrigin + 2 * limits.maxStreams,
    });
    this.#agent = new Agent({
      ...common,
      connections: 2 * limits.connectionsPerOrigin + SIDE_CONNECTIONS,
      // Shorter than the 5 s after which common servers (uvicorn) silently close idle connections: a call on a closing connection
      // fails, because it may have run.
      keepAliveTimeout: 4_000,
      keepAliveMaxTimeout: 60_000,
    });
  }

  /** Makes one exchange and buffers its response. @throws like `exchange` */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return this.exchange(request, BufferedExchange);
  }

  /**
   * Makes one exchange. A 307 or 308 to the same origin is followed once, with the same method and body (RFC 9110 §15.4.8: the
   * first target did not accept the request); no other redirect is.
   * @throws SwitchboardError for a connection failure or an oversized response; the signal's reason
   */
  exchange<R extends Dispatched, T extends Head>(request: R, Kind: ExchangeOf<R, T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#dispatch(request, request.url, Kind, {
        // An ordinary answer settles the only promise of the exchange.
        resolve: answer =>
          resolve(isRedirect(answer.status) ? this.#redirected(request, Kind, answer) : answer),
        reject: error => {
          if (error instanceof NotConnected && error.passing) resolve(this.#reconnected(request, Kind));
          else reject(error);
        },
      });
    });
  }

  /** Aborts the running exchanges. */
  async close(): Promise<void> {
    await Promise.all([this.#agent.destroy(), this.#streams.destroy()]);
  }

  /** Retries a refused connection once: nothing was written. */
  async #reconnected<R extends Dispatched, T extends Head>(request: R, Kind: ExchangeOf<R, T>): Promise<T> {
    const { url, signal } = request;
    await delay(RECONNECT_MS, undefined, { signal: toAbortSignal(signal) }).catch(() => {
      throw abortReason(signal);
    });
    const answer = await this.#again(request, url, Kind);
    return isRedirect(answer.status) ? this.#redirected(request, Kind, answer) : answer;
  }

  async #redirected<R extends Dispatched, T extends Head>(
    request: R,
    Kind: ExchangeOf<R, T>,
    answer: T,
  ): Promise<T> {
    const again = await this.#again(request, redirectTarget(request.url, answer), Kind);
    if (isRedirect(again.status)) throw refusedRedirect('redirected more than once');
    return again;
  }

  #again<R extends Dispatched, T>(request: R, url: URL, Kind: ExchangeOf<R, T>): Promise<T> {
    return new Promise((resolve, reject) => this.#dispatch(request, url, Kind, { resolve, reject }));
  }

  /** @throws SwitchboardError for an address that is not allowed */
  #dispatch<R extends Dispatched, T>(
    request: R,
    url: URL,
    Kind: ExchangeOf<R, T>,
    outcome: Outcome<T>,
  ): void {
    this.#guard.check(url);
    const exchange = new Kind(request, this.#limits, outcome);
    const agent = request.apart ? this.#streams : this.#agent;
    const { origin, path } = partsOf(url);
    const { method, headers, body = null } = request;
    withoutSpan(() => agent.dispatch({ origin, path, method, headers, body }, exchange));
  }
}

const parts = new WeakMap<URL, { readonly origin: string; readonly path: string }>();

/** Returns the origin and the path of a URL, which URL puts together anew each time. */
export function partsOf(url: URL): { readonly origin: string; readonly path: string } {
  const known = parts.get(url);
  if (known) return known;
  const found = { origin: url.origin, path: `${url.pathname}${url.search}` };
  parts.set(url, found);
  return found;
}

function redirectTarget(from: URL, answer: Head): URL {
  const { location } = answer.headers;
  const target = typeof location === 'string' ? URL.parse(location, from.href) : null;
  if (!target) throw refusedRedirect(`returned HTTP ${answer.status} without a valid Location`);
  if (target.origin !== from.origin) throw blockedRedirect();
  if (answer.status !== 307 && answer.status !== 308)
    throw refusedRedirect(`redirected with HTTP ${answer.status}, which would turn the POST into a GET`);
  return target;
}

const refusedRedirect = (why: string) =>
  new SwitchboardError(
    'upstream_http_error',
    `The MCP server ${why}. The redirect was not followed. The catalogued URL may be out of date.`,
  );
