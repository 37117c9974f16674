import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Log } from '../../infra/log.ts';
import type { Caller } from '../caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Credential } from '../identity/credentials.ts';
import type { Budget } from './budget.ts';
import {
  errorOf,
  HEADER_MISMATCH,
  legacyNotification,
  legacyRequest,
  METHOD_NOT_FOUND,
  modernRequest,
  replyToServer,
  UNSUPPORTED_VERSION,
  type Params,
  type RpcAnswer,
  type RpcError,
} from './envelope.ts';
import { isObject } from './json.ts';
import { Eras } from './era.ts';
import { sentTooMuch } from './failures.ts';
import type { ProxyLimits } from './limits.ts';
import { rpcExchange, type RpcReply } from './rpc.ts';
import { Sessions, type Session, type SessionOwner } from './sessions.ts';
import { ToolSchemas } from './tool-schemas.ts';
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
}

/**
 * Sends calls to upstreams of either era. A call is sent again at most once, and only when the first time cannot have
 * run it: a dead session (HTTP 404), a refused version (-32022), refused headers (-32020).
 */
export class Upstreams {
  readonly #wire: Wire;
  readonly #limits: ProxyLimits;
  readonly #clock: Clock;
  readonly #eras: Eras;
  readonly #sessions: Sessions;
  readonly #schemas: ToolSchemas;
  #nextId = 1;

  constructor(wire: Wire, limits: ProxyLimits, clock: Clock, log: Log) {
    this.#wire = wire;
    this.#limits = limits;
    this.#clock = clock;
    this.#schemas = new ToolSchemas(limits.maxToolPages);
    this.#eras = new Eras(wire, limits, clock, log);
    this.#sessions = new Sessions(wire, limits, clock, log);
  }

  /** The upstream's answer. @throws SwitchboardError when there is none, or what the budget ended with. */
  async request(call: UpstreamCall, budget: Budget): Promise<UpstreamReply> {
    const first = await this.#attempt(call, budget, true);
    const reply = first === 'again' ? await this.#attempt(call, budget, false) : first;
    // The second attempt is the last, whatever it says.
    if (reply === 'again') throw new SwitchboardError('internal', 'A call was to be sent a third time.');
    return reply;
  }

  /** Closes idle sessions; runs by itself now and then. */
  sweep(): void {
    this.#sessions.sweep();
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  close(): Promise<void> {
    return this.#sessions.close();
  }

  /** `again` when the call was provably not run and may be sent a second time. */
  async #attempt(call: UpstreamCall, budget: Budget, mayRepeat: boolean): Promise<UpstreamReply | 'again'> {
    const { server, caller, credential } = call;
    const owner = {
      serverId: server.id,
      url: server.remoteUrl,
      tenantId: caller.tenantId,
      userId: caller.subject?.userId,
      credential,
    };
    const session = await this.#open(owner, budget);
    // Gone in revision 2026-07-28: what a caller asks with it, the verdict on the era has answered.
    if (!session && call.method === 'ping') return { answer: { result: {} }, bytes: 0 };
    const reply = session
      ? await this.#askLegacy(call, session, budget)
      : await this.#askModern(call, budget);
    const notRun = session ? this.#mindLegacy(call, session, reply) : this.#mindModern(call, reply);
    if (notRun && mayRepeat && (await this.#prepareRepeat(call, reply, session, budget))) return 'again';
    if (!reply.answer) throw reply.problem;
    return { answer: reply.answer, bytes: reply.bytes };
  }

  /** Refused headers are only worth a second attempt with other headers (2026-07-28, Streamable HTTP, "Schema extension"). */
  async #prepareRepeat(
    call: UpstreamCall,
    reply: RpcReply,
    session: Session | undefined,
    budget: Budget,
  ): Promise<boolean> {
    if (session || errorOf(reply.answer)?.code !== HEADER_MISMATCH) return true;
    if (call.method !== 'tools/call') return false;
    const { server, credential } = call;
    const list = (params: Params | undefined) =>
      this.#askModern({ server, credential, method: 'tools/list', params }, budget);
    return this.#schemas.refresh(server, call.params?.['name'], list);
  }

  /** The session to use, or nothing for a modern server, which has none. */
  async #open(owner: SessionOwner, budget: Budget): Promise<Session | undefined> {
    const { url, credential } = owner;
    const detect = () => budget.share(() => this.#eras.detect(url, credential));
    const known = this.#eras.known(url);
    const era = known ?? (await detect());
    if (era === 'modern') return undefined;
    try {
      const session = await this.#sessions.join(owner, budget);
      if (known === undefined) this.#eras.set(url, 'legacy');
      return session;
    } catch (error) {
      // A server that was legacy once and now refuses the handshake has perhaps moved on.
      if (known === undefined || !isRefusal(error)) throw error;
      this.#eras.forget(url);
      if ((await detect()) === 'modern') return undefined;
      throw error;
    }
  }

  #askModern(
    { server, credential, method, params, onNotification }: Omit<UpstreamCall, 'caller'>,
    budget: Budget,
  ): Promise<RpcReply> {
    const id = this.#nextId++;
    const schema = method === 'tools/call' ? this.#schemas.get(server, params?.['name']) : undefined;
    const outgoing = modernRequest(id, method, params, schema);
    return rpcExchange(
      this.#wire,
      { url: new URL(server.remoteUrl), id, outgoing, credential, signal: budget.signal, onNotification },
      this.#now,
    );
  }

