import { sql } from 'drizzle-orm';
import {
  bigserial,
  boolean,
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
import type { ConsoleRole, Scope, SignInMode } from './caller.ts';

/**
 * The tables of tenants and their data. Each folder defines its own tables in a `schema.ts`; `drizzle/` has the migrations
 * generated from all of them (`npm run build:migrations`), with one schema for PGlite and Postgres.
 */

/** Owners of keys, users, sessions and logs. */
export const tenants = pgTable(
  'tenants',
  {
    id: text().primaryKey(),
    /** The app's name on the pages for end users. */
    name: text(),
    /** How sign-ins are completed unless the caller asks for more. */
    signInMode: text('sign_in_mode').notNull().default('direct').$type<SignInMode>(),
    /** URLs that the result page may link back to, matched exactly. */
    returnUrls: text('return_urls')
      .array()
      .notNull()
      .default(sql`'{}'`),
    /** The provider at which users sign in to their own page, and the claim that is their id at the app; null: they need a link. */
    pageProvider: text('page_provider'),
    pageClaim: text('page_claim').$type<'email' | 'sub'>(),
    /** With the claim `email`: any verified address at this domain is a user, who is created at the first sign-in. */
    pageDomain: text('page_domain'),
    createdAt: createdAt(),
  },
  table => [
    check('tenants_sign_in_mode', sql`${table.signInMode} in ('direct', 'page', 'caller')`),
    check('tenants_page_provider', sql`(${table.pageProvider} is null) = (${table.pageClaim} is null)`),
    check('tenants_page_claim', sql`${table.pageClaim} in ('email', 'sub')`),
    check('tenants_page_domain', sql`${table.pageDomain} is null or ${table.pageClaim} = 'email'`),
  ],
);

/**
 * The name under which a tenant itself holds connections that its keys share: a user that no caller can name, as `requireUserId`
 * refuses control characters.
 */
export const TENANT_HOLDER = '\u0001';

/** End users, identified by the caller's own `user_id`: byte-exact, unique within a tenant. */
export const users = pgTable(
  'users',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id')
      .notNull()
      .references(() => tenants.id),
    externalId: text('external_id').notNull(),
    /** Incremented by a revocation: every older identity token and user's key becomes invalid. */
    tokenEpoch: integer('token_epoch').notNull().default(1),
    createdAt: createdAt(),
    lastSeenAt: instant('last_seen_at').notNull().defaultNow(),
  },
  table => [
    unique('users_external_id').on(table.tenantId, table.externalId),
    // Rows of a user refer to this pair, so that none can refer to another tenant.
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
    /** The user that this key acts for, and that user's epoch when the key was created. */
    userId: text('user_id'),
    userEpoch: integer('user_epoch'),
    createdAt: createdAt(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
    lastUsedAt: instant('last_used_at'),
    /** Limits per calendar month (UTC); null: no limit. */
    monthlyCalls: integer('monthly_calls'),
    monthlySearches: integer('monthly_searches'),
    /** For a rotated key: the first key of its line, which the usage of all of them is counted under. */
    countedAs: text('counted_as'),
    /** For a sign-in of an MCP client: its OAuth client id, and the address its tokens are for. The key itself was never shown. */
    clientId: text('client_id'),
    resource: text(),
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
    check(
      'api_keys_client',
      sql`(${table.clientId} is null) = (${table.resource} is null) and (${table.clientId} is null or ${table.userId} is not null)`,
    ),
  ],
);

/**
 * A browser in which an operator is signed in to the console, or a link that signs one in. Neither the link nor the cookie nor
 * the key is stored.
 */
export const consoleSessions = pgTable(
  'console_sessions',
  {
    /** SHA-256 of the link and, once it was used, of the cookie. */
    hash: bytea().primaryKey(),
    isLink: boolean('is_link').notNull(),
    /** The key that signed in; `environment` for the one in the settings, `operator` for a link of the command line. */
    keyId: text('key_id').notNull(),
    /** For `environment`: a digest of the cookie and the key, so that the session ends when the setting changes. */
    keyMark: bytea('key_mark'),
    role: text().notNull().$type<ConsoleRole>(),
    createdAt: createdAt(),
    /** Absolute: use does not extend it. */
    expiresAt: instant('expires_at').notNull(),
    idleUntil: instant('idle_until').notNull(),
  },
  table => [
    index('console_sessions_expires_at').on(table.expiresAt),
    check('console_sessions_hash_length', sql`octet_length(${table.hash}) = 32`),
    check('console_sessions_role', sql`${table.role} in ('admin', 'admin_read')`),
  ],
);

/** The usage of a line of keys on a day (UTC). The environment's key is counted too, but has no row in `api_keys`. */
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

/** Append-only. Never contains a token or the caller's own id for a user. */
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
