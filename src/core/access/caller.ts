import type { Cancellation } from '../../platform/time.ts';

export const SCOPES = ['search', 'proxy', 'identity', 'admin', 'admin_read'] as const;
export type Scope = (typeof SCOPES)[number];

/** The scopes of a key that may do everything: `admin` includes `admin_read`. */
export const FULL_SCOPES: readonly Scope[] = ['search', 'proxy', 'identity', 'admin'];

/** The key id of requests with the key in `SWITCHBOARD_API_KEY`, in logs and limits. */
export const ENVIRONMENT_KEY_ID = 'environment';
/** The key id of the command line. */
export const OPERATOR_KEY_ID = 'operator';
/** The key id of browsers that a link of the command line has signed in to the console. */
export const CONSOLE_KEY_ID = 'console';

/** Returns whether a key id stands for somebody who has access to the machine of the server. */
export const isOperatorId = (keyId: string): boolean => keyId === OPERATOR_KEY_ID || keyId === CONSOLE_KEY_ID;

/** The scope that the requests of a session of the console have. */
export type ConsoleRole = 'admin' | 'admin_read';

/** The scopes that cover the whole installation, so that they are valid only for keys of the operator's own tenant. */
export const OPERATOR_SCOPES: readonly Scope[] = ['admin', 'admin_read'] satisfies ConsoleRole[];

/**
 * How an end user's sign-in is completed, the strictest last. `direct`: it starts on the provider's own page and ends with the
 * callback. `page`: it starts and ends on our page, in one browser, with a confirmation that names app and
 * account. `caller`: it ends at the app, whose backend confirms which of its users is in that browser.
 */
export const SIGN_IN_MODES = ['direct', 'page', 'caller'] as const;
export type SignInMode = (typeof SIGN_IN_MODES)[number];

/** Stands for the API key where the user asks, on the page of connections. */
export const PAGE_KEY_ID = 'page';

/** The two uses of a key that a quota limits: proxied calls and searches. */
export type Use = 'calls' | 'searches';
/** Limits per calendar month (UTC); an absent use is unlimited. */
export type Quota = Readonly<Partial<Record<Use, number>>>;

/** The end user of a call, from its identity token or its user's API key. The validity is checked on use. */
export interface Subject {
  /** `usr_…`, never the caller's own id for the user. */
  readonly userId: string;
  /** The user's token epoch when the token or key was created. A revocation increments it. */
  readonly epoch: number;
  /** The refresh token family of the identity token; an API key has none. */
  readonly familyId?: string;
}

/** The holder of an API key, and the end user it acts for. */
export interface Principal {
  readonly tenantId: string;
  readonly keyId: string;
  readonly scopes: ReadonlySet<Scope>;
  /** Absent: the call acts for no end user. */
  readonly subject?: Subject;
  /** Absent: no limit. */
  readonly quota?: Quota;
  /** For a rotated key: the first key of its line, which the usage of all of them is counted under. */
  readonly countedAs?: string;
  /** What rate limits count requests under. Absent: the key. */
  readonly limitedAs?: string;
}

/** The caller of one request. The core never sees a request object. */
export interface Caller extends Principal {
  /** The least strict sign-in mode that the face may use. */
  readonly signInMode?: 'page';
  readonly requestId: string;
  /** The client's address, for the audit log. */
  readonly ip?: string | undefined;
  /** The caller's timeout for a proxied call, in milliseconds; absent: the proxy's default. */
  readonly timeoutMs?: number;
  /** Aborts when the caller has disconnected. */
  readonly signal: Cancellation;
}
