import { z } from 'zod';
import { plainName } from '../../config/setting.ts';
import { SCOPES } from '../../core/access/caller.ts';
import { SwitchboardError, type ErrorCode } from '../../errors.ts';
import type { Place } from '../../platform/database/columns.ts';
import { MIB, queryNumber, storable } from '../http/endpoint.ts';

/** The policy and the common fields of all admin endpoints. */
export const ADMIN = {
  tag: 'Admin',
  scope: 'admin',
  rateLimit: 'admin',
  user: 'checked',
  maxBodyBytes: MIB,
  cache: 'no-store',
} as const;

/** As `ADMIN`, for endpoints that change nothing: keys with the scope `admin_read` may call them, too. */
export const ADMIN_READ = { ...ADMIN, scope: 'admin_read' } as const;

/** The errors of what goes to a server on behalf of the operator's tenant. */
export const CALL_ERRORS = [
  'server_not_found',
  'server_inactive',
  'identity_token_required',
  'connection_required',
  'operator_setup_needed',
  'provider_not_configured',
] as const satisfies ErrorCode[];

export const tenantId = plainName;

/** Refuses characters that the database cannot store, or that are invisible or reverse text. */
export const visibleLine = (schema: z.ZodString) =>
  schema
    .refine(text => !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), 'must be one line of visible characters')
    // Not all languages know these classes.
    .meta({ pattern: String.raw`^[^\x00-\x1f\x7f-\x9f]*$` });

/** Documents a string that the core checks. */
export const WEB_ADDRESS = { format: 'uri', minLength: 1 } as const;

const FIRST_MS = 0;
const LAST_MS = Date.UTC(9999, 11, 31);
const isInReach = (text: string) => Date.parse(text) >= FIRST_MS && Date.parse(text) <= LAST_MS;
const REACH = 'must be between the years 1970 and 9999';

/** The checks abort, so that an invalid time causes only one error. */
export const time = z.iso
  .datetime({ offset: true, abort: true })
  .refine(isInReach, { error: REACH, abort: true });
/** UTC. */
export const day = z.iso.date({ abort: true }).refine(isInReach, REACH);
const nullableTime = z.iso.datetime().nullable();

const monthlyLimit = z
  .int('must be a whole number, or null for no limit')
  .min(1, 'must be at least 1, or null for no limit')
  .max(2_000_000_000, 'must be at most 2000000000')
  .nullable();

/** A quota to set. Omitted fields stay unchanged; initially there is no limit. */
export const monthlyQuota = z
  .strictObject({
    calls: monthlyLimit.optional().describe('Proxied calls per month. null: no limit.'),
    searches: monthlyLimit.optional().describe('Searches per month. null: no limit.'),
  })
  .describe('The calls and searches that the key may make per calendar month (UTC).');

export const counts = z.object({ calls: z.int(), searches: z.int() });

/** An API key for an operator. */
export const keyInfo = z.object({
  id: z.string(),
  name: z.string(),
  tenant: z.string(),
  user: z.string().nullable().describe("The user that the key acts for, as the caller's own id."),
  client_id: z
    .string()
    .nullable()
    .describe(
      'The OAuth client id of an MCP client that the user has signed in. null: a key that is sent itself.',
    ),
  scopes: z.array(z.enum(SCOPES)),
  monthly_quota: z.object({ calls: z.int().nullable(), searches: z.int().nullable() }),
  created_at: z.iso.datetime(),
  expires_at: nullableTime,
  revoked_at: nullableTime,
  last_used_at: nullableTime,
});

export const newKeyInfo = keyInfo.extend({
  key: z.string().describe('The key itself. It is shown only once.'),
});

/** The query parameters of a paged list. */
export const page = {
  limit: queryNumber('must be a whole number from 1 to 1000', { min: 1, max: 1000 })
    .default(100)
    .describe('The maximum number of entries to return, 1 to 1000.'),
  cursor: z.string().max(200).optional().describe('The next_cursor of the previous page.'),
};
/** As `page`, for lists that are returned whole without a limit. */
export const optionalPage = { limit: page.limit.removeDefault().optional(), cursor: page.cursor };

/** Text to look for in a list. */
export const searchText = storable(z.string().min(1).max(200));

export const nextCursor = z
  .string()
  .nullable()
  .describe('The cursor of the next page. null: this is the last page.');

/** Returns the cursor of a list that is ordered by creation; null if there is nothing more. */
export const cursorOf = (next: Place | undefined): string | null =>
  next ? `${next.createdAt}~${next.id}` : null;

/** Reads such a cursor. @throws SwitchboardError `invalid_request` */
export function placeOf(cursor: string): Place {
  const [, createdAt = '', id = ''] = /^([^~]{1,40}Z)~(\w{1,40})$/.exec(cursor) ?? [];
  if (!time.safeParse(createdAt).success) throw wrongCursor();
  return { createdAt, id };
}

export const wrongCursor = () =>
  new SwitchboardError('invalid_request', 'cursor: must be the unchanged next_cursor of an earlier response');
