import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
  uniqueIndex,
  type AnyPgColumn,
} from 'drizzle-orm/pg-core';
import type { SignInMode } from '../access/caller.ts';
import { bytea, createdAt, instant } from '../../platform/database/columns.ts';
import { apiKeys, users } from '../access/schema.ts';

/**
 * The tables of identity. Our own secrets are stored only as SHA-256; those of providers as JWE (`sealed`, see `vault.ts`).
 * The constraints prevent double use even with faulty code: one live refresh token per family, one successor per token, one
 * connection per (user, provider, resource).
 */

const ownedByUser = (name: string, table: { tenantId: AnyPgColumn; userId: AnyPgColumn }) =>
  foreignKey({
    name,
    columns: [table.tenantId, table.userId],
    foreignColumns: [users.tenantId, users.id],
  }).onDelete('cascade');

/** One sign-in: all refresh tokens that follow from it. */
export const tokenFamilies = pgTable(
  'token_families',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    userId: text('user_id').notNull(),
    createdAt: createdAt(),
    /** Absolute: rotation does not extend it. */
    expiresAt: instant('expires_at').notNull(),
    revokedAt: instant('revoked_at'),
    revokedReason: text('revoked_reason'),
  },
  table => [
    ownedByUser('token_families_user', table),
    index('token_families_user').on(table.userId),
    index('token_families_expires_at').on(table.expiresAt),
    check('token_families_revoked', sql`(${table.revokedAt} is null) = (${table.revokedReason} is null)`),
  ],
);

export const refreshTokens = pgTable(
  'refresh_tokens',
  {
    hash: bytea().primaryKey(),
    familyId: text('family_id')
      .notNull()
      .references(() => tokenFamilies.id, { onDelete: 'cascade' }),
    parentHash: bytea('parent_hash').unique('refresh_tokens_one_successor'),
    epoch: integer().notNull(),
    createdAt: createdAt(),
    expiresAt: instant('expires_at').notNull(),
    /** When the request that used it arrived, by the database's clock. */
    usedAt: instant('used_at'),
    idempotencyHash: bytea('idempotency_hash'),
    /** The response that used this token, for a retry with the same Idempotency-Key. */
    replaySealed: text('replay_sealed'),
    replayUntil: instant('replay_until'),
  },
  table => [
    // Deleting a family deletes its tokens, which may be thousands.
    index('refresh_tokens_family').on(table.familyId),
    index('refresh_tokens_replay')
      .on(table.replayUntil)
      .where(sql`${table.replayUntil} is not null`),
    uniqueIndex('refresh_tokens_one_live')
      .on(table.familyId)
      .where(sql`${table.usedAt} is null`),
    check('refresh_tokens_hash_length', sql`octet_length(${table.hash}) = 32`),
    check(
      'refresh_tokens_replay',
      sql`(${table.replaySealed} is null) = (${table.replayUntil} is null) and (${table.replaySealed} is null or (${table.usedAt} is not null and ${table.idempotencyHash} is not null))`,
    ),
  ],
);

export const SESSION_STATES = ['pending', 'claimed', 'confirm', 'complete', 'error'] as const;

export const authSessions = pgTable(
  'auth_sessions',
  {
    /** Hash of the `ses_…` id; all other secrets of a session are also stored as hashes. */
    idHash: bytea('id_hash').primaryKey(),
    stateHash: bytea('state_hash').notNull().unique('auth_sessions_state'),
    /** Hash of the link to our own page (mode `page`). */
    ticketHash: bytea('ticket_hash').unique('auth_sessions_ticket'),
    /** Hash of the link to the confirmation or the result. */
    resultHash: bytea('result_hash').unique('auth_sessions_result'),
    /** Hash of the cookie of the browser in which a sign-in of mode `page`, or on the page of connections, started. */
    browserHash: bytea('browser_hash'),
    tenantId: text('tenant_id').notNull(),
    userId: text('user_id').notNull(),
    apiKeyId: text('api_key_id').notNull(),
    provider: text().notNull(),
    scopes: text().array().notNull(),
    resource: text().notNull().default(''),
    mode: text().notNull().$type<SignInMode>(),
    /** Created for a proxied call that lacked a connection; the next such call gets the same one. */
    justInTime: boolean('just_in_time').notNull().default(false),
    allowAccountChange: boolean('allow_account_change').notNull().default(false),
    returnUrl: text('return_url'),
    /** PKCE verifier, nonce and links while pending; the tokens while they wait for the user's confirmation. */
    sealed: text(),
    status: text().notNull().default('pending').$type<(typeof SESSION_STATES)[number]>(),
    errorCode: text('error_code'),
    epoch: integer().notNull(),
    createdAt: createdAt(),
    expiresAt: instant('expires_at').notNull(),
    claimedAt: instant('claimed_at'),
    finishedAt: instant('finished_at'),
    deliveredAt: instant('delivered_at'),
    redeemedAt: instant('redeemed_at'),
    connectionId: text('connection_id'),
    /** The number of this sign-in among those of the connection; null where each makes a new connection. */
    signIn: integer('sign_in'),
    familyId: text('family_id'),
    idempotencyHash: bytea('idempotency_hash'),
    replaySealed: text('replay_sealed'),
    replayUntil: instant('replay_until'),
  },
  table => [
    ownedByUser('auth_sessions_user', table),
    index('auth_sessions_user').on(table.userId),
    index('auth_sessions_open')
      .on(table.userId, table.provider)
      .where(sql`${table.finishedAt} is null`),
    index('auth_sessions_created_at').on(table.createdAt),
    check(
      'auth_sessions_status',
      sql`${table.status} in ('pending', 'claimed', 'confirm', 'complete', 'error')`,
    ),
    check('auth_sessions_mode', sql`${table.mode} in ('direct', 'page', 'caller')`),
    check(
      'auth_sessions_finished',
      sql`(${table.status} in ('complete', 'error')) = (${table.finishedAt} is not null)`,
    ),
    check('auth_sessions_error', sql`(${table.status} = 'error') = (${table.errorCode} is not null)`),
    check('auth_sessions_delivered', sql`${table.deliveredAt} is null or ${table.finishedAt} is not null`),
    check('auth_sessions_secrets_gone', sql`${table.finishedAt} is null or ${table.sealed} is null`),
  ],
);

