import { SwitchboardError } from '../../../errors.ts';
import type { Budget } from './deadline.ts';
import type { Era, Eras } from './era.ts';
import { brokeProtocol } from './failures.ts';
import { NoHandshake } from './handshake.ts';
import type { Session, Sessions } from './sessions.ts';
import { NoEventStream } from './http-sse-session.ts';
import type { UpstreamCall } from './upstream-requests.ts';

type Entrant = Pick<UpstreamCall, 'server' | 'caller' | 'credential'>;

/**
 * Finds out how a server wants to be spoken to, and opens the session that takes: `server/discover`, else `initialize`, else
 * a stream of events (2026-07-28, Versioning; 2025-11-25, Backwards compatibility). What the catalogue or an earlier verdict
 * says comes first, and the ladder once it proves wrong. Refused sign-ins, faults and time-outs are never taken for an
 * answer to that: they surface.
 */
export class Ladder {
  readonly #eras: Eras;
  readonly #sessions: Pick<Sessions, 'join'>;

  constructor(eras: Eras, sessions: Pick<Sessions, 'join'>) {
    this.#eras = eras;
    this.#sessions = sessions;
  }

  /** The session to use, or nothing for a modern server, which has none. */
  async open(call: Entrant, budget: Budget): Promise<Session | undefined> {
    const { server, credential } = call;
    const url = server.remoteUrl;
    const detect = () => budget.share(() => this.#eras.detect(url, credential));
    const assumed = this.#eras.known(url) ?? (server.transport === 'sse' ? 'sse' : undefined);
    const era = assumed ?? (await detect());
    let refused: unknown;
    try {
      return await this.#enter(era, call, budget);
    } catch (error) {
      if (assumed === undefined) return this.#enterOld(error, call, budget);
      if (assumed === 'sse' ? !(error instanceof NoEventStream) : !isRefusal(error)) throw error;
      refused = error;
    }
    // A server that refuses the handshake it once made, or should make, has perhaps moved on.
    this.#eras.forget(url);
    const found = await detect();
    try {
      return await this.#enter(found, call, budget);
    } catch (error) {
      if (assumed !== 'sse') return this.#enterOld(error, call, budget);
      throw error instanceof NoHandshake ? refused : error;
    }
  }

  /** A session of that era, whose verdict is kept once there is one; nothing for the modern one. */
  async #enter(era: Era, call: Entrant, budget: Budget): Promise<Session | undefined> {
    if (era === 'modern') return undefined;
    const { server, caller, credential } = call;
    const url = server.remoteUrl;
    const { tenantId, subject } = caller;
    const owner = { serverId: server.id, url, tenantId, userId: subject?.userId, credential };
    const session = await this.#sessions.join(owner, era, budget);
    if (this.#eras.known(url) === undefined) this.#eras.set(url, era);
    return session;
  }

  /** The last rung: a server that takes no `initialize` by POST is asked for a stream of events, as revision 2024-11-05 has it. */
  async #enterOld(refused: unknown, call: Entrant, budget: Budget): Promise<Session | undefined> {
    if (!(refused instanceof NoHandshake)) throw refused;
    try {
      return await this.#enter('sse', call, budget);
    } catch (error) {
      if (!(error instanceof NoEventStream)) throw error;
      // The URL may well be right, and the request what the server does not like.
      if (refused.httpStatus === 400) throw refused.failure;
      throw brokeProtocol(
        `answered HTTP ${refused.httpStatus} to initialize and has no event stream (HTTP+SSE) either. Its catalogued URL may be wrong`,
      );
    }
  }
}

const isRefusal = (error: unknown) =>
  error instanceof SwitchboardError &&
  (error.code === 'upstream_protocol' || error.code === 'upstream_http_error');
