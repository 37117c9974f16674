import type { IncomingMessage } from 'node:http';
import { SwitchboardError } from '../../errors.ts';
import type { Core } from '../../core/core.ts';
import { byKey, type Authenticator } from '../http/pipeline.ts';
import { localsOf, singleHeader } from '../http/request.ts';
import type { Cookies } from '../pages/cookies.ts';

/** The header that requests of the console carry. Another origin's page cannot send it without asking first (CORS). */
const CONSOLE_HEADER = 'x-switchboard-console';

/**
 * Authenticates requests of the admin API by an API key, or by the session of the console's page. The cookie counts only with the
 * page's own header, and only in requests of this origin.
 */
export function byKeyOrSession(core: Core, cookies: Cookies): Authenticator {
  const authenticated = byKey(core);
  return (request, response, path) => {
    // A proxy may ask for a password of its own, in the header Authorization.
    const hasKey = singleHeader(request, 'x-api-key') !== undefined;
    const cookie = !hasKey && isOfConsole(request) ? cookies.operator(request) : undefined;
    if (cookie === undefined) return authenticated(request, response, path);
    requireSameOrigin(request);
    return ofSession(core, cookie, localsOf(response));
  };
}

async function ofSession(core: Core, cookie: string, locals: ReturnType<typeof localsOf>) {
  await requireUnspent(core, locals.ip, cookie);
  // Errors tell the operator what to do, as on the command line.
  locals.wire = 'command';
  try {
    return (locals.principal = await core.consoleSessions.authenticate(cookie));
  } catch (error) {
    await countRefused(core, error, locals.ip);
    throw error;
  }
}

/**
 * Refuses an address from which too many wrong keys, links and cookies came, before the database is asked. A cookie that was good
 * here goes on.
 * @throws SwitchboardError `rate_limited`
 */
export async function requireUnspent(
  { rateLimits, consoleSessions }: Core,
  ip: string | undefined,
  cookie?: string,
): Promise<void> {
  if (cookie !== undefined && consoleSessions.isKnown(cookie)) return;
  if (ip !== undefined) await rateLimits.requireUnspent('failedAuth', ip);
}

/** Counts a refused cookie or link like a wrong key. @throws SwitchboardError `rate_limited` after too many */
export async function countRefused(
  { rateLimits }: Core,
  error: unknown,
  ip: string | undefined,
): Promise<void> {
  if (ip !== undefined && error instanceof SwitchboardError && error.code === 'unauthorized')
    await rateLimits.take('failedAuth', ip);
}

const isOfConsole = (request: IncomingMessage): boolean =>
  singleHeader(request, CONSOLE_HEADER) !== undefined;

/** Refuses requests that the console's page did not send. @throws SwitchboardError `host_not_allowed` */
export function requireConsole(request: IncomingMessage): void {
  requireSameOrigin(request);
  if (!isOfConsole(request))
    throw new SwitchboardError('host_not_allowed', `The header ${CONSOLE_HEADER} is missing.`);
}

/**
 * Refuses requests that a browser sends for a page of another origin (Fetch Metadata; the header Origin where it is missing). The
 * names in Host and Origin were checked before.
 * @throws SwitchboardError `host_not_allowed`
 */
function requireSameOrigin({ headers: { origin, host, 'sec-fetch-site': site } }: IncomingMessage): void {
  const isSame = site === undefined ? origin === undefined || isAt(origin, host) : site === 'same-origin';
  if (!isSame)
    throw new SwitchboardError(
      'host_not_allowed',
      'Only pages of this origin can use the session of the console.',
    );
}

const isAt = (origin: string, host: string | undefined): boolean => URL.parse(origin)?.host === host;
