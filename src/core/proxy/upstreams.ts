import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Log } from '../../infra/log.ts';
import type { Span } from '../../infra/tracing.ts';
import type { Caller } from '../caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Credential } from '../identity/credentials.ts';
import type { Budget } from './budget.ts';
import { noteReply, traceContext, tracedCall } from './call-span.ts';
import {
  errorOf,
  HEADER_MISMATCH,
  legacyNotification,
  legacyRequest,
  MODERN_VERSION,
  modernRequest,
  replyToServer,
  UNSUPPORTED_VERSION,
  type Params,
  type RpcAnswer,
} from './envelope.ts';
import { isObject } from './json.ts';
import { Eras } from './era.ts';
import { hasResultType, looksLegacy } from './era-signs.ts';
import { isRead, restated, sentTooMuch, toldOfCall, WentSilent } from './failures.ts';
import { Ladder } from './ladder.ts';
import type { ProxyLimits } from './limits.ts';
import { lossOf } from './lost-session.ts';
import { isRefusedUnread } from './not-run.ts';
import { redactError } from './redact.ts';
import { rpcExchange, type RpcReply, type RpcRequest } from './rpc.ts';
import { Sessions, type Session } from './sessions.ts';
import type { ToolDefinitions, View } from './tool-definitions.ts';
import { asSentence } from '../text.ts';
import { listAllTools, LOST_SESSION } from './tools.ts';
import { urlOf } from './urls.ts';
import type { Wire } from './wire.ts';

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

export interface UpstreamReply {
  readonly answer: RpcAnswer;
  readonly bytes: number;
  /** The session was lost over it, and nobody knows whether the call ran. */
  readonly lostSession?: true;
}

/** What an answer says of the call: provably not run; with a session that was lost, perhaps run; or taken. */
type Sense = 'not-run' | 'lost' | 'taken';

/** Whether a call has been written and not been refused: it may have run. */
interface Written {
  written: boolean;
}

/**
 * Sends calls to upstreams of every era. A call is sent again at most once, and only when the first time cannot have
 * run it, or is a mere read: a dead session, a refused version (-32022), refused headers (-32020). (A connection that was refused is
 * tried once more by the wire.)
 */
export class Upstreams {
  readonly #wire: Wire;
  readonly #limits: ProxyLimits;
  readonly #clock: Clock;
  readonly #eras: Eras;
  readonly #sessions: Sessions;
  readonly #ladder: Ladder;
  readonly #definitions: ToolDefinitions;
  #nextId = 1;

  constructor(wire: Wire, limits: ProxyLimits, clock: Clock, log: Log, definitions: ToolDefinitions) {
    this.#wire = wire;
    this.#limits = limits;
    this.#clock = clock;
    this.#definitions = definitions;
    this.#eras = new Eras(wire, limits, clock, log);
    this.#sessions = new Sessions(wire, limits, clock, log);
    this.#ladder = new Ladder(this.#eras, this.#sessions);
  }

