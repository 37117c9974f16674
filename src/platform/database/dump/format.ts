import { z } from 'zod';

/** A file that cannot be read in, or a database that it cannot be read into. Nothing has changed then. */
export class ImportRefused extends Error {
  override readonly name = 'ImportRefused';
}

export const FORMAT = 1;

/**
 * The first line of a dump. The file is gzipped JSON Lines: this line; then of each table, in this order, a line
 * `{"table": name}` and a line for each row, an array of the columns' values in Postgres' text form, or null; last `{"end": rows}`.
 */
export const headerSchema = z.object({
  switchboard_export: z.literal(FORMAT),
  /** Of the program that wrote it. */
  version: z.string(),
  /** The newest migration of the database it came from. */
  migration: z.string(),
  exported_at: z.string(),
  tables: z.array(
    z.object({ name: z.string(), columns: z.array(z.string()), rows: z.number().int().nonnegative() }),
  ),
  sequences: z.array(z.object({ name: z.string(), value: z.string(), used: z.boolean() })),
});
export type Header = z.output<typeof headerSchema>;

/** Hears how far an export or an import is. */
export type OnRows = (progress: { readonly done: number; readonly of: number }) => void;

export const rowsIn = ({ tables }: Pick<Header, 'tables'>): number =>
  tables.reduce((sum, { rows }) => sum + rows, 0);
