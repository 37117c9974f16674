import { LRUCache } from 'lru-cache';
import { SwitchboardError } from '../../errors.ts';
import type { Clock } from '../../platform/clock.ts';
import { FairSlots } from '../../platform/fair-slots.ts';
import { raceAbort } from '../../platform/race-abort.ts';
import type { Caller } from '../access/caller.ts';
import type { Question, Ranker } from './ranker.ts';
import type { RankedServer } from './ranking.ts';

const CACHE_TTL_MS = 60_000;
const CACHE_MAX_BYTES = 16 * 1024 * 1024;
/**
 * Most rankings of one tenant at a time; all tenants together may have twice as many. Rankings share a few cores, and a tenant that
 * asks for hundreds at once must not keep another waiting.
 */
const RANKINGS_PER_TENANT = 8;
const MAX_WAITING = 500;

type Ranking = readonly RankedServer[];
type Asker = Pick<Caller, 'tenantId' | 'signal'>;

/** A ranking that is being computed. It is given up while it waits for a slot once nobody asks for it any more. */
interface Flight {
  readonly ranking: Promise<Ranking>;
  readonly abandoned: AbortController;
  askers: number;
}

/** Rankings by question: cached for a minute, computed once for equal questions of a tenant, in fair turns between tenants. */
export class Rankings {
  readonly #ranker: Ranker;
  readonly #slots = new FairSlots(RANKINGS_PER_TENANT, MAX_WAITING, tooManyWait);
  readonly #cache: LRUCache<string, Ranking>;
  readonly #flights = new Map<string, Flight>();

  constructor(ranker: Ranker, clock: Clock) {
    this.#ranker = ranker;
    this.#cache = new LRUCache({
      maxSize: CACHE_MAX_BYTES,
      sizeCalculation: bytesOf,
      ttl: CACHE_TTL_MS,
      ttlResolution: 0,
      perf: clock,
    });
  }

  /** Numbers of slots in use and of callers that wait for one. */
  get slots(): FairSlots['use'] {
    return this.#slots.use;
  }

  /**
   * Returns the ranking for a question, and whether it came from the cache.
   * @throws SwitchboardError `unavailable` when too many wait; the signal's reason when it aborts
   */
  async of(asker: Asker, question: Question): Promise<{ ranking: Ranking; cacheHit: boolean }> {
    const { query, limit, maxTools } = question;
    const { state } = this.#ranker;
    const key = JSON.stringify([query, limit, maxTools, state]);
    const known = this.#cache.get(key);
    if (known) return { ranking: known, cacheHit: true };
    // Tenants do not share a computation: a tenant's full queue must not keep another one waiting for the same question.
    const flight = this.#join(JSON.stringify([asker.tenantId, key]), async signal => {
      const ranking = await this.inTurn({ ...asker, signal }, () => this.#ranker.rank(question));
      // The state may have changed meanwhile (an import, an embedder that failed): such a ranking serves once.
      if (this.#ranker.state === state) this.#cache.set(key, ranking);
      return ranking;
    });
    return { ranking: await this.#share(flight, asker.signal), cacheHit: false };
  }

  /** Does work on the search index once the asker's tenant has a free slot. */
  async inTurn<T>({ tenantId, signal }: Asker, work: () => Promise<T>): Promise<T> {
    const release = await this.#slots.take('search', tenantId, signal);
    try {
      return await work();
    } finally {
      release();
    }
  }

  #join(key: string, compute: (signal: AbortSignal) => Promise<Ranking>): Flight {
    const running = this.#flights.get(key);
    if (running && !running.abandoned.signal.aborted) return running;
    const abandoned = new AbortController();
    const flight: Flight = { ranking: compute(abandoned.signal), abandoned, askers: 0 };
    this.#flights.set(key, flight);
    const forget = () => {
      if (this.#flights.get(key) === flight) this.#flights.delete(key);
    };
    flight.ranking.then(forget, forget);
    return flight;
  }

  async #share(flight: Flight, signal: AbortSignal): Promise<Ranking> {
    flight.askers++;
    try {
      return await raceAbort(flight.ranking, signal);
    } finally {
      if (--flight.askers === 0) flight.abandoned.abort();
    }
  }
}

/** Estimates the memory of an entry with its key: an empty ranking of a long query takes some, too. */
const bytesOf = (ranking: Ranking, key: string): number =>
  ranking.reduce((sum, { toolOrder }) => sum + 120 + 16 * toolOrder.length, 200 + 2 * key.length);

const tooManyWait = () =>
  new SwitchboardError('unavailable', 'Too many of your searches are waiting already. Try again later.');
