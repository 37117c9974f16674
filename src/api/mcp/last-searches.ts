import { LRUCache } from 'lru-cache';
import type { Principal } from '../../core/access/caller.ts';
import { isOwnSession, SESSION_HEADER } from './elicitation.ts';

/** A call that comes later than this is not taken to follow from the search. */
const FOLLOWS_WITHIN_MS = 30 * 60_000;
const MAX_KEPT = 10_000;

interface Searcher {
  readonly principal: Principal;
  /** Of the HTTP request. */
  readonly headers: Headers | undefined;
}

interface LastSearch {
  readonly queryLogId: string;
  readonly serverIds: ReadonlySet<string>;
}

/**
 * The last search of each key, user and session, so that a call of what it found is counted as its outcome without the model having
 * to say so. In this process alone: a call that another process serves is not counted.
 */
export class LastSearches {
  readonly #last = new LRUCache<string, LastSearch>({ max: MAX_KEPT, ttl: FOLLOWS_WITHIN_MS });

  note(searcher: Searcher, queryLogId: string, serverIds: readonly string[]): void {
    this.#last.set(keyOf(searcher), { queryLogId, serverIds: new Set(serverIds) });
  }

  /** The search that a call of this server follows from, as far as is known. */
  leadingTo(searcher: Searcher, serverId: string): string | undefined {
    const last = this.#last.get(keyOf(searcher));
    return last?.serverIds.has(serverId) ? last.queryLogId : undefined;
  }
}

function keyOf({ principal, headers }: Searcher): string {
  const { tenantId, keyId, subject } = principal;
  const session = headers?.get(SESSION_HEADER);
  return JSON.stringify([tenantId, keyId, subject?.userId, isOwnSession(session) ? session : undefined]);
}
