import { and, desc, eq, gte, lt, sql } from 'drizzle-orm';
import type { Clock } from '../../platform/time.ts';
import type { Database } from '../../platform/database/database.ts';
import { purgeWhere } from '../../platform/database/delete-in-batches.ts';
import { WriteBehind } from '../../platform/database/write-behind.ts';
import { storable } from '../../platform/sanitize.ts';
import type { Log } from '../../platform/telemetry/log.ts';
import type { Subject } from '../access/caller.ts';
import { apiKeys } from '../access/schema.ts';
import { userCalls, type CALL_OUTCOMES } from './schema.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const MAX_BUFFERED_ROWS = 10_000;
/** The days for which calls are kept. */
const RETENTION_DAYS = 30;
/** The rows that are kept of a user, the newest ones. */
export const MAX_OF_USER = 100;
/** Longer names are cut: an index row has room for 2,700 bytes. */
const MAX_TOOL_CHARS = 128;
/** Nearly all names need no change. */
const PLAIN_TOOL = /^[\x20-\x7e]{0,128}$/;

/**
 * `worked`: the tool ran without an error. `answered`: the server answered, but what is not known, or it asked for more. `refused`:
 * nothing was sent, or the server did not admit it. `stopped`: the caller went away before the end.
 */
export type CallOutcome = (typeof CALL_OUTCOMES)[number];

/** A call for a user that has ended. */
export interface EndedCall {
  readonly subject: Subject;
  readonly keyId: string;
  readonly serverId: string;
  /** The tool, or a name for a request that calls none. */
  readonly tool: string;
  readonly outcome: CallOutcome;
}

interface Row {
  readonly user_id: string;
  readonly epoch: number;
  /** In milliseconds, like `last_at`. */
  readonly minute: number;
  readonly server_id: string;
  readonly tool: string;
  readonly key_id: string;
  readonly outcome: CallOutcome;
  times: number;
  last_at: number;
}

/** Says who asked for a call or a connection. */
export interface Asker {
  /** `page`: the user; `operator`; otherwise the app, by one of its keys. */
  readonly keyId: string;
  /** The name of the API key; undefined if it has no row, such as the environment's. */
  readonly keyName: string | undefined;
  /** `own` and `client`: it acts for this user alone, and in the second case stands for an MCP client that the user has signed in. */
  readonly kind: 'app' | 'own' | 'client';
}

/** The columns of a key that its mention needs. */
export const ASKING_KEY = { name: apiKeys.name, userId: apiKeys.userId, clientId: apiKeys.clientId };

/** @param key the row of the API key, if there is one */
export const askerOf = (
  keyId: string,
  key: (Readonly<Record<'userId' | 'clientId', string | null>> & { readonly name: string }) | null,
  userId: string,
): Asker => {
  const kind = key?.userId !== userId ? 'app' : key.clientId === null ? 'own' : 'client';
  return { keyId, keyName: key?.name, kind };
};

/** Equal calls of one minute. */
export interface CallsShown {
  readonly serverId: string;
  readonly tool: string;
  readonly outcome: CallOutcome;
  readonly times: number;
  readonly lastAt: Date;
  readonly asker: Asker;
}

/**
 * Records what was called for users, for their own page. Calls neither wait nor cost a query: equal calls of a minute are counted in
 * memory and written once a second.
 */
export class UserCalls {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #rows: WriteBehind<Row>;
  /** The users whose rows were trimmed in this minute. */
  #trimmed = { minute: 0, users: new Set<string>() };

