import {
  boolean,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
} from 'drizzle-orm/pg-core';
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

/**
 * The words and vectors of each server, in the form in which search with Meilisearch reads them (`index/evidence/evidence.ts`). It can be
 * computed again from the catalogue and `embeddings`.
 */
export const searchDocuments = pgTable(
  'search_documents',
  {
    /** SHA-256 of the embedder and of the server's texts. */
    hash: bytea().primaryKey(),
    embedder: text().notNull(),
    words: bytea().notNull(),
    vectors: bytea().notNull(),
    /** Tells whether the vectors are other ones; 0 if there are none. */
    vectorsHash: integer('vectors_hash').notNull(),
    /** False if vectors are missing or must be read again. */
    isComplete: boolean('is_complete').notNull(),
    /** The hashes of the different terms. */
    terms: integer().array().notNull(),
    /** When a change of the catalogue last needed it, or up to twelve hours before. */
    createdAt: createdAt(),
  },
  table => [index('search_documents_terms').using('gin', table.terms)],
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
