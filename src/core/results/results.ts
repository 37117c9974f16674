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
/** The code points of a part. The embedded database writes a value in one go, on the main thread. */
const PART_CHARS = 65_536;
/** The parts in one statement: one where the database is on the main thread, more where each costs a round trip. */
const PARTS_AT_ONCE = { embedded: 1, shared: 8 };
/** The parts that are deleted in one statement. */
const DELETED_AT_ONCE = { batchRows: 16 };
/** After so many changed parts the embedded database makes room. */
const DELETED_BETWEEN = { ...DELETED_AT_ONCE, maxRows: 192 };
/** Roughly the bytes of a row besides its text. */
const ROW_BYTES = 256;
const PURPOSE = 'kept-result';

/** Limits in bytes. Those of a key and of all count sealed parts, which are a third larger than the text. */
export interface ResultLimits {
  /** The text of one result in UTF-8. The proxy takes as much of a server. */
  readonly maxResultBytes: number;
  /** The results of one key. The oldest give way to the newest. */
  readonly maxKeyBytes: number;
  /** All results. Beyond it nothing is kept until others have expired. */
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

/** A piece of a kept result. Offsets and lengths are in code points. */
export interface KeptPart extends Kept {
  readonly offset: number;
  readonly text: string;
  /** The offset to go on at; absent at the end. */
  readonly nextOffset?: number;
  readonly totalChars: number;
}

export interface FoundLines extends Kept {
  /** The matches in order, each with the offset of its text. */
  readonly matches: readonly { readonly offset: number; readonly text: string }[];
  /** The offset of the first match that had no room, which is the `from` of the next search. Absent when all are there. */
  readonly nextFrom?: number;
  readonly totalChars: number;
}

interface ResultsParts {
  readonly db: Database;
  readonly sealing: Pick<Sealing, 'seal' | 'open'>;
  readonly clock: Clock;
  readonly log: Log;
  /** True when the database is a server, which other processes may use as well. */
  readonly shared: boolean;
  readonly limits?: Partial<ResultLimits> | undefined;
}

type Head = Kept & { readonly totalChars: number };

/**
 * Keeps tool results for ten minutes, so that an agent can read on in a result that was cut for it. They lie in the database,
 * sealed for the key and the user that they were made for. Every process on the database reads them, and none keeps them in
 * memory.
 *
 * A result is written as a row without a length, which reserves its room, then its parts, and last the length. It cannot be
 * read before that. A result that a killed process left half-written expires like all others.
 */
export class Results {
  readonly #parts: ResultsParts;
  readonly #limits: ResultLimits;
  readonly #partsAtOnce: number;
  readonly #log: ThrottledLog;
  readonly #purging: Repeat;
  /** The parts written or deleted since the embedded database made room last. */
  #changedParts = 0;

  constructor(parts: ResultsParts) {
    this.#parts = parts;
    this.#limits = { ...DEFAULT_LIMITS, ...parts.limits };
    this.#partsAtOnce = parts.shared ? PARTS_AT_ONCE.shared : PARTS_AT_ONCE.embedded;
    this.#log = new ThrottledLog(parts.log, parts.clock);
    this.#purging = new Repeat(PURGE_EVERY_MS, () =>
      this.purge().catch((error: unknown) => parts.log.warn(whyFailed(error), 'expired results not deleted')),
    );
  }

  /** Deletes expired results once a minute from now on. */
  start(): void {
    this.#purging.start();
  }

  close(): Promise<void> {
    return this.#purging.stop();
  }

  /**
   * Keeps a text. Never throws. Resolves to undefined when it is not kept: it is too big, there is no room, the database does
   * not take it, or the caller has gone.
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
      // Newer results of this key have taken its place meanwhile.
      await this.#deleteParts(kept.handle);
      return undefined;
    } catch (error) {
      if (!caller.signal.aborted) return this.#notKept(whyFailed(error));
      // If the database fails here too, its parts stay until they expire.
      await this.#delete(kept.handle).catch(() => {});
      return undefined;
    }
  }

  /** Reads a piece. @throws SwitchboardError `result_not_found`; `invalid_request` for an offset beyond the end. */
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
   * Finds plain text of 1 to 200 characters, in either case.
   * @param from hits before this offset do not count
   * @param maxChars of all pieces together
   * @throws SwitchboardError `result_not_found`; `invalid_request` for a `find` of another length, or a `from` beyond the end.
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
   * Reserves room: it counts the result among the kept ones first and then looks whether there is room. Of processes that do
   * so at the same time, the last one sees the others.
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
   * Deletes the oldest results of a key until those left have at most `leftBytes`. Resolves to the bytes that the deleted
   * ones had. Two processes at the same time delete the same result, which may be the one that is being written.
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
   * Lets the embedded database use the room of deleted parts again, which a server does by itself. Written parts count, too:
   * a vacuum reads through all that none has seen yet, and at 500 MB that held the event loop for a second.
   */
  async #makeRoom(changedParts: number): Promise<void> {
    this.#changedParts += changedParts;
    if (this.#parts.shared || this.#changedParts < DELETED_BETWEEN.maxRows) return;
    this.#changedParts = 0;
    // A failure does not stop keeping and deleting.
    await this.#parts.db
      .execute(sql`vacuum ${table}, ${partsTable}`)
      .catch((error: unknown) => this.#parts.log.warn(whyFailed(error), 'kept results not vacuumed'));
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

  /** Yields the parts that hold the text from one offset to another, in order. */
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
      // The result has just expired, or given way.
      if (part < next) throw notFound(handle);
    }
  }

  #notKept(why: object): undefined {
    this.#log.warn(why, 'tool result not kept');
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
    `There is no kept result ${quoted(handle)}: a result is kept for 10 minutes, for the key and the user that made the call, and may give way to newer ones. Make the call again.`,
  );

function requireWithin(totalChars: number, field: 'offset' | 'from', value: number): void {
  if (value <= totalChars) return;
  throw new SwitchboardError(
    'invalid_request',
    `${field}: must be at most ${totalChars}, the length of the result in characters`,
  );
}
