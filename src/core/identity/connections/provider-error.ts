import * as oauth from 'openid-client';

/** Why an exchange or a refresh gave no tokens. */
export class ProviderError extends Error {
  override readonly name = 'ProviderError';
  /**
   * `denied`: the user said no. `refused`: the provider sent an error to the callback. `invalid_grant`: what we presented is no
   * longer good. `failed`: anything else, from a time-out to an answer that breaks the protocol.
   */
  readonly reason: 'denied' | 'refused' | 'invalid_grant' | 'failed';

  constructor(reason: ProviderError['reason'], cause: unknown) {
    super(`the identity provider: ${reason}${codeOf(cause)}`, { cause });
    this.reason = reason;
  }
}

/** The OAuth error, for the log: `invalid_client` means that the operator's credentials are wrong. Only what looks like one. */
function codeOf(cause: unknown): string {
  const isChallenge = cause instanceof oauth.WWWAuthenticateChallengeError && cause.status === 401;
  const code =
    cause instanceof oauth.ResponseBodyError || cause instanceof oauth.AuthorizationResponseError
      ? cause.error
      : '';
  if (isChallenge || code === 'invalid_client') return ' (invalid_client: check client_id and client_secret)';
  return /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
}

export function classify(error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  if (error instanceof oauth.AuthorizationResponseError) {
    return new ProviderError(error.error === 'access_denied' ? 'denied' : 'refused', error);
  }
  const isDead = error instanceof oauth.ResponseBodyError && error.error === 'invalid_grant';
  return new ProviderError(isDead ? 'invalid_grant' : 'failed', error);
}
