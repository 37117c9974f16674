/** Half of what a day's calls say is gone after so many days. */
export const HALF_LIFE_DAYS = 30;

/** Successful calls (decayed) with which one tenant counts in full as a user of a server. */
const CALLS_OF_A_FULL_TENANT = 50;
/** Tenants that use a server in full, at which its popularity reaches 1. */
const TENANTS_OF_FULL_POPULARITY = 100;
/** How steep popularity begins: the first tenant in full gives about a third of it. */
const POPULARITY_STEEPNESS = 10;

/** What is taken for granted of a server before it was called: this rate of success … */
const PRIOR_SUCCESS = 0.8;
/** … with the weight of so many calls. */
const PRIOR_CALLS = 10;
/**
 * Calls (decayed) with which one tenant's experience counts at most, good and bad in its own proportion: never more than what is
 * taken for granted.
 */
const EVIDENCE_PER_TENANT = 10;

/** The same of verdicts: a tenant's weigh as three at most, and five that say neither are taken for granted. */
const VERDICTS_PER_TENANT = 3;
const PRIOR_VERDICTS = 5;

/** Of a tenant whose calls and verdicts together weigh less, nothing is kept. */
const NEGLIGIBLE = 0.01;

/** Of so many tenants a look-up can sum anew by itself. */
const FEW_TENANTS = 20;
const TENANTS_AT_A_TIME = 10_000;

/** What is counted of a server's use by one tenant on one day. Fractions where it stands for faded days. */
export interface UseCounts {
  /** Calls that succeeded. */
  readonly successes: number;
  /** Calls that failed through the server's own fault. */
  readonly failures: number;
  /** Verdicts of `POST /v1/search/feedback`: `helpful` … */
  readonly helpful: number;
  /** … and `not_helpful`. */
  readonly unhelpful: number;
}
export const NO_USE: UseCounts = { successes: 0, failures: 0, helpful: 0, unhelpful: 0 };

/** What use says of one server; equal evidence gives equal signals. */
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
/** Of a server that nobody has used. */
export const UNUSED: UseSignals = { popularity: 0, success: PRIOR_SUCCESS, novelty: 1, approval: 0 };

/** What one tenant's use of one server comes to, capped. */
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
  /** By tenant, in the weight that a call of the reference day has. */
  readonly tenants: Map<string, Mutable<UseCounts>>;
  /** The sum of the tenants' shares … */
  sum: Mutable<Share>;
  /** … as of this day. */
  day: number;
  /** What the sum comes to; undefined after a change of it. */
  signals: UseSignals | undefined;
}

const NO_SHARE: Share = { reach: 0, good: 0, bad: 0, helpful: 0, unhelpful: 0 };

/**
 * What is known of the use of each server, in memory. Days are whole days since the epoch (UTC); what a day's use weighs
 * halves every `HALF_LIFE_DAYS`. Every tenant counts only up to a cap, in each signal: a flood of one tenant's calls is worth
 * less than a few tenants' ordinary use.
 *
 * Weights are kept relative to one reference day, so that ageing multiplies all of a tenant's counts alike: to count is O(1), and
 * so is to look a server up. When the day changes, a server's tenants are gone through once: at its next look-up where they are few,
 * else by `ageSome`; until then it is as it was on the day before.
 */
export class UseTally {
  readonly #servers = new Map<string, ServerTally>();
  readonly #referenceDay: number;
  /** The day that every server has been brought to. */
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

  /** Goes through what the change of the day has left, a few milliseconds of work at a time: to be called every now and then. */
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

  /** Sums anew, which also ends the rounding of many additions. A clock that was set back makes things younger again. */
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

  /** What a weight of the reference day is worth on that day. */
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

/** The part of so much that is within the cap. */
const capped = (amount: number, cap: number): number => (amount > cap ? cap / amount : 1);

function addTo(sum: Mutable<Share>, share: Share, sign: 1 | -1): void {
  sum.reach += sign * share.reach;
  sum.good += sign * share.good;
  sum.bad += sign * share.bad;
  sum.helpful += sign * share.helpful;
  sum.unhelpful += sign * share.unhelpful;
}

/** The posterior mean of a Beta prior, whose own weight among the evidence is the novelty. */
function signalsOf(sum: Share): UseSignals {
  // Adding and taking away again leaves crumbs below 0.
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
