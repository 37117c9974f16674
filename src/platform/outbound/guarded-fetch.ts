import { Agent, fetch as undiciFetch, type RequestInit } from 'undici';
import { readBody } from './read-body.ts';
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

/** Whoever asks should have a shorter limit of its own; this one holds where it is forgotten. */
const MAX_FETCH_MS = 30_000;
const MAX_HEADER_BYTES = 16 * 1024;

/**
 * `fetch` for endpoints that metadata from outside may name: behind the outbound guard, no redirects, an answer of at most
 * `maxBytes` (unpacked) and 16 KiB of headers within `maxMs`. The caller's signal ends the reading of the body, too.
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
    const tooLarge = () => new Error(`the answer has more than ${maxBytes} bytes`);
    const bytes = response.body ? await readBody(response.body, maxBytes, tooLarge) : undefined;
    const { status } = response;
    const hasBody = status !== 204 && status !== 304;
    return new Response(hasBody && bytes ? new Uint8Array(bytes) : null, {
      status,
      headers: [...response.headers] as [string, string][],
    });
  };
  return { fetch, close: () => dispatcher.destroy() };
}
