import type { RateClass } from '../../config/index.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Cancellation } from '../../platform/time.ts';
import type { Core } from '../core.ts';
import { lackingScope } from './api-key.ts';
import type { Caller, Principal, Scope } from './caller.ts';
import type { QuotaState, Use } from './quota.ts';
import type { Bucket, RateLimitState } from './rate-limits.ts';

/** A limit that does not depend on a key: on an address or a session. */
export interface Throttle {
  readonly bucket: Bucket;
  readonly key: string;
}

/** The requirements of an endpoint on its callers. */
export interface Policy {
  readonly scope: Scope;
  /** The rate limit class of a request. Absent: none. */
  readonly rateLimit?: RateClass | Throttle | undefined;
  /** The monthly quota that a well-formed request counts towards. Absent: none. */
  readonly quota?: Use | undefined;
  /**
   * `checked`: an identity token, if sent, must not be revoked. `by-call`: the call itself checks this, in the query that loads the
   * user's connection.
   */
  readonly user: 'checked' | 'by-call';
}

export interface Credentials {
  readonly key: string | undefined;
  /** An identity token. */
  readonly token: string | undefined;
  /** Whether the key may also be sent as a Bearer token, for the error message. */
  readonly keyMayBeBearer?: boolean;
  /** The address of an MCP endpoint, where an access token may be in place of the key. */
  readonly resource?: string | undefined;
  /** The caller's address, for counting wrong keys. */
  readonly ip?: string | undefined;
}

/** One request as seen by the gate. */
export interface Visit<Input> {
  readonly requestId: string;
  readonly ip?: string | undefined;
  readonly signal: Cancellation;
  /** Reads and validates the input. @throws SwitchboardError */
  readonly parse: () => Input | Promise<Input>;
  /** Returns how many calls the input makes; 0 does not count towards the quota. Default: one. */
  readonly callsIn?: ((input: Input) => number) | undefined;
  /** Receives the state of each limit that was charged. A refusal carries its own state. */
  readonly onLimit?: (state: RateLimitState | QuotaState) => void;
}

type Parts = Pick<Core, 'apiKeys' | 'rateLimits' | 'identity' | 'refusals'>;

/**
 * Identifies the caller and the end user. Verifies the signature of an identity token; `admit` checks that its user has not been
 * revoked.
 * @throws SwitchboardError `unauthorized`, `identity_token_invalid`, `rate_limited` (failed attempts from one address)
 */
export function authenticate(core: Parts, credentials: Credentials): Principal | Promise<Principal> {
  const { token } = credentials;
  const principal = principalOf(core, credentials);
  return token === undefined ? principal : forUser(core, principal, token);
}

async function forUser(
  core: Parts,
  holder: Principal | Promise<Principal>,
  token: string,
): Promise<Principal> {
  const principal = await holder;
  const subject = await core.identity.tokens.verify(token, principal.tenantId);
  if (principal.subject && principal.subject.userId !== subject.userId)
    throw new SwitchboardError(
      'identity_token_invalid',
      'The identity token belongs to a different user than this API key. Send the key without a token.',
    );
  return { ...principal, subject };
}

/** Only failures are counted, so that others' wrong keys do not lock out a valid key from the same address. */
function principalOf(core: Parts, credentials: Credentials): Principal | Promise<Principal> {
  const { key, ip } = credentials;
  const isGuarded = ip === undefined ? undefined : () => core.rateLimits.isSpent('failedAuth', ip);
  const refused = (error: unknown) => countRefused(core, credentials, error);
  try {
    const principal = clientOf(core, credentials) ?? core.apiKeys.authenticate(key, isGuarded);
    return principal instanceof Promise ? principal.catch(refused) : principal;
  } catch (error) {
    return refused(error);
  }
}

/** Returns whether a text may be an access token. */
const looksLikeJwt = (text: string): boolean => /^ey[\w-]+\.[\w-]+\.[\w-]+$/.test(text);

