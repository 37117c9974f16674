import { LRUCache } from 'lru-cache';
import { isObject } from '../../platform/json/limits.ts';
import { monotonicMs, type Clock } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { ThrottledLog } from '../../platform/telemetry/throttled-log.ts';
import type { Catalogue } from './catalogue.ts';
import type { ServerHead } from './entry.ts';

/** The maximum number of characters examined in each text of a result. */
const MAX_TEXT_CHARS = 2_000;
/** Words with which servers ask for a key in a result that is not marked as an error. */
const ASKS_FOR_KEY =
  /\b(?:un)?auth(?:enticat|ori[sz]|\b)|\b(?:sign|log)[ -]?in\b|\bapi[ _-]?key\b|\btoken\b|\bcredential|\bforbidden\b|\baccess denied\b|\b40[13]\b/i;

/** A server that refuses some calls and not others is taken as open again after this long. */
const AGAIN_MS = 3_600_000;

type Known = Pick<Catalogue, 'hasUnknownAccess' | 'isClosedByRefusal' | 'learnAccess'>;

/**
 * Learns which servers are open: a tool ran in a call that carried no credential. That outweighs an earlier refusal, which may have
 * been that of one tool: otherwise anybody who finds such a tool could make a server look closed to everybody.
 */
export class OpenServers {
  readonly #catalogue: Known;
  readonly #reopened: LRUCache<string, true>;
  readonly #log: ThrottledLog;

  constructor(catalogue: Known, log: Log, clock: Clock) {
    this.#catalogue = catalogue;
    const perf = { now: () => monotonicMs(clock) };
    this.#reopened = new LRUCache({ max: 10_000, ttl: AGAIN_MS, ttlResolution: 0, perf });
    this.#log = new ThrottledLog(log, clock);
  }

  /**
   * Examines the result of a tool that ran without an error. Resolves when what it shows is stored, and never rejects.
   * @param server the server as it was called
   * @param answer its result is only read if the server's access is not known, because reading a large one is costly
   */
  learn(server: ServerHead, answer: { readonly result: unknown }): Promise<void> | undefined {
    const { id } = server;
    const isClosed = this.#catalogue.isClosedByRefusal(id) && !this.#reopened.has(id);
    if (!(isClosed || this.#catalogue.hasUnknownAccess(id)) || asksForKey(answer.result)) return undefined;
    if (isClosed) this.#reopened.set(id, true);
    return this.#store(server);
  }

  async #store({ id, remoteUrl }: ServerHead): Promise<void> {
    try {
      await this.#catalogue.learnAccess(id, remoteUrl, { kind: 'none' });
    } catch (error) {
      this.#log.warn({ err: error, serverId: id }, 'failed to store learned access');
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
