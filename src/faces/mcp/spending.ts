import type { Core } from '../../core/core.ts';

/**
 * What one request to `/mcp` spends of its key's budget, once: the class of the tool that it calls, or one of what has no
 * class. Which of them, only the SDK can say at last: it refuses some calls before their tool hears of them.
 */
export class Spending {
  readonly #limits: Core['rateLimits'];
  readonly #keyId: string;
  #isSpent = false;

  constructor(limits: Core['rateLimits'], keyId: string) {
    this.#limits = limits;
    this.#keyId = keyId;
  }

  /** @throws SwitchboardError `rate_limited`. */
  async onTool(rateClass: 'search' | 'proxy'): Promise<void> {
    this.#isSpent = true;
    await this.#limits.spend(this.#keyId, rateClass);
  }

  /** Nothing where something has been spent. @throws SwitchboardError `rate_limited`. */
  async onNoTool(): Promise<void> {
    if (this.#isSpent) return;
    this.#isSpent = true;
    await this.#limits.take('unclassed', this.#keyId);
  }
}