export const CONNECTION_STATES = ['active', 'needs_reauth', 'rejected'] as const;

/**
 * A connection with a provider: one account of one user (and resource, RFC 8707), with its tokens. Or a connection with a server:
 * either values, such as an API key, or tokens of the server's own authorization server (`issuer`). Then `provider` is `server:` with
 * the server's id, and `resource` is its address. For values, `subject` is their fingerprint.
 */
export const connections = pgTable(
  'connections',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    userId: text('user_id').notNull(),
    provider: text().notNull(),
    resource: text().notNull().default(''),
    /** The provider's `sub`. */
    subject: text().notNull(),
    /** The display name of the account, such as its e-mail address. */
    account: text(),
    /** The authorization server of the tokens of a server's own sign-in; null for other connections. */
    issuer: text(),
    /** The registration that those tokens were issued to, if it is a row of `oauth_clients`. */
    clientRow: text('client_row'),
    /** The scopes that were granted, which may be fewer than were asked for. */
    scopes: text().array().notNull(),
    /** `rejected`: the server refused the key or the token. It stays stored, and is tried again from time to time. */
    status: text().notNull().default('active').$type<(typeof CONNECTION_STATES)[number]>(),
    /** True for a shared connection that calls for users may use if the user has no own one. */
    forUsers: boolean('for_users').notNull().default(false),
    sealed: text(),
    hasRefreshToken: boolean('has_refresh_token').notNull(),
    accessExpiresAt: instant('access_expires_at'),
    /** The number of the sign-in that its tokens are of; it may have been with another account than the one before. */
    signIn: integer('sign_in').notNull().default(1),
    /** Incremented by every write of tokens: fences a late refresh. */
    version: integer().notNull().default(1),
    leaseId: text('lease_id'),
    leaseUntil: instant('lease_until'),
    /** When a refresh failed, or the server refused it. */
    failedAt: instant('failed_at'),
    /** When the server refused it. */
    rejectedAt: instant('rejected_at'),
    createdAt: createdAt(),
    updatedAt: instant('updated_at').notNull().defaultNow(),
    lastUsedAt: instant('last_used_at'),
    /** The API key that asked for the connection, `operator`, or `page` for the user; null if it is not known. */
    askedBy: text('asked_by'),
  },
  table => [
    ownedByUser('connections_user', table),
    unique('connections_one').on(table.userId, table.provider, table.resource),
    index('connections_created_at').on(table.createdAt, table.id),
    check('connections_status', sql`${table.status} in ('active', 'needs_reauth', 'rejected')`),
    check('connections_sealed', sql`(${table.status} <> 'needs_reauth') = (${table.sealed} is not null)`),
    check('connections_lease', sql`(${table.leaseId} is null) = (${table.leaseUntil} is null)`),
  ],
);

/** Switchboard as a client of one authorization server: registered dynamically (RFC 7591), or entered by the operator. */
export const oauthClients = pgTable(
  'oauth_clients',
  {
    id: text().primaryKey(),
    issuer: text().notNull(),
    redirectUri: text('redirect_uri').notNull(),
    /** Null while one process registers it, under the lease. */
    clientId: text('client_id'),
    /** The secret and the method of authentication. */
    sealed: text(),
    secretExpiresAt: instant('secret_expires_at'),
    /** True: the operator has entered it, so that Switchboard neither replaces nor retires it. */
    byOperator: boolean('by_operator').notNull().default(false),
    leaseId: text('lease_id'),
    leaseUntil: instant('lease_until'),
    createdAt: createdAt(),
    /** Since then, it is used only for the tokens that it was issued. */
    retiredAt: instant('retired_at'),
  },
  table => [
    uniqueIndex('oauth_clients_current')
      .on(table.issuer, table.redirectUri)
      .where(sql`${table.retiredAt} is null`),
    check('oauth_clients_sealed', sql`(${table.clientId} is null) = (${table.sealed} is null)`),
    check('oauth_clients_lease', sql`(${table.clientId} is null) = (${table.leaseId} is not null)`),
  ],
);

