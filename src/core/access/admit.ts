import type { RateClass } from '../../config/index.ts';
import { SwitchboardError } from '../../errors.ts';
import type { Core } from '../core.ts';
import type { Caller, Principal, Scope } from './caller.ts';
import type { QuotaState, Use } from './quota.ts';
import type { Bucket, RateLimitState } from './rate-limits.ts';
import { LOCAL_TENANT } from './tenants.ts';

/** A limit that is not on a key: on an address, or on one session. */
export interface Throttle {
  readonly bucket: Bucket;
  readonly key: string;
}

/** The requirements an endpoint makes of its callers. */
export interface Policy {
  readonly scope: Scope;
  /** The class whose budget a request spends. Absent: none. */
  readonly rateLimit?: RateClass | Throttle | undefined;
  /** The monthly quota that a well-formed request counts towards. Absent: none. */
  readonly quota?: Use | undefined;
  /**
   * `checked`: an identity token that came along must still hold. `by-call`: the work itself asks that, in the query that loads the
   * user's connection.
   */
  readonly user: 'checked' | 'by-call';
}

export interface Credentials {
  readonly key: string | undefined;
  /** An identity token. */
  readonly token: string | undefined;
  /** Whether the key may come as a Bearer token too: the refusal says so. */
  readonly keyMayBeBearer?: boolean;
  /** The address of the caller: wrong keys are counted there. */
  readonly ip?: string | undefined;
}

/** One request, as the gate sees it. */
export interface Visit<Input> {
  readonly requestId: string;
  readonly ip?: string | undefined;
  readonly signal: AbortSignal;
  /** Reads and checks the input. @throws SwitchboardError */
  readonly parse: () => Input | Promise<Input>;
  /** Returns how many calls the input makes. Default: one. None: nothing counts in the month. */
  readonly callsIn?: (input: Input) => number;
  /** Hears how a limit stands, once for each limit that was spent from. A refusal carries its own state. */
  readonly onLimit?: (state: RateLimitState | QuotaState) => void;
}

type Parts = Pick<Core, 'apiKeys' | 'rateLimits' | 'identity'>;

/**
 * Tells who calls, and for which end user. An identity token is verified here as far as it goes by itself; `admit` checks that its
 * user has not been revoked.
 * @throws SwitchboardError `unauthorized`, `identity_token_invalid`, `rate_limited` (failed attempts from one address).
 */
export async function authenticate(core: Parts, credentials: Credentials): Promise<Principal> {
  const { token } = credentials;
  const principal = await principalOf(core, credentials);
  if (token === undefined) return principal;
  const subject = await core.identity.tokens.verify(token, principal.tenantId);
  if (principal.subject && principal.subject.userId !== subject.userId)
    throw new SwitchboardError(
      'identity_token_invalid',
      'The identity token is of another user than the one this API key acts for. Send the key without a token.',
    );
  return { ...principal, subject };
}

/** Only failures are counted, so that a good key works from an address that somebody else spoils with wrong ones. */
async function principalOf(
  core: Parts,
  { key, ip, keyMayBeBearer = false }: Credentials,
): Promise<Principal> {
  try {
    const isGuarded = ip === undefined ? undefined : () => core.rateLimits.isSpent('failedAuth', ip);
    return await core.apiKeys.authenticate(key, isGuarded);
  } catch (error) {
    if (!(error instanceof SwitchboardError) || error.code !== 'unauthorized') throw error;
    if (ip !== undefined) await core.rateLimits.take('failedAuth', ip);
    const ways = keyMayBeBearer
      ? 'X-API-Key, or as Authorization: Bearer'
      : "X-API-Key (a Bearer token is taken for a user's identity here)";
    const detail = `Send a valid API key in the header ${ways}. \`switchboard keys create\` makes one.`;
    throw new SwitchboardError('unauthorized', detail);
  }
}

/**
 * Lets an authenticated request through, or refuses it, always in this order: scope, rate limit, input, monthly quota, live user. A
 * refusal charges only the limits before it; for want of a scope it counts as a request of no class.
 * @returns whom the core acts for, and the checked input
 * @throws SwitchboardError `insufficient_scope`, `rate_limited`, what `parse` throws, `quota_exceeded`, `identity_token_invalid`.
 */
export async function admit<Input>(
  core: Parts,
  principal: Principal,
  policy: Policy,
  visit: Visit<Input>,
): Promise<{ caller: Caller; input: Input }> {
  const { requestId, ip, signal, onLimit } = visit;
  const lacking = lackingScope(principal, policy.scope);
  if (lacking) await refuseUnclassed(core, principal, lacking);
  const { input, calls } = await parseWithinRate(core, principal, policy.rateLimit, visit);
  if (policy.quota !== undefined && calls > 0) {
    const state = await core.apiKeys.use.spend(principal, policy.quota, calls);
    if (state) onLimit?.(state);
  }
  const caller = { ...principal, requestId, signal, ...(ip === undefined ? {} : { ip }) };
  if (policy.user === 'checked') await core.identity.credentials.requireLive(caller);
  return { caller, input };
}

/** Counts a refusal that comes before any class of calls against the key's requests of no class, and throws it. */
export async function refuseUnclassed(
  { rateLimits }: Parts,
  { keyId }: Principal,
  refusal: unknown,
): Promise<never> {
  await rateLimits.take('unclassed', keyId);
  throw refusal;
}

/** Spends one call before the input is read, and one for each further call that is found in it. */
async function parseWithinRate<Input>(
  { rateLimits }: Parts,
  { keyId }: Principal,
  rateLimit: Policy['rateLimit'],
  { parse, callsIn = () => 1, onLimit }: Visit<Input>,
): Promise<{ input: Input; calls: number }> {
  const rateClass = typeof rateLimit === 'string' ? rateLimit : undefined;
  if (typeof rateLimit === 'object') await rateLimits.take(rateLimit.bucket, rateLimit.key);
  let state = rateClass && (await rateLimits.spend(keyId, rateClass));
  try {
    const input = await parse();
    const calls = callsIn(input);
    if (rateClass !== undefined && calls > 1) {
      rateLimits.requireSpendable(rateClass, calls);
      state = undefined;
      state = await rateLimits.spend(keyId, rateClass, calls - 1);
    }
    return { input, calls };
  } finally {
    if (state) onLimit?.(state);
  }
}

/**
 * Returns the refusal of a key without the scope. The scope `admin` is over the whole installation, so it counts with keys of the
 * operator's own tenant alone.
 */
function lackingScope({ scopes, tenantId }: Principal, scope: Scope): SwitchboardError | undefined {
  if (!scopes.has(scope))
    return new SwitchboardError(
      'insufficient_scope',
      `This API key lacks the scope "${scope}". Use a key that has it.`,
    );
  if (scope === 'admin' && tenantId !== LOCAL_TENANT)
    return new SwitchboardError(
      'insufficient_scope',
      `A key with the scope "admin" administers only as one of the tenant "${LOCAL_TENANT}". Use such a key.`,
    );
  return undefined;
}