/** Returns the holder of an access token of an MCP client. Undefined if none was sent. @throws SwitchboardError `unauthorized` */
function clientOf(
  { identity: { grants }, apiKeys }: Parts,
  { key, resource }: Credentials,
): Principal | Promise<Principal> | undefined {
  if (!grants || resource === undefined || key === undefined || !looksLikeJwt(key)) return undefined;
  return apiKeys.isEnvironmentKey(key) ? undefined : grants.authenticate(key, resource);
}

/** @throws SwitchboardError always */
async function countRefused(
  { rateLimits, refusals, identity: { grants } }: Parts,
  { ip, key, resource, keyMayBeBearer = false }: Credentials,
  error: unknown,
): Promise<never> {
  if (!(error instanceof SwitchboardError) || error.code !== 'unauthorized') throw error;
  if (ip !== undefined) await rateLimits.take('failedAuth', ip);
  refusals.countStranger();
  const hasSignIn = grants !== undefined && resource !== undefined;
  if (hasSignIn && key !== undefined && looksLikeJwt(key)) throw error;
  const ways = keyMayBeBearer
    ? 'X-API-Key, or as Authorization: Bearer'
    : "X-API-Key (a Bearer token is read as a user's identity token here)";
  const signIn = hasSignIn ? 'Sign in, or send' : 'Send';
  const detail = `${signIn} a valid API key in the header ${ways}. \`switchboard keys create\` creates one.`;
  throw new SwitchboardError('unauthorized', detail);
}

/**
 * Admits or refuses an authenticated request, always in this order: scope, rate limit, input, monthly quota, live user. A refusal
 * charges only the limits before it; a missing scope is charged to the limit for unclassified requests.
 * @returns the caller for the core, and the validated input
 * @throws SwitchboardError `insufficient_scope`, `rate_limited`, errors of `parse`, `quota_exceeded`, `identity_token_invalid`
 */
export async function admit<Input>(
  core: Parts,
  principal: Principal,
  policy: Policy,
  visit: Visit<Input>,
): Promise<{ caller: Caller; input: Input }> {
  const { requestId, ip, signal, onLimit } = visit;
  let input: Input;
  try {
    const lacking = lackingScope(principal, policy.scope);
    if (lacking) throw await countUnclassed(core, principal, lacking);
    const parsed = await parseWithinRate(core, principal, policy.rateLimit, visit);
    input = parsed.input;
    if (policy.quota !== undefined && parsed.calls > 0) {
      const spent = core.apiKeys.use.spend(principal, policy.quota, parsed.calls);
      const state = spent instanceof Promise ? await spent : spent;
      if (state) onLimit?.(state);
    }
  } catch (error) {
    await core.refusals.ofKey(error, principal, { requestId, ip });
    throw error;
  }
  const caller: Caller = { ...principal, requestId, signal, ip };
  if (policy.user === 'checked') await core.identity.credentials.requireLive(caller);
  return { caller, input };
}

/** Counts a refusal that comes before any class of calls against the key's requests of no class, and returns it. */
export async function countUnclassed(
  { rateLimits }: Parts,
  { keyId, limitedAs = keyId }: Principal,
  refusal: SwitchboardError,
): Promise<SwitchboardError> {
  await rateLimits.take('unclassed', limitedAs);
  return refusal;
}

/** Charges one call before the input is read, and one for each further call in it. */
async function parseWithinRate<Input>(
  { rateLimits }: Parts,
  { keyId, limitedAs = keyId }: Principal,
  rateLimit: Policy['rateLimit'],
  { parse, callsIn = () => 1, onLimit }: Visit<Input>,
): Promise<{ input: Input; calls: number }> {
  const rateClass = typeof rateLimit === 'string' ? rateLimit : undefined;
  if (typeof rateLimit === 'object') await rateLimits.take(rateLimit.bucket, rateLimit.key);
  let state = rateClass && (await rateLimits.spend(limitedAs, rateClass));
  try {
    const parsed = parse();
    const input = parsed instanceof Promise ? await parsed : parsed;
    const calls = callsIn(input);
    if (rateClass !== undefined && calls > 1) {
      rateLimits.requireSpendable(rateClass, calls);
      state = undefined;
      state = await rateLimits.spend(limitedAs, rateClass, calls - 1);
    }
    return { input, calls };
  } finally {
    if (state) onLimit?.(state);
  }
}