  constructor({ db, clock, log }: { db: Database; clock: Clock; log: Log }) {
    this.#db = db;
    this.#clock = clock;
    this.#rows = new WriteBehind<Row>({
      clock,
      log,
      what: "users' calls",
      keyOf,
      merge: added,
      maxRows: MAX_BUFFERED_ROWS,
      writeBatch: rows => this.#write(rows),
      purge: () => this.purge(),
    });
  }

  /** Never throws and never waits. */
  record({ subject, keyId, serverId, tool, outcome }: EndedCall): void {
    const now = this.#clock.now();
    this.#rows.put({
      user_id: subject.userId,
      epoch: subject.epoch,
      minute: now - (now % MINUTE_MS),
      server_id: serverId,
      tool: PLAIN_TOOL.test(tool) ? tool : storable(tool.slice(0, MAX_TOOL_CHARS)),
      key_id: keyId,
      outcome,
      times: 1,
      last_at: now,
    });
  }

  /** Lists what was called for a user lately, newest first, at most 100 rows. Calls of other processes show after a second. */
  async list(userId: string): Promise<CallsShown[]> {
    await this.#rows.flush();
    const found = await this.#db
      .select({ call: userCalls, key: ASKING_KEY })
      .from(userCalls)
      .leftJoin(apiKeys, and(eq(apiKeys.id, userCalls.keyId), eq(apiKeys.tenantId, userCalls.tenantId)))
      .where(and(eq(userCalls.userId, userId), gte(userCalls.minute, this.#since())))
      .orderBy(desc(userCalls.minute), desc(userCalls.lastAt))
      .limit(MAX_OF_USER);
    return found.map(({ call, key }) => ({
      serverId: call.serverId,
      tool: call.tool,
      outcome: call.outcome,
      times: call.times,
      lastAt: call.lastAt,
      asker: askerOf(call.keyId, key, userId),
    }));
  }

  /** Deletes rows after 30 days. Resolves to their number. */
  purge(): Promise<number> {
    return purgeWhere(this.#db, userCalls, lt(userCalls.minute, this.#since()));
  }

  close(): Promise<void> {
    return this.#rows.close();
  }

  #since(): Date {
    return new Date(this.#clock.now() - RETENTION_DAYS * DAY_MS);
  }

  /** Adds rows. Nothing is stored of a user who was revoked meanwhile: this and a revocation wait for each other. */
  async #write(batch: readonly Row[]): Promise<void> {
    await this.#trim(new Set(batch.map(row => row.user_id)));
    // Ordered, because processes that write the same rows in different orders would deadlock.
    await this.#db.execute(sql`
      insert into ${userCalls} (tenant_id, user_id, minute, server_id, tool, key_id, outcome, times, last_at)
      select u.tenant_id, u.id, to_timestamp(r.minute / 1000), r.server_id, r.tool, r.key_id, r.outcome, r.times,
        to_timestamp(r.last_at / 1000)
      from json_to_recordset(${JSON.stringify(batch)}::json) as r(user_id text, epoch int, minute float8, server_id text,
        tool text, key_id text, outcome text, times int, last_at float8)
      join users u on u.id = r.user_id and u.token_epoch = r.epoch
      order by u.id, r.minute, r.server_id, r.tool, r.key_id, r.outcome
      for share of u
      on conflict on constraint user_calls_one do update
        set times = ${userCalls.times} + excluded.times, last_at = greatest(${userCalls.lastAt}, excluded.last_at)`);
  }

  /** Keeps the newest rows of users, once a minute for each. Rows that another process is writing or deleting are left to it. */
  async #trim(users: ReadonlySet<string>): Promise<void> {
    const minute = Math.floor(this.#clock.now() / MINUTE_MS);
    if (this.#trimmed.minute !== minute) this.#trimmed = { minute, users: new Set() };
    const due = [...users].filter(user => !this.#trimmed.users.has(user));
    if (due.length === 0) return;
    await this.#db.execute(sql`
      delete from ${userCalls} where ctid in (
        select c.ctid from ${userCalls} c where c.ctid in (
          select old.ctid from json_array_elements_text(${JSON.stringify(due)}::json) as u(id), lateral (
            select ctid from ${userCalls} where user_id = u.id
            order by minute desc, last_at desc offset ${MAX_OF_USER}
          ) as old)
        for update skip locked)`);
    for (const user of due) this.#trimmed.users.add(user);
  }
}

const keyOf = ({ user_id, minute, server_id, tool, key_id, outcome }: Row): string =>
  `${user_id} ${minute} ${server_id} ${key_id} ${outcome} ${tool}`;

function added(earlier: Row, later: Row): Row {
  earlier.times += later.times;
  earlier.last_at = Math.max(earlier.last_at, later.last_at);
  return earlier;
}
