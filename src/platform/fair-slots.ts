import { abortReason } from './race-abort.ts';

interface Tenant {
  busy: number;
  /** In order of arrival; one that gives up removes itself, so abandoned callers hold nothing. */
  readonly waiting: Set<() => void>;
}

interface Origin {
  busy: number;
  waiting: number;
  /** Those that hold a slot or wait for one, the one served last at the end. */
  readonly tenants: Map<string, Tenant>;
}

/**
 * Bounds the work under way on one thing, such as calls to one origin; further work waits its turn. There are twice the
 * slots that one tenant may hold, and nobody gets more than are still free: the first tenant gets up to 64 of 128, the next
 * 32, then 16, … Calls that hang cannot be made to give their slots back, so some must be left before the next tenant comes.
 * The one that holds the fewest is served first. The places in the queue are shared out in the same way.
 */
export class FairSlots {
  readonly #origins = new Map<string, Origin>();
  readonly #perTenant: number;
  readonly #maxWaiting: number;
  readonly #tooManyWait: () => Error;

  constructor(perTenant: number, maxWaiting: number, tooManyWait: () => Error) {
    this.#perTenant = perTenant;
    this.#maxWaiting = maxWaiting;
    this.#tooManyWait = tooManyWait;
  }

  /** All that hold a slot, and all that wait for one. */
  get use(): { busy: number; waiting: number } {
    const use = { busy: 0, waiting: 0 };
    for (const { busy, waiting } of this.#origins.values()) {
      use.busy += busy;
      use.waiting += waiting;
    }
    return use;
  }

  /**
   * Resolves with the function that gives the slot back (once; further calls do nothing), or rejects with the signal's
   * reason. @throws `tooManyWait` when too many wait already.
   */
  async take(key: string, tenantId: string, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const origin = this.#origins.get(key) ?? { busy: 0, waiting: 0, tenants: new Map<string, Tenant>() };
    const tenant = origin.tenants.get(tenantId) ?? { busy: 0, waiting: new Set() };
    const isFree = this.#isFree(origin, tenant);
    if (!isFree && tenant.waiting.size >= 2 * this.#maxWaiting - origin.waiting) throw this.#tooManyWait();
    this.#origins.set(key, origin);
    origin.tenants.set(tenantId, tenant);
    if (isFree) occupy(origin, tenant);
    else await this.#wait(origin, tenantId, tenant, signal);
    let held = true;
    return () => {
      if (held) this.#giveBack(key, origin, tenantId, tenant);
      held = false;
    };
  }

  #isFree(origin: Origin, tenant: Tenant): boolean {
    return tenant.busy < 2 * this.#perTenant - origin.busy;
  }

  #wait(origin: Origin, tenantId: string, tenant: Tenant, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        signal.removeEventListener('abort', onAbort);
        tenant.waiting.delete(enter);
        origin.waiting--;
      };
      const onAbort = () => {
        leave();
        forgetIfIdle(origin, tenantId, tenant);
        reject(abortReason(signal));
      };
      const enter = () => {
        leave();
        resolve();
      };
      tenant.waiting.add(enter);
      origin.waiting++;
      signal.addEventListener('abort', onAbort, { once: true });
    });
  }

  #giveBack(key: string, origin: Origin, tenantId: string, tenant: Tenant): void {
    origin.busy--;
    tenant.busy--;
    for (let next = this.#next(origin); next; next = this.#next(origin)) next();
    forgetIfIdle(origin, tenantId, tenant);
    if (origin.tenants.size === 0) this.#origins.delete(key);
  }

  /** Lets the one in whose turn it is; nothing when nobody who waits may have a slot. */
  #next(origin: Origin): (() => void) | undefined {
    let turn: [tenantId: string, tenant: Tenant, enter: () => void] | undefined;
    for (const [tenantId, tenant] of origin.tenants) {
      const [enter] = tenant.waiting;
      if (enter && tenant.busy < (turn?.[1].busy ?? Infinity)) turn = [tenantId, tenant, enter];
    }
    if (!turn || !this.#isFree(origin, turn[1])) return undefined;
    const [tenantId, tenant, enter] = turn;
    return () => {
      origin.tenants.delete(tenantId);
      origin.tenants.set(tenantId, tenant);
      occupy(origin, tenant);
      enter();
    };
  }
}

function occupy(origin: Origin, tenant: Tenant): void {
  origin.busy++;
  tenant.busy++;
}

function forgetIfIdle(origin: Origin, tenantId: string, tenant: Tenant): void {
  if (tenant.busy === 0 && tenant.waiting.size === 0) origin.tenants.delete(tenantId);
}
