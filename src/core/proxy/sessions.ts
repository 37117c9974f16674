import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Log } from '../../infra/log.ts';
import { SingleFlight } from '../../infra/single-flight.ts';
import type { Credential } from '../identity/credentials.ts';
import { Budget } from './budget.ts';
import { initializeRequest, legacyNotification, sessionHeaders, type Outgoing } from './envelope.ts';
import { isObject } from './json.ts';
import { isLegacyVersion } from './era.ts';
import { brokeProtocol, sanitise } from './failures.ts';
import type { ProxyLimits } from './limits.ts';
import { authorizationOf, rpcExchange, type RpcReply } from './rpc.ts';
import { SessionStore } from './session-store.ts';
import type { Wire } from './wire.ts';

/**
 * Whose session with which server: never shared between tenants, users or accounts that a user has connected; another URL
 * is another server.
 */
export interface SessionOwner {
  readonly serverId: string;
  readonly url: string;
  readonly tenantId: string;
  readonly userId: string | undefined;
  readonly credential: Credential | undefined;
}

/** A handshake done with a server of revisions 2025-xx, with or without a session id. */
export interface Session {
  readonly key: string;
  readonly tenantId: string;
  readonly url: URL;
  readonly sessionId: string | undefined;
  /** The negotiated protocol version. */
  readonly version: string;
  /** The newest seen: messages of the session's own carry it. */
  credential: Credential | undefined;
  /** Own request ids: two callers of one session with equal ids would hang a stateful server. */
  nextId: number;
  calls: number;
  usedAtMs: number;
  /** No longer given out; ended once its last call is done. */
  retired: boolean;
}

/** The sessions with upstreams that need a handshake: made once, shared by one owner's calls, closed when idle. */
export class Sessions {
  readonly #store: SessionStore<Session>;
  readonly #opening = new SingleFlight<Session>();
  readonly #sweeper: NodeJS.Timeout;
  /** Messages under way that nobody waits for, except `close`. */
  readonly #side = new Set<Promise<void>>();
  readonly #wire: Wire;
  readonly #limits: ProxyLimits;
  readonly #clock: Clock;
  readonly #log: Log;
  #nextInitializeId = 1;

  constructor(wire: Wire, limits: ProxyLimits, clock: Clock, log: Log) {
    this.#wire = wire;
    this.#limits = limits;
    this.#clock = clock;
    this.#log = log;
    this.#store = new SessionStore(limits.maxSessions, limits.maxSessionsPerTenant);
    this.#sweeper = setInterval(() => this.sweep(), Math.max(1_000, limits.sessionIdleMs / 5)).unref();
  }

  get size(): number {
    return this.#store.size;
  }

