import type { authSessions } from '../schema.ts';
import type { Account, Grant } from '../connections/provider.ts';
import type { Binding } from '../vault/vault.ts';

export type SessionRow = typeof authSessions.$inferSelect;

/** What a pending session keeps to itself. */
export interface PendingSecrets {
  readonly nonce: string;
  readonly verifier: string;
  /** The provider's page. */
  readonly providerUrl: string;
  /** As they were answered, for a just-in-time session that is given out again. */
  readonly sessionId: string;
  readonly authUrl: string;
}

/** What a session keeps to itself while it waits for the user's click. */
export interface WaitingSecrets {
  readonly grant: Grant;
  readonly account: Account;
}

/** The session's row in the vault's terms. */
export const sessionBinding = (row: {
  tenantId: string;
  userId: string;
  idHash: Uint8Array;
  provider: string;
}): Binding => ({
  table: 'auth_sessions',
  tenantId: row.tenantId,
  userId: row.userId,
  id: JSON.stringify([Buffer.from(row.idHash).toString('base64url'), row.provider]),
  purpose: 'authorization',
});

/** While it waits for the user's click, a session's secrets are the tokens themselves. */
export const waitingBinding = (row: Parameters<typeof sessionBinding>[0]): Binding => ({
  ...sessionBinding(row),
  purpose: 'waiting',
});

/** The texts of the ways in which a session fails. Never a provider's own words: they reach pages and logs. */
export const SESSION_ERRORS = {
  access_denied: 'access_denied: The user did not grant access.',
  account_mismatch:
    'account_mismatch: The user signed in to another account than before. Pass allow_account_change to permit it.',
  exchange_failed:
    'exchange_failed: The identity provider did not complete the sign-in. Start a new session.',
  interrupted: 'interrupted: The sign-in was interrupted on our side. Start a new session.',
  invalid_response:
    'invalid_response: The answer of the identity provider was not valid. Start a new session.',
  provider_error: 'provider_error: The identity provider refused the sign-in. Start a new session.',
  revoked: "revoked: The user's access was revoked meanwhile.",
  session_expired: 'session_expired: The user did not finish within 5 minutes. Start a new session.',
  undone: 'undone: The user undid the connection.',
} as const;
export type SessionError = keyof typeof SESSION_ERRORS;

/** A code that this version does not know is that of a failure nevertheless. */
export const errorOf = (code: string | null): SessionError =>
  code !== null && Object.hasOwn(SESSION_ERRORS, code) ? (code as SessionError) : 'exchange_failed';
