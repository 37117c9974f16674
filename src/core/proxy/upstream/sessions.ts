import { setTimeout as delay } from 'node:timers/promises';
import { monotonicMs, type Cancellation } from '../../../platform/time.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import { withoutSpan } from '../../../platform/telemetry/tracing.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import type { ProxyLimits } from '../limits.ts';
import { Deadline } from './deadline.ts';
import {
  initializeRequest,
  legacyNotification,
  replyToServer,
  sessionHeaders,
  type Outgoing,
} from './envelope.ts';
import { sentTooMuch, Stopping } from './failures.ts';
import { HttpSseStream } from './http-sse.ts';
import { readSessionId, readVersion, type Era, type UpstreamParts } from './era.ts';
import { addressFor, credentialHeaders, postHeaders, rpcExchange } from './rpc.ts';

/**
 * The owner of a session. A session is never shared between tenants, users or connected accounts, and a different URL is a
 * different server.
 */
export interface SessionOwner {
  readonly serverId: string;
  readonly url: string;
  readonly tenantId: string;
  readonly userId: string | undefined;
  readonly credential: Credential | undefined;
}

/** The address for messages that nobody waits for. */
interface Peer {
  /** Accepts our messages. */
  readonly url: URL;
  /** The newest trace context, for the session's own messages. */
  credential: Credential | undefined;
}

/** A completed handshake with a server of revisions before 2026-07-28, with or without a session id. */
export interface Session extends Peer {
  readonly key: string;
  readonly tenantId: string;
  readonly serverId: string;
  /** Delivers the responses of an HTTP+SSE server (2024-11-05). */
  readonly stream: HttpSseStream | undefined;
  readonly sessionId: string | undefined;
  /** The negotiated protocol version. */
  readonly version: string;
  /** The headers of a POST with the last credential, because most calls of a session carry the same. */
  sent: { readonly credential: Credential | undefined; readonly headers: Readonly<Record<string, string>> };
  /** Our own request ids: two callers of one session with equal ids would confuse a stateful server. */
  nextId: number;
  calls: number;
  /** Milliseconds of the monotonic clock. */
  usedAtMs: number;
  /** The number of its last use among those of all sessions. */
  turn: number;
  /** True once it is no longer given to new calls: it ends with its last call. */
  retired: boolean;
}

/** The eras that have sessions. */
type SessionEra = Exclude<Era, 'modern'>;

/** The lengths make the key unambiguous: URLs and tenants' names are not ours. The ids contain no spaces. */
const keyOf = ({ serverId, url, tenantId, userId, credential }: SessionOwner, era: SessionEra): string =>
  `${era} ${serverId} ${url.length} ${url} ${tenantId.length} ${tenantId} ${userId ?? ''} ${credential?.connectionKey ?? ''}`;

const INITIALIZE_ID = 1;
/** Short, because shutdown has already waited for running calls. */
const CLOSE_MS = 1_000;
/** The transport revision before negotiation. */
const HTTP_SSE_VERSION = '2024-11-05';

/** Sessions with upstreams that need a handshake: created once, shared by one owner's calls, closed when idle. */
export class Sessions {
  readonly #store: SessionStore;
  readonly #opening = new SingleFlight<Session>();
  readonly #sweeper: NodeJS.Timeout;
  /** Running messages that nobody waits for, except `close`. */
  readonly #side = new Set<Promise<void>>();
  #isClosed = false;
  readonly #parts: UpstreamParts;

  constructor(parts: UpstreamParts) {
    this.#parts = parts;
    this.#store = new SessionStore(parts.limits);
    this.#sweeper = setInterval(() => this.sweep(), Math.max(1_000, parts.limits.sessionIdleMs / 5)).unref();
  }

  get size(): number {
    return this.#store.size;
  }

  /** The number of sessions in use, and of idle ones. */
  get use(): { busy: number; idle: number } {
    const busy = this.#store.values().filter(({ calls }) => calls > 0).length;
    return { busy, idle: this.size - busy };
  }

