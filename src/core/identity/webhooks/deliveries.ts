import { and, asc, desc, eq, exists, gt, inArray, isNull, lte, notInArray, or, sql } from 'drizzle-orm';
import { whyFailed, type Database } from '../../../platform/database/database.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import { OutageLog, ThrottledLog } from '../../../platform/telemetry/throttled-log.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { Repeat, settledWithin, type Clock } from '../../../platform/time.ts';
import type { Audit } from '../../access/audit.ts';
import type { Metrics } from '../../metrics.ts';
import { VaultError, type Vault } from '../vault/vault.ts';
import { secretBinding, send, type Answer, type Message } from './message.ts';
import { webhookOutbox, webhooks, webhookSecrets } from './schema.ts';

/** The pauses after failed attempts, in seconds: ten attempts in about three days, as Standard Webhooks recommends. */
const PAUSES_SEC = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
/** Each pause is up to a tenth longer, so that what failed together is not repeated together. */
const JITTER = 0.1;
/** An event that is older than this is not tried again, however often it was tried. */
const LIFETIME_SEC = 3.5 * 86_400;
/** The events that a tenant may have waiting; beyond it the oldest are dropped. */
const MAX_WAITING = 10_000;
/** Longer than an attempt takes, so that no other process takes an event that is being sent. */
export const CLAIM_SEC = 30;

const LOOK_EVERY_MS = 5_000;
const TRIM_EVERY_MS = 60_000;
/** The requests that one receiver gets at a time. One that refused everything lately gets one. */
const BATCH = 4;
/** The receivers that are sent to at a time; as many again of those that refused everything lately. */
const MAX_RECEIVERS = 32;
/** A receiver's turn ends after this many batches if others wait. */
const BATCHES_A_TURN = 25;
/** How long a stopping process waits for requests that are under way. */
const GRACE_MS = 2_000;

interface Parts {
  readonly db: Database;
  readonly vault: Vault;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
  readonly fetch: GuardedFetch;
}

/** The receiver of a tenant's events, with the secrets that currently sign them. */
export interface Receiver extends Pick<Message, 'url' | 'secrets'> {
  readonly isDisabled: boolean;
}

interface Claimed {
  readonly id: string;
  readonly type: string;
  readonly body: string;
  readonly attempts: number;
  /** The event is too old to be tried again. */
  readonly isOver: boolean;
}

/**
 * Sends the events in the outbox to the tenants' webhooks. An event is sent by one process at a time, at least once, and survives
 * crashes. Each receiver has its own turn, so that one that hangs does not delay the others.
 */
