import { z } from 'zod';
import { ADMIN_READ, day, nextCursor, page, tenantId, time, wrongCursor } from './fields.ts';
import { endpoint, storable, type Endpoint } from '../http/endpoint.ts';

const ofTenant = tenantId.optional().describe('Returns only records of this tenant.');
const ofKey = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,100}$/, 'must be the id of a key')
  .optional();

const usage = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/usage',
  operationId: 'listUsage',
  summary: 'List usage by key and day',
  description:
    'Returns one record for each key and day (UTC), the newest day first. Usage of a rotated key counts under the original key. Records are kept ' +
    'for 400 days. The last second of other processes may be missing.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    from: day.optional().describe('The first day to return, such as 2026-11-01.'),
    to: day.optional().describe('The last day to return.'),
    key_id: ofKey.describe('Returns only records of this key.'),
    tenant: ofTenant,
    ...page,
  }),
  responseSchema: z.object({
    usage: z.array(
      z.object({
        day: z.iso.date(),
        key_id: z.string(),
        name: z.string().nullable().describe('null for SWITCHBOARD_API_KEY, as is its tenant.'),
        tenant: z.string().nullable(),
        calls: z.int().describe('Proxied calls.'),
        searches: z.int(),
      }),
    ),
    next_cursor: nextCursor,
  }),
  handle: async (core, _caller, { query: { from, to, key_id, tenant, limit, cursor } }) => {
    const after = cursor === undefined ? undefined : usagePlace(cursor);
    const { records, hasMore } = await core.apiKeys.use.list({
      from,
      to,
      keyId: key_id,
      tenant,
      limit,
      after,
    });
    const last = records.at(-1);
    return { usage: records, next_cursor: hasMore && last ? `${last.day}~${last.key_id}` : null };
  },
});

function usagePlace(cursor: string): { day: string; keyId: string } {
  const [, date = '', keyId = ''] = /^(\d{4}-\d{2}-\d{2})~([\w-]{1,100})$/.exec(cursor) ?? [];
  if (!day.safeParse(date).success) throw wrongCursor();
  return { day: date, keyId };
}

const audit = endpoint({
  ...ADMIN_READ,
  method: 'get',
  path: '/audit',
  operationId: 'listAudit',
  summary: 'List audit records',
  description:
    'Returns the newest records first. key_id names the key that acted; "operator" is the command line, and "console" a console that its link has opened. Records are kept for 90 days. They never contain a secret. The log has the internal ids of users; user_id is looked up.',
  errors: ['invalid_request'],
  querySchema: z.strictObject({
    tenant: ofTenant,
    key_id: ofKey.describe('Returns only actions by this key.'),
    key: ofKey.describe('Returns only actions by this key or on it.'),
    event: z
      .string()
      .regex(/^[a-z_]{1,100}$/, 'must be the name of an event')
      .optional()
      .describe('Returns only events of this kind, such as key_created.'),
    outcome: z.enum(['ok', 'refused', 'failed']).optional(),
    user: z
      .string()
      .regex(/^usr_[0-9A-Za-z]{1,40}$/, 'must be the internal id of a user')
      .optional()
      .describe('Returns only events of this end user, by the internal id.'),
    user_id: storable(z.string().min(1).max(1024))
      .optional()
      .describe(
        "Returns only events of this end user, by the caller's own id, of any tenant unless one is named.",
      ),
    after: z
      .string()
      .regex(/^[0-9]{1,15}$/, 'must be the id of a record')
      .transform(Number)
      .optional()
      .describe(
        'Returns only records with a higher id. To follow the log, ask again with an id a little below the highest you know, as records of changes that take longer appear late.',
      ),
    from: time.optional().describe('Returns only events at or after this time.'),
    to: time.optional().describe('Returns only events before this time.'),
    ...page,
  }),
  responseSchema: z.object({
    audit: z.array(
      z.object({
        id: z.int(),
        at: z.iso.datetime(),
        event: z.string(),
        outcome: z.enum(['ok', 'refused', 'failed']),
        tenant: z.string().nullable().describe('The tenant that the action affected.'),
        key_id: z.string().nullable(),
        user: z.string().nullable().describe('The end user, by the internal id.'),
        user_id: z.string().nullable().describe("The end user, by the caller's own id."),
        request_id: z.string().nullable(),
        ip: z.string().nullable(),
        details: z.record(z.string(), z.unknown()),
      }),
    ),
    next_cursor: nextCursor,
  }),
  handle: async (core, _caller, { query: { key_id, user, user_id, from, to, cursor, ...filter } }) => {
    const { records, hasMore } = await core.audit.list({
      ...filter,
      keyId: key_id,
      userId: user,
      externalId: user_id,
      from: from === undefined ? undefined : new Date(from),
      to: to === undefined ? undefined : new Date(to),
      before: cursor === undefined ? undefined : auditPlace(cursor),
    });
    return { audit: records, next_cursor: hasMore ? String(records.at(-1)?.id) : null };
  },
});

function auditPlace(cursor: string): number {
  if (!/^\d{1,15}$/.test(cursor)) throw wrongCursor();
  return Number(cursor);
}

export const recordEndpoints: readonly Endpoint[] = [usage, audit];
