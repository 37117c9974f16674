import { boolean, doublePrecision, index, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytea, createdAt } from '../../platform/database/columns.ts';
import type { OutcomeSource, SearchOutcome } from '../feedback-types.ts';

/** Content-addressed vectors: embedders and versions of a text are never mixed. */
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

/** The outcomes of search results: for each server (and tool), the last call that named the search, and the last feedback. */
export const searchOutcomes = pgTable(
  'search_outcomes',
  {
    queryLogId: text('query_log_id').notNull(),
    serverId: text('server_id').notNull(),
    /** '' if it is not about a tool. */
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
