import { AsyncLocalStorage } from 'node:async_hooks';

/** The address of the client whose request is being served: `oidc-provider` does not say for whom it fetches something. */
export const asker = new AsyncLocalStorage<string>();