  /**
   * Joins the owner's session, and opens it first if there is none. Release it with `leave`.
   * @throws NoHandshake, NoEventStream if the server is not of this era; SwitchboardError `unavailable` once the sessions are
   * closed
   */
  async join(owner: SessionOwner, era: SessionEra, deadline: Deadline): Promise<Session> {
    const open = this.rejoin(owner, era, deadline);
    if (open) return open;
    const key = keyOf(owner, era);
    const openAnew = () =>
      withoutSpan(() => (era === 'sse' ? this.#openStream(key, owner) : this.#open(key, owner)));
    const session = await deadline.share(() => this.#opening.run(key, openAnew));
    return this.#use(session, owner, deadline);
  }

  /** Joins the owner's session if one is open. @throws SwitchboardError `unavailable` once the sessions are closed */
  rejoin(owner: SessionOwner, era: SessionEra, deadline: Deadline): Session | undefined {
    // A session opened now would never be ended.
    if (this.#isClosed) throw new Stopping();
    const session = this.#store.get(keyOf(owner, era));
    return session && this.#use(session, owner, deadline);
  }

  #use(session: Session, { credential }: SessionOwner, { signal }: Deadline): Session {
    signal.throwIfAborted();
    session.calls++;
    if (credential && credential.version > (session.credential?.version ?? 0))
      session.credential = credential;
    session.usedAtMs = monotonicMs(this.#parts.clock);
    return session;
  }

  leave(session: Session): void {
    session.calls--;
    session.usedAtMs = monotonicMs(this.#parts.clock);
    if (session.retired && session.calls === 0) this.#end(session);
  }

  /** Drops a session that the server no longer knows: only a stream needs to be ended. */
  drop(session: Session): void {
    if (session.stream) {
      this.#retire(session);
      return;
    }
    this.#store.remove(session);
    session.retired = false;
  }

  /** Closes the sessions that have been idle for a while. */
  sweep(): void {
    this.endIdle(this.#parts.limits.sessionIdleMs);
  }

  /** Closes the sessions that no call uses, or that have been idle for `idleMs`. */
  endIdle(idleMs = 0): void {
    const idleSinceMs = monotonicMs(this.#parts.clock) - idleMs;
    for (const session of this.#store.values()) {
      if (session.calls === 0 && session.usedAtMs <= idleSinceMs) this.#retire(session);
    }
  }

  /** Sends a message within the session that nobody waits for: best effort, bounded in time. */
  notify(session: Session, outgoing: Outgoing): void {
    void this.#background(session, 'POST', outgoing);
  }

  /** Ends every session, and briefly waits for the servers to process it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    for (const session of this.#store.values()) {
      this.#store.remove(session);
      this.#end(session);
    }
    const enough = new AbortController();
    const side = Promise.all(this.#side).finally(() => enough.abort());
    await Promise.race([side, delay(CLOSE_MS, undefined, { signal: enough.signal }).catch(() => undefined)]);
  }

  /**
   * Does the handshake (2025-11-25, Lifecycle), with its own deadline: one caller's disconnect must not end it for the
   * others. A session id sent with an error is dropped.
   */
  async #open(key: string, owner: SessionOwner): Promise<Session> {
    using deadline = new Deadline(this.#parts.limits.totalTimeoutMs);
    const url = addressFor(owner.url, owner.credential);
    const { credential } = owner;
    const outgoing = initializeRequest(INITIALIZE_ID);
    const headers = postHeaders(outgoing, credential);
    const request = { url, id: INITIALIZE_ID, body: outgoing.body, headers, credential };
    const reply = await rpcExchange(this.#parts.http, { ...request, signal: deadline.signal }, this.#now);
    const version = readVersion(reply);
    const sessionId = readSessionId(reply.headers['mcp-session-id']);
    const session = this.#make(key, owner, { url, version, sessionId, stream: undefined });
    await this.#sendInitialized(session);
    this.#add(session);
    return session;
  }

  /** Does the handshake over HTTP+SSE (2024-11-05), where the session is the stream. */
  async #openStream(key: string, owner: SessionOwner): Promise<Session> {
    using deadline = new Deadline(this.#parts.limits.totalTimeoutMs);
    const { credential } = owner;
    const { signal } = deadline;
    let peer: Peer | undefined;
    let replying = 0;
    const stream = new HttpSseStream({
      client: this.#parts.http,
      limits: this.#parts.limits,
      nowMs: this.#now,
      onServerRequest: (id, method) => {
        if (!peer) return;
        if (++replying > this.#parts.limits.maxServerRequests) throw sentTooMuch('sent too many requests');
        const headers = { sessionId: undefined, version: HTTP_SSE_VERSION };
        void this.#background(peer, 'POST', replyToServer(headers, id, method)).finally(() => replying--);
      },
    });
    try {
      const url = await stream.open(addressFor(owner.url, credential), credential, signal);
      peer = { url, credential };
      const outgoing = initializeRequest(INITIALIZE_ID);
      const request = { id: INITIALIZE_ID, outgoing, credential, signal, progressToken: undefined };
      const version = readVersion(await stream.request(request));
      const session = this.#make(key, owner, { url, version, sessionId: undefined, stream });
      peer = session;
      await this.#sendInitialized(session);
      this.#add(session);
      void stream.ended.then(end => {
        const { serverId, tenantId } = session;
        if (end.isUpstreamFailure)
          this.#parts.log.info(
            { serverId, tenantId, code: end.code, err: end },
            'upstream event stream ended',
          );
        this.drop(session);
      });
      return session;
    } catch (error) {
      stream.close(new Stopping());
      throw error;
    }
  }

  #make(
    key: string,
    { tenantId, serverId, credential }: SessionOwner,
    negotiated: Pick<Session, 'url' | 'version' | 'sessionId' | 'stream'>,
  ): Session {
    const fresh = {
      nextId: INITIALIZE_ID + 1,
      calls: 0,
      usedAtMs: monotonicMs(this.#parts.clock),
      turn: 0,
      retired: false,
    };
    const sent = { credential, headers: postHeaders({ headers: sessionHeaders(negotiated) }, credential) };
    return { key, tenantId, serverId, credential, sent, ...negotiated, ...fresh };
  }

  #add(session: Session): void {
    if (this.#isClosed) {
      this.#end(session);
      throw new Stopping();
    }
    for (const evicted of this.#store.add(session)) this.#retire(evicted);
  }

  /** A server that needs the notification reports it at the first call. One that refuses or delays it is called anyway. */
  async #sendInitialized(session: Session): Promise<void> {
    using deadline = new Deadline(this.#parts.limits.sideTimeoutMs);
    try {
      await this.#post(session, legacyNotification(session, 'notifications/initialized'), deadline.signal);
    } catch (error) {
      this.#parts.log.debug({ err: error }, 'upstream refused notifications/initialized');
    }
  }

  #retire(session: Session): void {
    this.#store.remove(session);
    if (session.calls === 0) this.#end(session);
    else session.retired = true;
  }

  #end(session: Session): void {
    session.retired = false;
    session.stream?.close(new Stopping());
    if (session.sessionId !== undefined) {
      void this.#background(session, 'DELETE', { body: '', headers: sessionHeaders(session) });
    }
  }

  #background(peer: Peer, method: 'POST' | 'DELETE', outgoing: Outgoing): Promise<void> {
    const work = this.#sendSide(peer, method, outgoing).finally(() => this.#side.delete(work));
    this.#side.add(work);
    return work;
  }

  async #sendSide(peer: Peer, method: 'POST' | 'DELETE', outgoing: Outgoing): Promise<void> {
    using deadline = new Deadline(this.#parts.limits.sideTimeoutMs);
    try {
      if (method === 'POST') await this.#post(peer, outgoing, deadline.signal);
      else
        await this.#parts.http.send({
          url: peer.url,
          method,
          headers: { ...outgoing.headers, ...credentialHeaders(peer.credential) },
          signal: deadline.signal,
        });
    } catch (error) {
      this.#parts.log.debug({ err: error, method }, 'upstream side message failed');
    }
  }

  async #post({ url, credential }: Peer, outgoing: Outgoing, signal: Cancellation): Promise<void> {
    const headers = postHeaders(outgoing, credential);
    // The first event is enough: these messages have no response.
    const onEvent = () => true;
    await this.#parts.http.send({ url, method: 'POST', headers, body: outgoing.body, signal, onEvent });
  }

  readonly #now = (): number => this.#parts.clock.now();
}

/** Returns the headers of a POST in a session. */
export function postHeadersIn(
  session: Session,
  credential: Credential | undefined,
): Readonly<Record<string, string>> {
  if (session.sent.credential !== credential)
    session.sent = { credential, headers: postHeaders({ headers: sessionHeaders(session) }, credential) };
  return session.sent.headers;
}

/** Sessions by key, limited in total, per tenant and per server. */
class SessionStore {
  readonly #byKey = new Map<string, Session>();
  /** Counts uses, so that the order of use is known without moving entries. */
  #turn = 0;
  readonly #limits: ProxyLimits;

  constructor(limits: ProxyLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#byKey.size;
  }

  values(): Session[] {
    return [...this.#byKey.values()];
  }

  get(key: string): Session | undefined {
    const session = this.#byKey.get(key);
    if (session) session.turn = ++this.#turn;
    return session;
  }

  /** Adds a session. Returns those removed from full groups: idle ones before busy ones, least recently used first. */
  add(session: Session): Session[] {
    const { maxSessions, maxSessionsPerTenant, maxSessionsPerServer } = this.#limits;
    const evicted: Session[] = [];
    const makeRoom = (max: number, belongs: (other: Session) => boolean) => {
      const group = this.values().filter(belongs);
      if (group.length < max) return;
      group.sort((a, b) => a.turn - b.turn);
      const victim = group.find(({ calls }) => calls === 0) ?? group[0];
      if (!victim) return;
      this.remove(victim);
      evicted.push(victim);
    };
    makeRoom(maxSessionsPerTenant, other => other.tenantId === session.tenantId);
    makeRoom(maxSessionsPerServer, other => other.serverId === session.serverId);
    makeRoom(maxSessions, () => true);
    session.turn = ++this.#turn;
    this.#byKey.set(session.key, session);
    return evicted;
  }

  remove(session: Session): void {
    if (this.#byKey.get(session.key) === session) this.#byKey.delete(session.key);
  }
}
