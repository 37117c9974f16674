import type { Endpoint } from '../http/endpoint.ts';
import { identityEndpoints } from './identity.ts';
import { registryEndpoints } from './registry.ts';
import { toolEndpoints } from './tools.ts';
import { searchEndpoints } from './search.ts';

/** Every endpoint of `/v1` and `/v0.1` except the admin API. */
export const restEndpoints: readonly Endpoint[] = [
  ...searchEndpoints,
  ...toolEndpoints,
  ...identityEndpoints,
  ...registryEndpoints,
];
