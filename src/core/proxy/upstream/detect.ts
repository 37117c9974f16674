import { SwitchboardError } from '../../../errors.ts';
import { monotonicMs, type Clock } from '../../../platform/clock.ts';
import { SingleFlight } from '../../../platform/single-flight.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import type { Credential } from '../../identity/connections/credentials.ts';
import type { ProxyLimits } from '../limits.ts';
import { Deadline } from './deadline.ts';
import { modernRequest } from './envelope.ts';
import { urlOf, type HttpClient } from './http-client.ts';
import { eraOf, type Era } from './interpret-reply.ts';
import { rpcExchange, type RpcReply } from './rpc.ts';

/** The oldest entry gives way to a new one. An entry is small, and a lost one costs one request. */
const MAX_ENTRIES = 10_000;
/** Weak signs of another era make us detect it anew at most this often. */
const DOUBT_INTERVAL_MS = 60_000;

/**
 * Detects which revision a server speaks, and remembers it for `eraTtlMs`. The probe is `server/discover` (2026-07-28,
 * Versioning), which is harmless on every server. It is never the caller's own call, which a lenient server of either era
 * would run. 401, 403, 429, 5xx and time-outs say nothing about the era and surface as what they are.
 */
export class EraDetector {
  readonly #eras = new Map<string, { era: Era; atMs: number }>();
  readonly #detecting = new SingleFlight<Exclude<Era, 'sse'>>();
  readonly #client: HttpClient;
  readonly #limits: ProxyLimits;
  readonly #clock: Clock;
  readonly #log: Log;

  constructor(client: HttpClient, limits: ProxyLimits, clock: Clock, log: Log) {
    this.#client = client;
    this.#limits = limits;
    this.#clock = clock;
    this.#log = log;
  }

  /** Returns the era that was detected lately. */
  known(url: string): Era | undefined {
    const entry = this.#eras.get(url);
    return entry && monotonicMs(this.#clock) - entry.atMs < this.#limits.eraTtlMs ? entry.era : undefined;
  }

  set(url: string, era: Era): void {
    if (this.#eras.get(url)?.era !== era)
      this.#log.info({ url: urlOf(url).origin, era }, 'upstream era detected');
    this.#eras.delete(url);
    this.#eras.set(url, { era, atMs: monotonicMs(this.#clock) });
    for (const oldest of this.#eras.keys()) {
      if (this.#eras.size <= MAX_ENTRIES) break;
      this.#eras.delete(oldest);
    }
  }

  /** Forgets an era that has proved wrong: the next call detects it anew. */
  forget(url: string): void {
    this.#eras.delete(url);
  }

  /** Forgets the era on a weak sign against it, unless it was detected just now. */
  doubt(url: string): void {
    const entry = this.#eras.get(url);
    if (entry && monotonicMs(this.#clock) - entry.atMs >= DOUBT_INTERVAL_MS) this.forget(url);
  }

  /**
   * Probes the server and remembers `modern`. `legacy` only means "not modern": the caller sets what the server turns out to
   * be once `initialize` has succeeded.
   * Calls for one URL and connection share a probe, so that nobody gets the 401 of another user's token. The probe has a
   * deadline of its own, so that no caller's going away ends it for the others.
   * @throws SwitchboardError for an answer that says nothing about the era
   */
  detect(url: string, credential: Credential | undefined): Promise<Exclude<Era, 'sse'>> {
    return this.#detecting.run(JSON.stringify([url, credential?.connectionId]), async () => {
      using deadline = new Deadline(this.#limits.totalTimeoutMs);
      const id = 'discover';
      const outgoing = modernRequest(id, 'server/discover');
      const request = { url: urlOf(url), id, outgoing, credential, signal: deadline.signal };
      let reply: RpcReply;
      try {
        reply = await rpcExchange(this.#client, request, () => this.#clock.now());
      } catch (error) {
        // The handshake reports what no revision allows, such as HTML or broken JSON.
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
