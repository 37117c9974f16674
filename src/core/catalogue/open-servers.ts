import { isObject } from '../../platform/json-limits.ts';
import type { Clock } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { ThrottledLog } from '../../platform/telemetry/throttled-log.ts';
import type { Catalogue } from './catalogue.ts';
import type { Access, Server } from './entry.ts';

/** The maximum number of characters examined in each text of a result. */
const MAX_TEXT_CHARS = 2_000;
/** Words with which servers ask for a key in a result that is not marked as an error. */
const ASKS_FOR_KEY =
  /\b(?:un)?auth(?:enticat|ori[sz]|\b)|\b(?:sign|log)[ -]?in\b|\bapi[ _-]?key\b|\btoken\b|\bcredential|\bforbidden\b|\baccess denied\b|\b40[13]\b/i;

interface Parts<Caller> {
  readonly catalogue: Pick<Catalogue, 'get' | 'learnAccess'>;
  /** Returns the access that servers give a caller. */
  readonly accessFor: (caller: Caller) => Promise<(server: Server) => Access>;
  readonly log: Log;
  readonly clock: Clock;
}

/** Learns which servers of unknown access are open: a tool ran for somebody who has connected nothing. */
export class OpenServers<Caller> {
  readonly #parts: Parts<Caller>;
  readonly #log: ThrottledLog;

  constructor(parts: Parts<Caller>) {
    this.#parts = parts;
    this.#log = new ThrottledLog(parts.log, parts.clock);
  }

  /** Examines the result of a tool that ran without an error. Never rejects. */
  async learn(caller: Caller, serverId: string, result: unknown): Promise<void> {
    const { catalogue, accessFor } = this.#parts;
    const remoteUrl = catalogue.get(serverId)?.remoteUrl;
    try {
      const accessOf = await accessFor(caller);
      // A refusal may have been learned in the meantime.
      const server = catalogue.get(serverId);
      if (!server || accessOf(server).kind !== 'unknown' || asksForKey(result)) return;
      await catalogue.learnAccess(serverId, remoteUrl ?? '', { kind: 'none' });
    } catch (error) {
      this.#log.warn({ err: error, serverId }, 'learned access not stored');
    }
  }
}

function asksForKey(result: unknown): boolean {
  const content = isObject(result) ? result['content'] : undefined;
  const blocks: unknown[] = Array.isArray(content) ? content : [];
  return blocks.some(block => {
    const text = isObject(block) ? block['text'] : undefined;
    return typeof text === 'string' && ASKS_FOR_KEY.test(text.slice(0, MAX_TEXT_CHARS));
  });
}
