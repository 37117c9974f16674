export const SCOPES = ['search', 'proxy', 'identity', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

/** Who asks, as the core sees it: never a request object of a face. */
export interface Caller {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  /** The end user this call acts for, where one is known. */
  readonly userId?: string;
  readonly requestId: string;
  /** Aborted when the caller has gone away. */
  readonly signal: AbortSignal;
}