/** Tokens waiting to be revoked at the provider, sealed only for that purpose. */
export const revocationOutbox = pgTable(
  'revocation_outbox',
  {
    id: text().primaryKey(),
    provider: text().notNull(),
    /** The owner of the account. While it is connected again, its tokens are not revoked. */
    userId: text('user_id').notNull(),
    subject: text().notNull(),
    sealed: text().notNull(),
    attempts: integer().notNull().default(0),
    nextAt: instant('next_at').notNull().defaultNow(),
    expiresAt: instant('expires_at').notNull(),
    createdAt: createdAt(),
  },
  table => [index('revocation_outbox_next_at').on(table.provider, table.nextAt)],
);

export const signingKeys = pgTable(
  'signing_keys',
  {
    kid: text().primaryKey(),
    publicJwk: jsonb('public_jwk').notNull().$type<Record<string, unknown>>(),
    /** The private JWK; deleted when the key is retired. */
    sealed: text(),
    state: text().notNull().$type<'next' | 'active' | 'retired'>(),
    createdAt: createdAt(),
    /** When the last token it signed has expired. */
    retireAt: instant('retire_at'),
  },
  table => [
    uniqueIndex('signing_keys_one_active')
      .on(table.state)
      .where(sql`${table.state} = 'active'`),
    check('signing_keys_state', sql`${table.state} in ('next', 'active', 'retired')`),
  ],
);

/**
 * What the authorization server for MCP clients keeps: codes, refresh tokens, grants, registered clients, sign-ins that have begun.
 * Neither ids, which may be secrets, nor contents are in clear.
 */
export const authorizationRecords = pgTable(
  'authorization_records',
  {
    /** SHA-256 of the kind and the id. */
    idHash: bytea('id_hash').primaryKey(),
    kind: text().notNull(),
    /** The API key that stands for the grant; it ends with that. */
    grantId: text('grant_id').references(() => apiKeys.id, { onDelete: 'cascade' }),
    /** SHA-256 of the kind and another id that it is found by. */
    uidHash: bytea('uid_hash'),
    sealed: text().notNull(),
    usedAt: instant('used_at'),
    createdAt: createdAt(),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [
    index('authorization_records_grant').on(table.grantId),
    index('authorization_records_uid').on(table.uidHash),
    index('authorization_records_expires_at').on(table.expiresAt),
    check('authorization_records_hash_length', sql`octet_length(${table.idHash}) = 32`),
  ],
);

/** A single-use link to the page of a user's connections, then that page's session in one browser. */
export const manageLinks = pgTable(
  'manage_links',
  {
    hash: bytea().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    userId: text('user_id').notNull(),
    epoch: integer().notNull(),
    createdAt: createdAt(),
    expiresAt: instant('expires_at').notNull(),
    usedAt: instant('used_at'),
    browserHash: bytea('browser_hash').unique('manage_links_browser'),
  },
  table => [
    ownedByUser('manage_links_user', table),
    index('manage_links_user').on(table.userId),
    index('manage_links_expires_at').on(table.expiresAt),
    check('manage_links_used', sql`(${table.usedAt} is null) = (${table.browserHash} is null)`),
  ],
);

export const CALL_OUTCOMES = ['worked', 'answered', 'failed', 'refused', 'not_connected', 'stopped'] as const;

/** The calls for a user, as the user's own page shows them: equal calls of a minute are one row. Never contains arguments. */
export const userCalls = pgTable(
  'user_calls',
  {
    tenantId: text('tenant_id').notNull(),
    userId: text('user_id').notNull(),
    minute: instant('minute').notNull(),
    serverId: text('server_id').notNull(),
    /** The tool, or the method of a request that calls none. */
    tool: text().notNull(),
    keyId: text('key_id').notNull(),
    outcome: text().notNull().$type<(typeof CALL_OUTCOMES)[number]>(),
    times: integer().notNull(),
    /** The time of the last one. */
    lastAt: instant('last_at').notNull(),
  },
  table => [
    primaryKey({
      name: 'user_calls_one',
      columns: [table.userId, table.minute, table.serverId, table.tool, table.keyId, table.outcome],
    }),
    ownedByUser('user_calls_user', table),
    index('user_calls_minute').on(table.minute),
    check(
      'user_calls_outcome',
      sql`${table.outcome} in ('worked', 'answered', 'failed', 'refused', 'not_connected', 'stopped')`,
    ),
    check('user_calls_times', sql`${table.times} >= 1`),
  ],
);
