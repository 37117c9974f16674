import { SwitchboardError } from '../../../errors.ts';
import { monotonicMs, type Clock } from '../../../platform/clock.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { SingleFlight } from '../../../platform/single-flight.ts';
import type { Credential } from '../../identity/connections/credentials.ts';
import { Budget } from './deadline.ts';
import { isModernCode, MODERN_VERSION, modernRequest, UNSUPPORTED_VERSION } from './envelope.ts';
import { isObject } from './json.ts';
import { brokeProtocol } from './failures.ts';
import type { ProxyLimits } from '../limits.ts';
import { rpcExchange, type RpcReply } from './rpc.ts';
import { urlOf } from './urls.ts';
import type { Wire } from './http-client.ts';

/** `legacy` has the handshake over Streamable HTTP (2025-03-26 to 2025-11-25), `sse` over HTTP+SSE (2024-11-05). */
export type Era = 'modern' | 'legacy' | 'sse';

/** Verdicts kept; the oldest goes first. An entry is small, and a lost one costs one request. */
const MAX_VERDICTS = 10_000;
/** Weak signs of another era make us ask again at most this often. */
const DOUBT_INTERVAL_MS = 60_000;

/**
 * Which revision a server speaks: `server/discover` is the probe (2026-07-28, Versioning; harmless on every server), never
 * the caller's own call, which a lenient server of either era would run. 401, 403, 429, 5xx and time-outs say nothing
 * about the era and surface as what they are.
 */
export class Eras {
  readonly #verdicts = new Map<string, { era: Era; atMs: number }>();
  readonly #detecting = new SingleFlight<Exclude<Era, 'sse'>>();
  readonly #wire: Wire;
  readonly #limits: ProxyLimits;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(wire: Wire, limits: ProxyLimits, clock: Clock, log: Log) {
    this.#wire = wire;
    this.#limits = limits;
    this.#clock = clock;
    this.#log = log;
  }

  known(url: string): Era | undefined {
    const verdict = this.#verdicts.get(url);
    return verdict && monotonicMs(this.#clock) - verdict.atMs < this.#limits.eraTtlMs
      ? verdict.era
      : undefined;
  }

  set(url: string, era: Era): void {
    if (this.#verdicts.get(url)?.era !== era)
      this.#log.info({ url: urlOf(url).origin, era }, 'upstream era detected');
    this.#verdicts.delete(url);
    this.#verdicts.set(url, { era, atMs: monotonicMs(this.#clock) });
    for (const oldest of this.#verdicts.keys()) {
      if (this.#verdicts.size <= MAX_VERDICTS) break;
      this.#verdicts.delete(oldest);
    }
  }

  /** The server has shown that the verdict is wrong: the next call detects anew. */
  forget(url: string): void {
    this.#verdicts.delete(url);
  }

  /** A sign that sloppy servers give too: forgets the verdict unless it is fresh. */
  doubt(url: string): void {
    const verdict = this.#verdicts.get(url);
    if (verdict && monotonicMs(this.#clock) - verdict.atMs >= DOUBT_INTERVAL_MS) this.forget(url);
  }

  /**
   * Probes the server. `modern` is kept; `legacy` only means "not modern", and the caller keeps what it turns out to be once
   * `initialize` has succeeded.
   * Calls for one URL and connection share a probe, so that nobody gets the 401 of another user's token. It has a budget
   * of its own: no caller's going away ends it for the others.
   */
  detect(url: string, credential: Credential | undefined): Promise<Exclude<Era, 'sse'>> {
    return this.#detecting.run(JSON.stringify([url, credential?.connectionId]), async () => {
      using budget = new Budget(this.#limits.totalTimeoutMs);
      const id = 'discover';
      const request = {
        url: urlOf(url),
        id,
        outgoing: modernRequest(id, 'server/discover'),
        credential,
        signal: budget.signal,
      };
      let reply: RpcReply;
      try {
        reply = await rpcExchange(this.#wire, request, () => this.#clock.now());
      } catch (error) {
        // What no revision allows (HTML, broken JSON, …) is left to initialize to answer for.
        if (error instanceof SwitchboardError && error.code === 'upstream_protocol') return 'legacy';
        throw error;
      }
      if (reply.status >= 500) throw reply.problem();
      const era = eraOf(reply);
      if (era === 'modern') this.set(url, era);
      return era;
    });
  }
}

/** @throws SwitchboardError when the server names its versions and none is one we speak. */
function eraOf(reply: RpcReply): Exclude<Era, 'sse'> {
  const versions = supportedVersions(reply);
  if (versions?.includes(MODERN_VERSION)) return 'modern';
  if (versions?.some(isLegacyVersion)) return 'legacy';
  if (versions && versions.length > 0) {
    throw brokeProtocol(
      `speaks only protocol versions that are not supported here (${versions.slice(0, 3).join(', ')})`,
    );
  }
  return reply.answer && 'error' in reply.answer && isModernCode(reply.answer.error.code)
    ? 'modern'
    : 'legacy';
}

/** The versions in a DiscoverResult or in the data of UnsupportedProtocolVersion (-32022). */
function supportedVersions({ answer }: Pick<RpcReply, 'answer'>): string[] | undefined {
  let list: unknown;
  if (answer && 'result' in answer && isObject(answer.result)) list = answer.result['supportedVersions'];
  else if (
    answer &&
    'error' in answer &&
    answer.error.code === UNSUPPORTED_VERSION &&
    isObject(answer.error.data)
  ) {
    list = answer.error.data['supported'];
  }
  return Array.isArray(list) ? list.filter(isVersion) : undefined;
}

const isVersion = (value: unknown): value is string =>
  typeof value === 'string' && /^[\w.-]{1,32}$/.test(value);

/** Versions are dates; those before the stateless revision have the handshake. */
export const isLegacyVersion = (version: string): boolean =>
  /^\d{4}-\d{2}-\d{2}$/.test(version) && version < MODERN_VERSION;
