import { SwitchboardError } from '../../errors.ts';
import type { Scope, Subject } from './caller.ts';
import type { User } from './users.ts';
import type { KeyRow } from './key-rows.ts';
import type { Quota } from './quota.ts';
import { LOCAL_TENANT } from './tenants.ts';

const DEFAULT_SCOPES: readonly Scope[] = ['search', 'proxy', 'identity'];
/** All that a key that acts for one user may have: the others act for any user, or for none. */
const USER_SCOPES: readonly Scope[] = ['search', 'proxy'];

/** A key as an operator sees it: never the secret. */
export interface ApiKeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  /** The caller's own id of the one user it acts for. */
  readonly user: string | null;
  readonly scopes: readonly Scope[];
  readonly monthly_quota: QuotaSetting;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
  readonly last_used_at: string | null;
}

/** What a key may use in a calendar month (UTC); null: no limit. */
interface QuotaSetting {
  readonly calls: number | null;
  readonly searches: number | null;
}

/** What is left out stays as it is. */
export type QuotaChange = { readonly [Name in keyof QuotaSetting]?: QuotaSetting[Name] | undefined };

/** With the key itself, which is seen here and never again. */
export interface NewApiKey extends ApiKeyInfo {
  readonly key: string;
}

export interface NewKeyInput {
  readonly name: string;
  /** Default `local`. */
  readonly tenantId?: string | undefined;
  /** The caller's own id of the one user whom the key acts for. */
  readonly userId?: string | undefined;
  /** Default search, proxy, and identity unless the key acts for one user. */
  readonly scopes?: readonly Scope[] | undefined;
  readonly expiresAt?: Date | undefined;
  /** Default: no limit. */
  readonly quota?: QuotaChange | undefined;
}

/** The columns of a key that is new, but for the key itself. */
export type NewKeyRow = Pick<
  KeyRow,
  | 'name'
  | 'tenantId'
  | 'scopes'
  | 'userId'
  | 'userEpoch'
  | 'expiresAt'
  | 'countedAs'
  | 'monthlyCalls'
  | 'monthlySearches'
>;

/**
 * What a new key may do.
 * @throws SwitchboardError `invalid_request`: a user's key acts for nobody else, and an admin key is the operator's own.
 */
export function scopesFor(
  asked: readonly Scope[] | undefined,
  { tenantId, isUsers }: { tenantId: string; isUsers: boolean },
): readonly Scope[] {
  const scopes = asked ?? (isUsers ? USER_SCOPES : DEFAULT_SCOPES);
  if (isUsers) requireUserScopes(scopes);
  if (!scopes.includes('admin') || tenantId === LOCAL_TENANT) return scopes;
  throw new SwitchboardError(
    'invalid_request',
    `scopes: admin is over the whole installation, so only a key of the tenant ${LOCAL_TENANT} can have it`,
  );
}

function requireUserScopes(scopes: readonly Scope[]): void {
  const wrong = scopes.find(scope => !USER_SCOPES.includes(scope));
  if (wrong === undefined) return;
  throw new SwitchboardError(
    'invalid_request',
    `scopes: a key that acts for one user can have ${USER_SCOPES.join(' and ')}, not ${wrong}: it must not act for others`,
  );
}

type QuotaColumns = Pick<KeyRow, 'monthlyCalls' | 'monthlySearches'>;

export const NO_LIMIT: QuotaColumns = { monthlyCalls: null, monthlySearches: null };

/** Those that are to be written. */
export const quotaColumns = ({ calls, searches }: QuotaChange = {}): Partial<QuotaColumns> => ({
  ...(calls === undefined ? {} : { monthlyCalls: calls }),
  ...(searches === undefined ? {} : { monthlySearches: searches }),
});

/** For the audit log. */
export const quotaMeta = ({ monthlyCalls, monthlySearches }: Partial<QuotaColumns>) => ({
  ...(monthlyCalls === undefined ? {} : { calls: monthlyCalls ?? 'no limit' }),
  ...(monthlySearches === undefined ? {} : { searches: monthlySearches ?? 'no limit' }),
});

/** What a request is held to. */
export function quotaOf({ monthlyCalls, monthlySearches, countedAs }: KeyRow): {
  quota?: Quota;
  countedAs?: string;
} {
  const quota = {
    ...(monthlyCalls === null ? {} : { calls: monthlyCalls }),
    ...(monthlySearches === null ? {} : { searches: monthlySearches }),
  };
  return {
    ...(Object.keys(quota).length === 0 ? {} : { quota }),
    ...(countedAs === null ? {} : { countedAs }),
  };
}

/** The one user whom a key acts for, as its requests name it. */
export const subjectOf = ({ userId, userEpoch }: KeyRow): { subject?: Subject } =>
  userId === null || userEpoch === null ? {} : { subject: { userId, epoch: userEpoch } };

/** The columns that name that user. */
export const ownerOf = (user: User | undefined) => ({
  userId: user?.id ?? null,
  userEpoch: user?.tokenEpoch ?? null,
});

export const info = (row: KeyRow, user: string | null): ApiKeyInfo => ({
  id: row.id,
  name: row.name,
  tenant: row.tenantId,
  user,
  scopes: row.scopes,
  monthly_quota: { calls: row.monthlyCalls, searches: row.monthlySearches },
  created_at: row.createdAt.toISOString(),
  expires_at: row.expiresAt?.toISOString() ?? null,
  revoked_at: row.revokedAt?.toISOString() ?? null,
  last_used_at: row.lastUsedAt?.toISOString() ?? null,
});
