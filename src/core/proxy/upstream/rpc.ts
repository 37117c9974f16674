import { isUtf8 } from 'node:buffer';
import { setTimeout as delay } from 'node:timers/promises';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import type { SwitchboardError } from '../../../errors.ts';
import { abortReason, type Cancellation, toAbortSignal } from '../../../platform/time.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import {
  EXCERPT_BYTES,
  errorOf,
  readMessage,
  redact,
  redactAnswer,
  type Outgoing,
  type RequestId,
  type RpcAnswer,
} from './envelope.ts';
import { brokeProtocol, httpFailure } from './failures.ts';
import { Chunks } from './chunks.ts';
import type { LargeAnswerScan } from './large-answer.ts';
import type { SseEvent } from './sse.ts';
import { urlOf, type HttpAnswer, type HttpClient, type HttpRequest } from './http.ts';
import { isTooDeep, isTooDeepToParse } from '../../../platform/json/limits.ts';

export const POST_HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'user-agent': 'switchboard',
};

/** Returns the headers of a credential, only for the server that it was issued for. */
export const credentialHeaders = (credential: Credential | undefined): Readonly<Record<string, string>> =>
  credential?.headers ?? {};

/** Returns all headers of a POST. */
export const postHeaders = (
  { headers }: Pick<Outgoing, 'headers'>,
  credential: Credential | undefined,
): Readonly<Record<string, string>> => ({ ...POST_HEADERS, ...headers, ...credential?.headers });

/** Returns the address of a call: the credential's if the server's own has variables. */
export const addressFor = (remoteUrl: string, credential: Credential | undefined): URL =>
  credential?.url ?? urlOf(remoteUrl);

export interface RpcRequest {
  readonly url: URL;
  readonly id: RequestId;
  readonly body: string;
  /** All of them, with those of the credential (`postHeaders`). */
  readonly headers: Readonly<Record<string, string>>;
  /** The user's token in the call, whose secrets no error may repeat. */
  readonly credential: Credential | undefined;
  readonly signal: Cancellation;
  readonly onSent?: (() => void) | undefined;
  /** True if the revision allows resuming a response whose stream the server ended early. */
  readonly resumable?: boolean;
  /** Handles a server's request in the response stream. Without it, such requests are ignored. */
  readonly onServerRequest?: ((id: RequestId, method: string) => void) | undefined;
  /** Receives a notification in the response stream, before the response. Must not throw. */
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

export interface RpcReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: number;
  /** The upstream's response, whatever the HTTP status: 400 and 404 have responses in revision 2026-07-28. */
  readonly answer: RpcAnswer | undefined;
  /** True if the response named our request. Only errors may lack an id. */
  readonly ownId: boolean;
  /** True if the server showed work before it responded: by a notification or a request. */
  readonly begun: boolean;
  /** Returns the error for a reply without a response. */
  readonly problem: () => SwitchboardError;
}

/**
 * Sends one JSON-RPC request and reads its response from JSON or SSE.
 * @throws SwitchboardError for 401, 403 and 429 without a result of this request, and for every connection failure
 */
export async function rpcExchange(
  client: HttpClient,
  request: RpcRequest,
  nowMs: () => number,
): Promise<RpcReply> {
  const reader = new AnswerReader(request);
  const post: HttpRequest = {
    url: request.url,
    method: 'POST',
    headers: request.headers,
    body: request.body,
    signal: request.signal,
    onSent: request.onSent,
    scansLarge: true,
    // An event without data only enables resumption (2025-11-25, Resumability).
    onEvent: event => event.event === 'message' && reader.takeEvent(event),
  };
  const first = await client.send(post);
  const http =
    request.resumable && first.lastEventId !== undefined ? await resume(client, post, first) : first;
  const { status, headers, bytes } = http;
  const failure = () => failureOf(http, request.credential, nowMs());
  try {
    readBody(http, reader);
  } catch (error) {
    if (status < 400) throw error;
  }
  // A call with a result has run, whatever the status: it must not count as refused and be repeated.
  const ran = reader.ownId && errorOf(reader.answer) === undefined;
  if ((status === 401 || status === 403 || status === 429) && !ran) throw failure();
  const answer = redactAnswer(reader.answer, request.credential);
  const problem = () => (status >= 400 ? failure() : noAnswer(http, reader));
  return { status, headers, bytes, answer, ownId: reader.ownId, begun: reader.begun, problem };
}

/** Returns the failure for an HTTP error, without the token of the credential. */
export const failureOf = (
  http: HttpAnswer,
  credential: Credential | undefined,
  nowMs: number,
): SwitchboardError => {
  const { status, headers } = http;
  return httpFailure({ status, headers, nowMs, excerpt: excerptOf(http, credential) });
};

const BYTE_ORDER_MARK = '\u{feff}';

/** Feeds a JSON body to the reader. */
function readBody(http: HttpAnswer, reader: AnswerReader): void {
  if (http.mediaType !== 'application/json' || http.bytes === 0) return;
  if (http.large && reader.takeLarge(http.large.scan, http.large.bytes)) return;
  const { body } = http;
  if (!isUtf8(body)) throw brokeProtocol('sent JSON that is not valid UTF-8');
  const text = body.toString();
  reader.take(parseJson(text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text));
}

