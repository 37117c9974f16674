export const SCOPES = ['search', 'proxy', 'identity', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

/**
 * How an end user's sign-in is finished. `direct`: the provider's own page is the start, and coming back to the callback
 * is the end. `page`: it starts and ends on a page of ours, in one browser, with a click that names app and account.
 * `caller`: the caller's own logged-in backend confirms (reserved, not built).
 */
export const SIGN_IN_MODES = ['direct', 'page'] as const;
export type SignInMode = (typeof SIGN_IN_MODES)[number] | 'caller';

/** The end user a call acts for, as its identity token or its user's API key says; whether that still holds is asked at use. */
export interface Subject {
  /** `usr_…`, never the caller's own id of the user. */
  readonly userId: string;
  /** The user's token epoch when the token or key was made: a revocation raises it. */
  readonly epoch: number;
  /** The refresh-token family the identity token belongs to; an API key has none. */
  readonly familyId?: string;
}

/** Who asks, as the core sees it: never a request object of a face. */
export interface Caller {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  readonly subject?: Subject;
  /** How a sign-in that this call asks for must be finished, where the face cannot use the tenant's own way. */
  readonly signInMode?: 'page';
  readonly requestId: string;
  /** Where the request came from, for the audit log. */
  readonly ip?: string;
  /** How long the caller waits for a proxied call at most, in milliseconds; absent: the proxy's own limit. */
  readonly timeoutMs?: number;
  /** Aborted when the caller has gone away. */
  readonly signal: AbortSignal;
}