export class Deliveries {
  readonly #parts: Parts;
  readonly #outage: OutageLog;
  readonly #warnings: ThrottledLog;
  readonly #looking = new Repeat(LOOK_EVERY_MS, () => this.#look());
  readonly #trimming = new Repeat(TRIM_EVERY_MS, () => this.trim());
  readonly #closing = new AbortController();
  /** The receivers that are being sent to, by tenant. */
  readonly #turns = new Map<string, Promise<void>>();
  /** The tenants whose receivers refused everything the last time. */
  readonly #failing = new Set<string>();
  /** Events were found for a tenant that could not have a turn. */
  #isAnyWaiting = false;
  #isStopping = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#outage = new OutageLog(parts.log, 'resumed the webhook outbox');
    this.#warnings = new ThrottledLog(parts.log, parts.clock);
  }

  start(): void {
    this.#looking.start();
    this.#trimming.start(TRIM_EVERY_MS);
  }

  /** Sends due events in the background. */
  kick(): void {
    this.#looking.kick();
  }

  /** Stops. Requests that have no answer after two seconds are repeated by the next process. */
  async close(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([this.#looking.stop(), this.#trimming.stop()]);
    const all = Promise.all(this.#turns.values());
    if (!(await settledWithin(all, GRACE_MS))) this.#closing.abort();
    await all;
  }

  async #look(): Promise<void> {
    try {
      for (const tenantId of await this.#due()) this.#begin(tenantId);
      this.#outage.succeeded();
    } catch (error) {
      this.#outage.failed('webhook outbox', whyFailed(error), 'failed to process the webhook outbox');
    }
  }

  /** Returns the tenants with due events, the longest wait first. */
  async #due(): Promise<string[]> {
    const { db } = this.#parts;
    const next = sql`(select ${webhookOutbox.nextAt} from ${webhookOutbox} where ${webhookOutbox.tenantId} = ${webhooks.tenantId} order by ${webhookOutbox.nextAt} limit 1)`;
    const due = await db
      .select({ tenantId: webhooks.tenantId })
      .from(webhooks)
      .where(and(isNull(webhooks.disabledAt), sql`${next} <= now()`))
      .orderBy(next);
    return due.map(({ tenantId }) => tenantId);
  }

  /** Starts a receiver's turn, unless it has one or too many others do. */
  #begin(tenantId: string): void {
    if (this.#turns.has(tenantId) || !this.#hasRoom(tenantId)) {
      this.#isAnyWaiting = true;
      return;
    }
    const turn = this.#send(tenantId)
      .catch((error: unknown) =>
        this.#parts.log.warn({ ...whyFailed(error), tenantId }, 'failed to send webhooks'),
      )
      .finally(() => {
        this.#turns.delete(tenantId);
        if (this.#isAnyWaiting) this.kick();
        this.#isAnyWaiting = false;
      });
    this.#turns.set(tenantId, turn);
  }

  #hasRoom(tenantId: string): boolean {
    const isFailing = this.#failing.has(tenantId);
    const others = [...this.#turns.keys()].filter(one => this.#failing.has(one) === isFailing);
    return others.length < MAX_RECEIVERS;
  }

  /** Sends due events until there are none, the receiver refuses all of a batch, or its turn is over. */
  async #send(tenantId: string): Promise<void> {
    for (let batch = 0; batch < BATCHES_A_TURN && !this.#isStopping; batch++) {
      const events = await this.#claim(tenantId, this.#failing.has(tenantId) ? 1 : BATCH);
      if (events.length === 0) return;
      // Read after the claim: what was changed before an event holds for it.
      const receiver = await receiverOf(this.#parts, tenantId);
      if (!receiver || receiver.isDisabled) return;
      const delivered = await Promise.all(events.map(event => this.#attempt(tenantId, receiver, event)));
      if (!delivered.includes(true)) {
        this.#failing.add(tenantId);
        return;
      }
      this.#failing.delete(tenantId);
    }
    // There may be more.
    this.#isAnyWaiting = true;
  }

  /** Claims due events by moving their next attempt into the future: if the process dies, they become due again. */
  #claim(tenantId: string, limit: number): Promise<Claimed[]> {
    const { db } = this.#parts;
    const due = db
      .select({ id: webhookOutbox.id })
      .from(webhookOutbox)
      .where(and(eq(webhookOutbox.tenantId, tenantId), lte(webhookOutbox.nextAt, sql`now()`)))
      .orderBy(asc(webhookOutbox.nextAt))
      .limit(limit)
      .for('update', { skipLocked: true });
    return db
      .update(webhookOutbox)
      .set({ attempts: sql`${webhookOutbox.attempts} + 1`, nextAt: inSeconds(CLAIM_SEC) })
      .where(inArray(webhookOutbox.id, due))
      .returning({
        id: webhookOutbox.id,
        type: webhookOutbox.type,
        body: webhookOutbox.body,
        attempts: webhookOutbox.attempts,
        isOver: sql<boolean>`${webhookOutbox.createdAt} < now() - make_interval(secs => ${LIFETIME_SEC})`,
      });
  }

  /** Resolves to whether the event was delivered. */
  async #attempt(tenantId: string, { url, secrets }: Receiver, event: Claimed): Promise<boolean> {
    const { db, fetch, clock, metrics } = this.#parts;
    const { id, body } = event;
    const answer = await send(fetch, { id, url, body, secrets }, clock.now(), this.#closing.signal);
    if (answer.problem === undefined) {
      await db.delete(webhookOutbox).where(eq(webhookOutbox.id, id));
      metrics?.events.webhookSent('ok');
      return true;
    }
    // Neither the receiver's fault nor ours: the claim ends by itself.
    if (this.#closing.signal.aborted) return false;
    if (answer.status === 410) await this.#disable(tenantId, url, id);
    else await this.#failed(tenantId, url, event, answer);
    return false;
  }

  async #failed(tenantId: string, url: string, event: Claimed, { problem = '' }: Answer): Promise<void> {
    const { db, metrics } = this.#parts;
    const { id, type, attempts } = event;
    const pauseSec = PAUSES_SEC[attempts - 1];
    if (pauseSec === undefined || event.isOver) return this.#drop(tenantId, event, problem);
    await db
      .update(webhookOutbox)
      .set({ failure: problem, nextAt: inSeconds(pauseSec * (1 + JITTER * Math.random())) })
      .where(and(eq(webhookOutbox.id, id), eq(webhookOutbox.attempts, attempts)));
    const { host } = new URL(url);
    const fields = { tenantId, host, id, type, attempts, problem };
    this.#warnings.warn(fields, 'webhook not delivered, will be retried', tenantId);
    metrics?.events.webhookSent('failed');
  }

  async #drop(tenantId: string, { id, type, attempts }: Claimed, problem: string): Promise<void> {
    const { db, audit, metrics } = this.#parts;
    await db.transaction(async tx => {
      await tx.delete(webhookOutbox).where(eq(webhookOutbox.id, id));
      const meta = { id, type, attempts, problem };
      await audit.record({}, { event: 'webhook_dropped', outcome: 'failed', tenantId, meta }, tx);
    });
    metrics?.events.webhookSent('dropped');
  }

  /**
   * Stops sending to a receiver that answered 410 Gone to this event. An event that no longer waits was dropped with the first such
   * answer; the address may have been set again since.
   */
  async #disable(tenantId: string, url: string, id: string): Promise<void> {
    const { db, audit, metrics } = this.#parts;
    await db.transaction(async tx => {
      const [disabled] = await tx
        .update(webhooks)
        .set({ disabledAt: sql`now()` })
        .where(
          and(
            eq(webhooks.tenantId, tenantId),
            eq(webhooks.url, url),
            isNull(webhooks.disabledAt),
            exists(tx.select().from(webhookOutbox).where(eq(webhookOutbox.id, id))),
          ),
        )
        .returning({ tenantId: webhooks.tenantId });
      if (!disabled) return;
      const gone = await tx
        .delete(webhookOutbox)
        .where(eq(webhookOutbox.tenantId, tenantId))
        .returning({ id: webhookOutbox.id });
      const meta = { host: new URL(url).host, dropped: gone.length };
      await audit.record({}, { event: 'webhook_disabled', outcome: 'failed', tenantId, meta }, tx);
    });
    metrics?.events.webhookSent('gone');
  }

  /** Drops the oldest events of tenants that have too many waiting. */
  async trim(): Promise<void> {
    const { db, log } = this.#parts;
    try {
      const crowded = await db
        .select({ tenantId: webhookOutbox.tenantId })
        .from(webhookOutbox)
        .groupBy(webhookOutbox.tenantId)
        .having(sql`count(*) > ${MAX_WAITING}`);
      for (const { tenantId } of crowded) await this.#trimOf(tenantId);
    } catch (error) {
      log.warn({ ...whyFailed(error) }, 'failed to trim the webhook outbox');
    }
  }

  async #trimOf(tenantId: string): Promise<void> {
    const { db, audit, metrics } = this.#parts;
    const own = eq(webhookOutbox.tenantId, tenantId);
    const dropped = await db.transaction(async tx => {
      // One process at a time: two would drop twice as many.
      await tx
        .select({ tenantId: webhooks.tenantId })
        .from(webhooks)
        .where(eq(webhooks.tenantId, tenantId))
        .for('no key update');
      const newest = tx
        .select({ id: webhookOutbox.id })
        .from(webhookOutbox)
        .where(own)
        .orderBy(desc(webhookOutbox.createdAt), desc(webhookOutbox.id))
        .limit(MAX_WAITING);
      const gone = await tx
        .delete(webhookOutbox)
        .where(and(own, notInArray(webhookOutbox.id, newest)))
        .returning({ id: webhookOutbox.id });
      if (gone.length === 0) return 0;
      const meta = { count: gone.length, problem: `more than ${MAX_WAITING} waiting` };
      await audit.record({}, { event: 'webhook_dropped', outcome: 'failed', tenantId, meta }, tx);
      return gone.length;
    });
    metrics?.events.webhookSent('dropped', dropped);
  }
}