function noAnswer(http: HttpAnswer, reader: AnswerReader): SwitchboardError {
  const { status, mediaType, body } = http;
  if (mediaType === 'text/event-stream') {
    return brokeProtocol(
      http.stream === 'cut'
        ? 'ended its response in the middle of an event'
        : 'ended its event stream without a response',
    );
  }
  if (body.length === 0) {
    return brokeProtocol(
      status === 202
        ? 'accepted the request without a response (HTTP 202)'
        : `returned HTTP ${status} with an empty body`,
    );
  }
  if (mediaType !== 'application/json') {
    return brokeProtocol(
      `returned HTTP ${status} with ${describeType(mediaType)} instead of JSON or an event stream`,
    );
  }
  return brokeProtocol(
    reader.sawOtherId
      ? 'responded to another request (the id does not match)'
      : 'sent JSON that is not a JSON-RPC response',
  );
}

/** Shows a type completely or not at all: part of a token would not be recognised. */
const describeType = (mediaType: string): string => {
  if (mediaType === '') return 'no content type';
  return /^[\w.+-]{1,60}\/[\w.+-]{1,80}$/.test(mediaType) ? mediaType : 'another content type';
};

/** HTML is for browsers and is never quoted in an error. The token is removed before truncation. */
const excerptOf = ({ mediaType, body }: HttpAnswer, credential: Credential | undefined): string =>
  mediaType === 'application/json' || mediaType === 'text/plain'
    ? redact(body.subarray(0, EXCERPT_BYTES).toString(), credential).slice(0, 1_000)
    : '';

const nestedTooDeep = () => brokeProtocol('sent JSON that is nested too deeply');

/** @throws SwitchboardError `upstream_protocol` for a text that is invalid JSON or nested too deeply */
export function parseJson(text: string): unknown {
  if (isTooDeepToParse(text)) throw nestedTooDeep();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The cause is dropped, because it quotes the text: results must not be logged.
    throw brokeProtocol('sent invalid JSON');
  }
  if (isTooDeep(value, text)) throw nestedTooDeep();
  return value;
}

/** Finds the response to one request among the received messages. */
class AnswerReader {
  readonly #request: RpcRequest;
  answer: RpcAnswer | undefined;
  ownId = false;
  begun = false;
  sawOtherId = false;

  constructor(request: RpcRequest) {
    this.#request = request;
  }

  /** Returns whether this message, or one in a batch of revision 2025-03-26, is the response. */
  take(message: unknown): boolean {
    if (Array.isArray(message)) return message.some(part => !Array.isArray(part) && this.take(part));
    const incoming = readMessage(message, this.#request.id);
    if (incoming.kind === 'request' || incoming.kind === 'notification') this.begun = true;
    if (incoming.kind === 'request') this.#request.onServerRequest?.(incoming.id, incoming.method);
    if (incoming.kind === 'notification') this.#request.onNotification?.(incoming.method, incoming.params);
    if (incoming.kind === 'other-id') this.sawOtherId = true;
    if (incoming.kind !== 'answer') return false;
    this.answer = incoming.answer;
    this.ownId = incoming.ownId;
    return true;
  }

  /** Returns whether the event's message is the response. @throws SwitchboardError `upstream_protocol` for invalid JSON */
  takeEvent(event: SseEvent): boolean {
    if (event.large) {
      const bytes = new Chunks();
      bytes.append(event.large.bytes);
      if (this.takeLarge(event.large.scan, bytes)) return true;
    }
    const { data } = event;
    return data !== '' && this.take(parseJson(data));
  }

  /** Returns whether the scanned message is the response. */
  takeLarge(scan: LargeAnswerScan, bytes: Chunks): boolean {
    this.answer = scan.end(bytes, this.#request.id);
    this.ownId = this.answer !== undefined;
    return this.ownId;
  }
}

const MAX_RESUMES = 10;
const DEFAULT_RETRY_MS = 1_000;
const MAX_RETRY_MS = 10_000;

/**
 * Resumes a response stream that its server ended early, if its events had ids (2025-11-25, Resumability): by GET, after the
 * requested wait. The request itself is never repeated.
 * @param request the original POST; its handler receives the further events, its signal ends the waiting
 * @returns the response to the POST with the stream's last end. A server that refuses to resume has ended it
 */
async function resume(client: HttpClient, request: HttpRequest, first: HttpAnswer): Promise<HttpAnswer> {
  const { 'content-type': _ofBody, ...headers } = request.headers;
  const { url, signal, onEvent } = request;
  let answer = first;
  for (let resumes = 0; resumes < MAX_RESUMES; resumes++) {
    const { lastEventId, retryMs, stream } = answer;
    if (stream !== 'ended' || lastEventId === undefined) break;
    await delay(Math.min(retryMs ?? DEFAULT_RETRY_MS, MAX_RETRY_MS), undefined, {
      signal: toAbortSignal(signal),
    }).catch(() => {
      throw abortReason(signal);
    });
    const next = await client.send({
      url,
      method: 'GET',
      headers: { ...headers, accept: 'text/event-stream', 'last-event-id': lastEventId },
      signal,
      ...(onEvent ? { onEvent } : {}),
    });
    // This must not count as a refusal of the call (401, 404), which would cause the call to be repeated.
    if (next.status !== 200 || next.stream === 'none') break;
    answer = {
      ...first,
      bytes: answer.bytes + next.bytes,
      stream: next.stream,
      lastEventId: next.lastEventId ?? lastEventId,
      retryMs: next.retryMs ?? retryMs,
    };
  }
  return answer;
}
