import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  date,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
} from 'drizzle-orm/pg-core';
import { createdAt, instant } from '../../platform/database/columns.ts';
import type { AuthSpec, CataloguedTool, LearnedAccess, Origin, RegistryMark, Transport } from './entry.ts';
import type { HealthState } from './health.ts';

/** Access as a server has shown it, and the address at which it did. */
interface StoredAccess {
  readonly remoteUrl: string;
  readonly access: LearnedAccess;
}

export const servers = pgTable(
  'servers',
  {
    id: text().primaryKey(),
    name: text().notNull(),
    description: text().notNull(),
    remoteUrl: text('remote_url').notNull(),
    transport: text().$type<Transport>(),
    auth: jsonb().notNull().$type<AuthSpec>(),
    /** Only `writeLearned` changes it; at another address it is not valid. Null: nothing was learned. */
    learned: jsonb().$type<StoredAccess>(),
    homepage: text(),
    repository: text(),
    categories: jsonb().notNull().$type<readonly string[]>(),
    /** Null: none. */
    examples: jsonb().$type<readonly string[]>(),
    /** Null: none. */
    integrations: jsonb().$type<readonly string[]>(),
    /** The first tools; the others are in `server_tool_parts`. */
    tools: jsonb().notNull().$type<readonly CataloguedTool[]>(),
    /** When the tools were last read from the server itself; null: they come from the entry. */
    toolsListedAt: instant('tools_listed_at'),
    /** Owner of the row: an upgrade rewrites `shipped` rows, a sync those of its registry; neither changes `operator` rows. */
    origin: text().notNull().$type<Origin>(),
    /** The source of a registry's entry; kept when the operator deactivates it. */
    registry: jsonb().$type<RegistryMark>(),
    active: boolean().notNull(),
    /** True if health checks deactivated it as unreachable; false if somebody else did. */
    unreachable: boolean('unanswered').notNull().default(false),
    /** The number of the transaction that last wrote the row or its parts; set by a trigger (`drizzle/`). */
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
 * The tools of a server beyond those in its row, in parts (1, 2, …): the embedded database writes a value in one go, on the
 * main thread.
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

/** Result of the last health check of a server. */
export const serverHealth = pgTable(
  'server_health',
  {
    serverId: text('server_id')
      .primaryKey()
      .references(() => servers.id, { onDelete: 'cascade' }),
    /** The address that was checked: a server that has moved counts as unchecked. */
    remoteUrl: text('remote_url').notNull(),
    state: text().notNull().$type<HealthState>(),
    latencyMs: integer('latency_ms'),
    checkedAt: instant('checked_at').notNull(),
    lastOkAt: instant('last_ok_at'),
    failures: integer().notNull(),
    deadSince: instant('dead_since'),
    /** The time by the database's clock, which all processes share. */
    writtenAt: instant('written_at').notNull().defaultNow(),
  },
  table => [
    index('server_health_written_at').on(table.writtenAt),
    check('server_health_state', sql`${table.state} in ('ok', 'needs_sign_in', 'not_mcp', 'unreachable')`),
  ],
);

/** The last definition of each tool that its server has listed itself, for comparison with the next one. */
export const toolDefinitions = pgTable(
  'tool_definitions',
  {
    serverId: text('server_id').notNull(),
    tool: text().notNull(),
    hash: text().notNull(),
    firstSeenAt: instant('first_seen_at').notNull(),
    /** True if the definition replaced another one. */
    changed: boolean().notNull(),
  },
  table => [primaryKey({ columns: [table.serverId, table.tool] })],
);

/** Proxied calls and feedback per day: the input of `usage.ts`. */
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
