import type { Clock } from '../../../platform/clock.ts';
import type { Caller } from '../../access/caller.ts';
import type { Server } from '../../catalogue/entry.ts';
import type { Credential } from '../../identity/connections/credentials.ts';
import type { Budget } from './deadline.ts';
import { traceContext } from '../call-span.ts';
import { legacyNotification, legacyRequest, modernRequest, replyToServer, type Params } from './envelope.ts';
import { sentTooMuch } from './failures.ts';
import { isObject } from './json.ts';
import type { ProxyLimits } from '../limits.ts';
import { rpcExchange, type RpcReply, type RpcRequest } from './rpc.ts';
import type { Session, Sessions } from './sessions.ts';
import type { ToolDefinitions, View } from '../tool-definitions.ts';
import { urlOf } from './urls.ts';
import type { Wire } from './http-client.ts';

export interface UpstreamCall {
  readonly caller: Pick<Caller, 'tenantId' | 'subject'>;
  readonly server: Server;
  /** Goes with every request this call makes to the server, and to nobody else. */
  readonly credential: Credential | undefined;
  readonly method: string;
  readonly params: Params | undefined;
  /** What the server notifies of while it works on the call. Must not throw. */
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

/** Whose view of which server the call is in. */
export const viewOf = ({ server, caller, credential }: UpstreamCall): View => ({
  server,
  caller,
  connectionId: credential?.connectionId,
});

interface Parts {
  readonly wire: Wire;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
  readonly sessions: Sessions;
  readonly definitions: ToolDefinitions;
}

/** Sends a call once, in the form that the server's revision has for it. Of the answer nothing is judged. */
export class UpstreamRequests {
  readonly #parts: Parts;
  #nextId = 1;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** To a server of revision 2026-07-28. */
  modern(call: UpstreamCall, budget: Budget, onSent: () => void = () => {}): Promise<RpcReply> {
    const { server, credential, method, params, onNotification } = call;
    const id = this.#nextId++;
    const schema =
      method === 'tools/call' ? this.#parts.definitions.schemaOf(viewOf(call), params?.['name']) : undefined;
    const outgoing = modernRequest(id, method, params, schema, traceContext());
    const url = urlOf(server.remoteUrl);
    const request = { url, id, outgoing, credential, signal: budget.signal, onNotification, onSent };
    return rpcExchange(this.#parts.wire, request, this.#now);
  }

  /** To another, in a session that the call has joined; it leaves it. */
  async inSession(
    { credential, method, params, onNotification }: UpstreamCall,
    session: Session,
    budget: Budget,
    onSent: () => void,
  ): Promise<RpcReply> {
    const id = session.nextId++;
    const { signal } = budget;
    let sent = false;
    const request = {
      id,
      outgoing: legacyRequest(session, id, method, params, traceContext()),
      credential,
      signal,
      onNotification,
      onSent: () => {
        sent = true;
        onSent();
      },
    };
    const { stream } = session;
    try {
      return await (stream
        ? stream.request({ ...request, progressToken: progressTokenOf(params) })
        : rpcExchange(this.#parts.wire, { ...request, ...this.#inSession(session) }, this.#now));
    } catch (error) {
      if (sent && signal.aborted) {
        // 2025-11-25, Cancellation: closing the connection alone does not cancel in these revisions.
        const cancelled = { requestId: id, reason: 'The caller went away or the time was up.' };
        this.#parts.sessions.notify(
          session,
          legacyNotification(session, 'notifications/cancelled', cancelled),
        );
      }
      throw error;
    } finally {
      this.#parts.sessions.leave(session);
    }
  }

  /** What an exchange of Streamable HTTP has to do in a session. */
  #inSession(session: Session): Pick<RpcRequest, 'url' | 'resumable' | 'onServerRequest'> {
    let serverRequests = 0;
    return {
      url: session.url,
      resumable: true,
      // Unanswered, a server that asks its client something would wait for ever, and its call with it.
      onServerRequest: (requestId, requestMethod) => {
        if (++serverRequests > this.#parts.limits.maxServerRequests)
          throw sentTooMuch('sent too many requests of its own');
        this.#parts.sessions.notify(session, replyToServer(session, requestId, requestMethod));
      },
    };
  }

  readonly #now = (): number => this.#parts.clock.now();
}

const progressTokenOf = (params: Params | undefined): unknown =>
  isObject(params?.['_meta']) ? params['_meta']['progressToken'] : undefined;
