import { randomUUID } from 'node:crypto';
import type { McpHttpHandler } from '@modelcontextprotocol/server';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { Principal } from '../../core/access/caller.ts';

type Fetch = McpHttpHandler['fetch'];

const SESSION_HEADER = 'mcp-session-id';
/** The start of a session id says whether the client can be asked to open a URL. */
const CAN_OPEN_URLS = 'elicitation-url.';
const CANNOT_OPEN_URLS = 'session.';
const SESSION_ID = /^(?:elicitation-url|session)\.[\da-f-]{36}$/;

/** Tells whether an id looks like a session id given out here: unique to one client, if nobody made it up. */
const isOwnSession = (id: string | null | undefined): id is string =>
  typeof id === 'string' && SESSION_ID.test(id);

export const opensUrlsCapability = z.object({ elicitation: z.object({ url: z.looseObject({}) }) });
const initialize = z.object({ method: z.literal('initialize') });
const initializeOpensUrls = z.object({ params: z.object({ capabilities: opensUrlsCapability }) });

/**
 * Gives clients of revisions 2025-xx a session id that says whether they can open URLs. They say so only once, to initialize, and nothing
 * here lasts from one request to the next; but they send the id with every later request. A call that is to be cancelled is found by it
 * too. There is no session behind the id.
 */
export const givingSessionIds =
  (fetch: Fetch): Fetch =>
  async (request, options) => {
    // A client that sends the version has negotiated it already: this is not initialize.
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

/** Tells whether a client of revisions 2025-xx said to initialize that it can open URLs. */
export const opensUrls = (headers: Headers | undefined): boolean =>
  headers?.get(SESSION_HEADER)?.startsWith(CAN_OPEN_URLS) ?? false;

/** The sender of a request: a key and user, and a session id where one was given out. */
export interface Client {
  readonly principal: Principal;
  /** The headers of the HTTP request. */
  readonly headers: Headers | undefined;
}

/**
 * Holds the calls under way in this process that a client of 2025-xx can cancel by a notification, which comes as a separate request.
 * Nothing is kept beyond a call. A call that runs in another process is not found, and runs to its end.
 */
export class InflightCalls {
  readonly #ending = new Map<string, () => void>();

  /** Runs a call that can be cancelled meanwhile. Without a session id of ours it cannot be: its request id may be another client's too. */
  async run<T>(client: Client, requestId: unknown, end: () => void, work: () => Promise<T>): Promise<T> {
    const key = callKeyOf(client, requestId);
    if (key === undefined || this.#ending.has(key)) return work();
    this.#ending.set(key, end);
    try {
      return await work();
    } finally {
      this.#ending.delete(key);
    }
  }

  cancel(client: Client, requestId: unknown): void {
    const key = callKeyOf(client, requestId);
    if (key !== undefined) this.#ending.get(key)?.();
  }
}

/** Returns the key of a call. A session id comes from the client and proves nothing, so the key holds the caller's key and user as well. */
function callKeyOf(client: Client, requestId: unknown): string | undefined {
  return isOwnSession(client.headers?.get(SESSION_HEADER))
    ? JSON.stringify([keyOf(client), requestId])
    : undefined;
}

/** A later call is not taken to follow from the search. */
const FOLLOWS_WITHIN_MS = 30 * 60_000;
const MAX_KEPT = 10_000;

interface LastSearch {
  readonly queryLogId: string;
  readonly serverIds: ReadonlySet<string>;
}

/**
 * Remembers the last search of each key, user and session, so that a call of a server that it found counts as its outcome, without the
 * model having to say so. A call that another process serves is not counted.
 */
export class LastSearches {
  readonly #last = new LRUCache<string, LastSearch>({ max: MAX_KEPT, ttl: FOLLOWS_WITHIN_MS });

  note(client: Client, queryLogId: string, serverIds: readonly string[]): void {
    this.#last.set(keyOf(client), { queryLogId, serverIds: new Set(serverIds) });
  }

  /** Returns the search that a call of this server follows from, where it is known. */
  leadingTo(client: Client, serverId: string): string | undefined {
    const last = this.#last.get(keyOf(client));
    return last?.serverIds.has(serverId) ? last.queryLogId : undefined;
  }
}

function keyOf({ principal, headers }: Client): string {
  const { tenantId, keyId, subject } = principal;
  const session = headers?.get(SESSION_HEADER);
  return JSON.stringify([tenantId, keyId, subject?.userId, isOwnSession(session) ? session : undefined]);
}
