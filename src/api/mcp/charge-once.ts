import type { Principal } from '../../core/access/caller.ts';
import type { Use } from '../../core/access/quota.ts';
import type { Core } from '../../core/core.ts';

/**
 * What one request to `/mcp` spends of its key's budget, once: the class of the tool that it calls, or one of what has no
 * class. Which of them, only the SDK can say at last: it refuses some calls before their tool hears of them.
 */
export class Spending {
  readonly #core: Core;
  readonly #principal: Principal;
  #isSpent = false;

  constructor(core: Core, principal: Principal) {
    this.#core = core;
    this.#principal = principal;
  }

  /** A call of a tool, before anything of it is looked at. @throws SwitchboardError `rate_limited`. */
  async onTool(rateClass: 'search' | 'proxy'): Promise<void> {
    this.#isSpent = true;
    await this.#core.rateLimits.spend(this.#principal.keyId, rateClass);
  }

  /** The same call, once it is known to be well formed: only then does it count for the month. @throws SwitchboardError `quota_exceeded`. */
  async onUse(use: Use): Promise<void> {
    await this.#core.apiKeys.use.spend(this.#principal, use);
  }

  /** Nothing where something has been spent. @throws SwitchboardError `rate_limited`. */
  async onNoTool(): Promise<void> {
    if (this.#isSpent) return;
    this.#isSpent = true;
    await this.#core.rateLimits.take('unclassed', this.#principal.keyId);
  }
}
