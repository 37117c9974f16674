import { SwitchboardError } from '../../../errors.ts';
import { SIGN_IN_MODES, type SignInMode } from '../../access/caller.ts';

/** Returns the stricter of two modes. */
export const strictest = (one: SignInMode, other: SignInMode): SignInMode =>
  SIGN_IN_MODES.indexOf(one) > SIGN_IN_MODES.indexOf(other) ? one : other;

/** Makes the tenant's mode stricter for one session, never the reverse. @throws SwitchboardError `invalid_request` */
export function requireMode(asked: SignInMode | undefined, tenantMode: SignInMode): SignInMode {
  if (asked === undefined || asked === strictest(asked, tenantMode)) return asked ?? tenantMode;
  throw new SwitchboardError('invalid_request', `mode: this tenant requires ${JSON.stringify(tenantMode)}`);
}

/** A server is always connected on a page of ours, which names it. */
export const withPage = (mode: SignInMode): SignInMode => (mode === 'direct' ? 'page' : mode);

/** @throws SwitchboardError `invalid_request` for an address that is missing or not registered */
export function requireReturnUrl(
  url: string | undefined,
  registered: readonly string[],
  mode: SignInMode,
): void {
  if (url === undefined && mode === 'caller')
    throw new SwitchboardError(
      'invalid_request',
      'return_url: is missing. In mode "caller" a sign-in ends there.',
    );
  if (url === undefined || registered.includes(url)) return;
  throw new SwitchboardError(
    'invalid_request',
    'return_url: is not registered for this tenant. Ask the operator to register it with `switchboard tenant set --return-url`.',
  );
}
