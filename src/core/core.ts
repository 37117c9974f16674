import type { Metrics } from './metrics.ts';
import type { ApiKeys } from './access/api-keys.ts';
import type { ConsoleSessions } from './access/console-sessions.ts';
import type { RateLimits } from './access/rate-limits.ts';
import type { Refusals } from './access/refusals.ts';
import type { Audit } from './access/audit.ts';
import type { Identity } from './identity/identity.ts';
import type { ServerConnections } from './identity/connections/server-connections.ts';
import type { Catalogue } from './catalogue/catalogue.ts';
import type { HealthSweep } from './health/sweep.ts';
import type { McpProxy } from './proxy/proxy.ts';
import type { RecentUse } from './recent-use.ts';
import type { RegistrySync } from './registry/sync.ts';
import type { ServedRegistry } from './registry/served.ts';
import type { Results } from './results/results.ts';
import type { OpenIndex } from './search/index/open-index.ts';
import type { Search } from './search/search.ts';

interface Readiness {
  /** `stopping`: still serves, but should receive no more requests. */
  readonly status: 'starting' | 'ready' | 'stopping';
  /** The degraded components, each described in a few words. */
  readonly degraded: readonly string[];
}

/** The parts of the core that the faces call. */
export interface Core {
  readonly apiKeys: ApiKeys;
  readonly audit: Audit;
  readonly consoleSessions: ConsoleSessions;
  /** True if servers in the catalogue may have `http:` addresses. */
  readonly allowHttp: boolean;
  readonly rateLimits: RateLimits;
  readonly refusals: Refusals;
  readonly catalogue: Catalogue;
  readonly identity: Identity;
  readonly serverConnections: ServerConnections;
  readonly search: Search;
  readonly proxy: McpProxy;
  readonly results: Results;
  readonly health: HealthSweep;
  readonly registrySync: RegistrySync;
  readonly registry: ServedRegistry;
  readonly metrics: Metrics;
  readonly recentUse: RecentUse;
  readonly version: string;
  /** Embeds all texts of the catalogue again. */
  readonly reindex: OpenIndex['reindex'];
  /** Settles when every entry of the initial catalogue is searchable. */
  readonly indexed: Promise<void>;
  readiness(): Readiness;
}
