import { Counter, type Registry } from 'prom-client';

/** What is seldom, each with a counter of its own. All labels are of closed lists, as the types of those who call say. */
export class EventMetrics {
  readonly #refusals: Counter;
  readonly #audited: Counter;
  readonly #tokenSets: Counter;
  readonly #providerRefreshes: Counter;
  readonly #probes: Counter;

  constructor(registry: Registry) {
    const counter = (name: string, help: string, labelNames: string[]) =>
      new Counter({ name, help, labelNames, registers: [registry] });
    this.#refusals = counter(
      'switchboard_rate_limit_refusals_total',
      'Requests refused with 429, by the class of endpoint, the other bound, or the monthly quota.',
      ['class'],
    );
    this.#audited = counter(
      'switchboard_audit_events_total',
      'Events of the audit log: sign-ins, connections, revocations, keys, the catalogue.',
      ['event', 'outcome'],
    );
    this.#tokenSets = counter(
      'switchboard_identity_token_requests_total',
      'Requests for identity tokens, by what for them was presented (session, refresh_token).',
      ['grant', 'outcome'],
    );
    this.#providerRefreshes = counter(
      'switchboard_provider_token_refreshes_total',
      'Tokens that identity providers were asked to renew, by how it ended.',
      ['outcome'],
    );
    this.#probes = counter(
      'switchboard_probes_total',
      'Visits of servers of the catalogue, by what they found (no_verdict: nothing, such as HTTP 429).',
      ['outcome'],
    );
  }

  /** @param limit a class of endpoint, another bound, or `calls-per-month` and the like */
  rateLimited(limit: string): void {
    this.#refusals.inc({ class: limit });
  }

  audited(event: string, outcome: 'ok' | 'refused' | 'failed'): void {
    this.#audited.inc({ event, outcome });
  }

  /** `pending`: the user has not finished the sign-in. */
  tokensAsked(grant: 'session' | 'refresh_token', outcome: 'ok' | 'refused' | 'pending'): void {
    this.#tokenSets.inc({ grant, outcome });
  }

  /** `ended`: only the user can mend it. `overtaken`: by a new sign-in or a revocation. `failed`: the provider's fault. */
  providerRefreshed(outcome: 'ok' | 'ended' | 'overtaken' | 'failed'): void {
    this.#providerRefreshes.inc({ outcome });
  }

  probed(outcome: 'ok' | 'needs_sign_in' | 'not_mcp' | 'unreachable' | 'no_verdict'): void {
    this.#probes.inc({ outcome });
  }
}
