import { setTimeout as delay } from 'node:timers/promises';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import { inWords } from '../../platform/zod-issues.ts';
import { shapeOf } from '../../platform/json/limits.ts';
import { retryAfterMs, type GuardedFetch } from '../../platform/outbound/fetch.ts';
import { sanitise } from '../../platform/sanitize.ts';
import { pageSchema } from './entry.ts';

/** Limits for a registry, because it is not trusted. */
export interface ClientLimits {
  readonly maxPageBytes: number;
  readonly maxPages: number;
  readonly maxEntries: number;
  /** Limits a whole listing. */
  readonly totalMs: number;
  /** Limits the wait before a page is requested again. */
  readonly maxWaitMs: number;
}
export const CLIENT_LIMITS: ClientLimits = {
  maxPageBytes: 16 * 1024 * 1024,
  maxPages: 5_000,
  maxEntries: 100_000,
  totalMs: 30 * 60_000,
  maxWaitMs: 60_000,
};
const PAGE_SIZE = 100;
const MAX_DEPTH = 64;
const MAX_CONTAINERS = 500_000;
const TRIES = 3;

interface ClientOptions {
  readonly fetch: GuardedFetch;
  /** Sent as a Bearer token. */
  readonly key: string | undefined;
  readonly signal: AbortSignal;
  readonly limits?: Partial<ClientLimits>;
  readonly wait?: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

/** Selects the latest versions of a registry's servers, including deleted ones. */
export interface ListingQuery {
  /** The registry's address, normalised by `registryUrl`. */
  readonly source: string;
  /** Selects entries that have changed since this time (RFC 3339); absent: all. */
  readonly updatedSince?: string | undefined;
}

/**
 * Yields the `servers` of a registry's pages, one page after another.
 * @throws SwitchboardError `upstream_…` if the registry is unreachable, sends an invalid response or exceeds the limits
 * @throws the signal's reason
 */
export async function* pagesOf(query: ListingQuery, options: ClientOptions): AsyncGenerator<unknown[]> {
  const limits = { ...CLIENT_LIMITS, ...options.limits };
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(limits.totalMs)]);
  const seen = new Set<string>();
  let cursor: string | undefined;
  let entries = 0;
  do {
    const page = await pageAt(addressOf(query, cursor), { ...options, signal }, limits);
    entries += page.servers.length;
    if (entries > limits.maxEntries)
      throw failure('upstream_too_large', `returned more than ${limits.maxEntries} entries`);
    yield page.servers;
    cursor = page.nextCursor;
    if (cursor === undefined) return;
    if (seen.has(cursor)) throw failure('upstream_protocol', 'sent the same cursor twice');
    seen.add(cursor);
  } while (seen.size < limits.maxPages);
  throw failure('upstream_too_large', `has more than ${limits.maxPages} pages`);
}

function addressOf({ source, updatedSince }: ListingQuery, cursor: string | undefined): string {
  const url = new URL(`${source}/v0.1/servers`);
  url.searchParams.set('version', 'latest');
  url.searchParams.set('include_deleted', 'true');
  url.searchParams.set('limit', String(PAGE_SIZE));
  if (updatedSince !== undefined) url.searchParams.set('updated_since', updatedSince);
  if (cursor !== undefined) url.searchParams.set('cursor', cursor);
  return url.href;
}

interface Page {
  readonly servers: unknown[];
  readonly nextCursor: string | undefined;
}

/** Retries temporary failures, because reading a page changes nothing. */
async function pageAt(url: string, options: ClientOptions, limits: ClientLimits): Promise<Page> {
  const { wait = (ms, signal) => delay(ms, undefined, { signal }), signal } = options;
  for (let attempt = 1; ; attempt++) {
    try {
      return await ask(url, options);
    } catch (thrown) {
      if (signal.aborted && !isTimeout(signal.reason)) throw signal.reason;
      const error = readable(thrown, signal);
      if (!error.retryable || attempt === TRIES || signal.aborted) throw error;
      const waitMs = Math.min((error.retryAfterSec ?? 2 ** attempt) * 1000, limits.maxWaitMs);
      // An abort during the wait is reported by the next attempt.
      await wait(waitMs, signal).catch(() => {});
    }
  }
}

async function ask(url: string, { fetch, key, signal }: ClientOptions): Promise<Page> {
  const headers = {
    accept: 'application/json',
    ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
  };
  const response = await fetch(url, { method: 'GET', headers, signal });
  const body = new Uint8Array(await response.arrayBuffer());
  if (response.status !== 200) throw refused(response, body);
  return parse(body);
}

function refused({ status, headers }: Response, body: Uint8Array): SwitchboardError {
  const target = headers.get('location');
  if (status >= 300 && status < 400 && target !== null)
    return failure('upstream_http_error', `redirected to ${sanitise(target)}: use that address instead`);
  if (status === 401 || status === 403) {
    return failure(
      'upstream_unauthorized',
      `returned HTTP ${status}: if it requires a key, set the key in SWITCHBOARD_REGISTRY_KEYS`,
    );
  }
  const waitMs = retryAfterMs(headers.get('retry-after'), Date.now());
  const said = sanitise(new TextDecoder().decode(body.subarray(0, 1_000)), 120);
  return failure('upstream_http_error', `answered ${status}${said === '' ? '' : `: ${said}`}`, {
    retryable: status === 429 || status >= 500,
    ...(waitMs === undefined ? {} : { retryAfterSec: waitMs / 1000 }),
  });
}

function parse(body: Uint8Array): Page {
  const { depth, containers } = shapeOf(body);
  if (depth > MAX_DEPTH || containers > MAX_CONTAINERS)
    throw failure('upstream_too_large', 'sent a page that is nested too deeply or contains too many objects');
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch (cause) {
    throw failure('upstream_protocol', 'did not return JSON: check the address', {
      cause,
    });
  }
  const parsed = pageSchema.safeParse(value);
  if (!parsed.success)
    throw failure(
      'upstream_protocol',
      `did not return a page of servers (${inWords(parsed.error.issues.slice(0, 1))}): check the address`,
    );
  const { servers, metadata } = parsed.data;
  return { servers: servers ?? [], nextCursor: metadata?.nextCursor || undefined };
}

function readable(thrown: unknown, signal: AbortSignal): SwitchboardError {
  if (thrown instanceof SwitchboardError) return readableRefusal(thrown);
  const cause = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  if (cause instanceof SwitchboardError) return readableRefusal(cause);
  if (signal.aborted || isTimeout(thrown))
    return failure('upstream_timeout', 'did not respond in time', { cause: thrown });
  const text = cause instanceof Error ? sanitise(cause.message) : '';
  if (text.startsWith('the response has more than'))
    return failure('upstream_too_large', 'sent a page that is too large', { cause: thrown });
  return failure('upstream_unreachable', `cannot be reached${text === '' ? '' : `: ${text}`}`, {
    cause: thrown,
  });
}

/** Replaces the guard's text, which mentions MCP servers. */
const readableRefusal = (error: SwitchboardError): SwitchboardError =>
  error.code === 'upstream_blocked'
    ? failure('upstream_blocked', 'has an address that is not allowed: it must be public, and https', {
        cause: error,
      })
    : error;

const isTimeout = (thrown: unknown): boolean => thrown instanceof Error && thrown.name === 'TimeoutError';

const failure = (
  code: ErrorCode,
  what: string,
  extras: ConstructorParameters<typeof SwitchboardError>[2] = {},
) => new SwitchboardError(code, `The registry ${what}. Nothing was changed.`, extras);
