export const SCOPES = ['search', 'proxy', 'identity', 'admin'] as const;
export type Scope = (typeof SCOPES)[number];

/**
 * The way an end user's sign-in is finished. `direct`: it starts on the provider's own page and ends with the callback. `page`: it
 * starts and ends on a page of ours, in one browser, with a click that names app and account. `caller`: the caller's own
 * logged-in backend confirms it (reserved, not built).
 */
export const SIGN_IN_MODES = ['direct', 'page'] as const;
export type SignInMode = (typeof SIGN_IN_MODES)[number] | 'caller';

/** The two uses of a key that a quota limits: proxied calls and searches. */
export type Use = 'calls' | 'searches';
/** The limits of a calendar month (UTC); a use that is absent has none. */
export type Quota = Readonly<Partial<Record<Use, number>>>;

/** The end user a call acts for, as its identity token or its user's API key says. Their validity is checked at use. */
export interface Subject {
  /** `usr_…`, never the caller's own id of the user. */
  readonly userId: string;
  /** The user's token epoch when the token or key was made: a revocation raises it. */
  readonly epoch: number;
  /** The refresh-token family the identity token belongs to; an API key has none. */
  readonly familyId?: string;
}

/** The holder of an API key, and the end user it speaks for. */
export interface Principal {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  /** Absent: the call acts for no end user. */
  readonly subject?: Subject;
  /** Absent: no limit. */
  readonly quota?: Quota;
  /** For a key made by rotation: the first key of its line, under which the use of all of them is counted. */
  readonly countedAs?: string;
}

/** The principal of one request, as the core sees it: never a request object of a face. */
export interface Caller extends Principal {
  /** Set where the face cannot use the tenant's own way to finish a sign-in. */
  readonly signInMode?: 'page';
  readonly requestId: string;
  /** The client's address, for the audit log. */
  readonly ip?: string;
  /** The longest a caller waits for a proxied call, in milliseconds; absent: the proxy's own limit. */
  readonly timeoutMs?: number;
  /** Aborts when the caller has gone away. */
  readonly signal: AbortSignal;
}
