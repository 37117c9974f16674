import type { Clock } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Metrics } from '../metrics.ts';
import type { Audit } from '../access/audit.ts';
import type { Outbox } from './connections/revocation-outbox.ts';
import type { Providers } from './connections/providers.ts';
import type { Vault } from './vault/vault.ts';
import type { Events } from './webhooks/events.ts';

/** The dependencies shared by all parts of identity. */
export interface IdentityContext {
  readonly db: Database;
  readonly vault: Vault;
  readonly audit: Audit;
  readonly outbox: Outbox;
  /** Records events of connections for webhooks. */
  readonly events: Events;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  readonly providers: Providers;
  /** Returns the public URL of this service, without a trailing slash. */
  readonly publicUrl: () => string;
}