  /** Takes part in the owner's session, opening it first where there is none. Give it back with `leave`. */
  async join(owner: SessionOwner, budget: Budget): Promise<Session> {
    const { serverId, url, tenantId, userId, credential } = owner;
    const key = JSON.stringify([serverId, url, tenantId, userId, credential?.connectionId]);
    const session =
      this.#store.get(key) ??
      (await budget.share(() => this.#opening.run(key, () => this.#open(key, owner))));
    budget.signal.throwIfAborted();
    session.calls++;
    if (credential && credential.version > (session.credential?.version ?? 0))
      session.credential = credential;
    session.usedAtMs = this.#clock.now();
    return session;
  }

  leave(session: Session): void {
    session.calls--;
    session.usedAtMs = this.#clock.now();
    if (session.retired && session.calls === 0) this.#end(session);
  }

  /** The server no longer knows the session: it is not given out again, and there is nothing to end. */
  drop(session: Session): void {
    this.#store.remove(session);
    session.retired = false;
  }

  /** Closes the sessions that no call has used for a while. */
  sweep(): void {
    const idleSinceMs = this.#clock.now() - this.#limits.sessionIdleMs;
    for (const session of this.#store.values()) {
      if (session.calls === 0 && session.usedAtMs <= idleSinceMs) this.#retire(session);
    }
  }

  /** Sends a message within the session that nobody waits for: best effort, bounded in time. */
  notify(session: Session, outgoing: Outgoing): void {
    this.#background(session, 'POST', outgoing);
  }

  /** Ends every session, waiting at most the side time-out. */
  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    for (const session of this.#store.values()) {
      this.#store.remove(session);
      this.#end(session);
    }
    await Promise.all(this.#side);
  }

  /**
   * The handshake (2025-11-25, Lifecycle), with a budget of its own: one caller's going away must not end it for the others
   * who wait for it. A session id that comes with an error is not kept.
   */
  async #open(key: string, owner: SessionOwner): Promise<Session> {
    using budget = new Budget(this.#limits.totalTimeoutMs);
    const id = this.#nextInitializeId++;
    const url = new URL(owner.url);
    const reply = await rpcExchange(
      this.#wire,
      { url, id, outgoing: initializeRequest(id), credential: owner.credential, signal: budget.signal },
      () => this.#clock.now(),
    );
    const version = readInitializeResult(reply);
    const session: Session = {
      key,
      tenantId: owner.tenantId,
      url,
      sessionId: readSessionId(reply.headers['mcp-session-id']),
      version,
      credential: owner.credential,
      nextId: 1,
      calls: 0,
      usedAtMs: this.#clock.now(),
      retired: false,
    };
    await this.#sendInitialized(session);
    for (const evicted of this.#store.add(session)) this.#retire(evicted);
    return session;
  }

  /** Servers that mind its absence say so at the first call; one that refuses it, or holds it open, is called all the same. */
  async #sendInitialized(session: Session): Promise<void> {
    using budget = new Budget(this.#limits.sideTimeoutMs);
    try {
      await this.#post(session, legacyNotification(session, 'notifications/initialized'), budget.signal);
    } catch (error) {
      this.#log.debug({ err: error }, 'upstream refused notifications/initialized');
    }
  }

  #retire(session: Session): void {
    this.#store.remove(session);
    if (session.calls === 0) this.#end(session);
    else session.retired = true;
  }

  #end(session: Session): void {
    session.retired = false;
    if (session.sessionId !== undefined) {
      this.#background(session, 'DELETE', { body: '', headers: sessionHeaders(session) });
    }
  }

  #background(session: Session, method: 'POST' | 'DELETE', outgoing: Outgoing): void {
    const work = this.#sendSide(session, method, outgoing).finally(() => this.#side.delete(work));
    this.#side.add(work);
  }

  async #sendSide(session: Session, method: 'POST' | 'DELETE', outgoing: Outgoing): Promise<void> {
    using budget = new Budget(this.#limits.sideTimeoutMs);
    try {
      if (method === 'POST') await this.#post(session, outgoing, budget.signal);
      else
        await this.#wire.send({
          url: session.url,
          method,
          headers: { ...outgoing.headers, ...authorizationOf(session.credential) },
          signal: budget.signal,
        });
    } catch (error) {
      this.#log.debug({ err: error, method }, 'upstream side message failed');
    }
  }

  async #post(session: Session, outgoing: Outgoing, signal: AbortSignal): Promise<void> {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...outgoing.headers,
      ...authorizationOf(session.credential),
    };
    // The first event is enough: nothing here has an answer.
    const onEvent = () => true;
    await this.#wire.send({
      url: session.url,
      method: 'POST',
      headers,
      body: outgoing.body,
      signal,
      onEvent,
    });
  }
}

function readInitializeResult({ status, answer, problem }: RpcReply): string {
  if (!answer) {
    if (status !== 404 && status !== 405) throw problem;
    throw brokeProtocol(
      `answered HTTP ${status} to initialize. It probably speaks only the old HTTP+SSE transport (2024-11-05), which is not supported yet`,
    );
  }
  if ('error' in answer) {
    throw new SwitchboardError(
      'upstream_protocol',
      `The MCP server refused initialize: ${sanitise(answer.error.message)}`,
    );
  }
  const version = isObject(answer.result) ? answer.result['protocolVersion'] : undefined;
  if (typeof version === 'string' && isLegacyVersion(version)) return version;
  throw brokeProtocol('answered initialize without a protocol version that is supported here');
}

/** Visible ASCII only (2025-11-25, Session management). */
function readSessionId(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header === 'string' && /^[\x21-\x7e]{1,1024}$/.test(header)) return header;
  throw brokeProtocol('sent a session id that is not visible ASCII');
}
