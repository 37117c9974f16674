import type { RequestListener } from 'node:http';
import { SCOPES, type Principal } from '../../core/access/caller.ts';
import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import type { Core } from '../../core/core.ts';
import type { Clock } from '../../platform/time.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { type Endpoint, routerOf } from '../http/endpoint.ts';
import { defaultMemoryLimits, MemoryBudget } from '../http/body.ts';
import { serveEndpoints } from '../http/pipeline.ts';
import { attachLocals, pathOf } from '../http/request.ts';
import { catalogueEndpoints } from './catalogue.ts';
import { keyEndpoints } from './keys.ts';
import { operatorEndpoints } from './operator-only.ts';
import { recordEndpoints } from './records.ts';

const shared: readonly Endpoint[] = [...keyEndpoints, ...catalogueEndpoints, ...recordEndpoints];

const belowV1 = (one: Endpoint): Endpoint => ({ ...one, path: `/v1/admin${one.path}` });
const withoutLimit = (one: Endpoint): Endpoint => ({ ...one, rateLimit: undefined });

/** The admin API for keys with the scope `admin`. */
export const adminEndpoints: readonly Endpoint[] = shared.map(belowV1);

const OPERATOR: Principal = { tenantId: LOCAL_TENANT, keyId: 'operator', scopes: new Set(SCOPES) };

/**
 * Serves the control socket: the same table by shorter paths, and what only the command line has. Reaching the socket (0600) is the
 * authentication; nothing limits an operator.
 */
export function controlSocketListener({
  core,
  log,
  clock,
}: {
  readonly core: Core;
  readonly log: Log;
  readonly clock: Clock;
}): RequestListener {
  const endpoints = [...shared, ...operatorEndpoints].map(withoutLimit);
  const serve = serveEndpoints({
    core,
    log,
    budget: new MemoryBudget(defaultMemoryLimits()),
    find: routerOf(endpoints),
    principalOf: () => Promise.resolve(OPERATOR),
    wire: 'command',
    isStreamExclusive: false,
  });
  return (request, response) => {
    attachLocals(response, clock);
    void serve(request, response, pathOf(request));
  };
}
