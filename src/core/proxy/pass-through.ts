import type { IncomingHttpHeaders } from 'node:http';
import type { IncomingHttpHeaders as AnswerHeaders } from 'undici/types/header.js';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../platform/clock.ts';
import type { Caller } from '../access/caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Credential, Credentials } from '../identity/connections/credentials.ts';
import type { Sealing } from '../../platform/sealing.ts';
import type { Admission } from './admission.ts';
import { Budget } from './upstream/deadline.ts';
import { traceContext } from './call-span.ts';
import { httpFailure, toldOfCall } from './upstream/failures.ts';
import { readSessionId } from './upstream/handshake.ts';
import type { ProxyLimits } from './limits.ts';
import { OpenCount } from './connection-quota.ts';
import {
  oldTransport,
  perhapsOldTransport,
  refusedAnswer,
  sessionNotFound,
  tooManyStreams,
} from './pass-through-failures.ts';
import { answerHeaders, requestHeaders, SESSION_ID } from './pass-through-headers.ts';
import { redact } from './upstream/redact.ts';
import { authorizationOf } from './upstream/rpc.ts';
import { isMessage, type Sink, type Streamed } from './upstream/streamed-response.ts';
import type { Upstreams } from './upstream/upstreams.ts';
import { urlOf } from './upstream/urls.ts';
import type { Wire } from './upstream/http-client.ts';

/**
 * How long a session id that was handed out can be brought back. Long, as few clients start afresh when they are told to; what
 * ends a session before is its server, which forgets idle ones, and the end of the key.
 */
const SESSION_LIFETIME_MS = 7 * 24 * 60 * 60_000;
/** What session ids are sealed as. */
const PURPOSE = 'mcp-session';
/** For so long a session id may outlive its time. */
const SESSION_ID_CACHE_MS = 60_000;
/** The longest time a timer can have: about 25 days. */
const NO_TOTAL_MS = 2 ** 31 - 1;
/** Notifications and answers that one key may have under way without taking slots; further ones take some. */
const MAX_SIDE_PER_KEY = 8;
/** What may be sent again though the first may have been taken: it does nothing but begin. `toldOfCall` knows what only reads. */
const HARMLESS: ReadonlySet<string | undefined> = new Set([
  'initialize',
  'server/discover',
  'subscriptions/listen',
]);

export interface PassedRequest {
  readonly serverId: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** As they came: what may be passed on is picked here. */
  readonly headers: IncomingHttpHeaders;
  /** Whole, as it may have to be sent again; absent for methods without one. */
  readonly body?: Buffer | undefined;
  /** Called now and then while a stream stays open: to end it where its caller may not have it any more. Must not throw. */
  readonly recheck?: () => void;
}

interface PassThroughOptions {
  readonly credentials: Pick<Credentials, 'forCall' | 'renewed'>;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly admission: Pick<Admission, 'enter'>;
  readonly wire: Pick<Wire, 'stream'>;
  readonly upstreams: Pick<Upstreams, 'speaksOldTransport'>;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
}

/**
 * `call`: admitted as any call, with one of its server's slots. `open` waits for something to happen, and `side`, a notification
 * or an answer, may be what a call waits for: they take none.
 */
type Kind = 'call' | 'open' | 'side';

/** What one request is worked on with. */
interface Passing {
  readonly server: Server;
  readonly request: PassedRequest;
  readonly kind: Kind;
  readonly wantsBody: boolean;
  readonly sink: Sink;
  /** For whom session ids are sealed; complete once the credential is known. */
  readonly binding: readonly string[];
  readonly budget: Budget;
  /** How long nothing may move. */
  readonly idleMs: number;
  /** Whether it was written and not refused: it may have run. */
  sent: boolean;
}

/**
 * A server as it is, byte for byte: the client negotiates with it itself. Only headers are picked, session ids sealed, and
 * the user's token put in.
 */
export class PassThrough {
  readonly #options: PassThroughOptions;
  readonly #open: OpenCount;
  readonly #side: OpenCount;
  /** Session ids that were opened lately, by what they are bound to: opening one costs as much as passing a request on. */
  readonly #sessionIds: LRUCache<string, string>;
  /** Ends the streams that stay open. */
  readonly #ending = new AbortController();

