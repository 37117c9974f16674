import { SwitchboardError } from '../../../errors.ts';
import type { Clock } from '../../../platform/clock.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Span } from '../../../platform/telemetry/tracing.ts';
import type { Budget } from './deadline.ts';
import { noteReply, tracedCall } from '../call-span.ts';
import {
  errorOf,
  HEADER_MISMATCH,
  MODERN_VERSION,
  UNSUPPORTED_VERSION,
  type Params,
  type RpcAnswer,
} from './envelope.ts';
import { Eras } from './era.ts';
import { hasResultType, looksLegacy } from './era-signs.ts';
import { isRead, restated, toldOfCall } from './failures.ts';
import { Ladder } from './connect.ts';
import type { ProxyLimits } from '../limits.ts';
import { lossOf } from './lost-session.ts';
import { isRefusedUnread } from './not-run.ts';
import { redactError } from './redact.ts';
import type { RpcReply } from './rpc.ts';
import { Sessions, type Session } from './sessions.ts';
import type { ToolDefinitions } from '../tool-definitions.ts';
import { asSentence } from '../../../platform/sanitize.ts';
import { listAllTools, LOST_SESSION } from '../tools.ts';
import { UpstreamRequests, viewOf, type UpstreamCall } from './upstream-requests.ts';
import type { Wire } from './http-client.ts';

export interface UpstreamReply {
  readonly answer: RpcAnswer;
  readonly bytes: number;
  /** The session was lost over it, and nobody knows whether the call ran. */
  readonly lostSession?: true;
}

/** What an answer says of the call: provably not run; with a session that was lost, perhaps run; or taken. */
type Sense = 'not-run' | 'lost' | 'taken';

/** Whether a call has been written and not been refused: it may have run. */
interface Written {
  written: boolean;
}

/**
 * Sends calls to upstreams of every era. A call is sent again at most once, and only when the first time cannot have
 * run it, or is a mere read: a dead session, a refused version (-32022), refused headers (-32020). (A connection that was refused is
 * tried once more by the wire.)
 */
export class Upstreams {
  readonly #limits: ProxyLimits;
  readonly #eras: Eras;
  readonly #sessions: Sessions;
  readonly #ladder: Ladder;
  readonly #definitions: ToolDefinitions;
  readonly #requests: UpstreamRequests;

  constructor(wire: Wire, limits: ProxyLimits, clock: Clock, log: Log, definitions: ToolDefinitions) {
    this.#limits = limits;
    this.#definitions = definitions;
    this.#eras = new Eras(wire, limits, clock, log);
    this.#sessions = new Sessions(wire, limits, clock, log);
    this.#ladder = new Ladder(this.#eras, this.#sessions);
    this.#requests = new UpstreamRequests({ wire, limits, clock, sessions: this.#sessions, definitions });
  }

