/** The weight of a day's calls halves in so many days. */
export const HALF_LIFE_DAYS = 30;

/** With so many successful calls (decayed) a tenant counts in full as a user of a server. */
const CALLS_OF_A_FULL_TENANT = 50;
/** With so many full tenants the popularity of a server reaches 1. */
const TENANTS_OF_FULL_POPULARITY = 100;
/** Steepness of popularity near zero: the first tenant in full gives about a third of it. */
const POPULARITY_STEEPNESS = 10;

/** The rate of success assumed of a server that was never called. */
const PRIOR_SUCCESS = 0.8;
/** The assumed rate of success weighs as much as so many calls. */
const PRIOR_CALLS = 10;
/**
 * One tenant's experience counts at most as so many calls (decayed), good and bad in its own proportion: never more than the
 * assumed rate.
 */
const EVIDENCE_PER_TENANT = 10;

/** One tenant's verdicts count at most as three; five neutral verdicts are assumed. */
const VERDICTS_PER_TENANT = 3;
const PRIOR_VERDICTS = 5;

/** A tenant whose calls and verdicts together weigh less is forgotten. */
const NEGLIGIBLE = 0.01;

/** A look-up sums anew by itself for at most so many tenants. */
const FEW_TENANTS = 20;
const TENANTS_AT_A_TIME = 10_000;

/** Counts of a server's use by one tenant on one day; fractions where they stand for faded days. */
export interface UseCounts {
  /** Calls that succeeded. */
  readonly successes: number;
  /** Calls that failed through the server's own fault. */
  readonly failures: number;
  /** Verdicts `helpful` of `POST /v1/search/feedback`. */
  readonly helpful: number;
  /** Verdicts `not_helpful`. */
  readonly unhelpful: number;
}
export const NO_USE: UseCounts = { successes: 0, failures: 0, helpful: 0, unhelpful: 0 };

/** Signals from the use of one server; equal evidence gives equal signals. */
export interface UseSignals {
  /** 0 (never used with success) to 1: how many tenants use it, and how much. */
  readonly popularity: number;
  /** 0 to 1: the rate of success to expect, `PRIOR_SUCCESS` where nothing is known. */
  readonly success: number;
  /** 1 (never tried) towards 0: how little is known. */
  readonly novelty: number;
  /** -1 (found wanting) to 1 (found helpful), 0 where nobody has said anything. */
  readonly approval: number;
}
/** The signals of a server that nobody has used. */
export const UNUSED: UseSignals = { popularity: 0, success: PRIOR_SUCCESS, novelty: 1, approval: 0 };

/** One tenant's capped share in the signals of one server. */
interface Share {
  /** 0 to 1: how much of a user the tenant is. */
  readonly reach: number;
  readonly good: number;
  readonly bad: number;
  readonly helpful: number;
  readonly unhelpful: number;
}
type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

interface ServerTally {
  /** By tenant, weighed relative to a call of the reference day. */
  readonly tenants: Map<string, Mutable<UseCounts>>;
  /** The sum of the tenants' shares on `day`. */
  sum: Mutable<Share>;
  day: number;
  /** The signals of the sum; undefined after it changed. */
  signals: UseSignals | undefined;
}

const NO_SHARE: Share = { reach: 0, good: 0, bad: 0, helpful: 0, unhelpful: 0 };

/**
 * Tallies the use of each server in memory. Days are whole days since the epoch (UTC); the weight of a day's use halves every
 * `HALF_LIFE_DAYS`. Every tenant counts only up to a cap in each signal: a flood of one tenant's calls is worth less than a few
 * tenants' ordinary use.
 *
 * Weights are relative to one reference day, so that ageing multiplies all of a tenant's counts alike: counting is O(1), and so is a
 * look-up. When the day changes, the tenants of each server are summed anew once: at its next look-up where they are few, else by
 * `ageSome`. Until then the server keeps its signals of the day before.
 */
export class UseTally {
  readonly #servers = new Map<string, ServerTally>();
  readonly #referenceDay: number;
  /** The day to which every server has been aged. */
  #agedDay: number | undefined;

  constructor(referenceDay: number) {
    this.#referenceDay = referenceDay;
  }

