import packageJson from '../../../../package.json' with { type: 'json' };
import type { TraceContext } from '../../../platform/telemetry/tracing.ts';
import { isObject } from '../../../platform/json/limits.ts';
import { paramHeaders } from '../arguments/param-headers.ts';
import { SwitchboardError } from '../../../errors.ts';
import type { Credential } from '../../identity/connections/holdings.ts';
import { cleanText } from '../../../platform/sanitize.ts';
import { restated } from './failures.ts';
import type { LargeResult } from './large-answer.ts';

/** The stateless revision: no session, an envelope in each request. */
export const MODERN_VERSION = '2026-07-28';
/** `initialize` offers this revision; the server chooses it or an earlier one. */
const LEGACY_VERSION = '2025-11-25';

const CLIENT_INFO = { name: packageJson.name, version: packageJson.version };
const META = 'io.modelcontextprotocol/';

/** JSON-RPC error codes of revision 2026-07-28 for a request that was refused before it ran. */
export const HEADER_MISMATCH = -32_020;
export const MISSING_CAPABILITY = -32_021;
export const UNSUPPORTED_VERSION = -32_022;
const METHOD_NOT_FOUND = -32_601;
export const INVALID_PARAMS = -32_602;

export const isModernCode = (code: number): boolean =>
  code === HEADER_MISMATCH || code === MISSING_CAPABILITY || code === UNSUPPORTED_VERSION;

export type Params = Readonly<Record<string, unknown>>;

export const errorOf = (answer: RpcAnswer | undefined): RpcError | undefined =>
  answer && 'error' in answer ? answer.error : undefined;

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** An upstream's response, including unknown fields. */
export type RpcAnswer =
  { readonly result: unknown; readonly large?: LargeResult } | { readonly error: RpcError };

/** Returns what an answer's result says of itself (`isError`, `resultType`), without parsing a large one. */
export const glimpseOf = (answer: RpcAnswer | undefined): unknown =>
  answer && 'result' in answer ? (answer.large ?? answer.result) : undefined;

/** An upstream's response to a call. */
export interface UpstreamReply {
  readonly answer: RpcAnswer;
  readonly bytes: number;
  /** Present if the session was lost during the call, and it is unknown whether the call ran. */
  readonly lostSession?: true;
}

export type RequestId = string | number;

/** An outgoing message with its headers. */
export interface Outgoing {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * Builds a request of revision 2026-07-28 (Streamable HTTP, "Request headers"; Base protocol, `_meta`). Keeps the caller's
 * own `_meta` with its client capabilities, by which a caller declares that it can handle `input_required`.
 * @param toolSchema the called tool's input schema, if known: it says which arguments headers repeat
 * @param trace replaces the trace context in the caller's `_meta`, and is sent in headers
 */
export function modernRequest(
  id: RequestId,
  method: string,
  params: Params = {},
  toolSchema?: unknown,
  trace?: TraceContext,
): Outgoing {
  const meta = isObject(params['_meta']) ? params['_meta'] : {};
  const capabilities = meta[`${META}clientCapabilities`];
  const envelope = {
    ...meta,
    ...(trace && { tracestate: undefined, ...trace }),
    [`${META}protocolVersion`]: MODERN_VERSION,
    [`${META}clientCapabilities`]: isObject(capabilities) ? capabilities : {},
    [`${META}clientInfo`]: CLIENT_INFO,
  };
  const name = mirroredName(method, params);
  return {
    body: JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...params, _meta: envelope } }),
    headers: {
      ...trace,
      'mcp-protocol-version': MODERN_VERSION,
      'mcp-method': encodeHeader(method),
      ...(name === undefined ? {} : { 'mcp-name': encodeHeader(name) }),
      ...(method === 'tools/call' ? paramHeaders(toolSchema, params['arguments'], encodeHeader) : {}),
    },
  };
}

/** Returns the parameter that `Mcp-Name` repeats. */
function mirroredName(method: string, params: Params): string | undefined {
  let name: unknown;
  if (method === 'tools/call' || method === 'prompts/get') name = params['name'];
  else if (method === 'resources/read') name = params['uri'];
  return typeof name === 'string' ? name : undefined;
}

/**
 * Returns a header value unchanged if it is safe ASCII, otherwise in the specified base64 form (Streamable HTTP, "Value
 * encoding"). A value that already looks like that form is encoded, so that decoding is unambiguous.
 */
export function encodeHeader(value: string): string {
  const plain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !/^=\?base64\?.*\?=$/i.test(value);
  return plain ? value : `=?base64?${Buffer.from(value).toString('base64')}?=`;
}

