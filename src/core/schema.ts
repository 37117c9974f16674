import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  customType,
  date,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
  unique,
} from 'drizzle-orm/pg-core';
import type { AuthSpec, CataloguedTool, Origin, RegistryMark, Transport } from './catalogue/entry.ts';
import type { HealthState } from './catalogue/health.ts';
import type { Scope, SignInMode } from './access/caller.ts';
import type { OutcomeSource, SearchOutcome } from './feedback-types.ts';

/**
 * The tables of Switchboard but those of `identity/schema.ts`; `drizzle/` holds the migrations generated from both
 * (`npm run build:migrations`). One schema for PGlite and Postgres.
 */
export const bytea = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => 'bytea' });
export const createdAt = () => timestamp('created_at', { withTimezone: true }).notNull().defaultNow();
export const instant = (name: string) => timestamp(name, { withTimezone: true });

/** Who owns keys, users, sessions and logs. */
export const tenants = pgTable(
  'tenants',
  {
    id: text().primaryKey(),
    /** What the pages that an end user sees call the app. */
    name: text(),
    /** How a sign-in is finished unless the caller asks for more (see `SignInMode`). */
    signInMode: text('sign_in_mode').notNull().default('direct').$type<SignInMode>(),
    /** Where the result page may lead back to, matched exactly. */
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
    // What rows of a user point to, so that none can point across tenants.
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
    /** What may be used in a calendar month (UTC); null: no limit. */
    monthlyCalls: integer('monthly_calls'),
    monthlySearches: integer('monthly_searches'),
    /** Of a key that came by rotation: the first one of its line, under which the use of them all is counted. */
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

/** What a key, with those that followed it by rotation, has used on a day (UTC). The key of the environment is no row of `api_keys`. */
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

export const servers = pgTable(
  'servers',
  {
    id: text().primaryKey(),
    name: text().notNull(),
    description: text().notNull(),
    remoteUrl: text('remote_url').notNull(),
    transport: text().$type<Transport>(),
    auth: jsonb().notNull().$type<AuthSpec>(),
    homepage: text(),
    repository: text(),
    categories: jsonb().notNull().$type<readonly string[]>(),
    /** The first of its tools; the others are in `server_tool_parts`. */
    tools: jsonb().notNull().$type<readonly CataloguedTool[]>(),
    /** When the tools were last read from the server itself; null: they are those of its entry. */
    toolsListedAt: instant('tools_listed_at'),
    /** Who put it here: an upgrade rewrites `shipped` rows, a sync those of its registry; both leave `operator` rows alone. */
    origin: text().notNull().$type<Origin>(),
    /** Where a registry's entry came from; kept when the operator makes it inactive. */
    registry: jsonb().$type<RegistryMark>(),
    active: boolean().notNull(),
    /** Whether it is inactive since probing had no answer of it for too long; what others make inactive is not. */
    unanswered: boolean().notNull().default(false),
    /** The number of the transaction that wrote it or its parts last; set by a trigger (`drizzle/`), whoever writes. */
    revision: bigint({ mode: 'number' }).notNull().default(0),
    createdAt: createdAt(),
    updatedAt: instant('updated_at').notNull().defaultNow(),
  },
  table => [
    index('servers_registry_name').on(sql`(${table.registry} ->> 'name')`),
    index('servers_revision').on(table.revision),
  ],
);

/**
 * The tools of a server beyond those in its row, some at a time, in the order of `part` (1, 2, …): the embedded database writes
 * a value in one go, on the main thread.
 */
export const serverToolParts = pgTable(
  'server_tool_parts',
  {
    serverId: text('server_id')
      .notNull()
      .references(() => servers.id, { onDelete: 'cascade' }),
    part: integer().notNull(),
    tools: jsonb().notNull().$type<readonly CataloguedTool[]>(),
  },
  table => [primaryKey({ columns: [table.serverId, table.part] })],
);

/** What probing last found of a server (`catalogue/health.ts`). */
export const serverHealth = pgTable(
  'server_health',
  {
    serverId: text('server_id')
      .primaryKey()
      .references(() => servers.id, { onDelete: 'cascade' }),
    /** What it is about: a server that has moved has not been visited. */
    remoteUrl: text('remote_url').notNull(),
    state: text().notNull().$type<HealthState>(),
    latencyMs: integer('latency_ms'),
    checkedAt: instant('checked_at').notNull(),
    lastOkAt: instant('last_ok_at'),
    failures: integer().notNull(),
    deadSince: instant('dead_since'),
    /** By the database's clock, the same for all processes. */
    writtenAt: instant('written_at').notNull().defaultNow(),
  },
  table => [
    index('server_health_written_at').on(table.writtenAt),
    check('server_health_state', sql`${table.state} in ('ok', 'needs_sign_in', 'not_mcp', 'unreachable')`),
  ],
);

/** The last definition of each tool that its server has listed itself: what the next one is compared with. */
export const toolDefinitions = pgTable(
  'tool_definitions',
  {
    serverId: text('server_id').notNull(),
    tool: text().notNull(),
    hash: text().notNull(),
    firstSeenAt: instant('first_seen_at').notNull(),
    /** Whether it took the place of another one. */
    changed: boolean().notNull(),
  },
  table => [primaryKey({ columns: [table.serverId, table.tool] })],
);

/** Content-addressed vectors: two embedders, or two versions of a text, never mix. */
export const embeddings = pgTable(
  'embeddings',
  {
    embedder: text().notNull(),
    /** SHA-256 of the embedded text. */
    textHash: bytea('text_hash').notNull(),
    vector: bytea().notNull(),
  },
  table => [primaryKey({ columns: [table.embedder, table.textHash] })],
);

/** Proxied calls and verdicts on them a day: what `use-tally.ts` computes from. */
export const serverUsage = pgTable(
  'server_usage',
  {
    serverId: text('server_id').notNull(),
    tenantId: text('tenant_id').notNull(),
    day: date().notNull(),
    successes: integer().notNull().default(0),
    failures: integer().notNull().default(0),
    helpful: integer().notNull().default(0),
    unhelpful: integer().notNull().default(0),
  },
  table => [
    primaryKey({ columns: [table.serverId, table.tenantId, table.day] }),
    index('server_usage_day').on(table.day),
  ],
);

export const queryLog = pgTable(
  'query_log',
  {
    id: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    keyId: text('key_id').notNull(),
    query: text().notNull(),
    serverIds: jsonb('server_ids').notNull().$type<readonly string[]>(),
    latencyMs: doublePrecision('latency_ms').notNull(),
    cacheHit: boolean('cache_hit').notNull(),
    createdAt: createdAt(),
  },
  table => [index('query_log_created_at').on(table.createdAt)],
);

/** What became of a search's results: of each server (and tool) the last call that named the search, and the last verdict. */
export const searchOutcomes = pgTable(
  'search_outcomes',
  {
    queryLogId: text('query_log_id').notNull(),
    serverId: text('server_id').notNull(),
    /** '' where it is of no one tool. */
    tool: text().notNull(),
    source: text().notNull().$type<OutcomeSource>(),
    outcome: text().notNull().$type<SearchOutcome>(),
    tenantId: text('tenant_id').notNull(),
    createdAt: createdAt(),
  },
  table => [
    primaryKey({ columns: [table.queryLogId, table.serverId, table.tool, table.source] }),
    index('search_outcomes_created_at').on(table.createdAt),
  ],
);

/**
 * Tool results that are kept for a few minutes so that they can be read on (`results/results.ts`). This table and the next
 * are UNLOGGED (`drizzle/`): a cache needs no write-ahead log, which the embedded database would keep until its next start.
 */
export const keptResults = pgTable(
  'kept_results',
  {
    handle: text().primaryKey(),
    tenantId: text('tenant_id').notNull(),
    keyId: text('key_id').notNull(),
    /** '' for a caller without a user. */
    userId: text('user_id').notNull(),
    /** The room it takes up here, all parts together. */
    bytes: integer().notNull(),
    /** Its length in code points; null until all parts are written. */
    totalChars: integer('total_chars'),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [index('kept_results_key').on(table.keyId), index('kept_results_expires_at').on(table.expiresAt)],
);

/** The texts of kept results in parts of equal length (0, 1, …), each sealed. One without its result goes at its own time. */
export const keptResultParts = pgTable(
  'kept_result_parts',
  {
    handle: text().notNull(),
    part: integer().notNull(),
    sealed: text().notNull(),
    expiresAt: instant('expires_at').notNull(),
  },
  table => [
    primaryKey({ columns: [table.handle, table.part] }),
    index('kept_result_parts_expires_at').on(table.expiresAt),
  ],
);

/** Small facts about this installation, such as the fingerprint of the shipped catalogue that was loaded last. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });

/** In an upsert: the value the conflicting row was to have. */
export const excluded = (column: string) => sql.raw(`excluded.${column}`);
