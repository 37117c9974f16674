import { setTimeout as delay } from 'node:timers/promises';
import { SwitchboardError, toSwitchboardError } from '../../../errors.ts';
import { isObject } from '../../../platform/json/limits.ts';
import { abortReason, type Cancellation } from '../../../platform/time.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import type { ProxyLimits } from '../limits.ts';
import { readMessage, redactAnswer, type Incoming, type Outgoing, type RequestId } from './envelope.ts';
import { brokeProtocol, RefusedAfterBegun } from './failures.ts';
import type { HttpAnswer, HttpClient } from './http.ts';
import { credentialHeaders, failureOf, parseJson, POST_HEADERS, type RpcReply } from './rpc.ts';

const MAX_ENDPOINT_CHARS = 4_096;

/** Events that the server wrote before refusing a POST may arrive slightly later, because they use another connection. */
const SETTLE_MS = 50;

/** Refusals after which we or the caller repeat a call, because it did not run. */
const INVITES_REPEAT: ReadonlySet<number> = new Set([401, 403, 429, 503]);

/** The server does not open an event stream: it is not an HTTP+SSE server at this URL. */
export class NoEventStream extends SwitchboardError {
  constructor(what: string) {
    super('upstream_protocol', `The MCP server ${what}.`);
  }
}

interface StreamOptions {
  readonly client: HttpClient;
  readonly limits: ProxyLimits;
  readonly nowMs: () => number;
  /** Handles a request from the server. */
  readonly onServerRequest: (id: RequestId, method: string) => void;
}

/**
 * The stream of a session in revision 2024-11-05 (HTTP+SSE). The server names the endpoint for our messages and sends all
 * responses in the one stream, by id. When a stream ends, pending responses never arrive.
 */