  async #askLegacy(
    { credential, method, params, onNotification }: UpstreamCall,
    session: Session,
    budget: Budget,
  ): Promise<RpcReply> {
    const id = session.nextId++;
    let sent = false;
    let serverRequests = 0;
    try {
      return await rpcExchange(
        this.#wire,
        {
          url: session.url,
          id,
          outgoing: legacyRequest(session, id, method, params),
          credential,
          signal: budget.signal,
          onNotification,
          onSent: () => (sent = true),
          // Unanswered, a server that asks its client something would wait for ever, and its call with it.
          onServerRequest: (requestId, requestMethod) => {
            if (++serverRequests > this.#limits.maxServerRequests)
              throw sentTooMuch('sent too many requests of its own');
            this.#sessions.notify(session, replyToServer(session, requestId, requestMethod));
          },
        },
        this.#now,
      );
    } catch (error) {
      if (sent && budget.signal.aborted) {
        // 2025-11-25, Cancellation: closing the connection alone does not cancel in these revisions.
        const cancelled = { requestId: id, reason: 'The caller went away or the time was up.' };
        this.#sessions.notify(session, legacyNotification(session, 'notifications/cancelled', cancelled));
      }
      throw error;
    } finally {
      this.#sessions.leave(session);
    }
  }

  /** Draws the consequences of an answer in a session; says whether the call was provably not run. */
  #mindLegacy({ server }: UpstreamCall, session: Session, reply: RpcReply): boolean {
    const { status, answer } = reply;
    const error = errorOf(answer);
    if (isDeadSession(session, reply)) {
      this.#sessions.drop(session);
      return true;
    }
    if (error?.code === UNSUPPORTED_VERSION || error?.code === HEADER_MISMATCH) {
      this.#sessions.drop(session);
      this.#eras.forget(server.remoteUrl);
      return true;
    }
    if (status === 400 && error && speaksOfSession(error)) this.#sessions.drop(session);
    if (hasResultType(answer)) this.#eras.doubt(server.remoteUrl);
    return false;
  }

  /** Draws the consequences of a modern server's answer; says whether the call was provably not run. */
  #mindModern({ server }: UpstreamCall, { status, answer }: RpcReply): boolean {
    const url = server.remoteUrl;
    const code = errorOf(answer)?.code;
    if (code === UNSUPPORTED_VERSION) this.#eras.forget(url);
    else if (looksLegacy(status, code)) this.#eras.forget(url);
    else if (answer && 'result' in answer && !hasResultType(answer)) this.#eras.doubt(url);
    return code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH;
  }

  readonly #now = (): number => this.#clock.now();
}

const isRefusal = (error: unknown) =>
  error instanceof SwitchboardError &&
  (error.code === 'upstream_protocol' || error.code === 'upstream_http_error');

/**
 * 2025-11-25, Session management: HTTP 404 means the session is gone. "No such method", said to our own request, is an
 * answer nevertheless.
 */
const isDeadSession = ({ sessionId }: Session, { status, answer, ownId }: RpcReply): boolean =>
  status === 404 && sessionId !== undefined && !(ownId && errorOf(answer)?.code === METHOD_NOT_FOUND);

/** Codes that revisions before 2026-07-28 left to implementations. */
const isGrandfathered = (code = 0) => code >= -32_019 && code <= -32_000;

/** Some servers (server-everything) say 400 for a dead session: not sent again, but the next call starts afresh. */
const speaksOfSession = ({ code, message }: RpcError) => isGrandfathered(code) && /session/i.test(message);

/** A refusal no server of revision 2026-07-28 gives: no JSON-RPC body, or one in the manner of "no session". */
const looksLegacy = (status: number, code: number | undefined) =>
  [400, 404, 405, 406, 415].includes(status) &&
  (code === undefined || isGrandfathered(code) || code === -32_600);

const hasResultType = (answer: RpcAnswer | undefined): boolean =>
  answer !== undefined &&
  'result' in answer &&
  isObject(answer.result) &&
  typeof answer.result['resultType'] === 'string';
