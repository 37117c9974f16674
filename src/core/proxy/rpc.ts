import { isUtf8 } from 'node:buffer';
import type { IncomingHttpHeaders } from 'undici/types/header.js';
import type { SwitchboardError } from '../../errors.ts';
import type { Credential } from '../identity/credentials.ts';
import { readMessage, type Outgoing, type RequestId, type RpcAnswer } from './envelope.ts';
import type { HttpAnswer } from './exchange.ts';
import { brokeProtocol, httpFailure } from './failures.ts';
import type { Wire } from './wire.ts';

const HEADERS = {
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'user-agent': 'switchboard',
};

/** The header with the user's token: for the server the credential was given for, and for nobody else. */
export const authorizationOf = (credential: Credential | undefined): Record<string, string> =>
  credential ? { authorization: credential.authorization } : {};

export interface RpcRequest {
  readonly url: URL;
  readonly id: RequestId;
  readonly outgoing: Outgoing;
  /** What the call carries for its user. */
  readonly credential: Credential | undefined;
  readonly signal: AbortSignal;
  readonly onSent?: () => void;
  /** A request of the server's own in the answer's stream. Without it, such requests are passed over. */
  readonly onServerRequest?: (id: RequestId, method: string) => void;
  /** A notification in the answer's stream, before the answer. Must not throw. */
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

export interface RpcReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: number;
  /** The upstream's answer, whatever the HTTP status: 400 and 404 carry answers in revision 2026-07-28. */
  readonly answer: RpcAnswer | undefined;
  /** The answer named our request. Only errors may come without. */
  readonly ownId: boolean;
  /** What it means that there is no answer. */
  readonly problem: SwitchboardError;
}

/**
 * Sends one JSON-RPC request and reads its answer from JSON or SSE.
 * @throws SwitchboardError for 401, 403 and 429, whatever their body, and for every failure of the connection.
 */
export async function rpcExchange(wire: Wire, request: RpcRequest, nowMs: () => number): Promise<RpcReply> {
  const reader = new AnswerReader(request);
  const http = await wire.send({
    url: request.url,
    method: 'POST',
    headers: { ...HEADERS, ...request.outgoing.headers, ...authorizationOf(request.credential) },
    body: request.outgoing.body,
    signal: request.signal,
    ...(request.onSent ? { onSent: request.onSent } : {}),
    // An event without data only primes reconnecting (2025-11-25, Resumability).
    onEvent: ({ event, data }) => event === 'message' && data !== '' && reader.take(parseJson(data)),
  });
  const { status, headers, bytes } = http;
  const failure = () => httpFailure({ status, headers, nowMs: nowMs(), excerpt: excerptOf(http) });
  if (status === 401 || status === 403 || status === 429) throw failure();
  let problem: SwitchboardError;
  try {
    problem = readBody(http, reader);
  } catch (error) {
    if (status < 400) throw error;
    problem = failure();
  }
  if (status >= 400) problem = failure();
  return { status, headers, bytes, answer: reader.answer, ownId: reader.ownId, problem };
}

/** Feeds a JSON body to the reader; returns what it means if there was no answer in it (or in the stream before). */
function readBody(http: HttpAnswer, reader: AnswerReader): SwitchboardError {
  const { status, mediaType, body } = http;
  if (mediaType === 'text/event-stream') {
    return brokeProtocol(
      http.stream === 'cut'
        ? 'ended its answer in the middle of an event'
        : 'ended its event stream without an answer',
    );
  }
  if (body.length === 0) {
    return brokeProtocol(
      status === 202
        ? 'accepted the request without answering it (HTTP 202)'
        : `answered HTTP ${status} with nothing`,
    );
  }
  if (mediaType !== 'application/json') {
    return brokeProtocol(
      `answered HTTP ${status} with ${describeType(mediaType)} instead of JSON or an event stream`,
    );
  }
  if (!isUtf8(body)) throw brokeProtocol('sent JSON that is not valid UTF-8');
  reader.take(parseJson(body.toString().replace(/^\u{feff}/u, '')));
  return brokeProtocol(
    reader.sawOtherId
      ? 'answered another request (the id is not the one we sent)'
      : 'sent JSON that is not a JSON-RPC answer',
  );
}

const describeType = (mediaType: string) =>
  /^[\w.+-]+\/[\w.+-]+$/.test(mediaType) ? mediaType.slice(0, 80) : 'no content type';

/** HTML is for people with a browser: nothing of it goes into an error text. */
const excerptOf = ({ mediaType, body }: HttpAnswer): string =>
  mediaType === 'application/json' || mediaType === 'text/plain' ? body.subarray(0, 1_000).toString() : '';

/** @throws SwitchboardError `upstream_protocol`. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Without its cause, which quotes from the text: results do not belong in the log.
    throw brokeProtocol('sent what is not valid JSON');
  }
}

/** Picks the answer to one request out of the messages that come. */
class AnswerReader {
  readonly #request: RpcRequest;
  answer: RpcAnswer | undefined;
  ownId = false;
  sawOtherId = false;

  constructor(request: RpcRequest) {
    this.#request = request;
  }

  /** Whether this message (or one of the batch, which revision 2025-03-26 allows) is the answer. */
  take(message: unknown): boolean {
    if (Array.isArray(message)) return message.some(part => !Array.isArray(part) && this.take(part));
    const incoming = readMessage(message, this.#request.id);
    if (incoming.kind === 'request') this.#request.onServerRequest?.(incoming.id, incoming.method);
    if (incoming.kind === 'notification') this.#request.onNotification?.(incoming.method, incoming.params);
    if (incoming.kind === 'other-id') this.sawOtherId = true;
    if (incoming.kind !== 'answer') return false;
    this.answer = incoming.answer;
    this.ownId = incoming.ownId;
    return true;
  }
}
