import type { z } from 'zod';
import { isStorable } from '../../platform/json/limits.ts';
import { slices } from '../../platform/time.ts';
import { inWords } from '../../platform/zod-issues.ts';
import { variablesProblem } from './credential-schema.ts';
import { entrySchema, type Entry } from './entry.ts';

interface LineProblem {
  /** 1-based. */
  readonly line: number;
  readonly reason: string;
  /** The id of the line's server, if it is readable. */
  readonly id?: string;
}

export interface ReadEntries {
  readonly entries: Entry[];
  readonly problems: LineProblem[];
  /** Names of unknown fields, without duplicates. */
  readonly unknownFields: readonly string[];
}

export interface ReadOptions {
  /** Accepts `http:` addresses, for local development. */
  readonly allowHttp: boolean;
  /** Returns an equal entry that takes less memory. */
  readonly compact?: (entry: Entry) => Entry;
}

/**
 * Reads a catalogue: JSON Lines with one server per line. A bad line becomes a problem with its number; the others are still
 * read. Blank lines are skipped. Of duplicate ids, the last line wins.
 */
export function readEntries(text: string, options: ReadOptions): ReadEntries {
  const reading = new Reading(options);
  for (const line of text.replace(/^\uFEFF/, '').split(LINE_BREAK)) for (const _ of reading.add(line));
  return reading.result();
}

/** Reads a catalogue from a stream of UTF-8 bytes like `readEntries`, and yields to the event loop. */
export async function readEntryStream(
  chunks: AsyncIterable<Uint8Array>,
  options: ReadOptions,
): Promise<ReadEntries> {
  const pause = slices();
  const reading = new Reading(options);
  for await (const line of linesOf(chunks)) {
    for (const _ of reading.add(line)) await pause();
    await pause();
  }
  return reading.result();
}

const LINE_BREAK = /\r\n|\n|\r/;

async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  /** Pieces of the unfinished line. */
  let pieces: string[] = [];
  let carried = '';
  for await (const chunk of chunks) {
    const text = carried + decoder.decode(chunk, { stream: true });
    // A carriage return may be the first half of a line break.
    carried = text.endsWith('\r') ? '\r' : '';
    const [first = '', ...others] = text.slice(0, text.length - carried.length).split(LINE_BREAK);
    pieces.push(first);
    for (const line of others) {
      yield pieces.join('');
      pieces = [line];
    }
  }
  yield pieces.join('') + decoder.decode();
}

/** Collects entries and problems, line by line. */
class Reading {
  readonly #options: ReadOptions;
  readonly #byId = new Map<string, Entry>();
  readonly #problems: LineProblem[] = [];
  readonly #unknown = new Set<string>();
  #line = 0;

  constructor(options: ReadOptions) {
    this.#options = options;
  }

  /** Yields between the steps of a line, which may be long. */
  *add(line: string): Generator<void> {
    this.#line++;
    if (line.trim() === '') return;
    const read = yield* readLine(line, this.#options);
    if ('reason' in read) {
      this.#problems.push({ line: this.#line, ...read });
      return;
    }
    for (const field of read.unknownFields) this.#unknown.add(field);
    this.#byId.delete(read.entry.id);
    this.#byId.set(read.entry.id, read.entry);
  }

  result(): ReadEntries {
    return {
      entries: [...this.#byId.values()],
      problems: this.#problems,
      unknownFields: [...this.#unknown].sort(),
    };
  }
}

/**
 * Fields from `access` on are added by `catalogue show` and ignored here: an imported entry is active and belongs to the importer.
 */
const KNOWN_FIELDS = new Set([
  ...Object.keys(entrySchema.shape),
  'access',
  'active',
  'health',
  'origin',
  'registry',
  'tools_source',
  'tools_listed_at',
  'unanswered',
]);

function* readLine(
  line: string,
  options: ReadOptions,
): Generator<void, { entry: Entry; unknownFields: string[] } | Omit<LineProblem, 'line'>> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return { reason: 'is not valid JSON' };
  }
  yield;
  const parsed = entrySchema.safeParse(value);
  yield;
  const reason = reasonAgainst(value, parsed, options);
  yield;
  if (parsed.success && reason === undefined) {
    return {
      entry: options.compact?.(parsed.data) ?? parsed.data,
      unknownFields: Object.keys(value as object).filter(key => !KNOWN_FIELDS.has(key)),
    };
  }
  return { reason: reason ?? '', ...idOf(value) };
}

function idOf(value: unknown): { id?: string } {
  const id = typeof value === 'object' && value !== null && 'id' in value ? value.id : undefined;
  return typeof id === 'string' ? { id } : {};
}

const describe = (error: z.ZodError): string => inWords(error.issues.slice(0, 1));

/** Returns why a value is no entry that can be catalogued, as for a line of a file; undefined if it is. */
export function entryProblem(value: unknown, options: ReadOptions): string | undefined {
  const parsed = entrySchema.safeParse(value);
  return reasonAgainst(value, parsed, options);
}

const reasonAgainst = (
  value: unknown,
  parsed: z.ZodSafeParseResult<Entry>,
  options: ReadOptions,
): string | undefined =>
  storageProblem(value) ?? (parsed.success ? addressProblem(parsed.data, options) : describe(parsed.error));

/** Returns why the address of an entry cannot be used, alone or with its variables. */
function addressProblem({ remote_url, auth }: Entry, { allowHttp }: ReadOptions): string | undefined {
  const url = new URL(remote_url);
  if (url.protocol === 'http:' && !allowHttp) {
    return 'remote_url: must be https (http: only with SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true)';
  }
  if (url.username !== '' || url.password !== '')
    return 'remote_url: must not contain a user name or password';
  return variablesProblem({ remoteUrl: remote_url, auth: auth ?? {} }, auth?.kind === 'static_header');
}

/** Limits nesting, because deeper schemas could attack recursive code. */
const MAX_DEPTH = 64;

/** Returns why a value cannot be stored. */
export function storageProblem(value: unknown, depth = 0): string | undefined {
  if (typeof value === 'string')
    return isStorable(value)
      ? undefined
      : 'contains a NUL character or an unpaired surrogate, which cannot be stored';
  if (typeof value !== 'object' || value === null) return undefined;
  if (depth === MAX_DEPTH) return `is nested more than ${MAX_DEPTH} levels deep`;
  for (const [key, member] of Object.entries(value)) {
    const problem = storageProblem(key) ?? storageProblem(member, depth + 1);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
