import type { Principal } from '../../core/access/caller.ts';
import { isOwnSession, SESSION_HEADER } from './elicitation.ts';

/** Who may cancel a call: clients of 2025-xx name it by a request id, which is unique in a session. */
interface Owner {
  readonly principal: Principal;
  /** Of the HTTP request. */
  readonly headers: Headers | undefined;
}

/**
 * The calls under way in this process that a client of 2025-xx can cancel by a notification, which comes as a request of its
 * own. Nothing is kept beyond a call; one that runs in another process is not found, and goes on to its end.
 */
export class CallsUnderWay {
  readonly #ending = new Map<string, () => void>();

  /** Without a session id of ours a client's request ids are not known to be its own: such calls are not kept. */
  async run<T>(owner: Owner, requestId: unknown, end: () => void, work: () => Promise<T>): Promise<T> {
    const key = keyOf(owner, requestId);
    if (key === undefined || this.#ending.has(key)) return work();
    this.#ending.set(key, end);
    try {
      return await work();
    } finally {
      this.#ending.delete(key);
    }
  }

  cancel(owner: Owner, requestId: unknown): void {
    const key = keyOf(owner, requestId);
    if (key !== undefined) this.#ending.get(key)?.();
  }
}

/** The session id comes from the client and proves nothing: a call is only ever found with the key and user that made it. */
function keyOf({ principal, headers }: Owner, requestId: unknown): string | undefined {
  const session = headers?.get(SESSION_HEADER);
  if (!isOwnSession(session)) return undefined;
  const { tenantId, keyId, subject } = principal;
  return JSON.stringify([tenantId, keyId, subject?.userId, session, requestId]);
}
