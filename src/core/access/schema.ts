import { sql } from 'drizzle-orm';
import {
  bigserial,
  check,
  date,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
} from 'drizzle-orm/pg-core';
import { bytea, createdAt, instant } from '../../platform/database/columns.ts';
import type { Scope, SignInMode } from './caller.ts';

/**
 * The tables of tenants and what they own. Every table stands in the `schema.ts` of the folder that owns it; `drizzle/` holds the
 * migrations generated from all of them (`npm run build:migrations`), one schema for PGlite and Postgres.
 */

/** Owners of keys, users, sessions and logs. */
export const tenants = pgTable(
  'tenants',
  {
    id: text().primaryKey(),
    /** The app's name on the pages that an end user sees. */
    name: text(),
    /** The way a sign-in is finished unless the caller asks for more. */
    signInMode: text('sign_in_mode').notNull().default('direct').$type<SignInMode>(),
    /** URLs the result page may lead back to, matched exactly. */
    returnUrls: text('return_urls')
      .array()
      .notNull()
      .default(sql`'{}'`),
    createdAt: createdAt(),
  },
  table => [check('tenants_sign_in_mode', sql`${table.signInMode} in ('direct', 'page', 'caller')`)],
);

/** End users, named by the caller's own `user_id`: byte-exact, unique within a tenant. */
export const users = pgTable(
  'users',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id')
      .notNull()
      .references(() => tenants.id),
    externalId: text('external_id').notNull(),
    /** Raised by a revocation: every identity token and user's key made before is dead at once. */
    tokenEpoch: integer('token_epoch').notNull().default(1),
    createdAt: createdAt(),
    lastSeenAt: instant('last_seen_at').notNull().defaultNow(),
  },
  table => [
    unique('users_external_id').on(table.tenantId, table.externalId),
    // Rows of a user refer to this pair, so that none can point across tenants.
    unique('users_tenant_id').on(table.tenantId, table.id),
    check('users_external_id_length', sql`octet_length(${table.externalId}) between 1 and 1024`),
    check('users_token_epoch', sql`${table.tokenEpoch} >= 1`),
  ],
);

export const apiKeys = pgTable(
  'api_keys',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id')
      .notNull()
      .references(() => tenants.id),
    name: text().notNull(),
    /** SHA-256 of the whole key. The key itself is shown once and never stored. */
    hash: bytea().notNull(),
    scopes: text().array().notNull().$type<Scope[]>(),
    /** The one user this key acts for, and that user's epoch when it was made. */
    userId: text('user_id'),
    userEpoch: integer('user_epoch'),
    createdAt: createdAt(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
    lastUsedAt: instant('last_used_at'),
    /** Limits for a calendar month (UTC); null: no limit. */
    monthlyCalls: integer('monthly_calls'),
    monthlySearches: integer('monthly_searches'),
    /** For a key made by rotation: the first key of its line, under which the use of all of them is counted. */
    countedAs: text('counted_as'),
  },
  table => [
    index('api_keys_tenant').on(table.tenantId),
    index('api_keys_user').on(table.userId),
    foreignKey({
      name: 'api_keys_user',
      columns: [table.tenantId, table.userId],
      foreignColumns: [users.tenantId, users.id],
    }).onDelete('cascade'),
    check('api_keys_user_epoch', sql`(${table.userId} is null) = (${table.userEpoch} is null)`),
  ],
);

/** The use of a line of keys on a day (UTC). The key of the environment is counted too, but is no row of `api_keys`. */
export const keyUse = pgTable(
  'key_use',
  {
    keyId: text('key_id').notNull(),
    day: date().notNull(),
    calls: integer().notNull().default(0),
    searches: integer().notNull().default(0),
  },
  table => [
    primaryKey({ columns: [table.keyId, table.day] }),
    index('key_use_day').on(table.day, table.keyId),
  ],
);

/** Append-only. Never a token, never the caller's own id of a user. */
export const auditLog = pgTable(
  'audit_log',
  {
    id: bigserial({ mode: 'number' }).primaryKey(),
    at: instant('at').notNull().defaultNow(),
    tenantId: text('tenant_id'),
    keyId: text('key_id'),
    userId: text('user_id'),
    event: text().notNull(),
    outcome: text().notNull(),
    requestId: text('request_id'),
    ip: text(),
    meta: jsonb().notNull().default({}).$type<Record<string, unknown>>(),
  },
  table => [
    index('audit_log_at').on(table.at),
    index('audit_log_tenant').on(table.tenantId, table.at),
    index('audit_log_user').on(table.userId, table.at),
  ],
);