  /** Adds counts of a day; they may be negative where an earlier verdict is taken back. */
  add(serverId: string, tenantId: string, day: number, counts: Partial<UseCounts>): void {
    let server = this.#servers.get(serverId);
    if (!server) {
      server = { tenants: new Map(), sum: { ...NO_SHARE }, day, signals: undefined };
      this.#servers.set(serverId, server);
    }
    const known = server.tenants.get(tenantId) ?? { ...NO_USE };
    const scale = this.#scaleOn(server.day);
    const before = shareOf(known, scale);
    const weight = 2 ** ((day - this.#referenceDay) / HALF_LIFE_DAYS);
    for (const name of ['successes', 'failures', 'helpful', 'unhelpful'] as const)
      known[name] += (counts[name] ?? 0) * weight;
    server.tenants.set(tenantId, known);
    addTo(server.sum, before, -1);
    addTo(server.sum, shareOf(known, scale), 1);
    server.signals = undefined;
  }

  signals(serverId: string, today: number): UseSignals {
    const server = this.#servers.get(serverId);
    if (!server) return UNUSED;
    if (server.day !== today && server.tenants.size <= FEW_TENANTS) this.#age(serverId, server, today);
    server.signals ??= signalsOf(server.sum);
    return server.signals;
  }

  /** Ages servers after a change of the day, a few milliseconds of work at a time. Call it every now and then. */
  ageSome(today: number): void {
    if (this.#agedDay === today) return;
    let left = TENANTS_AT_A_TIME;
    for (const [serverId, server] of this.#servers) {
      if (server.day === today) continue;
      left -= server.tenants.size;
      this.#age(serverId, server, today);
      if (left <= 0) return;
    }
    this.#agedDay = today;
  }

  /** Sums anew, which also clears rounding errors. A clock that was set back makes counts younger again. */
  #age(serverId: string, server: ServerTally, today: number): void {
    const scale = this.#scaleOn(today);
    const sum = { ...NO_SHARE };
    for (const [tenantId, counts] of server.tenants) {
      const weight = counts.successes + counts.failures + counts.helpful + counts.unhelpful;
      if (weight * scale < NEGLIGIBLE) server.tenants.delete(tenantId);
      else addTo(sum, shareOf(counts, scale), 1);
    }
    Object.assign(server, { sum, day: today, signals: undefined });
    if (server.tenants.size === 0) this.#servers.delete(serverId);
  }

  /** Returns the weight of a call of the reference day on another day. */
  #scaleOn(day: number): number {
    return 2 ** ((this.#referenceDay - day) / HALF_LIFE_DAYS);
  }
}

function shareOf(counts: UseCounts, scale: number): Share {
  const successes = Math.max(0, counts.successes * scale);
  const failures = Math.max(0, counts.failures * scale);
  const helpful = Math.max(0, counts.helpful * scale);
  const unhelpful = Math.max(0, counts.unhelpful * scale);
  const kept = capped(successes + failures, EVIDENCE_PER_TENANT);
  const keptVerdicts = capped(helpful + unhelpful, VERDICTS_PER_TENANT);
  return {
    reach: Math.min(1, Math.log1p(successes) / Math.log1p(CALLS_OF_A_FULL_TENANT)),
    good: successes * kept,
    bad: failures * kept,
    helpful: helpful * keptVerdicts,
    unhelpful: unhelpful * keptVerdicts,
  };
}

/** Returns the part of an amount that is within the cap. */
const capped = (amount: number, cap: number): number => (amount > cap ? cap / amount : 1);

function addTo(sum: Mutable<Share>, share: Share, sign: 1 | -1): void {
  sum.reach += sign * share.reach;
  sum.good += sign * share.good;
  sum.bad += sign * share.bad;
  sum.helpful += sign * share.helpful;
  sum.unhelpful += sign * share.unhelpful;
}

/** Computes the posterior mean of a Beta prior, whose own weight among the evidence is the novelty. */
function signalsOf(sum: Share): UseSignals {
  // Rounding can leave sums slightly below 0.
  const reach = Math.max(0, sum.reach);
  const good = Math.max(0, sum.good);
  const bad = Math.max(0, sum.bad);
  const helpful = Math.max(0, sum.helpful);
  const unhelpful = Math.max(0, sum.unhelpful);
  const evidence = PRIOR_CALLS + good + bad;
  return {
    popularity: Math.min(
      1,
      Math.log1p(POPULARITY_STEEPNESS * reach) /
        Math.log1p(POPULARITY_STEEPNESS * TENANTS_OF_FULL_POPULARITY),
    ),
    success: (PRIOR_CALLS * PRIOR_SUCCESS + good) / evidence,
    novelty: PRIOR_CALLS / evidence,
    approval: (helpful - unhelpful) / (PRIOR_VERDICTS + helpful + unhelpful),
  };
}