export class HttpSseStream {
  readonly #options: StreamOptions;
  readonly #waiting: WaitingCalls;
  readonly #closing = new AbortController();
  readonly #ended = Promise.withResolvers<SwitchboardError>();
  readonly #rate: StreamRateGuard;
  #endpoint: URL | undefined;
  #end: Error | undefined;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#waiting = new WaitingCalls(options.onServerRequest);
    this.#rate = new StreamRateGuard(options.limits.maxResponseBytes, () => performance.now());
  }

  /** Resolves with the reason once the stream has ended. */
  get ended(): Promise<SwitchboardError> {
    return this.#ended.promise;
  }

  /**
   * Opens the stream, and resolves with the endpoint for our messages.
   * @throws NoEventStream if the server offers no stream; SwitchboardError for other failures; the signal's reason
   */
  async open(url: URL, credential: Credential | undefined, signal: Cancellation): Promise<URL> {
    signal.throwIfAborted();
    const opened = Promise.withResolvers<URL>();
    const giveUp = () => this.close(abortReason(signal));
    signal.addEventListener('abort', giveUp, { once: true });
    void this.#run(url, credential, opened);
    try {
      return await opened.promise;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  /** Ends the stream; pending calls fail with the reason. */
  close(reason: Error): void {
    this.#closing.abort(reason);
  }

  /**
   * Sends one request and waits for its response. A reply without a response has the HTTP status that refused the request.
   * 404 also means that the stream ended before the request was written.
   * @throws SwitchboardError for 401, 403, 429, connection failures, and when the stream ends
   */
  async request(request: SseRequest): Promise<RpcReply> {
    const { limits } = this.#options;
    if (this.#end) return gone(this.#end);
    if (this.#waiting.size >= limits.maxQueuedPerOrigin) {
      const detail = 'Too many calls to this MCP server are already waiting. Try again later.';
      throw new SwitchboardError('unavailable', detail);
    }
    const call = this.#waiting.add(request);
    const { signal, reject } = call;
    const onAbort = () => reject(abortReason(signal));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    this.#rate.callBegins();
    const posting = new AbortController();
    const posted = this.#post(call, posting.signal).catch(reject);
    try {
      const reply = await call.reply;
      // A server may respond to the POST late, but not hold its connection forever.
      const late = setTimeout(() => posting.abort(), limits.sideTimeoutMs).unref();
      void posted.finally(() => clearTimeout(late));
      return reply;
    } catch (error) {
      posting.abort(error);
      if (!call.sent && error === this.#end) return gone(error);
      throw error;
    } finally {
      this.#waiting.remove(call);
      this.#rate.callEnds(this.#waiting.size);
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** Sends the call. The response to an accepted call arrives in the stream; a refusal is the reply. */
  async #post(call: WaitingCall, signal: Cancellation): Promise<void> {
    const { client } = this.#options;
    const { outgoing, credential } = call;
    if (!this.#endpoint) throw new SwitchboardError('internal', 'A stream was used before it was open.');
    const http = await client.send({
      url: this.#endpoint,
      method: 'POST',
      headers: { ...POST_HEADERS, ...outgoing.headers, ...credentialHeaders(credential) },
      body: outgoing.body,
      signal,
      onSent: () => {
        // This is a redirect, which means that the first target did not accept the request.
        if (call.begun) throw brokeProtocol('started to process the request and then redirected it');
        call.sent = true;
        call.onSent?.();
      },
      // The first event is enough: the response arrives elsewhere.
      onEvent: () => true,
    });
    if (http.status < 300) return;
    call.refused = true;
    await delay(SETTLE_MS, undefined, { ref: false });
    call.resolve(this.#refusal(call, http));
  }

  /** @throws SwitchboardError for 401, 403, 429. */
  #refusal({ begun, credential }: WaitingCall, http: HttpAnswer): RpcReply {
    const { status, headers, bytes } = http;
    const failure = () => failureOf(http, credential, this.#options.nowMs());
    const problem = () =>
      begun && INVITES_REPEAT.has(status) ? new RefusedAfterBegun(status, failure()) : failure();
    if (status === 401 || status === 403 || status === 429) throw problem();
    return { status, headers, bytes, answer: undefined, ownId: false, begun, problem };
  }

  async #run(url: URL, credential: Credential | undefined, opened: PromiseWithResolvers<URL>): Promise<void> {
    const { client, limits, nowMs } = this.#options;
    let end: SwitchboardError;
    let late: NodeJS.Timeout | undefined;
    try {
      const http = await client.send({
        url,
        method: 'GET',
        headers: {
          accept: 'text/event-stream',
          'cache-control': 'no-cache',
          'user-agent': POST_HEADERS['user-agent'],
          ...credentialHeaders(credential),
        },
        signal: this.#closing.signal,
        apart: true,
        onOpen: () => {
          late = setTimeout(
            () => this.close(new NoEventStream('opened an event stream without an endpoint event')),
            limits.endpointTimeoutMs,
          );
        },
        onBytes: bytes => this.#rate.took(bytes, 0),
        onEvent: ({ event, data }) => {
          this.#rate.took(0, 1);
          if (event === 'message') this.#waiting.take(data);
          else if (event === 'endpoint' && !this.#endpoint) {
            this.#endpoint = readEndpoint(url, data);
            clearTimeout(late);
            opened.resolve(this.#endpoint);
          }
          return false;
        },
      });
      end = endOf(http, this.#endpoint !== undefined, () => failureOf(http, credential, nowMs()));
    } catch (error) {
      end = toSwitchboardError(error);
    }
    clearTimeout(late);
    this.#end = end;
    opened.reject(end);
    this.#waiting.end(end);
    this.#ended.resolve(end);
  }
}

/** @throws SwitchboardError for a URL with a different origin. The guard checks the rest before each message */
function readEndpoint(base: URL, data: string): URL {
  const endpoint = data.length > MAX_ENDPOINT_CHARS ? null : URL.parse(data.trim(), base.href);
  if (!endpoint) throw brokeProtocol('sent an endpoint event without a valid URL');
  if (endpoint.origin === base.origin) return endpoint;
  throw new SwitchboardError(
    'upstream_blocked',
    "The MCP server's address is not allowed: its endpoint event points to another origin.",
  );
}

/** Returns the failure for the end of the GET. Refusals and faults say nothing about the server's protocol. */
function endOf(
  { status, mediaType, stream }: HttpAnswer,
  wasOpen: boolean,
  failure: () => SwitchboardError,
): SwitchboardError {
  if (wasOpen) return brokeProtocol('ended its event stream');
  if (stream !== 'none') return new NoEventStream('ended its event stream without an endpoint event');
  if (status === 401 || status === 403 || status === 429 || status >= 500) return failure();
  return new NoEventStream(
    `returned HTTP ${status} to a GET for events${status === 200 && mediaType !== '' ? ' but no event stream' : ''}`,
  );
}

/** Replies like a server that no longer knows the session: nothing ran. */
const gone = (end: unknown): RpcReply => ({
  status: 404,
  headers: {},
  bytes: 0,
  answer: undefined,
  ownId: false,
  begun: false,
  problem: () => toSwitchboardError(end),
});

/** The allowance of a stream per window without calls: keep-alives, a few notifications. */
const WINDOW_MS = 10_000;
const WINDOW_BYTES = 64 * 1024;
const WINDOW_EVENTS = 1_000;
/** The number of events each call may add besides its response: progress and log messages. */
const CALL_EVENTS = 10_000;

/**
 * Limits the data in an open stream: an allowance for each waiting call, and a little for any ten seconds. Without it, an
 * idle server could keep the process busy as long as the stream lives.
 */
export class StreamRateGuard {
  readonly #callBytes: number;
  readonly #nowMs: () => number;
  /** The rest of the waiting calls' allowance. */
  #bytes = 0;
  #events = 0;
  /** Sent beyond that allowance. */
  #window = { sinceMs: -Infinity, bytes: 0, events: 0 };

  /** @param nowMs a monotonic clock */
  constructor(callBytes: number, nowMs: () => number) {
    this.#callBytes = callBytes;
    this.#nowMs = nowMs;
  }

  callBegins(): void {
    this.#bytes += this.#callBytes;
    this.#events += CALL_EVENTS;
  }

  /** The unused allowance of calls is not saved. */
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
      throw brokeProtocol('sent far more data in its event stream than requested');
  }
}

interface SseRequest {
  readonly id: RequestId;
  readonly outgoing: Outgoing;
  readonly credential: Credential | undefined;
  /** The token in the server's progress notifications for this call. */
  readonly progressToken: unknown;
  readonly signal: Cancellation;
  /** Absent for a request without effects (`initialize`), for which the server's progress is irrelevant. */
  readonly onSent?: () => void;
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

interface WaitingCall extends SseRequest {
  readonly reply: Promise<RpcReply>;
  readonly resolve: (reply: RpcReply) => void;
  readonly reject: (error: Error) => void;
  /** True once it is written: from then on, events in the stream may be signs of work on it. */
  sent: boolean;
  /** True once an event that may be a sign of work on it has arrived. */
  begun: boolean;
  /** True once its POST was refused: the end of the stream no longer affects it. */
  refused: boolean;
}

/** The calls waiting for their responses in one event stream. Dispatches each message to its calls. */
class WaitingCalls {
  readonly #calls = new Map<string, WaitingCall>();
  readonly #onServerRequest: (id: RequestId, method: string) => void;

  /** @param onServerRequest handles a request from the server */
  constructor(onServerRequest: (id: RequestId, method: string) => void) {
    this.#onServerRequest = onServerRequest;
  }

  get size(): number {
    return this.#calls.size;
  }

  add(request: SseRequest): WaitingCall {
    const { promise: reply, resolve, reject } = Promise.withResolvers<RpcReply>();
    const call = { ...request, reply, resolve, reject, sent: false, begun: false, refused: false };
    this.#calls.set(String(request.id), call);
    return call;
  }

  remove({ id }: WaitingCall): void {
    this.#calls.delete(String(id));
  }

  /** Fails every call, because the stream has ended and no response will arrive. */
  end(reason: Error): void {
    for (const { refused, reject } of this.#calls.values()) if (!refused) reject(reason);
  }

  /** Handles the data of one event. @throws SwitchboardError `upstream_protocol` for invalid JSON */
  take(data: string): void {
    if (data === '') return;
    const message = parseJson(data);
    const bytes = Buffer.byteLength(data);
    for (const each of Array.isArray(message) ? message : [message]) this.#route(each, bytes);
  }

  #route(message: unknown, bytes: number): void {
    if (!isObject(message)) return;
    const named = this.#calls.get(String(message['id']));
    const incoming = readMessage(message, named?.id ?? '');
    switch (incoming.kind) {
      case 'request':
        this.#begin(this.#calls.values());
        this.#onServerRequest(incoming.id, incoming.method);
        return;
      case 'notification':
        this.#notify(incoming);
        return;
      case 'answer':
        if (!named || !incoming.ownId) return;
        named.resolve({
          status: 200,
          headers: {},
          bytes,
          answer: redactAnswer(incoming.answer, named.credential),
          ownId: true,
          begun: true,
          problem: () => brokeProtocol('answered with nothing'),
        });
        return;
      case 'other-id':
      case 'invalid':
        if (named) this.#begin([named]);
    }
  }

  /** Only progress names its call and is forwarded. Other notifications may be about any call. */
  #notify({ method, params }: Extract<Incoming, { kind: 'notification' }>): void {
    const token =
      method === 'notifications/progress' && isObject(params) ? params['progressToken'] : undefined;
    const named = [...this.#calls.values()].filter(
      ({ progressToken }) => token !== undefined && progressToken === token,
    );
    this.#begin(named.length > 0 ? named : this.#calls.values());
    for (const { onNotification } of named) onNotification?.(method, params);
  }

  #begin(calls: Iterable<WaitingCall>): void {
    for (const call of calls) if (call.sent && call.onSent) call.begun = true;
  }
}
