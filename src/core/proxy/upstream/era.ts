import { SwitchboardError } from '../../../errors.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import {
  errorOf,
  glimpseOf,
  HEADER_MISMATCH,
  isModernCode,
  MODERN_VERSION,
  modernRequest,
  UNSUPPORTED_VERSION,
  type RpcAnswer,
  type RpcError,
} from './envelope.ts';
import { brokeProtocol, isRead } from './failures.ts';
import { isObject } from '../../../platform/json/limits.ts';
import { addressFor, postHeaders, rpcExchange, type RpcReply } from './rpc.ts';
import { monotonicMs, type Clock } from '../../../platform/time.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import type { ProxyLimits } from '../limits.ts';
import { Deadline } from './deadline.ts';
import { urlOf, type HttpClient } from './http.ts';

/** `legacy` has the handshake over Streamable HTTP (2025-03-26 to 2025-11-25), `sse` over HTTP+SSE (2024-11-05). */
export type Era = 'modern' | 'legacy' | 'sse';

/** The part of a session needed for interpreting replies. */
interface SessionKind {
  /** Present for HTTP+SSE (2024-11-05), where the session is the stream. */
  readonly stream: unknown;
  readonly sessionId: string | undefined;
}

/** The meaning of a reply for its call and for the server's state. */
export interface Meaning {
  /** The fate of the call. `not-run`: the server certainly did not run it. `unknown`: the session was lost, and it may have run. */
  readonly call: 'taken' | 'not-run' | 'unknown';
  /** True if the session can no longer be used. */
  readonly endsSession: boolean;
  /** The era suggested by the reply. `doubtful`: sloppy servers of that era may reply like this, too. */
  readonly era: 'right' | 'doubtful' | 'wrong';
}

const TAKEN: Meaning = { call: 'taken', endsSession: false, era: 'right' };
const TAKEN_DOUBTFULLY: Meaning = { ...TAKEN, era: 'doubtful' };
const SESSION_DEAD: Meaning = { call: 'not-run', endsSession: true, era: 'right' };
const SESSION_LOST: Meaning = { ...SESSION_DEAD, call: 'unknown' };

/** Interprets a reply in a session. */
export function meaningInSession(session: SessionKind, reply: RpcReply): Meaning {
  const loss = lossOf(session, reply);
  if (loss !== 'none') return loss === 'dead' ? SESSION_DEAD : SESSION_LOST;
  const code = errorOf(reply.answer)?.code;
  if (code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH)
    return { call: isRefusedUnread(reply) ? 'not-run' : 'taken', endsSession: true, era: 'wrong' };
  return hasResultType(reply.answer) ? TAKEN_DOUBTFULLY : TAKEN;
}

/** Interprets the reply of a server of revision 2026-07-28. */
export function meaningOfModern(reply: RpcReply): Meaning {
  const { status, answer } = reply;
  const code = errorOf(answer)?.code;
  const call = isRefusedUnread(reply) ? 'not-run' : 'taken';
  if (code === UNSUPPORTED_VERSION || looksLegacy(status, code))
    return { call, endsSession: false, era: 'wrong' };
  if (answer && 'result' in answer && !hasResultType(answer)) return TAKEN_DOUBTFULLY;
  return call === 'taken' ? TAKEN : { ...TAKEN, call };
}

/**
 * Decides whether a call may be repeated. Refused headers are only worth a second attempt with different headers, which
 * follow from the server's tool definitions (2026-07-28, Streamable HTTP, "Schema extension").
 * @param isModern true for a server of revision 2026-07-28
 */
export function repeatOf(
  meaning: Meaning,
  { answer }: RpcReply,
  { method, isModern }: { method: string; isModern: boolean },
): 'never' | 'now' | 'with-new-definitions' {
  if (meaning.call === 'taken') return 'never';
  if (meaning.call === 'unknown') return isRead(method) ? 'now' : 'never';
  if (!isModern || errorOf(answer)?.code !== HEADER_MISMATCH) return 'now';
  return method === 'tools/call' ? 'with-new-definitions' : 'never';
}

/**
 * Returns whether a server no longer knows the session of a request. `dead`: it did not run the request. `perhaps`: it
 * mentions the session, and may have run the request.
 *
 * The protocol uses HTTP 404 for this (2025-11-25, Session management). A response to our own request that is not an error
 * about the session is still a valid response. Many servers look up the session before the protocol layer and return HTTP 400
 * with their own error text, including server-everything and servers based on the SDK's examples. If the text is unambiguous
 * and the request had a session id, it is trusted, because requests that reach the protocol layer return HTTP 200 even if a
 * tool fails. A server that violates this gets such a call a second time, once.
 */