  /** The upstream's answer. @throws SwitchboardError when there is none, or what the budget ended with. */
  async request(asked: UpstreamCall, budget: Budget): Promise<UpstreamReply> {
    const call: UpstreamCall = {
      ...asked,
      onNotification: (method, params) => {
        if (method === 'notifications/tools/list_changed') this.#definitions.markStale(viewOf(asked));
        asked.onNotification?.(method, params);
      },
    };
    const state: Written = { written: false };
    try {
      const attempt = (time: 1 | 2) =>
        tracedCall(
          () => ({ ...call, tool: this.#definitions.calledBy(viewOf(call), call), attempt: time }),
          span => this.#attempt(call, budget, { state, span, mayRepeat: time === 1 }),
        );
      const first = await attempt(1);
      const reply = first === 'again' ? await attempt(2) : first;
      if (reply === 'again') throw new SwitchboardError('internal', 'A call was to be sent a third time.');
      return reply;
    } catch (thrown) {
      const error = redactError(thrown, call.credential);
      throw state.written ? toldOfCall(error, call.method) : error;
    }
  }

  /** Whether the server has turned out to speak HTTP+SSE, lately. */
  speaksOldTransport(url: string): boolean {
    return this.#eras.known(url) === 'sse';
  }

  /** Whether it has turned out which revision the server speaks: the handshake, or what stands for it, went well. */
  hasEntered(url: string): boolean {
    return this.#eras.known(url) !== undefined;
  }

  /** Closes idle sessions; runs by itself now and then. */
  sweep(): void {
    this.#sessions.sweep();
  }

  /** Ends the sessions that no call uses. */
  endIdle(): void {
    this.#sessions.endIdle();
  }

  get sessionUse(): { busy: number; idle: number } {
    return this.#sessions.use;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  close(): Promise<void> {
    return this.#sessions.close();
  }

  /** `again` when the call was provably not run and may be sent a second time. */
  async #attempt(
    call: UpstreamCall,
    budget: Budget,
    { state, span, mayRepeat }: { state: Written; span: Span | undefined; mayRepeat: boolean },
  ): Promise<UpstreamReply | 'again'> {
    const session = await this.#ladder.open(call, budget);
    // Gone in revision 2026-07-28: what a caller asks with it, the verdict on the era has answered.
    if (!session && call.method === 'ping') return { answer: { result: {} }, bytes: 0 };
    const onSent = () => (state.written = true);
    const reply = session
      ? await this.#requests.inSession(call, session, budget, onSent)
      : await this.#requests.modern(call, budget, onSent);
    if (span) noteReply(span, reply, session ?? { version: MODERN_VERSION });
    const sense = session ? this.#mindLegacy(call, session, reply) : this.#mindModern(call, reply);
    if (sense === 'not-run') state.written = false;
    if (mayRepeat && (await this.#isToRepeat(sense, { call, reply, session }, budget))) return 'again';
    return replyOf(reply, sense === 'lost' && !isRead(call.method));
  }

  /** Refused headers are only worth a second attempt with other headers (2026-07-28, Streamable HTTP, "Schema extension"). */
  async #isToRepeat(
    sense: Sense,
    { call, reply, session }: { call: UpstreamCall; reply: RpcReply; session: Session | undefined },
    budget: Budget,
  ): Promise<boolean> {
    if (sense !== 'not-run') return sense === 'lost' && isRead(call.method);
    if (session || errorOf(reply.answer)?.code !== HEADER_MISMATCH) return true;
    if (call.method !== 'tools/call') return false;
    const { server, caller, credential } = call;
    const view = viewOf(call);
    const ask = async (params: Params | undefined): Promise<UpstreamReply> => {
      const { answer, bytes, problem } = await this.#requests.modern(
        { server, caller, credential, method: 'tools/list', params },
        budget,
      );
      if (!answer) throw problem();
      return { answer, bytes };
    };
    try {
      const tools = this.#definitions.keep(view, await listAllTools(ask, this.#limits));
      return tools.some(tool => tool.name === call.params?.['name']);
    } catch (error) {
      // What the caller is told is why the call was refused, not why its tools could not be listed.
      if (budget.signal.aborted || !(error instanceof SwitchboardError)) throw error;
      return false;
    }
  }

  /** Draws the consequences of an answer in a session. */
  #mindLegacy({ server }: UpstreamCall, session: Session, reply: RpcReply): Sense {
    const { answer } = reply;
    const error = errorOf(answer);
    const loss = lossOf(session, reply);
    if (loss !== 'none') {
      this.#sessions.drop(session);
      return loss === 'dead' ? 'not-run' : 'lost';
    }
    if (error?.code === UNSUPPORTED_VERSION || error?.code === HEADER_MISMATCH) {
      this.#sessions.drop(session);
      this.#eras.forget(server.remoteUrl);
      return isRefusedUnread(reply) ? 'not-run' : 'taken';
    }
    if (hasResultType(answer)) this.#eras.doubt(server.remoteUrl);
    return 'taken';
  }

  /** Draws the consequences of a modern server's answer. */
  #mindModern({ server }: UpstreamCall, reply: RpcReply): Sense {
    const { status, answer } = reply;
    const url = server.remoteUrl;
    const code = errorOf(answer)?.code;
    if (code === UNSUPPORTED_VERSION || looksLegacy(status, code)) this.#eras.forget(url);
    else if (answer && 'result' in answer && !hasResultType(answer)) this.#eras.doubt(url);
    return isRefusedUnread(reply) ? 'not-run' : 'taken';
  }
}

/** @param lost the session was lost, and what was asked is no mere read. */
function replyOf({ answer, bytes, problem }: RpcReply, lost: boolean): UpstreamReply {
  if (answer) return lost ? { answer, bytes, lostSession: true } : { answer, bytes };
  const error = problem();
  throw lost ? restated(error, `${asSentence(error.detail)} ${LOST_SESSION}`, false) : error;
}
