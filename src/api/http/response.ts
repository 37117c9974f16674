import type { ServerResponse } from 'node:http';
import type { QuotaState } from '../../core/access/quota.ts';
import type { RateLimitState } from '../../core/access/rate-limits.ts';
import { localsOf } from './request.ts';

/** Adds headers to the answer to come. They are kept until it is written: `setHeader` costs each about as much as writing it. */
export function addHeaders(response: ServerResponse, headers: Readonly<Record<string, string>>): void {
  const { headers: kept } = localsOf(response);
  for (const [name, value] of Object.entries(headers)) kept.push(name, value);
}

/** Writes the head of an answer, with the headers added before. */
export function writeHead(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
): void {
  addHeaders(response, headers);
  response.writeHead(status, localsOf(response).headers);
}

/** Ends a response with a whole body, and the headers added before. */
export function sendText(response: ServerResponse, status: number, type: string, text: string): void {
  writeHead(response, status, {
    'Content-Type': `${type}; charset=utf-8`,
    'Content-Length': String(Buffer.byteLength(text)),
  });
  response.end(text);
}

export const sendJson = (response: ServerResponse, status: number, value: unknown): void =>
  sendText(response, status, 'application/json', JSON.stringify(value));

/**
 * Returns `RateLimit` and `RateLimit-Policy` in the list form of draft-ietf-httpapi-ratelimit-headers (since -08). A monthly quota has
 * a field line of its own beside the rate limit's; both make one list (RFC 9110 §5.3).
 */
export function limitHeaders(state: RateLimitState | QuotaState): Record<string, string> {
  const { name, limit, windowSec } =
    'class' in state
      ? { name: state.class, limit: state.calls, windowSec: state.windowSec }
      : { name: `${state.use}-per-month`, limit: state.limit, windowSec: state.monthSec };
  return {
    'RateLimit-Policy': `"${name}";q=${limit};w=${windowSec}`,
    RateLimit: `"${name}";r=${state.remaining};t=${state.resetSec}`,
  };
}
