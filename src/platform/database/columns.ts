import { sql } from 'drizzle-orm';
import { customType, timestamp, type AnyPgColumn } from 'drizzle-orm/pg-core';

/** Columns shared by many tables, for the `schema.ts` of each folder. */
export const bytea = customType<{ data: Uint8Array; driverData: Uint8Array }>({ dataType: () => 'bytea' });
export const createdAt = () => timestamp('created_at', { withTimezone: true }).notNull().defaultNow();
export const instant = (name: string) => timestamp(name, { withTimezone: true });

/** In an upsert: the value of the row that conflicted. */
export const excluded = (column: string) => sql.raw(`excluded.${column}`);

/** Returns a pattern (LIKE) for values that contain a text. */
export const containing = (text: string): string => `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;

/** The place of a row in a list that is ordered by creation, the newest first. */
export interface Place {
  /** By the database's clock, with its precision. */
  readonly createdAt: string;
  readonly id: string;
}

/** Returns the creation of a row as a `Place` has it. */
export const createdText = (column: AnyPgColumn) =>
  sql<string>`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** Matches the rows that come after a place in a list ordered by creation and id, both descending. */
export const isAfter = (
  { createdAt: created, id }: { readonly createdAt: AnyPgColumn; readonly id: AnyPgColumn },
  place: Place,
) => sql`(${created}, ${id}) < (${place.createdAt}::timestamptz, ${place.id})`;
