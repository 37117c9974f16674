import type { Endpoint } from '../endpoint.ts';
import { adminEndpoints } from './admin.ts';
import { identityEndpoints } from './identity.ts';
import { mcpCall } from './mcp-call.ts';
import { registryEndpoints } from './registry.ts';
import { readResult } from './results.ts';
import { searchFeedback } from './search-feedback.ts';
import { search } from './search.ts';
import { toolsCall } from './tools-call.ts';
import { toolsList } from './tools-list.ts';

/** Every endpoint of `/v1` and `/v0.1`: the router and the OpenAPI document are both made from this list. */
export const endpoints: readonly Endpoint[] = [
  search,
  searchFeedback,
  mcpCall,
  toolsCall,
  toolsList,
  readResult,
  ...identityEndpoints,
  ...registryEndpoints,
  ...adminEndpoints,
];
