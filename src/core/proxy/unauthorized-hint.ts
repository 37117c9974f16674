import type { SwitchboardError } from '../../errors.ts';
import type { AuthSpec } from '../catalogue/entry.ts';
import { asSentence } from '../../platform/sanitize.ts';
import { restated } from './upstream/failures.ts';

const NOT_SENT =
  'this version cannot send. Call the server without Switchboard, or use another one that needs none.';
const NAME_PROVIDER = 'the operator must name it: switchboard catalogue add ID URL --provider NAME.';
const PERHAPS_NAME_PROVIDER = `If it takes the tokens of an identity provider that is configured here, ${NAME_PROVIDER} A fixed header, or a sign-in of its own, this version cannot send.`;

/** Where no token of a user's goes to the server. */
const WITHOUT_TOKEN: Readonly<Record<AuthSpec['kind'], string>> = {
  static_header: `By its catalogue entry it needs a fixed header, such as an API key, which ${NOT_SENT}`,
  own_oauth: `By its catalogue entry it needs a sign-in of its own (OAuth), whose tokens ${NOT_SENT}`,
  user_oauth: `Its catalogue entry does not say which identity provider's tokens it takes: ${NAME_PROVIDER}`,
  none: `By its catalogue entry it needs none. ${PERHAPS_NAME_PROVIDER}`,
  unknown: PERHAPS_NAME_PROVIDER,
};

/**
 * A server's HTTP 401 or 403, with what can be done about it: that depends on the sign-in its catalogue entry names. Any
 * other failure as it is.
 */
export function withAccessAdvice(error: SwitchboardError, { kind, provider }: AuthSpec): SwitchboardError {
  const { code, detail } = error;
  if (code !== 'upstream_unauthorized' && code !== 'upstream_forbidden') return error;
  const isRefusal = code === 'upstream_forbidden';
  // Calls of such a server are not made without the user's token.
  if (kind === 'user_oauth' && provider !== undefined)
    return restated(error, `${asSentence(detail)} ${isRefusal ? ACCOUNT_LACKS_RIGHT : TOKEN_NOT_TAKEN}`);
  const missing = isRefusal ? `It may want a sign-in. ${WITHOUT_TOKEN[kind]}` : WITHOUT_TOKEN[kind];
  return restated(error, `${asSentence(detail)} ${missing}`);
}

const TOKEN_NOT_TAKEN =
  "It does not take the token of the user's account. If it stays so, the user must connect the account again.";
const ACCOUNT_LACKS_RIGHT =
  "The user's account may lack a right there: the user gets that, or connects another account.";
