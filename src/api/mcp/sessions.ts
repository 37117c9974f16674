import { randomUUID } from 'node:crypto';
import type { McpHttpHandler } from '@modelcontextprotocol/server';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { Principal } from '../../core/access/caller.ts';
import type { WorkerSeat } from '../../platform/workers/seat.ts';

type Fetch = McpHttpHandler['fetch'];

export const SESSION_HEADER = 'mcp-session-id';
/** The prefix of a session id says whether the client can open URLs. */
const CAN_OPEN_URLS = 'elicitation-url.';
const CANNOT_OPEN_URLS = 'session.';
const SESSION_ID = /^(?:elicitation-url|session)\.[\da-f-]{36}$/;

/** Returns whether an id looks like one of our session ids, which is unique to one client unless forged. */
const isOwnSession = (id: string | undefined): id is string => typeof id === 'string' && SESSION_ID.test(id);

export const opensUrlsCapability = z.object({ elicitation: z.object({ url: z.looseObject({}) }) });
const initialize = z.object({ method: z.literal('initialize') });
const initializeOpensUrls = z.object({ params: z.object({ capabilities: opensUrlsCapability }) });

/**
 * Gives clients of revisions 2025-xx a session id that says whether they can open URLs. They declare this only once, in
 * initialize, and the server keeps no state between requests, but clients repeat the id. Cancelled calls are found by it too.
 * There is no session behind the id.
 */
export const givingSessionIds =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    // A client that sends the version has already negotiated it, so this is not initialize.
    if (request.method !== 'POST' || request.headers.has('mcp-protocol-version'))
      return fetch(request, options);
    const response = await fetch(request, options);
    const message = options?.parsedBody;
    if (response.ok && initialize.safeParse(message).success) {
      const kind = initializeOpensUrls.safeParse(message).success ? CAN_OPEN_URLS : CANNOT_OPEN_URLS;
      response.headers.set(SESSION_HEADER, kind + randomUUID());
    }
    return response;
  };

/** Returns whether a client of revisions 2025-xx declared in initialize that it can open URLs. */
export const opensUrls = (session: string | undefined): boolean =>
  session?.startsWith(CAN_OPEN_URLS) ?? false;

/** The sender of a request: key and user, and a session id if one was issued. */
export interface Client {
  readonly principal: Principal;
  /** The session id that the client sent, which proves nothing. */
  readonly session: string | undefined;
}

/** The subject of news to other workers: a call that a client has cancelled. */
const CANCELLED = 'cancelled call';

/**
 * Tracks running calls that a client of 2025-xx can cancel with a notification, which arrives as a separate request, perhaps at
 * another worker of this program. A call in another program is not found and runs to its end.
 */
export class InflightCalls {
  readonly #ending = new Map<string, () => void>();
  readonly #worker: WorkerSeat | undefined;

  constructor(worker?: WorkerSeat) {
    this.#worker = worker;
    worker?.onNews(CANCELLED, key => this.#ending.get(String(key))?.());
  }

  /**
   * Runs a cancellable call. Without a session id of ours it is not cancellable, because another client may use the same
   * request id.
   */
  run<T>(client: Client, requestId: unknown, end: () => void, work: () => Promise<T>): Promise<T> {
    const key = callKeyOf(client, requestId);
    return key === undefined || this.#ending.has(key) ? work() : this.#track(key, end, work);
  }

  async #track<T>(key: string, end: () => void, work: () => Promise<T>): Promise<T> {
    this.#ending.set(key, end);
    try {
      return await work();
    } finally {
      this.#ending.delete(key);
    }
  }

  cancel(client: Client, requestId: unknown): void {
    const key = callKeyOf(client, requestId);
    if (key === undefined) return;
    const end = this.#ending.get(key);
    if (end) end();
    else this.#worker?.tellOthers(CANCELLED, key);
  }
}

/**
 * Returns the key of a call. A session id comes from the client and proves nothing, so the key includes the caller's key and user.
 */
function callKeyOf(client: Client, requestId: unknown): string | undefined {
  return isOwnSession(client.session) ? JSON.stringify([keyOf(client), requestId]) : undefined;
}

/** Later calls are not attributed to the search. */
const FOLLOWS_WITHIN_MS = 30 * 60_000;
const MAX_KEPT = 10_000;

interface LastSearch {
  readonly queryLogId: string;
  readonly serverIds: ReadonlySet<string>;
}

/**
 * Remembers the last search of each key, user and session, so that calls to the servers it returned count as its outcome
 * automatically. Calls in other processes are not counted.
 */
export class LastSearches {
  readonly #last = new LRUCache<string, LastSearch>({ max: MAX_KEPT, ttl: FOLLOWS_WITHIN_MS });

  note(client: Client, queryLogId: string, serverIds: readonly string[]): void {
    this.#last.set(keyOf(client), { queryLogId, serverIds: new Set(serverIds) });
  }

  /** Returns the search that led to a call of this server, if known. */
  leadingTo(client: Client, serverId: string): string | undefined {
    const last = this.#last.get(keyOf(client));
    return last?.serverIds.has(serverId) ? last.queryLogId : undefined;
  }
}

function keyOf({ principal, session }: Client): string {
  const { tenantId, keyId, subject } = principal;
  return JSON.stringify([tenantId, keyId, subject?.userId, isOwnSession(session) ? session : undefined]);
}
