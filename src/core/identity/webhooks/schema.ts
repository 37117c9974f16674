import { sql } from 'drizzle-orm';
import { index, integer, pgTable, text, uniqueIndex } from 'drizzle-orm/pg-core';
import { createdAt, instant } from '../../../platform/database/columns.ts';
import { tenants } from '../../access/schema.ts';

/** The address that a tenant's events are sent to. */
export const webhooks = pgTable('webhooks', {
  tenantId: text('tenant_id')
    .primaryKey()
    .references(() => tenants.id),
  url: text().notNull(),
  createdAt: createdAt(),
  /** When the receiver answered 410 Gone. Nothing is recorded or sent until the address is set again. */
  disabledAt: instant('disabled_at'),
});

const ofWebhook = () =>
  text('tenant_id')
    .notNull()
    .references(() => webhooks.tenantId, { onDelete: 'cascade' });

/** The secrets that sign a tenant's webhooks: the current one, and older ones until their overlap ends. */
export const webhookSecrets = pgTable(
  'webhook_secrets',
  {
    id: text().primaryKey(),
    tenantId: ofWebhook(),
    sealed: text().notNull(),
    createdAt: createdAt(),
    /** Null for the current secret. */
    expiresAt: instant('expires_at'),
  },
  table => [
    index('webhook_secrets_tenant').on(table.tenantId),
    uniqueIndex('webhook_secrets_one_current')
      .on(table.tenantId)
      .where(sql`${table.expiresAt} is null`),
  ],
);

/** Events waiting to be sent. */
export const webhookOutbox = pgTable(
  'webhook_outbox',
  {
    /** The `webhook-id`: the same for every attempt. */
    id: text().primaryKey(),
    tenantId: ofWebhook(),
    type: text().notNull(),
    /** The body as it is signed and sent, byte for byte. Has the caller's own id for the user, and no secret. */
    body: text().notNull(),
    attempts: integer().notNull().default(0),
    /** Why the last attempt failed. */
    failure: text(),
    nextAt: instant('next_at').notNull().defaultNow(),
    createdAt: createdAt(),
  },
  table => [
    index('webhook_outbox_next_at').on(table.tenantId, table.nextAt),
    index('webhook_outbox_created_at').on(table.tenantId, table.createdAt),
  ],
);
