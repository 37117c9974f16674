import { and, gt, isNull, or, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import { OPERATOR_SCOPES, type Principal, type Scope, type Use } from './caller.ts';
import { apiKeys } from './schema.ts';
import { LOCAL_TENANT } from './tenants.ts';

export type KeyRow = typeof apiKeys.$inferSelect;

/** True for keys that are neither revoked nor expired, by the database's clock. */
export const isLiveKey = and(
  isNull(apiKeys.revokedAt),
  or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, sql`now()`)),
);

/** Monthly limits for an operator; null: no limit. */
type QuotaSetting = Readonly<Record<Use, number | null>>;

/** An omitted limit stays unchanged. */
export type QuotaChange = { readonly [Name in Use]?: number | null | undefined };

/** A key for an operator, without the secret. */
export interface ApiKeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  /** The caller's own id for the user that the key acts for. */
  readonly user: string | null;
  /** The OAuth client id of an MCP client that its user has signed in; null: a key that is sent itself. */
  readonly client_id: string | null;
  readonly scopes: readonly Scope[];
  readonly monthly_quota: QuotaSetting;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  readonly last_used_at: string | null;
}

/** A new key with its secret, which is shown only once. */
export interface NewApiKey extends ApiKeyInfo {
  readonly key: string;
}

export interface NewKeyInput {
  readonly name: string;
  /** Default `local`. */
  readonly tenantId?: string | undefined;
  /** The caller's own id for the user that the key will act for. */
  readonly userId?: string | undefined;
  /** Default search and proxy, and identity unless the key acts for one user. */
  readonly scopes?: readonly Scope[] | undefined;
  readonly expiresAt?: Date | undefined;
  /** Default: no limit. */
  readonly quota?: QuotaChange | undefined;
}

/** Renders a key for an operator; `user` is the caller's own id for its user. */
export const keyInfo = (row: KeyRow, user: string | null): ApiKeyInfo => ({
  id: row.id,
  name: row.name,
  tenant: row.tenantId,
  user,
  client_id: row.clientId,
  scopes: row.scopes,
  monthly_quota: { calls: row.monthlyCalls, searches: row.monthlySearches },
  created_at: row.createdAt.toISOString(),
  expires_at: row.expiresAt?.toISOString() ?? null,
  revoked_at: row.revokedAt?.toISOString() ?? null,
  last_used_at: row.lastUsedAt?.toISOString() ?? null,
});

/** Returns the columns for a quota change. */
export const quotaColumns = ({ calls, searches }: QuotaChange = {}) => ({
  ...(calls === undefined ? {} : { monthlyCalls: calls }),
  ...(searches === undefined ? {} : { monthlySearches: searches }),
});

/** Describes a quota change for the audit log. */
export const quotaMeta = ({ calls, searches }: QuotaChange = {}) => ({
  ...(calls === undefined ? {} : { calls: calls ?? 'no limit' }),
  ...(searches === undefined ? {} : { searches: searches ?? 'no limit' }),
});

const DEFAULT_SCOPES: readonly Scope[] = ['search', 'proxy', 'identity'];
/** All scopes that a user's key can have: the others act for any user or for none. */
export const USER_SCOPES: readonly Scope[] = ['search', 'proxy'];

/**
 * Returns the scopes of a new key.
 * @throws SwitchboardError `invalid_request` for a user's key with other scopes, or an admin key of another tenant
 */
export function scopesFor(
  asked: readonly Scope[] | undefined,
  { tenantId, isUsers }: { tenantId: string; isUsers: boolean },
): readonly Scope[] {
  const scopes = asked ?? (isUsers ? USER_SCOPES : DEFAULT_SCOPES);
  const refused = isUsers ? scopes.find(scope => !USER_SCOPES.includes(scope)) : undefined;
  if (refused !== undefined)
    throw new SwitchboardError(
      'invalid_request',
      `scopes: a key that acts for one user can only have ${USER_SCOPES.join(' and ')}, not ${refused}`,
    );
  const ofOperator =
    tenantId === LOCAL_TENANT ? undefined : scopes.find(one => OPERATOR_SCOPES.includes(one));
  if (ofOperator !== undefined)
    throw new SwitchboardError(
      'invalid_request',
      `scopes: ${ofOperator} covers the whole installation, so only a key of the tenant ${LOCAL_TENANT} can have it`,
    );
  return scopes;
}

/** Returns the refusal of a key without the scope, or of an operator's scope outside the operator's own tenant. */
export function lackingScope({ scopes, tenantId }: Principal, scope: Scope): SwitchboardError | undefined {
  if (!scopes.has(scope) && !(scope === 'admin_read' && scopes.has('admin')))
    return new SwitchboardError(
      'insufficient_scope',
      `This API key lacks the scope "${scope}". Use a key that has it.`,
    );
  if (OPERATOR_SCOPES.includes(scope) && tenantId !== LOCAL_TENANT)
    return new SwitchboardError(
      'insufficient_scope',
      `Keys with the scope "${scope}" work only in the tenant "${LOCAL_TENANT}". Use a key of that tenant.`,
    );
  return undefined;
}
