import { and, eq, gt, gte, isNotNull, lt, lte, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../errors.ts';
import { Repeat, slices, type Clock } from '../../platform/time.ts';
import { rows, whyFailed, type Database } from '../../platform/database/database.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { newId } from '../../platform/ids.ts';
import { codePointsIn, indexAfter, quoted } from '../../platform/sanitize.ts';
import type { Sealing } from '../../platform/sealing.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import { ThrottledLog } from '../../platform/telemetry/throttled-log.ts';
import type { Caller } from '../access/caller.ts';
import { findLines, LOOK_BACK, type TextPart } from './find-lines.ts';
import { keptResultParts as partsTable, keptResults as table } from './schema.ts';

const MIB = 1024 * 1024;

/** The limits of one read, and its default. Lengths are in code points. */
export const MAX_READ_CHARS = 100_000;
export const DEFAULT_READ_CHARS = 20_000;
export const MAX_FIND_CHARS = 200;

const KEPT_MS = 10 * 60_000;
const PURGE_EVERY_MS = 60_000;
/** The number of code points per part. The embedded database writes a value in one go, on the main thread. */
const PART_CHARS = 65_536;
/** The parts per statement: one if the database is on the main thread, more if each costs a round trip. */
const PARTS_AT_ONCE = { embedded: 1, shared: 8 };
/** The number of parts deleted per statement. */
const DELETED_AT_ONCE = { batchRows: 16 };
/** The embedded database is vacuumed after this many changed parts. */
const DELETED_BETWEEN = { ...DELETED_AT_ONCE, maxRows: 192 };
/** The approximate bytes of a row besides its text. */
const ROW_BYTES = 256;
const PURPOSE = 'kept-result';

/** Limits in bytes. The limits per key and in total count sealed parts, which are a third larger than the text. */
export interface ResultLimits {
  /** The text of one result in UTF-8. The proxy accepts as much from a server. */
  readonly maxResultBytes: number;
  /** The results of one key. The oldest are deleted first. */
  readonly maxKeyBytes: number;
  /** All results. Beyond this, nothing is stored until others have expired. */
  readonly maxAllBytes: number;
}

const DEFAULT_LIMITS: ResultLimits = {
  maxResultBytes: 8 * MIB,
  maxKeyBytes: 64 * MIB,
  maxAllBytes: 512 * MIB,
};

export interface Kept {
  /** `res_…` */
  readonly handle: string;
  readonly expiresAtMs: number;
}

/** A piece of a stored result. Offsets and lengths are in code points. */
export interface KeptPart extends Kept {
  readonly offset: number;
  readonly text: string;
  /** The offset to continue from; absent at the end. */
  readonly nextOffset?: number;
  readonly totalChars: number;
}

export interface FoundLines extends Kept {
  /** The matches in order, each with the offset of its text. */
  readonly matches: readonly { readonly offset: number; readonly text: string }[];
  /** The offset of the first match that did not fit, which is the `from` of the next search. Absent if all did. */
  readonly nextFrom?: number;
  readonly totalChars: number;
}

interface ResultsParts {
  readonly db: Database;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly clock: Clock;
  readonly log: Log;
  /** True if the database is a server, which other processes may use as well. */
  readonly shared: boolean;
  readonly limits?: Partial<ResultLimits> | undefined;
}

type Head = Kept & { readonly totalChars: number };

/**
 * Stores tool results for ten minutes, so that an agent can read the rest of a truncated result. They are in the database,
 * sealed for the key and the user of the call. Every process on the database can read them, and none keeps them in memory.
 *
 * A result is written as a row without a length, which reserves its space, then its parts, and finally the length. It cannot
 * be read before that. A result left half-written by a killed process expires like all others.
 */
export class Results {
  readonly #parts: ResultsParts;
  readonly #limits: ResultLimits;
  readonly #partsAtOnce: number;
  readonly #log: ThrottledLog;
  readonly #purging: Repeat;
  /** The number of parts written or deleted since the last vacuum of the embedded database. */
  #changedParts = 0;

  constructor(parts: ResultsParts) {
    this.#parts = parts;
    this.#limits = { ...DEFAULT_LIMITS, ...parts.limits };
    this.#partsAtOnce = parts.shared ? PARTS_AT_ONCE.shared : PARTS_AT_ONCE.embedded;
    this.#log = new ThrottledLog(parts.log, parts.clock);
    this.#purging = new Repeat(PURGE_EVERY_MS, () =>
      this.purge().catch((error: unknown) =>
        parts.log.warn(whyFailed(error), 'failed to delete expired results'),
      ),
    );
  }

  /** Starts deleting expired results once a minute. */
  start(): void {
    this.#purging.start();
  }

  close(): Promise<void> {
    return this.#purging.stop();
  }

  /**
   * Stores a text. Never throws. Resolves to undefined if it is not stored: it is too big, there is no space, the database is
   * unavailable, or the caller has disconnected.
   */
  async keep(caller: Caller, text: string): Promise<Kept | undefined> {
    const textBytes = Buffer.byteLength(text);
    if (textBytes > this.#limits.maxResultBytes) return this.#notKept({ reason: 'too big', textBytes });
    const kept = { handle: newId('res'), expiresAtMs: this.#parts.clock.now() + KEPT_MS };
    try {
      const partCount = Math.ceil(text.length / PART_CHARS) + 1;
      const bytes = Math.ceil((textBytes * 4) / 3) + partCount * ROW_BYTES;
      if (!(await this.#reserve(caller, kept, bytes))) return this.#notKept({ reason: 'no room', bytes });
      const totalChars = await this.#write(caller, kept, text);
      const whole = await this.#parts.db
        .update(table)
        .set({ totalChars })
        .where(eq(table.handle, kept.handle))
        .returning({ handle: table.handle });
      if (whole.length > 0) return kept;
      // Newer results of this key have taken its space in the meantime.
      await this.#deleteParts(kept.handle);
      return undefined;
    } catch (error) {
      if (!caller.signal.aborted) return this.#notKept(whyFailed(error));
      // If the database fails here too, its parts stay until they expire.
      await this.#delete(kept.handle).catch(() => {});
      return undefined;
    }
  }

  /** Reads a piece. @throws SwitchboardError `result_not_found`; `invalid_request` for an offset beyond the end */
  async read(
    caller: Caller,
    { handle, offset, maxChars }: { handle: string; offset: number; maxChars: number },
  ): Promise<KeptPart> {
    const head = await this.#headOf(caller, handle);
    const { totalChars } = head;
    requireWithin(totalChars, 'offset', offset);
    const end = Math.min(totalChars, offset + maxChars);
    const pieces: string[] = [];
    for await (const part of this.#texts(caller, head, offset, end)) {
      const from = indexAfter(part.text, Math.max(0, offset - part.offset));
      pieces.push(part.text.slice(from, indexAfter(part.text, end - Math.max(offset, part.offset), from)));
    }
    return { ...head, offset, text: pieces.join(''), ...(end < totalChars ? { nextOffset: end } : {}) };
  }

  /**
   * Finds plain text of 1 to 200 characters, ignoring case.
   * @param from matches before this offset are skipped
   * @param maxChars for all pieces together
   * @throws SwitchboardError `result_not_found`; `invalid_request` for an invalid length of `find`, or a `from` beyond the end
   */
  async find(
    caller: Caller,
    { handle, find, from = 0, maxChars }: { handle: string; find: string; from?: number; maxChars: number },
  ): Promise<FoundLines> {
    const findChars = codePointsIn(find);
    if (findChars < 1 || findChars > MAX_FIND_CHARS)
      throw new SwitchboardError('invalid_request', `find: must have 1 to ${MAX_FIND_CHARS} characters`);
    const head = await this.#headOf(caller, handle);
    requireWithin(head.totalChars, 'from', from);
    const texts = this.#texts(caller, head, Math.max(0, from - LOOK_BACK), head.totalChars);
    return { ...head, ...(await findLines(texts, { find, from, maxChars })) };
  }

  /** Deletes expired results and parts. Resolves to the number of results. */
  async purge(): Promise<number> {
    const { db, clock } = this.#parts;
    const now = new Date(clock.now());
    for (let parts = Infinity; parts >= DELETED_BETWEEN.maxRows;) {
      parts = await purgeWhere(db, partsTable, lte(partsTable.expiresAt, now), DELETED_BETWEEN);
      await this.#makeRoom(parts);
    }
    return purgeWhere(db, table, lte(table.expiresAt, now));
  }

  /**
   * Reserves space: first counts the result among the stored ones and then checks the limit. Of concurrent processes, the
   * last one sees the others.
   */
  async #reserve(caller: Caller, { handle, expiresAtMs }: Kept, bytes: number): Promise<boolean> {
    const { db } = this.#parts;
    const { maxKeyBytes, maxAllBytes } = this.#limits;
    if (bytes > maxKeyBytes) return false;
    await db.insert(table).values({ handle, ...ownerOf(caller), bytes, expiresAt: new Date(expiresAtMs) });
    const [sums] = await rows<{ all: number; own: number }>(
      db,
      sql`select coalesce(sum(${table.bytes}), 0) "all",
          coalesce(sum(${table.bytes}) filter (where ${table.keyId} = ${caller.keyId}), 0) own from ${table}`,
    );
    let all = sums?.all ?? 0;
    if ((sums?.own ?? 0) > maxKeyBytes) all -= await this.#displace(caller.keyId, maxKeyBytes);
    if (all <= maxAllBytes) return true;
    await this.#delete(handle);
    return false;
  }

  /**
   * Deletes the oldest results of a key until the rest have at most `leftBytes`. Resolves to the bytes deleted. Concurrent
   * processes delete the same result, which may be the one being written.
   */
  async #displace(keyId: string, leftBytes: number): Promise<number> {
    const { db } = this.#parts;
    const all = db
      .select({
        handle: table.handle,
        upTo: sql<number>`sum(${table.bytes}) over (order by ${table.expiresAt} desc, ${table.handle})`.as(
          'up_to',
        ),
      })
      .from(table)
      .where(eq(table.keyId, keyId))
      .as('all_of_key');
    const oldest = db.select({ handle: all.handle }).from(all).where(gt(all.upTo, leftBytes));
    const gone = await db
      .delete(table)
      .where(sql`${table.handle} in ${oldest}`)
      .returning({ handle: table.handle, bytes: table.bytes });
    let bytes = 0;
    for (const one of gone) {
      bytes += one.bytes;
      await this.#deleteParts(one.handle);
    }
    return bytes;
  }

  async #delete(handle: string): Promise<void> {
    await this.#parts.db.delete(table).where(eq(table.handle, handle));
    await this.#deleteParts(handle);
  }

  async #deleteParts(handle: string): Promise<void> {
    const isPart = eq(partsTable.handle, handle);
    await this.#makeRoom(await purgeWhere(this.#parts.db, partsTable, isPart, DELETED_AT_ONCE));
  }

  /**
   * Lets the embedded database reuse the space of deleted parts, which a server does automatically. Written parts count as
   * well: a vacuum reads everything added since the last one, and at 500 MB that blocked the event loop for a second.
   */
  async #makeRoom(changedParts: number): Promise<void> {
    this.#changedParts += changedParts;
    if (this.#parts.shared || this.#changedParts < DELETED_BETWEEN.maxRows) return;
    this.#changedParts = 0;
    // A failure does not stop storing and deleting.
    await this.#parts.db
      .execute(sql`vacuum ${table}, ${partsTable}`)
      .catch((error: unknown) => this.#parts.log.warn(whyFailed(error), 'failed to vacuum stored results'));
  }

  /** Writes all parts. Resolves to the length in code points. */
  async #write(caller: Caller, { handle, expiresAtMs }: Kept, text: string): Promise<number> {
    const { db, sealing, clock } = this.#parts;
    const pause = slices(caller.signal);
    const expiresAt = new Date(expiresAtMs);
    let totalChars = 0;
    let part = 0;
    for (let at = 0; at < text.length;) {
      const values = [];
      while (at < text.length && values.length < this.#partsAtOnce) {
        const end = indexAfter(text, PART_CHARS, at);
        totalChars += end === text.length ? codePointsIn(text, at) : PART_CHARS;
        const bound = bindingOf(caller, handle, part);
        const sealed = sealing.seal(PURPOSE, bound, text.slice(at, end), expiresAtMs - clock.now());
        values.push({ handle, part: part++, sealed, expiresAt });
        at = end;
      }
      await pause();
      await db.insert(partsTable).values(values);
      await this.#makeRoom(values.length);
    }
    return totalChars;
  }

  async #headOf(caller: Caller, handle: string): Promise<Head> {
    if (!isHandle(handle)) throw notFound(handle);
    const { db, clock } = this.#parts;
    const { tenantId, keyId, userId } = ownerOf(caller);
    const [row] = await db
      .select({ totalChars: table.totalChars, expiresAt: table.expiresAt })
      .from(table)
      .where(
        and(
          eq(table.handle, handle),
          eq(table.tenantId, tenantId),
          eq(table.keyId, keyId),
          eq(table.userId, userId),
          isNotNull(table.totalChars),
          gt(table.expiresAt, new Date(clock.now())),
        ),
      );
    if (typeof row?.totalChars !== 'number') throw notFound(handle);
    return { handle, totalChars: row.totalChars, expiresAtMs: row.expiresAt.getTime() };
  }

  /** Yields the parts with the text between two offsets, in order. */
  async *#texts(
    caller: Caller,
    { handle, totalChars }: Head,
    from: number,
    to: number,
  ): AsyncGenerator<TextPart> {
    const pause = slices(caller.signal);
    const end = Math.ceil(to / PART_CHARS);
    const last = Math.ceil(totalChars / PART_CHARS) - 1;
    for (let part = Math.floor(from / PART_CHARS); part < end;) {
      const next = Math.min(end, part + this.#partsAtOnce);
      const found = await this.#parts.db
        .select({ sealed: partsTable.sealed })
        .from(partsTable)
        .where(and(eq(partsTable.handle, handle), gte(partsTable.part, part), lt(partsTable.part, next)))
        .orderBy(partsTable.part);
      for (const { sealed } of found) {
        await pause();
        const text = this.#parts.sealing.open(PURPOSE, bindingOf(caller, handle, part), sealed);
        if (text === undefined) throw notFound(handle);
        yield { offset: part * PART_CHARS, text, isLast: part === last };
        part++;
      }
      // The result has just expired or was displaced.
      if (part < next) throw notFound(handle);
    }
  }

  #notKept(why: object): undefined {
    this.#log.warn(why, 'failed to store a tool result');
  }
}

const isHandle = (text: string): boolean => /^res_[0-9A-Za-z]{22}$/.test(text);

const ownerOf = ({ tenantId, keyId, subject }: Caller) => ({
  tenantId,
  keyId,
  userId: subject?.userId ?? '',
});

const bindingOf = (caller: Caller, handle: string, part: number): string[] => {
  const { tenantId, keyId, userId } = ownerOf(caller);
  return [tenantId, keyId, userId, handle, String(part)];
};

const notFound = (handle: string): SwitchboardError =>
  new SwitchboardError(
    'result_not_found',
    `There is no stored result ${quoted(handle)}. Results are stored for at most 10 minutes, and only for the key and the user that made the call. Repeat the call.`,
  );

function requireWithin(totalChars: number, field: 'offset' | 'from', value: number): void {
  if (value <= totalChars) return;
  throw new SwitchboardError(
    'invalid_request',
    `${field}: must be at most ${totalChars}, the length of the result in characters`,
  );
}