const inSeconds = (seconds: number) => sql`now() + make_interval(secs => ${seconds})`;

/** Returns undefined if the tenant has no webhook. Secrets that cannot be decrypted are logged and left out. */
export async function receiverOf(
  { db, vault, log }: Pick<Parts, 'db' | 'vault' | 'log'>,
  tenantId: string,
): Promise<Receiver | undefined> {
  const rows = await db
    .select({
      url: webhooks.url,
      disabledAt: webhooks.disabledAt,
      id: webhookSecrets.id,
      sealed: webhookSecrets.sealed,
    })
    .from(webhooks)
    .leftJoin(
      webhookSecrets,
      and(
        eq(webhookSecrets.tenantId, webhooks.tenantId),
        or(isNull(webhookSecrets.expiresAt), gt(webhookSecrets.expiresAt, sql`now()`)),
      ),
    )
    .where(eq(webhooks.tenantId, tenantId))
    .orderBy(desc(webhookSecrets.createdAt));
  const [first] = rows;
  if (!first) return undefined;
  const secrets: string[] = [];
  for (const { id, sealed } of rows) {
    if (id === null || sealed === null) continue;
    try {
      secrets.push(await vault.open(secretBinding({ tenantId, id }), sealed));
    } catch (error) {
      if (!(error instanceof VaultError)) throw error;
      log.error({ err: error, tenantId, id }, 'ALARM: a webhook secret cannot be decrypted');
    }
  }
  return { url: first.url, isDisabled: first.disabledAt !== null, secrets };
}