/** The part of a 2025-xx session that its messages contain. */
interface SessionHeaders {
  readonly sessionId: string | undefined;
  readonly version: string;
}

export const sessionHeaders = ({ sessionId, version }: SessionHeaders): Record<string, string> => ({
  'mcp-protocol-version': version,
  ...(sessionId === undefined ? {} : { 'mcp-session-id': sessionId }),
});

/** @param trace sent in headers, and replaces the trace context in the caller's `_meta` */
export const legacyRequest = (
  session: SessionHeaders,
  id: RequestId,
  method: string,
  params?: Params,
  trace?: TraceContext,
): Outgoing => ({
  body: legacyBody(id, method, params, trace),
  headers: { ...trace, ...sessionHeaders(session) },
});

/** Returns the message of a request in a session. */
export const legacyBody = (
  id: RequestId,
  method: string,
  params: Params | undefined,
  trace: TraceContext | undefined,
): string => JSON.stringify({ jsonrpc: '2.0', id, method, params: trace ? retraced(params, trace) : params });

/** Replaces the caller's trace context, which would contradict the headers. */
function retraced(params: Params | undefined, trace: TraceContext): Params | undefined {
  const meta = params?.['_meta'];
  if (!isObject(meta) || !('traceparent' in meta || 'tracestate' in meta)) return params;
  return { ...params, _meta: { ...meta, tracestate: undefined, ...trace } };
}

export const legacyNotification = (session: SessionHeaders, method: string, params?: Params): Outgoing => ({
  body: JSON.stringify({ jsonrpc: '2.0', method, params }),
  headers: sessionHeaders(session),
});

export const initializeRequest = (id: RequestId): Outgoing => ({
  body: JSON.stringify({
    jsonrpc: '2.0',
    id,
    method: 'initialize',
    params: { protocolVersion: LEGACY_VERSION, capabilities: {}, clientInfo: CLIENT_INFO },
  }),
  headers: {},
});

/** Replies to a server's own request. Only `ping` is supported, because we declare no capabilities. */
export const replyToServer = (session: SessionHeaders, id: RequestId, method: string): Outgoing => ({
  body: JSON.stringify({
    jsonrpc: '2.0',
    id,
    ...(method === 'ping'
      ? { result: {} }
      : { error: { code: METHOD_NOT_FOUND, message: 'This client does not support that method.' } }),
  }),
  headers: sessionHeaders(session),
});

/** One message from an upstream, classified relative to the request with our id. */
export type Incoming =
  | { readonly kind: 'answer'; readonly answer: RpcAnswer; readonly ownId: boolean }
  | { readonly kind: 'request'; readonly id: RequestId; readonly method: string }
  | { readonly kind: 'notification'; readonly method: string; readonly params: unknown }
  | { readonly kind: 'other-id' }
  | { readonly kind: 'invalid' };

/**
 * Classifies one message. Ids are compared as strings, because some servers return "1" for 1. An error without an id
 * (JSON-RPC 2.0 §5: it could not be read) is ours too, because one exchange has one request.
 */
export function readMessage(message: unknown, ourId: RequestId): Incoming {
  if (!isObject(message)) return { kind: 'invalid' };
  const { id, method } = message;
  const validId = typeof id === 'string' || typeof id === 'number';
  if (typeof method === 'string')
    return validId
      ? { kind: 'request', id, method }
      : { kind: 'notification', method, params: message['params'] };
  const answer = readAnswer(message);
  if (!answer) return { kind: 'invalid' };
  if (validId && String(id) === String(ourId)) return { kind: 'answer', answer, ownId: true };
  const withoutId = id === undefined || id === null;
  return 'error' in answer && withoutId ? { kind: 'answer', answer, ownId: false } : { kind: 'other-id' };
}

/** JSON-RPC 1.0 sends a null error next to a result. */
function readAnswer(message: Record<string, unknown>): RpcAnswer | undefined {
  const { error } = message;
  if (error !== undefined && error !== null) return isRpcError(error) ? { error } : undefined;
  return 'result' in message ? { result: message['result'] } : undefined;
}

const isRpcError = (error: unknown): error is RpcError =>
  isObject(error) && Number.isInteger(error['code']) && typeof error['message'] === 'string';

/** Shorter secrets could occur in ordinary words. */
const MIN_SECRET_CHARS = 8;

const REDACTED = '[redacted]';

/** How much of an unexpected response is kept. What is shown of it is much shorter, but secrets are removed first. */
export const EXCERPT_BYTES = 16 * 1024;

