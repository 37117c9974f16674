import { LOCAL_TENANT } from '../../core/access/tenants.ts';
import { SCOPES, type Caller } from '../../core/access/caller.ts';
import { newId } from '../../platform/ids.ts';

/** Who runs the commands, as the core sees it. */
export const operator = (signal: AbortSignal): Caller => ({
  tenantId: LOCAL_TENANT,
  keyId: 'operator',
  scopes: new Set(SCOPES),
  requestId: newId('req'),
  signal,
});