  /** The upstream's answer. @throws SwitchboardError when there is none, or what the budget ended with. */
  async request(asked: UpstreamCall, budget: Budget): Promise<UpstreamReply> {
    const call: UpstreamCall = {
      ...asked,
      onNotification: (method, params) => {
        if (method === 'notifications/tools/list_changed') this.#definitions.markStale(viewOf(asked));
        asked.onNotification?.(method, params);
      },
    };
    const state: Written = { written: false };
    try {
      const attempt = (time: 1 | 2) =>
        tracedCall(
          () => ({ ...call, tool: this.#definitions.calledBy(viewOf(call), call), attempt: time }),
          span => this.#attempt(call, budget, { state, span, mayRepeat: time === 1 }),
        );
      const first = await attempt(1);
      const reply = first === 'again' ? await attempt(2) : first;
      if (reply === 'again') throw new SwitchboardError('internal', 'A call was to be sent a third time.');
      return reply;
    } catch (thrown) {
      const error = redactError(thrown, call.credential);
      throw state.written ? toldOfCall(error, call.method) : error;
    }
  }

  /** Whether the server has turned out to speak HTTP+SSE, lately. */
  speaksOldTransport(url: string): boolean {
    return this.#eras.known(url) === 'sse';
  }

  /** Whether it has turned out which revision the server speaks: the handshake, or what stands for it, went well. */
  hasEntered(url: string): boolean {
    return this.#eras.known(url) !== undefined;
  }

  /** Closes idle sessions; runs by itself now and then. */
  sweep(): void {
    this.#sessions.sweep();
  }

  /** Ends the sessions that no call uses. */
  endIdle(): void {
    this.#sessions.endIdle();
  }

  get sessionUse(): { busy: number; idle: number } {
    return this.#sessions.use;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  close(): Promise<void> {
    return this.#sessions.close();
  }

  /** `again` when the call was provably not run and may be sent a second time. */
  async #attempt(
    call: UpstreamCall,
    budget: Budget,
    { state, span, mayRepeat }: { state: Written; span: Span | undefined; mayRepeat: boolean },
  ): Promise<UpstreamReply | 'again'> {
    const session = await this.#ladder.open(call, budget);
    // Gone in revision 2026-07-28: what a caller asks with it, the verdict on the era has answered.
    if (!session && call.method === 'ping') return { answer: { result: {} }, bytes: 0 };
    const onSent = () => (state.written = true);
    const reply = session
      ? await this.#askInSession(call, session, budget, onSent)
      : await this.#askModern(call, budget, onSent);
    if (span) noteReply(span, reply, session ?? { version: MODERN_VERSION });
    const sense = session ? this.#mindLegacy(call, session, reply) : this.#mindModern(call, reply);
    if (sense === 'not-run') state.written = false;
    if (mayRepeat && (await this.#isToRepeat(sense, { call, reply, session }, budget))) return 'again';
    return replyOf(reply, sense === 'lost' && !isRead(call.method));
  }

  /** Refused headers are only worth a second attempt with other headers (2026-07-28, Streamable HTTP, "Schema extension"). */
  async #isToRepeat(
    sense: Sense,
    { call, reply, session }: { call: UpstreamCall; reply: RpcReply; session: Session | undefined },
    budget: Budget,
  ): Promise<boolean> {
    if (sense !== 'not-run') return sense === 'lost' && isRead(call.method);
    if (session || errorOf(reply.answer)?.code !== HEADER_MISMATCH) return true;
    if (call.method !== 'tools/call') return false;
    const { server, caller, credential } = call;
    const view = viewOf(call);
    const ask = async (params: Params | undefined): Promise<UpstreamReply> => {
      const { answer, bytes, problem } = await this.#askModern(
        { server, caller, credential, method: 'tools/list', params },
        budget,
      );
      if (!answer) throw problem();
      return { answer, bytes };
    };
    try {
      const tools = this.#definitions.keep(view, await listAllTools(ask, this.#limits));
      return tools.some(tool => tool.name === call.params?.['name']);
    } catch (error) {
      // What the caller is told is why the call was refused, not why its tools could not be listed.
      if (budget.signal.aborted || !(error instanceof SwitchboardError)) throw error;
      return false;
    }
  }

  #askModern(call: UpstreamCall, budget: Budget, onSent: () => void = () => {}): Promise<RpcReply> {
    const { server, credential, method, params, onNotification } = call;
    const id = this.#nextId++;
    const schema =
      method === 'tools/call' ? this.#definitions.schemaOf(viewOf(call), params?.['name']) : undefined;
    const outgoing = modernRequest(id, method, params, schema, traceContext());
    const url = urlOf(server.remoteUrl);
    const request = { url, id, outgoing, credential, signal: budget.signal, onNotification, onSent };
    return rpcExchange(this.#wire, request, this.#now);
  }

  async #askInSession(
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
        : rpcExchange(this.#wire, { ...request, ...this.#inSession(session) }, this.#now));
    } catch (error) {
      if (sent && (signal.aborted || error instanceof WentSilent)) {
        // 2025-11-25, Cancellation: closing the connection alone does not cancel in these revisions.
        const cancelled = { requestId: id, reason: 'The caller went away or the time was up.' };
        this.#sessions.notify(session, legacyNotification(session, 'notifications/cancelled', cancelled));
      }
      throw error;
    } finally {
      this.#sessions.leave(session);
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
        if (++serverRequests > this.#limits.maxServerRequests)
          throw sentTooMuch('sent too many requests of its own');
        this.#sessions.notify(session, replyToServer(session, requestId, requestMethod));
      },
    };
  }

  /** Draws the consequences of an answer in a session. */
  #mindLegacy({ server }: UpstreamCall, session: Session, reply: RpcReply): Sense {
    const { answer } = reply;
    const error = errorOf(answer);
    const loss = lossOf(session, reply);
    if (loss !== 'none') {
      this.#sessions.drop(session);
      return loss === 'dead' ? 'not-run' : 'lost';
    }
    if (error?.code === UNSUPPORTED_VERSION || error?.code === HEADER_MISMATCH) {
      this.#sessions.drop(session);
      this.#eras.forget(server.remoteUrl);
      return isRefusedUnread(reply) ? 'not-run' : 'taken';
    }
    if (hasResultType(answer)) this.#eras.doubt(server.remoteUrl);
    return 'taken';
  }

  /** Draws the consequences of a modern server's answer. */
  #mindModern({ server }: UpstreamCall, reply: RpcReply): Sense {
    const { status, answer } = reply;
    const url = server.remoteUrl;
    const code = errorOf(answer)?.code;
    if (code === UNSUPPORTED_VERSION || looksLegacy(status, code)) this.#eras.forget(url);
    else if (answer && 'result' in answer && !hasResultType(answer)) this.#eras.doubt(url);
    return isRefusedUnread(reply) ? 'not-run' : 'taken';
  }

  readonly #now = (): number => this.#clock.now();
}

/** @param lost the session was lost, and what was asked is no mere read. */
function replyOf({ answer, bytes, problem }: RpcReply, lost: boolean): UpstreamReply {
  if (answer) return lost ? { answer, bytes, lostSession: true } : { answer, bytes };
  const error = problem();
  throw lost ? restated(error, `${asSentence(error.detail)} ${LOST_SESSION}`, false) : error;
}

const viewOf = ({ server, caller, credential }: UpstreamCall): View => ({
  server,
  caller,
  connectionId: credential?.connectionId,
});

const progressTokenOf = (params: Params | undefined): unknown =>
  isObject(params?.['_meta']) ? params['_meta']['progressToken'] : undefined;