/** How much of a JSON-RPC error is searched for secrets. */
const MAX_SEARCHED_CHARS = 64 * 1024;

/**
 * Returns the text without the secrets of the credential, which a careless server may repeat when it refuses them. They are
 * plain ASCII (RFC 6750 §2.1), so most look the same inside JSON; `secretsOf` knows the other forms.
 * @param text if it has the length of an excerpt it was cut, so its end is dropped, which may be part of a secret
 */
export function redact(text: string, credential: Credential | undefined): string {
  const secrets = secretsOf(credential);
  if (secrets.length === 0) return text;
  const clean = without(text, secrets);
  // Cutting may have replaced one character of up to four bytes.
  if (Buffer.byteLength(text) < EXCERPT_BYTES - 3) return clean;
  return clean.slice(0, -Math.max(...secrets.map(secret => secret.length)));
}

/** Content types are converted to lower case, so the secrets are also searched in lower case. */
function without(text: string, secrets: readonly string[]): string {
  const clean = secrets.reduce(
    (rest, secret) => rest.replaceAll(secret, REDACTED).replaceAll(secret.toLowerCase(), REDACTED),
    text,
  );
  return hidesAny(clean, secrets) ? REDACTED : clean;
}

/**
 * Returns whether a secret occurs in the text with other characters inserted. Cleaning the text for display (`cleanText`)
 * removes some of them and would reassemble the secret. Such a text is no accident and is dropped completely.
 */
function hidesAny(text: string, secrets: readonly string[]): boolean {
  if (secrets.every(secret => text.length <= secret.length)) return false;
  const bare = cleanText(text).replaceAll(/[^\x21-\x7e]+/g, '');
  const lower = bare.toLowerCase();
  return secrets.some(secret => {
    const wanted = secret.replaceAll(' ', '');
    return bare.includes(wanted) || lower.includes(wanted.toLowerCase());
  });
}

/** Returns the response, without the secrets if it is an error. Results belong to the caller and are unchanged. */
export function redactAnswer(
  answer: RpcAnswer | undefined,
  credential: Credential | undefined,
): RpcAnswer | undefined {
  const error = errorOf(answer);
  if (!error) return answer;
  const secrets = secretsOf(credential);
  if (secrets.length === 0) return answer;
  const clean = new Redaction(secrets).valueOf(error);
  return { error: isRpcError(clean) ? clean : { code: error.code, message: 'redacted' } };
}

/** Removes secrets from a JSON value, and all that is beyond the first 64 KiB: searching it would block the process. */
class Redaction {
  readonly #secrets: readonly string[];
  #charsLeft = MAX_SEARCHED_CHARS;

  constructor(secrets: readonly string[]) {
    this.#secrets = secrets;
  }

  /** Returns the value with no secret in its texts, numbers and names of members. */
  valueOf(value: unknown): unknown {
    if (typeof value === 'string') return this.#text(value);
    if (typeof value === 'number') {
      const text = this.#text(String(value));
      return text === String(value) ? value : text;
    }
    if (this.#charsLeft <= 0) return REDACTED;
    if (Array.isArray(value)) return value.map(one => this.valueOf(one));
    if (!isObject(value)) return value;
    const members = Object.entries(value).map(
      ([name, one]) => [this.#text(name), this.valueOf(one)] as const,
    );
    return Object.fromEntries(members);
  }

  #text(text: string): string {
    this.#charsLeft -= text.length + 1;
    return this.#charsLeft < 0 ? REDACTED : without(text, this.#secrets);
  }
}

/** Returns the error without the secrets, whatever its text quotes. */
export const redactError = (thrown: unknown, credential: Credential | undefined): unknown => {
  if (!(thrown instanceof SwitchboardError)) return thrown;
  const clean = redact(thrown.detail, credential);
  return clean === thrown.detail ? thrown : restated(thrown, clean);
};

/** Returns the secrets to look for, also as servers commonly encode them: in JSON, in URLs, in base64. */
const secretsOf = (credential: Credential | undefined): readonly string[] => {
  const secrets = credential?.secrets.filter(secret => secret.length >= MIN_SECRET_CHARS) ?? [];
  const forms = secrets.flatMap(secret => {
    const inJson = JSON.stringify(secret).slice(1, -1);
    const base64 = Buffer.from(secret).toString('base64').replace(/=+$/, '');
    return [secret, inJson, inJson.replaceAll('/', String.raw`\/`), encodeURIComponent(secret), base64];
  });
  return [...new Set(forms)];
};
