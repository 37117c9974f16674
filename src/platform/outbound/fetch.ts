import { Agent, fetch as undiciFetch, type RequestInit } from 'undici';
import { SwitchboardError } from '../../errors.ts';
import type { Guard } from './guard.ts';

/** The part of the Fetch API that OAuth clients use. */
export type GuardedFetch = (
  url: string,
  init: {
    method: string;
    headers: Record<string, string>;
    body?: unknown;
    signal?: AbortSignal | undefined;
  },
) => Promise<Response>;

/** Callers should set a shorter limit; this one is a fallback. */
const MAX_FETCH_MS = 30_000;
const MAX_HEADER_BYTES = 16 * 1024;
const MAX_CAUSES = 5;

/**
 * `fetch` for endpoints from untrusted metadata: behind the outbound guard, without redirects, with a response of at most
 * `maxBytes` (unpacked) and 16 KiB of headers within `maxMs`. The caller's signal also aborts reading the body.
 * @param maxBytes 0: the body is not read, however long it is
 */
export function createGuardedFetch(
  guard: Guard,
  maxBytes: number,
  maxMs = MAX_FETCH_MS,
): { fetch: GuardedFetch; close(): Promise<void> } {
  const dispatcher = new Agent({ connect: guard.connect, allowH2: false, maxHeaderSize: MAX_HEADER_BYTES });
  const fetch: GuardedFetch = async (url, { method, headers, body, signal }) => {
    guard.check(new URL(url));
    const timeLimit = AbortSignal.timeout(maxMs);
    const init = {
      method,
      headers,
      body: body ?? null,
      signal: signal ? AbortSignal.any([signal, timeLimit]) : timeLimit,
      redirect: 'manual',
      dispatcher,
    };
    const response = await undiciFetch(url, init as RequestInit);
    if (maxBytes === 0) await response.body?.cancel().catch(() => {});
    const tooLarge = () => new Error(`the response has more than ${maxBytes} bytes`);
    const bytes =
      response.body && maxBytes > 0 ? await readBody(response.body, maxBytes, tooLarge) : undefined;
    const { status } = response;
    const hasBody = status !== 204 && status !== 304;
    return new Response(hasBody && bytes ? new Uint8Array(bytes) : null, {
      status,
      headers: [...response.headers] as [string, string][],
    });
  };
  return { fetch, close: () => dispatcher.destroy() };
}

const UNREACHED: readonly (readonly [code: RegExp, words: string])[] = [
  [/^ECONNREFUSED$/, 'the connection was refused'],
  [/^ENOTFOUND$/, 'the host name does not resolve'],
  [/^EAI_AGAIN$/, 'the host name currently does not resolve'],
  [/^(EHOSTUNREACH|ENETUNREACH)$/, 'there is no route to the host'],
  [/^(TimeoutError|ETIMEDOUT|UND_ERR_(CONNECT|HEADERS|BODY)_TIMEOUT)$/, 'it did not answer in time'],
  [
    /^(ERR_TLS_|ERR_SSL_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH|EPROTO)/,
    'the TLS handshake failed',
  ],
  [/^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/, 'the connection broke'],
  [/^(EMFILE|ENFILE)$/, 'Switchboard has run out of file descriptors'],
];

/**
 * Returns in words why a request got no response: of a closed list, or the guard's refusal. Host names and addresses stay in the
 * error.
 */
export function whyUnreached(error: unknown): string {
  const causes: unknown[] = [];
  for (let at = error; at instanceof Error && causes.length < MAX_CAUSES; at = at.cause) causes.push(at);
  const refusal = causes.find(one => one instanceof SwitchboardError);
  // The guard's text is about servers.
  if (refusal) return refusal.detail.replace(/^.*? not allowed: /, '').replace(/\.$/, '');
  const codes = causes.flatMap(one => [String((one as NodeJS.ErrnoException).code), (one as Error).name]);
  const known = UNREACHED.find(([code]) => codes.some(one => code.test(one)));
  return known?.[1] ?? 'the request failed';
}

/** Passes on a stream's chunks, up to `maxBytes` in total. @throws the error from `tooLarge` at the first byte beyond */
export async function* boundedChunks<Chunk extends Uint8Array>(
  stream: AsyncIterable<Chunk>,
  maxBytes: number,
  tooLarge: () => Error,
): AsyncGenerator<Chunk> {
  let bytes = 0;
  for await (const chunk of stream) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    yield chunk;
  }
}

/**
 * Reads a stream to its end. Stops and destroys it at the first byte beyond `maxBytes`.
 * @throws the error from `tooLarge`, or the stream's own
 */
export async function readBody(
  stream: AsyncIterable<Uint8Array>,
  maxBytes: number,
  tooLarge: () => Error,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of boundedChunks(stream, maxBytes, tooLarge)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/**
 * Parses a `Retry-After` header, in seconds or as a date (RFC 9110 §10.2.3).
 * @param nowMs the current wall-clock time, in milliseconds since the epoch
 * @returns milliseconds to wait, 0 for a past time; undefined for an invalid value
 */
export function retryAfterMs(
  value: string | readonly string[] | null | undefined,
  nowMs: number,
): number | undefined {
  const text = (typeof value === 'string' ? value : value?.[0])?.trim() ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1_000;
  // Date.parse also accepts "-5" and "1.5" as dates.
  const atMs = /[A-Za-z]/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}
