import type { Credential } from '../../identity/connections/credentials.ts';
import { readMessage, type Incoming, type Outgoing, type RequestId } from './envelope.ts';
import { brokeProtocol } from './failures.ts';
import { isObject } from '../../../platform/json-limits.ts';
import { redactAnswer } from './redact.ts';
import { parseJson, type RpcReply } from './rpc.ts';

export interface SseRequest {
  readonly id: RequestId;
  readonly outgoing: Outgoing;
  readonly credential: Credential | undefined;
  /** The token in the server's notifications of progress on this call. */
  readonly progressToken: unknown;
  readonly signal: AbortSignal;
  /** Absent for a request that does nothing (`initialize`), so that it does not matter how far the server had come. */
  readonly onSent?: () => void;
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

export interface WaitingCall extends SseRequest {
  readonly reply: Promise<RpcReply>;
  readonly resolve: (reply: RpcReply) => void;
  readonly reject: (error: Error) => void;
  /** True once it is written: from here on, events in the stream may tell of work on it. */
  sent: boolean;
  /** True once an event that may tell of work on it has come. */
  begun: boolean;
  /** True once its POST was refused: the end of the stream is no news to it. */
  refused: boolean;
}

/** The calls that wait for their answers in one stream of events. It gives each message to the calls it belongs to. */
export class WaitingCalls {
  readonly #calls = new Map<string, WaitingCall>();
  readonly #onServerRequest: (id: RequestId, method: string) => void;

  /** @param onServerRequest takes a request of the server's own */
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

  /** Fails every call, as the stream has ended and no answer will come. */
  end(reason: Error): void {
    for (const { refused, reject } of this.#calls.values()) if (!refused) reject(reason);
  }

  /** Takes the data of one event. @throws SwitchboardError `upstream_protocol` for a text that is no JSON. */
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

  /** Only progress names the call it belongs to, and is passed on. Other notifications may be about any call. */
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
