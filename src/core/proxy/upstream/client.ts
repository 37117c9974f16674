import { SwitchboardError } from '../../../errors.ts';
import { asSentence } from '../../../platform/sanitize.ts';
import type { Span } from '../../../platform/telemetry/tracing.ts';
import type { Caller } from '../../access/caller.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import { noteReply, traceContext, tracedCall } from '../reporting.ts';
import { listAllTools, LOST_SESSION, type ToolDefinitions, type View } from '../tools.ts';
import type { Deadline } from './deadline.ts';
import {
  EraDetector,
  meaningInSession,
  meaningOfModern,
  NoHandshake,
  repeatOf,
  type Era,
  type Meaning,
  type UpstreamParts,
} from './era.ts';
import {
  legacyBody,
  legacyNotification,
  legacyRequest,
  MODERN_VERSION,
  modernRequest,
  redactError,
  replyToServer,
  type Params,
  type UpstreamReply,
} from './envelope.ts';
import { brokeProtocol, isRead, markMayHaveRun, restated, sentTooMuch } from './failures.ts';
import { NoEventStream } from './http-sse.ts';
import { isObject } from '../../../platform/json/limits.ts';
import { addressFor, postHeaders, rpcExchange, type RpcReply, type RpcRequest } from './rpc.ts';
import { postHeadersIn, Sessions, type Session, type SessionOwner } from './sessions.ts';

export interface UpstreamCall {
  readonly caller: Pick<Caller, 'tenantId' | 'subject'>;
  readonly server: ServerHead;
  /** Sent with every request of this call to the server, and to nobody else. */
  readonly credential: Credential | undefined;
  readonly method: string;
  readonly params: Params | undefined;
  /** Receives the server's notifications during the call. Must not throw. */
  readonly onNotification?: ((method: string, params: unknown) => void) | undefined;
}

/** The state of a call across its attempts. */
interface Progress {
  /** True once the call was written and not refused: it may have run. */
  written: boolean;
}

/**
 * Calls upstreams of every era. A call is repeated at most once, and only if it is a read or the first attempt cannot have run: a
 * dead session, a refused version (-32022), refused headers (-32020). (The HTTP client also retries a refused connection once.)
 */
export class UpstreamClient {
  readonly #parts: UpstreamParts;
  readonly #definitions: ToolDefinitions;
  readonly #eras: EraDetector;
  readonly #sessions: Sessions;
  #nextId = 1;

  constructor(parts: UpstreamParts, definitions: ToolDefinitions) {
    this.#parts = parts;
    this.#definitions = definitions;
    this.#eras = new EraDetector(parts);
    this.#sessions = new Sessions(parts);
  }

  /** Returns the upstream's response. @throws SwitchboardError if there is none; the deadline's reason */
  async request(call: UpstreamCall, deadline: Deadline): Promise<UpstreamReply> {
    const progress: Progress = { written: false };
    try {
      const first = await this.#traced(call, deadline, progress, 1);
      const reply = first === 'again' ? await this.#traced(call, deadline, progress, 2) : first;
      if (reply === 'again') throw new SwitchboardError('internal', 'A call was to be sent a third time.');
      return reply;
    } catch (thrown) {
      const error = redactError(thrown, call.credential);
      throw progress.written ? markMayHaveRun(error, call.method) : error;
    }
  }

  /** Returns whether the server was recently detected as HTTP+SSE. */
  speaksHttpSse(url: string): boolean {
    return this.#eras.known(url) === 'sse';
  }

  /** Returns whether the server's revision is known: the handshake, or the probe in its place, succeeded. */
  hasEntered(url: string): boolean {
    return this.#eras.known(url) !== undefined;
  }

  /** Closes idle sessions; also runs automatically. */
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

