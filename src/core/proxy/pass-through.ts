import type { IncomingHttpHeaders } from 'node:http';
import type { IncomingHttpHeaders as AnswerHeaders } from 'undici/types/header.js';
import { LRUCache } from 'lru-cache';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import { Places } from '../../platform/queues.ts';
import type { Sealing } from '../../platform/sealing.ts';
import type { Caller } from '../access/caller.ts';
import type { CalledServer } from '../catalogue/entry.ts';
import type { Credentials } from '../identity/connections/credentials.ts';
import type { Credential } from '../identity/connections/holdings.ts';
import type { Admission, Pass } from './admission.ts';
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
import { credentialAfterRefusal } from './refused-credentials.ts';
import type { UpstreamClient } from './upstream/client.ts';
import { Deadline } from './upstream/deadline.ts';
import { httpFailure, markMayHaveRun, refusalBy } from './upstream/failures.ts';
import {
  isMessage,
  StreamedExchange,
  type Sink,
  type Streamed,
  type StreamRequest,
} from './upstream/http-stream.ts';
import type { HttpClient } from './upstream/http.ts';
import { readSessionId } from './upstream/era.ts';
import { redact } from './upstream/envelope.ts';
import { addressFor, credentialHeaders } from './upstream/rpc.ts';

/**
 * How long an issued session id is valid. It is long, because few clients start over when told to. The server, which drops
 * idle sessions, or the end of the key usually ends a session earlier.
 */
const SESSION_LIFETIME_MS = 7 * 24 * 60 * 60_000;
/** The purpose that session ids are sealed for. */
const PURPOSE = 'mcp-session';
/** The grace period of an expired session id. */
const SESSION_ID_CACHE_MS = 60_000;
/** The maximum delay of a timer: about 25 days. */
const NO_TOTAL_MS = 2 ** 31 - 1;
/** The number of concurrent notifications and responses per key that need no slot; further ones take slots. */
const MAX_SIDE_PER_KEY = 8;
/** Methods that only initialize, which can be repeated safely. `markMayHaveRun` knows the methods that only read. */
const HARMLESS: ReadonlySet<string | undefined> = new Set([
  'initialize',
  'server/discover',
  'subscriptions/listen',
]);

export interface PassedRequest {
  readonly serverId: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** The client's original headers, of which some are forwarded. */
  readonly headers: IncomingHttpHeaders;
  /** The whole body, because it may have to be sent again; absent for methods without one. */
  readonly body?: Buffer | undefined;
  /** Called periodically while a stream is open: ends it if its caller is no longer authorized. Must not throw. */
  readonly recheck?: () => void;
  /** Calls a listener when the caller's key has changed; returns a function that ends this. */
  readonly watch?: (listener: () => void) => () => void;
}

interface PassThroughOptions {
  readonly credentials: Pick<Credentials, 'forCall' | 'renewAfterRefusal'>;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly admission: Pick<Admission, 'enter'>;
  readonly http: Pick<HttpClient, 'exchange'>;
  readonly upstream: Pick<UpstreamClient, 'speaksHttpSse'>;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
}

/**
 * `call` is admitted like any call, with one of its server's slots. `open` waits for events. `side` is a notification or a
 * response that a call may be waiting for. The latter two take no slot.
 */
type Kind = 'call' | 'open' | 'side';

/** A request with its server. */
interface Passed {
  readonly server: CalledServer;
  readonly request: PassedRequest;
  /** The message's method, if it has one. */
  readonly method: string | undefined;
}

/** One running request. */
interface Passing {
  readonly server: CalledServer;
  readonly request: PassedRequest;
  readonly kind: Kind;
  readonly wantsBody: boolean;
  readonly sink: Sink;
  /** The owner that session ids are sealed for. */
  readonly binding: readonly string[];
  readonly deadline: Deadline;
  /** The longest pause without data. */
  readonly idleMs: number;
  /** True once it was written and not refused: it may have run. */
  sent: boolean;
}

/**
 * Passes a client's requests to a server byte for byte; the client negotiates with the server itself. Only headers are
 * filtered, session ids sealed, and the user's token added.
 */
