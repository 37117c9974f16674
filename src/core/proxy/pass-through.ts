import type { IncomingHttpHeaders } from 'node:http';
import type { IncomingHttpHeaders as AnswerHeaders } from 'undici/types/header.js';
import { LRUCache } from 'lru-cache';
import type { Clock } from '../../platform/time.ts';
import type { Sealing } from '../../platform/sealing.ts';
import type { Caller } from '../access/caller.ts';
import type { Server } from '../catalogue/entry.ts';
import type { Credential, Credentials } from '../identity/connections/credentials.ts';
import type { Admission } from './admission.ts';
import { traceContext } from './reporting.ts';
import type { ProxyLimits } from './limits.ts';
import {
  answerHeaders,
  oldTransport,
  perhapsOldTransport,
  refusedAnswer,
  requestHeaders,
  SESSION_ID,
  sessionNotFound,
  tooManyStreams,
} from './pass-through-messages.ts';
import type { UpstreamClient } from './upstream/client.ts';
import { Deadline } from './upstream/deadline.ts';
import { httpFailure, markMayHaveRun } from './upstream/failures.ts';
import {
  isMessage,
  StreamedExchange,
  type Sink,
  type Streamed,
  type StreamRequest,
} from './upstream/http-stream.ts';
import { urlOf, type HttpClient } from './upstream/http.ts';
import { readSessionId } from './upstream/era.ts';
import { redact } from './upstream/envelope.ts';
import { authorizationOf } from './upstream/rpc.ts';

/**
 * A session id that was handed out can be used for this long. It is long, as few clients start afresh when they are told to.
 * The server, which forgets idle sessions, or the end of the key ends a session before that.
 */
const SESSION_LIFETIME_MS = 7 * 24 * 60 * 60_000;
/** The purpose that session ids are sealed for. */
const PURPOSE = 'mcp-session';
/** A session id may outlive its time by this much. */
const SESSION_ID_CACHE_MS = 60_000;
/** The longest time of a timer: about 25 days. */
const NO_TOTAL_MS = 2 ** 31 - 1;
/** One key may have so many notifications and answers under way without slots; further ones take slots. */
const MAX_SIDE_PER_KEY = 8;
/** Methods that do nothing but begin: they may be sent again. `markMayHaveRun` knows the methods that only read. */
const HARMLESS: ReadonlySet<string | undefined> = new Set([
  'initialize',
  'server/discover',
  'subscriptions/listen',
]);

export interface PassedRequest {
  readonly serverId: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** The client's headers as they came: those to pass on are picked here. */
  readonly headers: IncomingHttpHeaders;
  /** The whole body, as it may have to be sent again; absent for methods without one. */
  readonly body?: Buffer | undefined;
  /** Called now and then while a stream stays open: ends it when its caller may not have it any more. Must not throw. */
  readonly recheck?: () => void;
}

interface PassThroughOptions {
  readonly credentials: Pick<Credentials, 'forCall' | 'renewed'>;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly admission: Pick<Admission, 'enter'>;
  readonly http: Pick<HttpClient, 'exchange'>;
  readonly upstream: Pick<UpstreamClient, 'speaksHttpSse'>;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
}

/**
 * `call` is admitted as any call, with one of its server's slots. `open` waits for something to happen. `side` is a
 * notification or an answer that a call may wait for. These two take no slot.
 */
type Kind = 'call' | 'open' | 'side';

/** One request under way. */
interface Passing {
  readonly server: Server;
  readonly request: PassedRequest;
  readonly kind: Kind;
  readonly wantsBody: boolean;
  readonly sink: Sink;
  /** The owner that session ids are sealed for. */
  readonly binding: readonly string[];
  readonly deadline: Deadline;
  /** The longest pause in which nothing moves. */
  readonly idleMs: number;
  /** True once it was written and not refused: it may have run. */
  sent: boolean;
}