  #traced(
    call: UpstreamCall,
    deadline: Deadline,
    progress: Progress,
    attempt: 1 | 2,
  ): Promise<UpstreamReply | 'again'> {
    return tracedCall(
      () => ({ ...call, tool: this.#definitions.calledBy(viewOf(call), call), attempt }),
      span => this.#attempt(call, deadline, progress, { span, mayRepeat: attempt === 1 }),
    );
  }

  /** Sends the call once. `again` in the result means that it may be repeated. */
  #attempt(
    call: UpstreamCall,
    deadline: Deadline,
    progress: Progress,
    how: { span: Span | undefined; mayRepeat: boolean },
  ): Promise<UpstreamReply | 'again'> {
    const joined = this.#join(call, deadline);
    const attempt = (session: Session | undefined) => this.#attemptIn(session, call, deadline, progress, how);
    return joined instanceof Promise ? joined.then(attempt) : attempt(joined);
  }

  async #attemptIn(
    session: Session | undefined,
    call: UpstreamCall,
    deadline: Deadline,
    progress: Progress,
    { span, mayRepeat }: { span: Span | undefined; mayRepeat: boolean },
  ): Promise<UpstreamReply | 'again'> {
    const { method } = call;
    // Revision 2026-07-28 has no ping. Detecting the era has already answered the caller's question.
    if (!session && method === 'ping') return { answer: { result: {} }, bytes: 0 };
    const reply = await (session
      ? this.#sendInSession(call, session, deadline, progress)
      : this.#sendModern(call, deadline, progress));
    if (span) noteReply(span, reply, session ?? { version: MODERN_VERSION });
    const meaning = session ? meaningInSession(session, reply) : meaningOfModern(reply);
    this.#learn(call, session, meaning);
    if (meaning.call === 'not-run') progress.written = false;
    if (mayRepeat) {
      const repeat = repeatOf(meaning, reply, { method, isModern: !session });
      if (repeat !== 'never' && (await this.#isRepeatable(repeat, call, deadline))) return 'again';
    }
    return toUpstreamReply(reply, meaning.call === 'unknown' && !isRead(method));
  }

  async #isRepeatable(
    repeat: 'now' | 'with-new-definitions',
    call: UpstreamCall,
    deadline: Deadline,
  ): Promise<boolean> {
    return repeat === 'now' || this.#listToolsAnew(call, deadline);
  }

  /** Drops the session or the era that a reply has proved wrong. */
  #learn({ server }: UpstreamCall, session: Session | undefined, { endsSession, era }: Meaning): void {
    if (session && endsSession) this.#sessions.drop(session);
    if (era === 'wrong') this.#eras.forget(server.remoteUrl);
    if (era === 'doubtful') this.#eras.doubt(server.remoteUrl);
  }

  /** Lists the server's tools and stores them. Resolves to whether the called tool is still among them. */
  async #listToolsAnew(call: UpstreamCall, deadline: Deadline): Promise<boolean> {
    const { server, caller, credential } = call;
    const ask = async (params: Params | undefined): Promise<UpstreamReply> => {
      const list = { server, caller, credential, method: 'tools/list', params };
      return toUpstreamReply(await this.#sendModern(list, deadline), false);
    };
    try {
      const tools = this.#definitions.keep(viewOf(call), await listAllTools(ask, this.#parts.limits));
      return tools.some(tool => tool.name === call.params?.['name']);
    } catch (error) {
      // The caller learns why the call was refused, not why its tools could not be listed.
      if (deadline.signal.aborted || !(error instanceof SwitchboardError)) throw error;
      return false;
    }
  }

  /** Joins the session to use: at once where one is open, and none at a server that is known to be modern. */
  #join(call: UpstreamCall, deadline: Deadline): Session | undefined | Promise<Session | undefined> {
    const era = this.#eras.known(call.server.remoteUrl);
    if (era === 'modern') return undefined;
    return (era && this.#sessions.rejoin(ownerOf(call), era, deadline)) ?? this.#connect(call, deadline);
  }

  /**
   * Opens the required session, or resolves to undefined for a modern server, which has none. An unknown era is detected:
   * `server/discover`, then `initialize`, then an event stream (2026-07-28, Versioning; 2025-11-25, Backwards compatibility).
   * An era that was detected earlier, or that the catalogue names, is tried first. Refused sign-ins, faults and timeouts say
   * nothing about the era and are thrown.
   */
  async #connect(call: UpstreamCall, deadline: Deadline): Promise<Session | undefined> {
    const { server, credential } = call;
    const url = server.remoteUrl;
    const detect = () => deadline.share(() => this.#eras.detect(url, credential));
    const assumed = this.#eras.known(url) ?? (server.transport === 'sse' ? 'sse' : undefined);
    const era = assumed ?? (await detect());
    let refused: unknown;
    try {
      return await this.#enter(era, call, deadline);
    } catch (error) {
      if (assumed === undefined) return this.#enterHttpSse(error, call, deadline);
      if (assumed === 'sse' ? !(error instanceof NoEventStream) : !isRefusal(error)) throw error;
      refused = error;
    }
    // A server that refuses an expected handshake may have changed its era.
    this.#eras.forget(url);
    const found = await detect();
    try {
      return await this.#enter(found, call, deadline);
    } catch (error) {
      if (assumed !== 'sse') return this.#enterHttpSse(error, call, deadline);
      throw error instanceof NoHandshake ? refused : error;
    }
  }

  /** Joins a session of that era, and stores the era once there is one. Resolves to undefined for the modern era. */
  async #enter(era: Era, call: UpstreamCall, deadline: Deadline): Promise<Session | undefined> {
    if (era === 'modern') return undefined;
    const url = call.server.remoteUrl;
    const session = await this.#sessions.join(ownerOf(call), era, deadline);
    if (this.#eras.known(url) === undefined) this.#eras.set(url, era);
    return session;
  }

  /** Requests an event stream from a server that does not accept `initialize` by POST, as in revision 2024-11-05. */
  async #enterHttpSse(
    refused: unknown,
    call: UpstreamCall,
    deadline: Deadline,
  ): Promise<Session | undefined> {
    if (!(refused instanceof NoHandshake)) throw refused;
    try {
      return await this.#enter('sse', call, deadline);
    } catch (error) {
      if (!(error instanceof NoEventStream)) throw error;
      // The URL may be right, and the server may object to the request, or to a value that a user has put into the URL.
      if (refused.httpStatus === 400 || call.credential?.url) throw refused.failure;
      throw brokeProtocol(
        `returned HTTP ${refused.httpStatus} to initialize and has no event stream (HTTP+SSE) either. Its catalogued URL may be wrong`,
      );
    }
  }

  /** Sends a call to a server of revision 2026-07-28. */
  #sendModern(call: UpstreamCall, deadline: Deadline, progress?: Progress): Promise<RpcReply> {
    const { server, credential, method, params } = call;
    const id = this.#nextId++;
    const schema =
      method === 'tools/call' ? this.#definitions.schemaOf(viewOf(call), params?.['name']) : undefined;
    const outgoing = modernRequest(id, method, params, schema, traceContext());
    const request: RpcRequest = {
      url: addressFor(server.remoteUrl, credential),
      id,
      body: outgoing.body,
      headers: postHeaders(outgoing, credential),
      credential,
      signal: deadline.signal,
      onNotification: (name, content) => this.#notified(call, name, content),
      onSent: progress && (() => (progress.written = true)),
    };
    return rpcExchange(this.#parts.http, request, this.#now);
  }

  #notified(call: UpstreamCall, method: string, params: unknown): void {
    if (method === 'notifications/tools/list_changed') this.#definitions.markStale(viewOf(call));
    call.onNotification?.(method, params);
  }

  /** Sends a call in the session it has joined, and leaves the session. */
  async #sendInSession(
    call: UpstreamCall,
    session: Session,
    { signal }: Deadline,
    progress: Progress,
  ): Promise<RpcReply> {
    const { credential, method, params } = call;
    const id = session.nextId++;
    const trace = traceContext();
    const onNotification = (name: string, content: unknown) => this.#notified(call, name, content);
    let sent = false;
    const onSent = () => {
      sent = true;
      progress.written = true;
    };
    try {
      if (session.stream) {
        const outgoing = legacyRequest(session, id, method, params, trace);
        const progressToken = progressTokenOf(params);
        const request = { id, outgoing, credential, signal, onNotification, onSent, progressToken };
        return await session.stream.request(request);
      }
      const headers = postHeadersIn(session, credential);
      const request: RpcRequest = {
        url: session.url,
        id,
        body: legacyBody(id, method, params, trace),
        headers: trace ? { ...headers, ...trace } : headers,
        credential,
        signal,
        onNotification,
        onSent,
        resumable: true,
        onServerRequest: this.#replierIn(session),
      };
      return await rpcExchange(this.#parts.http, request, this.#now);
    } catch (error) {
      if (sent && signal.aborted) {
        // 2025-11-25, Cancellation: closing the connection does not cancel a call in these revisions.
        const cancelled = { requestId: id, reason: 'The caller disconnected or the deadline passed.' };
        this.#sessions.notify(session, legacyNotification(session, 'notifications/cancelled', cancelled));
      }
      throw error;
    } finally {
      this.#sessions.leave(session);
    }
  }

  /** Replies to the server's requests: without a reply, a server that asks its client something would wait forever. */
  #replierIn(session: Session): RpcRequest['onServerRequest'] {
    let serverRequests = 0;
    return (requestId, requestMethod) => {
      if (++serverRequests > this.#parts.limits.maxServerRequests)
        throw sentTooMuch('sent too many requests');
      this.#sessions.notify(session, replyToServer(session, requestId, requestMethod));
    };
  }

  readonly #now = (): number => this.#parts.clock.now();
}

const viewOf = ({ server, caller, credential }: UpstreamCall): View => ({
  server,
  caller,
  connectionKey: credential?.connectionKey,
});

const ownerOf = ({ server, caller, credential }: UpstreamCall): SessionOwner => ({
  serverId: server.id,
  url: server.remoteUrl,
  tenantId: caller.tenantId,
  userId: caller.subject?.userId,
  credential,
});

const progressTokenOf = (params: Params | undefined): unknown =>
  isObject(params?.['_meta']) ? params['_meta']['progressToken'] : undefined;

/** @param lostSession true if the session was lost during the call, and the call is not a read */
function toUpstreamReply({ answer, bytes, problem }: RpcReply, lostSession: boolean): UpstreamReply {
  if (answer) return lostSession ? { answer, bytes, lostSession } : { answer, bytes };
  const error = problem();
  throw lostSession
    ? restated(error, `${asSentence(error.detail)} ${LOST_SESSION}`, { retryable: false })
    : error;
}

const isRefusal = (error: unknown) =>
  error instanceof SwitchboardError &&
  (error.code === 'upstream_protocol' || error.code === 'upstream_http_error');