export class PassThrough {
  readonly #options: PassThroughOptions;
  readonly #open: Places;
  readonly #side: Places;
  /** Recently opened session ids, by handle and owner: opening one costs as much as forwarding a request. */
  readonly #sessionIds: LRUCache<string, string>;
  /** The deadlines of open streams. */
  readonly #deadlines = new Set<Deadline>();
  #isEnding = false;

  constructor(options: PassThroughOptions) {
    const { limits } = options;
    this.#options = options;
    this.#open = new Places(limits.maxStreamsPerKey, limits.maxStreams);
    this.#sessionIds = new LRUCache({
      max: limits.maxSessions,
      ttl: SESSION_ID_CACHE_MS,
      perf: { now: () => monotonicMs(options.clock) },
    });
    this.#side = new Places(MAX_SIDE_PER_KEY, limits.maxStreams);
  }

  get streams(): { open: number; free: number } {
    const { taken, free } = this.#open.use;
    return { open: taken, free };
  }

  /**
   * Resolves with the HTTP status once the whole response went to the sink.
   * @throws SwitchboardError before the sink is used; later only once the sink has been destroyed
   */
  async run(caller: Caller, passed: Passed, sink: Sink): Promise<number> {
    const { server, request, method } = passed;
    const { admission, upstream } = this.#options;
    if (server.transport === 'sse' || upstream.speaksHttpSse(server.remoteUrl)) throw oldTransport(server.id);
    const place = this.#enter(caller.keyId, request, method);
    const deadline = this.#deadlineOf(caller, place.kind);
    try {
      deadline.signal.throwIfAborted();
      const entering = place.kind === 'call' ? admission.enter(server, caller, deadline.signal) : undefined;
      const pass = entering instanceof Promise ? await entering : entering;
      return await this.#runWith(pass, caller, passed, { sink, deadline, kind: place.kind });
    } finally {
      deadline[Symbol.dispose]();
      this.#deadlines.delete(deadline);
      place[Symbol.dispose]();
    }
  }

  async #runWith(
    pass: Pass | undefined,
    caller: Caller,
    { server, request, method }: Passed,
    { sink, deadline, kind }: Pick<Passing, 'sink' | 'deadline' | 'kind'>,
  ): Promise<number> {
    let passing: Passing | undefined;
    try {
      const lookup = this.#options.credentials.forCall(caller, server);
      const credential = lookup instanceof Promise ? await deadline.wait(lookup) : lookup;
      const binding = bindingOf(caller, server, credential);
      const wantsBody = waitsForBody(request, method);
      const idleMs = this.#idleMsOf(caller, kind);
      passing = { server, request, kind, wantsBody, sink, binding, deadline, idleMs, sent: false };
      const answer = await this.#sendWith(caller, passing, credential);
      if (answer.status < 400) pass?.answered();
      else pass?.failed(httpFailure({ ...answer, nowMs: this.#options.clock.now() }));
      return answer.status;
    } catch (error) {
      pass?.failed(error);
      throw passing?.sent ? toldOf(request, method, error) : error;
    } finally {
      pass?.giveBack();
    }
  }

  #deadlineOf(caller: Caller, kind: Kind): Deadline {
    const { passTotalMs } = this.#options.limits;
    if (kind !== 'open')
      return new Deadline(Math.min(caller.timeoutMs ?? passTotalMs, passTotalMs), caller.signal);
    const deadline = new Deadline(NO_TOTAL_MS, caller.signal);
    this.#deadlines.add(deadline);
    if (this.#isEnding) deadline.abort();
    return deadline;
  }

  #idleMsOf({ timeoutMs = 0 }: Caller, kind: Kind): number {
    const { streamIdleMs, passIdleMs } = this.#options.limits;
    return kind === 'open' ? streamIdleMs : Math.max(passIdleMs, timeoutMs);
  }

  /** Sends a request, and repeats it once if the server refused it and there is a newer token. */
  async #sendWith(caller: Caller, passing: Passing, credential: Credential | undefined): Promise<Streamed> {
    const context = { caller, server: passing.server, deadline: passing.deadline };
    for (let count = 1; ; count++) {
      const answer = await this.#send(passing, credential);
      const refusal = refusalBy(answer.status, answer.headers['www-authenticate']);
      if (!refusal) return this.#passed(answer, passing, credential);
      passing.sent = false;
      const refused = { credential, refusal, count };
      const newer = await credentialAfterRefusal(this.#options.credentials, context, refused);
      if (!newer) return this.#passed(answer, passing, credential);
      credential = newer;
    }
  }

  /** @throws SwitchboardError for a response that was not passed on */
  #passed(answer: Streamed, { request }: Passing, credential: Credential | undefined): Streamed {
    if (answer.passed) return answer;
    if (mayBeOldTransport(request, answer.status, answer.headers)) throw perhapsOldTransport(answer.status);
    // The token is removed before truncation, so that no part of it can remain.
    const excerpt = redact(answer.excerpt, credential);
    throw refusedAnswer({ ...answer, excerpt }, this.#options.clock.now());
  }

  /** Ends open streams, now and from now on. Clients open them again, elsewhere or later. */
  endStreams(): void {
    this.#isEnding = true;
    for (const deadline of this.#deadlines) deadline.abort();
  }

  #enter(keyId: string, request: PassedRequest, method: string | undefined): Disposable & { kind: Kind } {
    if (request.method === 'GET' || method === 'subscriptions/listen') {
      const place = this.#open.enter(keyId);
      if (typeof place === 'string') throw tooManyStreams(place, this.#options.limits);
      const recheck = () => request.recheck?.();
      const timer = setInterval(recheck, this.#options.limits.streamRecheckMs).unref();
      const unwatch = request.watch?.(recheck);
      return {
        kind: 'open',
        [Symbol.dispose]: () => {
          clearInterval(timer);
          unwatch?.();
          place[Symbol.dispose]();
        },
      };
    }
    const isSide = request.method === 'POST' && isSideMessage(method);
    const place = isSide ? this.#side.enter(keyId) : 'key';
    if (typeof place === 'string') return { kind: 'call', [Symbol.dispose]: () => {} };
    return { kind: 'side', [Symbol.dispose]: () => place[Symbol.dispose]() };
  }

  /** Returns the server's session id; undefined for a handle that belongs to another caller or has expired. */
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
      // FastMCP sends a new id with HTTP 400, and clients would adopt it instead of theirs.
      if (status >= 400) return {};
      const given = readSessionId(headers[SESSION_ID]);
      if (given === undefined) return {};
      // The client already knows it.
      if (given === sessionId && typeof handle === 'string') return { [SESSION_ID]: handle };
      return { [SESSION_ID]: sealing.seal(PURPOSE, binding, given, SESSION_LIFETIME_MS) };
    };
    const asked: StreamRequest = {
      url: addressFor(server.remoteUrl, credential),
      method: request.method,
      headers: {
        ...requestHeaders(request.headers, traceContext()),
        ...(sessionId === undefined ? {} : { [SESSION_ID]: sessionId }),
        ...credentialHeaders(credential),
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

/** A different user, key, server, URL or connected account is a different session. */
const bindingOf = (
  caller: Caller,
  server: CalledServer,
  credential: Credential | undefined,
): readonly string[] => [
  caller.tenantId,
  caller.keyId,
  caller.subject?.userId ?? '',
  server.id,
  server.remoteUrl,
  credential?.connectionKey ?? '',
];

/** Returns the failure of a request that was sent. If its method is unknown, it may have been a call. */
const toldOf = (request: PassedRequest, method: string | undefined, error: unknown): unknown =>
  request.method !== 'POST' || HARMLESS.has(method) ? error : markMayHaveRun(error, method ?? '');

/** Returns whether the message is a notification or a response to a server's request. */
const isSideMessage = (method: string | undefined): boolean =>
  method === undefined || method.startsWith('notifications/');

const waitsForBody = (request: PassedRequest, method: string | undefined): boolean =>
  request.method === 'GET' || (request.method === 'POST' && !isSideMessage(method));

/** These statuses would make clients drop their key or look for a sign-in. */
const isForUs = (status: number) => status === 401 || status === 403 || status === 407;

/**
 * HTTP+SSE servers respond like this to a POST to the URL of their stream. A client with a session has a server with the
 * newer transport.
 */
const mayBeOldTransport = (request: PassedRequest, status: number, headers: AnswerHeaders): boolean =>
  (status === 404 || status === 405) &&
  request.method === 'POST' &&
  request.headers[SESSION_ID] === undefined &&
  !isMessage(headers);
