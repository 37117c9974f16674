import { sql } from 'drizzle-orm';
import {
  boolean,
  customType,
  date,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  timestamp,
} from 'drizzle-orm/pg-core';
import type { AuthSpec, Tool, Transport } from './catalogue/entry.ts';
import type { Scope } from './caller.ts';

/**
 * Every table of Switchboard; `drizzle/` holds the migrations generated from it (`npm run db:generate`). One schema for
 * PGlite and, later, Postgres.
 */
const bytea = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => 'bytea' });
const createdAt = () => timestamp('created_at', { withTimezone: true }).notNull().defaultNow();
const instant = (name: string) => timestamp(name, { withTimezone: true });

export const tenants = pgTable('tenants', { id: text().primaryKey(), createdAt: createdAt() });

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
    createdAt: createdAt(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
    lastUsedAt: instant('last_used_at'),
  },
  table => [index('api_keys_tenant').on(table.tenantId)],
);

export const servers = pgTable('servers', {
  id: text().primaryKey(),
  name: text().notNull(),
  description: text().notNull(),
  remoteUrl: text('remote_url').notNull(),
  transport: text().$type<Transport>(),
  auth: jsonb().notNull().$type<AuthSpec>(),
  homepage: text(),
  repository: text(),
  categories: jsonb().notNull().$type<readonly string[]>(),
  tools: jsonb().notNull().$type<readonly Tool[]>(),
  /** Who put it here: an upgrade rewrites `shipped` rows and leaves `operator` rows alone. */
  origin: text().notNull().$type<'shipped' | 'operator'>(),
  active: boolean().notNull(),
  createdAt: createdAt(),
  updatedAt: instant('updated_at').notNull().defaultNow(),
});

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

/** Proxied calls a day: what popularity is computed from. */
export const serverUsage = pgTable(
  'server_usage',
  {
    serverId: text('server_id').notNull(),
    tenantId: text('tenant_id').notNull(),
    day: date().notNull(),
    successes: integer().notNull().default(0),
    failures: integer().notNull().default(0),
  },
  table => [primaryKey({ columns: [table.serverId, table.tenantId, table.day] })],
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

/** Small facts about this installation, such as the fingerprint of the shipped catalogue that was loaded last. */
export const settings = pgTable('settings', { key: text().primaryKey(), value: text().notNull() });

/** In an upsert: the value the conflicting row was to have. */
export const excluded = (column: string) => sql.raw(`excluded.${column}`);
