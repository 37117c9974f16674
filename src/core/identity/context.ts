import type { Clock } from '../../infra/clock.ts';
import type { Database } from '../../infra/database.ts';
import type { Log } from '../../infra/log.ts';
import type { Metrics } from '../../infra/metrics.ts';
import type { Audit } from './audit.ts';
import type { Outbox } from './outbox.ts';
import type { Providers } from './providers.ts';
import type { Vault } from './vault.ts';

/** What every part of identity works with. */
export interface IdentityContext {
  readonly db: Database;
  readonly vault: Vault;
  readonly audit: Audit;
  readonly outbox: Outbox;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  readonly providers: Providers;
  /** Where people and providers reach this service, without a trailing slash. */
  readonly publicUrl: () => string;
}
