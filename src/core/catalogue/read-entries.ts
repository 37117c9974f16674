import type { z } from 'zod';
import { entrySchema, type Entry } from './entry.ts';

interface LineProblem {
  /** 1-based. */
  readonly line: number;
  readonly reason: string;
  /** The server the line was for, where that much could be read. */
  readonly id?: string;
}

export interface ReadEntries {
  readonly entries: Entry[];
  readonly problems: LineProblem[];
  /** Fields of catalogue lines that nothing here reads, each once. */
  readonly unknownFields: readonly string[];
}

export interface ReadOptions {
  /** `http:` addresses are for local development only. */
  readonly allowHttp: boolean;
}

/**
 * Reads a catalogue: JSON Lines, one server a line (DESIGN §2). A bad line becomes a problem with its number; the others
 * are still read. Blank lines are skipped. An id that stands on two lines counts with the last.
 */
export function readEntries(text: string, options: ReadOptions): ReadEntries {
  const byId = new Map<string, Entry>();
  const problems: LineProblem[] = [];
  const unknown = new Set<string>();
  const lines = text.replace(/^\uFEFF/, '').split(/\r\n|\n|\r/);
  for (const [index, line] of lines.entries()) {
    if (line.trim() === '') continue;
    const read = readLine(line, options);
    if ('reason' in read) {
      problems.push({ line: index + 1, ...read });
      continue;
    }
    for (const field of read.unknownFields) unknown.add(field);
    byId.delete(read.entry.id);
    byId.set(read.entry.id, read.entry);
  }
  return { entries: [...byId.values()], problems, unknownFields: [...unknown].sort() };
}

/** The last ones are what `catalogue show` adds; an entry that is read is active and the reader's. */
const KNOWN_FIELDS = new Set([
  ...Object.keys(entrySchema.shape),
  'active',
  'origin',
  'tools_source',
  'tools_listed_at',
]);

function readLine(
  line: string,
  options: ReadOptions,
): { entry: Entry; unknownFields: string[] } | Omit<LineProblem, 'line'> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return { reason: 'is not valid JSON' };
  }
  const parsed = entrySchema.safeParse(value);
  const reason =
    storageProblem(value) ??
    (parsed.success ? addressProblem(parsed.data.remote_url, options) : describe(parsed.error));
  if (parsed.success && reason === undefined) {
    return {
      entry: parsed.data,
      unknownFields: Object.keys(value as object).filter(key => !KNOWN_FIELDS.has(key)),
    };
  }
  const id = typeof value === 'object' && value !== null && 'id' in value ? value.id : undefined;
  return { reason: reason ?? '', ...(typeof id === 'string' ? { id } : {}) };
}

function describe(error: z.ZodError): string {
  const [issue] = error.issues;
  const field = issue?.path.join('.') ?? '';
  return `${field === '' ? '' : `${field}: `}${issue?.message ?? 'is not a catalogue entry'}`;
}

function addressProblem(address: string, { allowHttp }: ReadOptions): string | undefined {
  const url = new URL(address);
  if (url.protocol === 'http:' && !allowHttp) {
    return 'remote_url: must be https (http: only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)';
  }
  if (url.username !== '' || url.password !== '') return 'remote_url: must not hold a user name or password';
  return undefined;
}

/** A tool's schema nests; beyond this depth it is an attack on whoever walks it. */
const MAX_DEPTH = 64;

/** Postgres stores neither NUL nor half a surrogate pair. */
export function storageProblem(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string') {
    const storable = value.isWellFormed() && !value.includes('\0');
    return storable ? undefined : 'holds a NUL character or half a surrogate pair, which cannot be stored';
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth === MAX_DEPTH) return `nests deeper than ${MAX_DEPTH} levels`;
  for (const [key, member] of Object.entries(value)) {
    const problem = storageProblem(key) ?? storageProblem(member, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