  constructor(options: PassThroughOptions) {
    const { limits } = options;
    this.#options = options;
    this.#open = new OpenCount(limits.maxStreamsPerKey, limits.maxStreams);
    this.#sessionIds = new LRUCache({
      max: limits.maxSessions,
      ttl: SESSION_ID_CACHE_MS,
      perf: { now: () => options.clock.now() },
    });
    this.#side = new OpenCount(MAX_SIDE_PER_KEY, limits.maxStreams);
  }

  /**
   * Resolves with the HTTP status once the whole answer went to the sink.
   * @param method the message's, where it has one.
   * @throws SwitchboardError before the sink is touched; after it has been, it is destroyed first.
   */
  async run(
    caller: Caller,
    { server, request, method }: { server: Server; request: PassedRequest; method: string | undefined },
    sink: Sink,
  ): Promise<number> {
    const { credentials, admission, upstreams } = this.#options;
    if (server.transport === 'sse' || upstreams.speaksOldTransport(server.remoteUrl))
      throw oldTransport(server.id);
    using place = this.#enter(caller.keyId, request, method);
    using budget = this.#budgetOf(caller, place.kind);
    budget.signal.throwIfAborted();
    using pass = place.kind === 'call' ? await admission.enter(server, caller, budget.signal) : undefined;
    let passing: Passing | undefined;
    try {
      const lookup = credentials.forCall(caller, server);
      const credential = lookup && (await budget.wait(lookup));
      const binding = bindingOf(caller, server, credential);
      const wantsBody = waitsForBody(request, method);
      const { kind } = place;
      const idleMs = this.#idleMsOf(caller, kind);
      passing = { server, request, kind, wantsBody, sink, binding, budget, idleMs, sent: false };
      const answer = await this.#sendWith(caller, passing, credential);
      if (answer.status < 400) pass?.answered();
      else pass?.failed(httpFailure({ ...answer, nowMs: this.#options.clock.now() }));
      return answer.status;
    } catch (error) {
      pass?.failed(error);
      throw passing?.sent ? toldOf(request, method, error) : error;
    }
  }

  #budgetOf(caller: Caller, kind: Kind): Budget {
    const { passTotalMs } = this.#options.limits;
    if (kind !== 'open')
      return new Budget(Math.min(caller.timeoutMs ?? passTotalMs, passTotalMs), caller.signal);
    return new Budget(NO_TOTAL_MS, AbortSignal.any([caller.signal, this.#ending.signal]));
  }

  #idleMsOf({ timeoutMs = 0 }: Caller, kind: Kind): number {
    const { streamIdleMs, passIdleMs } = this.#options.limits;
    return kind === 'open' ? streamIdleMs : Math.max(passIdleMs, timeoutMs);
  }

  /** Refused for its token (401) it was not run: it is sent again with a newer one, where there is one. */
  async #sendWith(caller: Caller, passing: Passing, credential: Credential | undefined): Promise<Streamed> {
    const answer = await this.#send(passing, credential);
    if (answer.status !== 401 || !credential) return this.#passed(answer, passing, credential);
    passing.sent = false;
    const { server, budget } = passing;
    const newer = await budget.wait(this.#options.credentials.renewed(caller, server, credential));
    if (!newer) return this.#passed(answer, passing, credential);
    return this.#passed(await this.#send(passing, newer), passing, newer);
  }

  /** @throws SwitchboardError for an answer that was not passed on. */
  #passed(answer: Streamed, { request }: Passing, credential: Credential | undefined): Streamed {
    if (answer.passed) return answer;
    if (mayBeOldTransport(request, answer.status, answer.headers)) throw perhapsOldTransport(answer.status);
    // Before anything of it is cut: no part of the token must be left.
    const excerpt = redact(answer.excerpt, credential);
    throw refusedAnswer({ ...answer, excerpt }, this.#options.clock.now());
  }

  /** Ends the streams that would otherwise stay open, now and from now on: clients open them again, elsewhere or later. */
  endStreams(): void {
    this.#ending.abort();
  }

  #enter(keyId: string, request: PassedRequest, method: string | undefined): Disposable & { kind: Kind } {
    if (request.method === 'GET' || method === 'subscriptions/listen') {
      const place = this.#open.enter(keyId);
      if (typeof place === 'string') throw tooManyStreams(place, this.#options.limits);
      const recheck = setInterval(() => request.recheck?.(), this.#options.limits.streamRecheckMs).unref();
      return {
        kind: 'open',
        [Symbol.dispose]: () => {
          clearInterval(recheck);
          place[Symbol.dispose]();
        },
      };
    }
    const isSide = request.method === 'POST' && isSideMessage(method);
    const place = isSide ? this.#side.enter(keyId) : 'key';
    if (typeof place === 'string') return { kind: 'call', [Symbol.dispose]: () => {} };
    return { kind: 'side', [Symbol.dispose]: () => place[Symbol.dispose]() };
  }

  /** The server's session id; undefined for a handle that is not this caller's, or over. */
  #opened(binding: readonly string[], handle: string): string | undefined {
    const key = JSON.stringify([handle, ...binding]);
    const known = this.#sessionIds.get(key);
    if (known !== undefined) return known;
    const sessionId = this.#options.sealing.open(PURPOSE, binding, handle);
    if (sessionId !== undefined) this.#sessionIds.set(key, sessionId);
    return sessionId;
  }

  #send(passing: Passing, credential: Credential | undefined): Promise<Streamed> {
    const { server, request, kind, wantsBody, sink, binding, budget, idleMs } = passing;
    const { sealing, wire } = this.#options;
    const handle = request.headers[SESSION_ID];
    const sessionId = typeof handle === 'string' ? this.#opened(binding, handle) : undefined;
    if (handle !== undefined && sessionId === undefined) throw sessionNotFound();
    const sessionOf = (status: number, headers: AnswerHeaders): Record<string, string> => {
      // FastMCP sends a new id with HTTP 400, and clients would adopt it in place of the one they have.
      if (status >= 400) return {};
      const given = readSessionId(headers[SESSION_ID]);
      if (given === undefined) return {};
      // The client knows it already.
      if (given === sessionId && typeof handle === 'string') return { [SESSION_ID]: handle };
      return { [SESSION_ID]: sealing.seal(PURPOSE, binding, given, SESSION_LIFETIME_MS) };
    };
    return wire.stream({
      url: urlOf(server.remoteUrl),
      method: request.method,
      headers: {
        ...requestHeaders(request.headers, traceContext()),
        ...(sessionId === undefined ? {} : { [SESSION_ID]: sessionId }),
        ...authorizationOf(credential),
      },
      body: request.body,
      signal: budget.signal,
      idleMs,
      apart: kind !== 'call',
      sink,
      wantsBody,
      onSent: () => {
        passing.sent = true;
      },
      onHead: (status, headers) =>
        isForUs(status) || mayBeOldTransport(request, status, headers)
          ? undefined
          : { ...answerHeaders(headers), ...sessionOf(status, headers) },
    });
  }
}

/** Another user, key, server, URL or connected account is another session. */
const bindingOf = (caller: Caller, server: Server, credential: Credential | undefined): readonly string[] => [
  caller.tenantId,
  caller.keyId,
  caller.subject?.userId ?? '',
  server.id,
  server.remoteUrl,
  credential?.connectionId ?? '',
];

/** The failure of what was written. Where its method could not be made out, it may have been a call. */
const toldOf = (request: PassedRequest, method: string | undefined, error: unknown): unknown =>
  request.method !== 'POST' || HARMLESS.has(method) ? error : toldOfCall(error, method ?? '');

/** A notification, or an answer to a request of the server's. */
const isSideMessage = (method: string | undefined): boolean =>
  method === undefined || method.startsWith('notifications/');

const waitsForBody = (request: PassedRequest, method: string | undefined): boolean =>
  request.method === 'GET' || (request.method === 'POST' && !isSideMessage(method));

/** Passed on, they would make clients drop their key, or look for a sign-in here. */
const isForUs = (status: number) => status === 401 || status === 403 || status === 407;

/** How servers of HTTP+SSE answer a POST to the URL of their stream. A client with a session has a server of the newer transport. */
const mayBeOldTransport = (request: PassedRequest, status: number, headers: AnswerHeaders): boolean =>
  (status === 404 || status === 405) &&
  request.method === 'POST' &&
  request.headers[SESSION_ID] === undefined &&
  !isMessage(headers);