function lossOf(session: SessionKind, reply: RpcReply): 'dead' | 'perhaps' | 'none' {
  if (session.stream) return lossOfStream(reply);
  const { status, answer, begun } = reply;
  const error = errorOf(answer);
  const hasId = session.sessionId !== undefined;
  if (status === 404 && hasId) return isAboutSession(reply) ? 'dead' : 'none';
  if (status !== 400 || !error || !speaksOfSession(error)) return 'none';
  return hasId && !begun && NO_SUCH_SESSION.test(error.message) ? 'dead' : 'perhaps';
}

/** In HTTP+SSE the session is the stream, and its id is in the URL. */
function lossOfStream({ status, answer, begun, problem }: RpcReply): 'dead' | 'perhaps' | 'none' {
  if (status === 404 || status === 410) return begun ? 'perhaps' : 'dead';
  if (status !== 400) return 'none';
  const error = errorOf(answer);
  const speaks = error ? speaksOfSession(error) : /session|transport/i.test(problem().detail);
  return speaks ? 'perhaps' : 'none';
}

const speaksOfSession = ({ code, message }: RpcError) => isGrandfathered(code) && /session/i.test(message);

const NO_SUCH_SESSION =
  /\b(?:no valid|invalid|unknown) (?:mcp[- ])?session\b|\bsession (?:id )?(?:was )?not found\b/i;

/** Returns whether the code was left to implementations before revision 2026-07-28. */
const isGrandfathered = (code = 0): boolean => code >= -32_019 && code <= -32_000;

/**
 * Returns whether an HTTP 404 to a request with a session id means that the session no longer exists (2025-11-25, Session
 * management). A response to our own request does not, unless it is an error about the session.
 */
const isAboutSession = ({ answer, ownId, begun }: RpcReply): boolean => {
  if (begun) return false;
  if (!ownId) return true;
  const error = errorOf(answer);
  return error !== undefined && (error.code === -32_001 || /session/i.test(error.message));
};

/**
 * Returns whether the server refused the version or the headers before processing the call. Revision 2026-07-28 uses HTTP 400
 * for that; the same codes elsewhere, or after a sign of work, are a response.
 */
const isRefusedUnread = ({ status, answer, begun }: RpcReply): boolean => {
  const code = errorOf(answer)?.code;
  return status === 400 && !begun && (code === UNSUPPORTED_VERSION || code === HEADER_MISMATCH);
};

/** No server of revision 2026-07-28 refuses without a JSON-RPC body, or with a "no session" error. */
const looksLegacy = (status: number, code: number | undefined) =>
  [400, 404, 405, 406, 415].includes(status) &&
  (code === undefined || isGrandfathered(code) || code === -32_600);

/** Every result of revision 2026-07-28 has a type. */
const hasResultType = (answer: RpcAnswer | undefined): boolean => {
  const result = glimpseOf(answer);
  return isObject(result) && typeof result['resultType'] === 'string';
};

/**
 * Returns the era indicated by the reply to `server/discover`. `legacy` only means "not modern".
 * @throws SwitchboardError if the server lists its versions and none is supported
 */
function eraOf(reply: RpcReply): Exclude<Era, 'sse'> {
  const versions = supportedVersions(reply);
  if (versions?.includes(MODERN_VERSION)) return 'modern';
  if (versions?.some(isLegacyVersion)) return 'legacy';
  if (versions && versions.length > 0) {
    throw brokeProtocol(
      `supports only protocol versions that Switchboard does not (${versions.slice(0, 3).join(', ')})`,
    );
  }
  const error = errorOf(reply.answer);
  return error && isModernCode(error.code) ? 'modern' : 'legacy';
}

/** Returns the versions in a DiscoverResult or in the data of UnsupportedProtocolVersion (-32022). */
function supportedVersions({ answer }: RpcReply): string[] | undefined {
  let list: unknown;
  const error = errorOf(answer);
  if (answer && 'result' in answer && isObject(answer.result)) list = answer.result['supportedVersions'];
  else if (error?.code === UNSUPPORTED_VERSION && isObject(error.data)) list = error.data['supported'];
  return Array.isArray(list) ? list.filter(isVersion) : undefined;
}

const isVersion = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w.-]{1,32}$/.test(value);

/** Versions are dates; those before the stateless revision have the handshake. */
const isLegacyVersion = (version: string): boolean =>
  /^\d{4}-\d{2}-\d{2}$/.test(version) && version < MODERN_VERSION;

/**
 * Nothing at the server's URL accepts `initialize` by POST: it may be an HTTP+SSE server (MCP 2025-11-25, Backwards compatibility).
 */
export class NoHandshake extends SwitchboardError {
  readonly httpStatus: number;
  /** The refusal as an ordinary failure, with the server's own text if there is one. */
  readonly failure: SwitchboardError;

  constructor(httpStatus: number, failure: SwitchboardError) {
    super('upstream_protocol', `The MCP server returned HTTP ${httpStatus} to initialize.`);
    this.httpStatus = httpStatus;
    this.failure = failure;
  }
}

/** A JSON-RPC error for `initialize`. Unless the HTTP status says otherwise, the server speaks the protocol but refuses the client. */
export class HandshakeRefused extends SwitchboardError {
  readonly httpStatus: number;