/**
 * Passes a client's requests to a server byte for byte: the client negotiates with the server itself. Only headers are
 * picked, session ids sealed, and the user's token put in.
 */
export class PassThrough {
  readonly #options: PassThroughOptions;
  readonly #open: ConnectionQuota;
  readonly #side: ConnectionQuota;
  /** Session ids that were opened lately, by handle and owner: opening one costs as much as passing a request on. */
  readonly #sessionIds: LRUCache<string, string>;
  /** Ends the streams that stay open. */
  readonly #ending = new AbortController();

  constructor(options: PassThroughOptions) {
    const { limits } = options;
    this.#options = options;
    this.#open = new ConnectionQuota(limits.maxStreamsPerKey, limits.maxStreams);
    this.#sessionIds = new LRUCache({
      max: limits.maxSessions,
      ttl: SESSION_ID_CACHE_MS,
      perf: { now: () => options.clock.now() },
    });
    this.#side = new ConnectionQuota(MAX_SIDE_PER_KEY, limits.maxStreams);
  }

  /**
   * Resolves with the HTTP status once the whole answer went to the sink.
   * @param method the message's, where it has one
   * @throws SwitchboardError before the sink is touched; later only once the sink has been destroyed
   */
  async run(
    caller: Caller,
    { server, request, method }: { server: Server; request: PassedRequest; method: string | undefined },
    sink: Sink,
  ): Promise<number> {
    const { credentials, admission, upstream } = this.#options;
    if (server.transport === 'sse' || upstream.speaksHttpSse(server.remoteUrl)) throw oldTransport(server.id);
    using place = this.#enter(caller.keyId, request, method);
    using deadline = this.#deadlineOf(caller, place.kind);
    deadline.signal.throwIfAborted();
    using pass = place.kind === 'call' ? await admission.enter(server, caller, deadline.signal) : undefined;
    let passing: Passing | undefined;
    try {
      const lookup = credentials.forCall(caller, server);
      const credential = lookup && (await deadline.wait(lookup));
      const binding = bindingOf(caller, server, credential);
      const wantsBody = waitsForBody(request, method);
      const { kind } = place;
      const idleMs = this.#idleMsOf(caller, kind);
      passing = { server, request, kind, wantsBody, sink, binding, deadline, idleMs, sent: false };
      const answer = await this.#sendWith(caller, passing, credential);
      if (answer.status < 400) pass?.answered();
      else pass?.failed(httpFailure({ ...answer, nowMs: this.#options.clock.now() }));
      return answer.status;
    } catch (error) {
      pass?.failed(error);
      throw passing?.sent ? toldOf(request, method, error) : error;
    }
  }

  #deadlineOf(caller: Caller, kind: Kind): Deadline {
    const { passTotalMs } = this.#options.limits;
    if (kind !== 'open')
      return new Deadline(Math.min(caller.timeoutMs ?? passTotalMs, passTotalMs), caller.signal);
    return new Deadline(NO_TOTAL_MS, AbortSignal.any([caller.signal, this.#ending.signal]));
  }

  #idleMsOf({ timeoutMs = 0 }: Caller, kind: Kind): number {
    const { streamIdleMs, passIdleMs } = this.#options.limits;
    return kind === 'open' ? streamIdleMs : Math.max(passIdleMs, timeoutMs);
  }

  /** Sends a request, and once more with a newer token, where there is one, if the server refused the first (401). */
  async #sendWith(caller: Caller, passing: Passing, credential: Credential | undefined): Promise<Streamed> {
    const answer = await this.#send(passing, credential);
    if (answer.status !== 401 || !credential) return this.#passed(answer, passing, credential);
    passing.sent = false;
    const { server, deadline } = passing;
    const newer = await deadline.wait(this.#options.credentials.renewed(caller, server, credential));
    if (!newer) return this.#passed(answer, passing, credential);
    return this.#passed(await this.#send(passing, newer), passing, newer);
  }

  /** @throws SwitchboardError for an answer that was not passed on. */
  #passed(answer: Streamed, { request }: Passing, credential: Credential | undefined): Streamed {
    if (answer.passed) return answer;
    if (mayBeOldTransport(request, answer.status, answer.headers)) throw perhapsOldTransport(answer.status);
    // The token goes before anything is cut: no part of it must be left.
    const excerpt = redact(answer.excerpt, credential);
    throw refusedAnswer({ ...answer, excerpt }, this.#options.clock.now());
  }

  /** Ends the streams that would stay open, now and from now on. Clients open them again, elsewhere or later. */
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

  /** Returns the server's session id; undefined for a handle that is another caller's, or too old. */
  #opened(binding: readonly string[], handle: string): string | undefined {
    const key = JSON.stringify([handle, ...binding]);
    const known = this.#sessionIds.get(key);
    if (known !== undefined) return known;
    const sessionId = this.#options.sealing.open(PURPOSE, binding, handle);
    if (sessionId !== undefined) this.#sessionIds.set(key, sessionId);
    return sessionId;
  }

  #send(passing: Passing, credential: Credential | undefined): Promise<Streamed> {
    const { server, request, kind, wantsBody, sink, binding, deadline, idleMs } = passing;
    const { sealing, http } = this.#options;
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
    const asked: StreamRequest = {
      url: urlOf(server.remoteUrl),
      method: request.method,
      headers: {
        ...requestHeaders(request.headers, traceContext()),
        ...(sessionId === undefined ? {} : { [SESSION_ID]: sessionId }),
        ...authorizationOf(credential),
      },
      body: request.body,
      signal: deadline.signal,
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
    };
    return http.exchange(asked, StreamedExchange);
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

/** Returns the failure of a request that was written. Where its method could not be made out, it may have been a call. */
const toldOf = (request: PassedRequest, method: string | undefined, error: unknown): unknown =>
  request.method !== 'POST' || HARMLESS.has(method) ? error : markMayHaveRun(error, method ?? '');

/** Returns whether the message is a notification, or an answer to a request of the server's. */
const isSideMessage = (method: string | undefined): boolean =>
  method === undefined || method.startsWith('notifications/');

const waitsForBody = (request: PassedRequest, method: string | undefined): boolean =>
  request.method === 'GET' || (request.method === 'POST' && !isSideMessage(method));

/** Passed on, these statuses would make clients drop their key, or look for a sign-in here. */
const isForUs = (status: number) => status === 401 || status === 403 || status === 407;

/** Servers of HTTP+SSE answer a POST to the URL of their stream so. A client with a session has a server of the newer transport. */
const mayBeOldTransport = (request: PassedRequest, status: number, headers: AnswerHeaders): boolean =>
  (status === 404 || status === 405) &&
  request.method === 'POST' &&
  request.headers[SESSION_ID] === undefined &&
  !isMessage(headers);

/** Limits how many connections each key has open at a time, and all keys together. */
class ConnectionQuota {
  readonly #perKey = new Map<string, number>();
  readonly #maxPerKey: number;
  readonly #max: number;
  #total = 0;

  constructor(maxPerKey: number, max: number) {
    this.#maxPerKey = maxPerKey;
    this.#max = max;
  }

  /** Counts one more until the result is disposed of. Returns the name of the bound instead where one is reached. */
  enter(keyId: string): Disposable | 'key' | 'all' {
    const held = this.#perKey.get(keyId) ?? 0;
    if (held >= this.#maxPerKey) return 'key';
    if (this.#total >= this.#max) return 'all';
    this.#perKey.set(keyId, held + 1);
    this.#total++;
    return { [Symbol.dispose]: () => this.#leave(keyId) };
  }

  #leave(keyId: string): void {
    const left = (this.#perKey.get(keyId) ?? 1) - 1;
    if (left === 0) this.#perKey.delete(keyId);
    else this.#perKey.set(keyId, left);
    this.#total--;
  }
}
