import { catalogueOperations } from './catalogue.ts';
import { keyOperations } from './keys.ts';
import type { Operation } from './operation.ts';
import { recordOperations } from './records.ts';
import { tenantOperations } from './tenants.ts';

/** What an operator can do on the control socket and, with a key of the scope `admin`, under `/v1/admin`. */
export const operations: readonly Operation[] = [
  ...keyOperations,
  ...tenantOperations,
  ...catalogueOperations,
  ...recordOperations,
];