  constructor(httpStatus: number, message: string) {
    const status = httpStatus >= 400 ? ` (HTTP ${httpStatus})` : '';
    super('upstream_protocol', `The MCP server refused initialize${status}: ${sanitise(message)}.`);
    this.httpStatus = httpStatus;
  }
}

/** Returns the protocol version in the response to `initialize`. @throws SwitchboardError if it is missing or unsupported */
export function readVersion({ status, answer, problem }: RpcReply): string {
  if (!answer) {
    const failure = problem();
    throw status === 400 || status === 404 || status === 405 ? new NoHandshake(status, failure) : failure;
  }
  if ('error' in answer) throw new HandshakeRefused(status, answer.error.message);
  const version = isObject(answer.result) ? answer.result['protocolVersion'] : undefined;
  if (typeof version === 'string' && isLegacyVersion(version)) return version;
  throw brokeProtocol('responded to initialize without a supported protocol version');
}

/** Returns a session id of visible ASCII (2025-11-25, Session management). @throws SwitchboardError for any other text */
export function readSessionId(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header === 'string' && /^[\x21-\x7e]{1,1024}$/.test(header)) return header;
  throw brokeProtocol('sent a session id that is not visible ASCII');
}

/** The dependencies of the upstream client. */
export interface UpstreamParts {
  readonly http: HttpClient;
  readonly limits: ProxyLimits;
  readonly clock: Clock;
  readonly log: Log;
}

/** The oldest entry is replaced first. Entries are small, and a lost one costs one request. */
const MAX_ENTRIES = 10_000;
/** Weak signs of a different era trigger a new detection at most this often. */
const DOUBT_INTERVAL_MS = 60_000;

/**
 * Detects a server's revision and caches it for `eraTtlMs`. The probe is `server/discover` (2026-07-28, Versioning), which is
 * harmless on every server. The caller's own call is never the probe, because a lenient server of either era would run it.
 * 401, 403, 429, 5xx and timeouts say nothing about the era and are thrown.
 */
export class EraDetector {
  readonly #eras = new Map<string, { era: Era; atMs: number }>();
  readonly #detecting = new SingleFlight<Exclude<Era, 'sse'>>();
  readonly #parts: UpstreamParts;

  constructor(parts: UpstreamParts) {
    this.#parts = parts;
  }

  /** Returns the recently detected era. */
  known(url: string): Era | undefined {
    const entry = this.#eras.get(url);
    return entry && monotonicMs(this.#parts.clock) - entry.atMs < this.#parts.limits.eraTtlMs
      ? entry.era
      : undefined;
  }

  set(url: string, era: Era): void {
    if (this.#eras.get(url)?.era !== era)
      this.#parts.log.info({ url: urlOf(url).origin, era }, 'upstream era detected');
    this.#eras.delete(url);
    this.#eras.set(url, { era, atMs: monotonicMs(this.#parts.clock) });
    for (const oldest of this.#eras.keys()) {
      if (this.#eras.size <= MAX_ENTRIES) break;
      this.#eras.delete(oldest);
    }
  }

  /** Drops an era that has proved wrong: the next call detects it again. */
  forget(url: string): void {
    this.#eras.delete(url);
  }

  /** Drops the era after weak contrary evidence, unless it was detected just now. */
  doubt(url: string): void {
    const entry = this.#eras.get(url);
    if (entry && monotonicMs(this.#parts.clock) - entry.atMs >= DOUBT_INTERVAL_MS) this.forget(url);
  }

  /**
   * Probes the server and stores `modern`. `legacy` only means "not modern": the caller stores the actual era once
   * `initialize` has succeeded. Calls for one URL and connection share a probe, so that nobody gets the 401 of another user's
   * token. The probe has its own deadline, so that one caller's disconnect does not end it for the others.
   * @throws SwitchboardError for a response that says nothing about the era
   */
  detect(url: string, credential: Credential | undefined): Promise<Exclude<Era, 'sse'>> {
    return this.#detecting.run(JSON.stringify([url, credential?.connectionKey]), async () => {
      using deadline = new Deadline(this.#parts.limits.totalTimeoutMs);
      const id = 'discover';
      const outgoing = modernRequest(id, 'server/discover');
      const headers = postHeaders(outgoing, credential);
      const asked = { url: addressFor(url, credential), id, body: outgoing.body, headers, credential };
      const request = { ...asked, signal: deadline.signal };
      let reply: RpcReply;
      try {
        reply = await rpcExchange(this.#parts.http, request, () => this.#parts.clock.now());
      } catch (error) {
        // The handshake reports what no revision allows, such as HTML or broken JSON.
        if (error instanceof SwitchboardError && error.code === 'upstream_protocol') return 'legacy';
        throw error;
      }
      if (reply.status >= 500) throw reply.problem();
      const era = eraOf(reply);
      if (era === 'modern') this.set(url, era);
      return era;
    });
  }
}
