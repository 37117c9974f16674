import { and, count, desc, eq, gt, isNull, max, min, or, sql } from 'drizzle-orm';
import { SwitchboardError } from '../../../errors.ts';
import type { Database } from '../../../platform/database/database.ts';
import { newId } from '../../../platform/ids.ts';
import { createGuardedFetch, type GuardedFetch } from '../../../platform/outbound/fetch.ts';
import type { Guard } from '../../../platform/outbound/guard.ts';
import { quoted } from '../../../platform/sanitize.ts';
import type { Log } from '../../../platform/telemetry/log.ts';
import { monotonicMs, type Clock } from '../../../platform/time.ts';
import type { Actor, Audit } from '../../access/audit.ts';
import type { Metrics } from '../../metrics.ts';
import type { Vault } from '../vault/vault.ts';
import { CLAIM_SEC, Deliveries, receiverOf } from './deliveries.ts';
import { Events } from './events.ts';
import { newWebhookSecret, secretBinding, send, TIMEOUT_MS } from './message.ts';
import { webhookOutbox, webhooks, webhookSecrets } from './schema.ts';

const MAX_URL_CHARS = 2048;
/** Older secrets than these end with a rotation, so that the header of signatures stays short. */
const MAX_OLD_SECRETS = 4;

interface WebhookInfo {
  readonly url: string;
  /** When the receiver answered 410 Gone; nothing is sent since. */
  readonly disabled_at: string | null;
  /** Until when older secrets sign, too; null: only the current one does. */
  readonly old_secrets_until: string | null;
  /** Events that were not delivered yet. */
  readonly waiting: number;
  readonly oldest_waiting_at: string | null;
  /** Why the last attempt of the event that has waited longest failed. */
  readonly last_problem: string | null;
  readonly created_at: string;
}

interface TestResult {
  readonly delivered: boolean;
  /** The receiver's HTTP status; null if there was no answer. */
  readonly status: number | null;
  readonly problem: string | null;
  readonly took_ms: number;
}

type TenantActor = Actor & { readonly tenantId: string };

interface Parts {
  readonly db: Database;
  readonly vault: Vault;
  readonly audit: Audit;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics | undefined;
  readonly guard: Guard;
}

/** The webhooks of tenants, for operators: one address and its signing secret each. */
export class Webhooks {
  readonly #parts: Parts & { readonly fetch: GuardedFetch };
  readonly #deliveries: Deliveries;
  readonly #outbound: ReturnType<typeof createGuardedFetch>;
  readonly events: Events;

  constructor(parts: Parts) {
    // What a receiver says besides its status is not read.
    this.#outbound = createGuardedFetch(parts.guard, 0, TIMEOUT_MS);
    this.#parts = { ...parts, fetch: this.#outbound.fetch };
    this.#deliveries = new Deliveries(this.#parts);
    this.events = new Events(() => this.#deliveries.kick());
  }

  /** Starts sending in the background. */
  start(): void {
    this.#deliveries.start();
  }

  async close(): Promise<void> {
    await this.#deliveries.close();
    await this.#outbound.close();
  }

  /** Drops the oldest events of tenants that have too many waiting, as happens every minute. */
  trim(): Promise<void> {
    return this.#deliveries.trim();
  }

  /** Returns undefined if the tenant has no webhook. */
  async show(tenantId: string): Promise<WebhookInfo | undefined> {
    const { db } = this.#parts;
    const [row] = await db.select().from(webhooks).where(eq(webhooks.tenantId, tenantId));
    if (!row) return undefined;
    const [old] = await db
      .select({ until: max(webhookSecrets.expiresAt) })
      .from(webhookSecrets)
      .where(and(eq(webhookSecrets.tenantId, tenantId), gt(webhookSecrets.expiresAt, sql`now()`)));
    const [queue] = await db
      .select({
        waiting: count(),
        oldest: min(webhookOutbox.createdAt),
        problem: sql<
          string | null
        >`(array_agg(${webhookOutbox.failure} order by ${webhookOutbox.createdAt}) filter (where ${webhookOutbox.failure} is not null))[1]`,
      })
      .from(webhookOutbox)
      .where(eq(webhookOutbox.tenantId, tenantId));
    return {
      url: row.url,
      disabled_at: textOf(row.disabledAt),
      old_secrets_until: textOf(old?.until),
      waiting: queue?.waiting ?? 0,
      oldest_waiting_at: textOf(queue?.oldest),
      last_problem: queue?.problem ?? null,
      created_at: row.createdAt.toISOString(),
    };
  }

  /**
   * Sets the address. The first time it also creates the secret, which is returned only then. Waiting events are sent at once,
   * and a webhook that its receiver ended (410) starts again.
   * @throws SwitchboardError `invalid_request`
   */
  async set(actor: TenantActor, address: string): Promise<{ webhook: WebhookInfo; secret: string | null }> {
    const { db, audit } = this.#parts;
    const { tenantId } = actor;
    const url = this.#require(address);
    const secret = await db.transaction(async tx => {
      await tx
        .insert(webhooks)
        .values({ tenantId, url })
        .onConflictDoUpdate({ target: webhooks.tenantId, set: { url, disabledAt: null } });
      const [current] = await tx
        .select({ id: webhookSecrets.id })
        .from(webhookSecrets)
        .where(and(eq(webhookSecrets.tenantId, tenantId), isNull(webhookSecrets.expiresAt)));
      await tx
        .update(webhookOutbox)
        .set({ attempts: 0, nextAt: sql`now()` })
        // Events that are being sent are due again within this time.
        .where(
          and(
            eq(webhookOutbox.tenantId, tenantId),
            gt(webhookOutbox.nextAt, sql`now() + make_interval(secs => ${CLAIM_SEC})`),
          ),
        );
      const meta = { host: new URL(url).host };
      await audit.record(actor, { event: 'webhook_changed', outcome: 'ok', meta }, tx);
      return current ? null : this.#addSecret(tx, tenantId);
    });
    this.#deliveries.kick();
    return { webhook: await this.#info(tenantId), secret };
  }

  /**
   * Creates a new secret. Older ones go on signing, each with a signature of its own, until the overlap ends.
   * @throws SwitchboardError `invalid_request` if the tenant has no webhook
   */
  async rotate(actor: TenantActor, overlapSec: number): Promise<{ webhook: WebhookInfo; secret: string }> {
    const { db, audit } = this.#parts;
    const { tenantId } = actor;
    const secret = await db.transaction(async tx => {
      const [row] = await tx
        .select({ tenantId: webhooks.tenantId })
        .from(webhooks)
        .where(eq(webhooks.tenantId, tenantId))
        .for('no key update');
      if (!row) throw noWebhook(tenantId);
      const end = sql`now() + make_interval(secs => ${overlapSec})`;
      await tx
        .update(webhookSecrets)
        .set({ expiresAt: sql`least(${webhookSecrets.expiresAt}, ${end})` })
        .where(eq(webhookSecrets.tenantId, tenantId));
      const surplus = tx
        .select({ id: webhookSecrets.id })
        .from(webhookSecrets)
        .where(eq(webhookSecrets.tenantId, tenantId))
        .orderBy(desc(webhookSecrets.createdAt))
        .offset(MAX_OLD_SECRETS);
      await tx
        .delete(webhookSecrets)
        .where(
          and(
            eq(webhookSecrets.tenantId, tenantId),
            or(sql`${webhookSecrets.expiresAt} <= now()`, sql`${webhookSecrets.id} in (${surplus})`),
          ),
        );
      const meta = { overlap_sec: overlapSec };
      await audit.record(actor, { event: 'webhook_rotated', outcome: 'ok', meta }, tx);
      return this.#addSecret(tx, tenantId);
    });
    return { webhook: await this.#info(tenantId), secret };
  }

  /** Removes the webhook, its secrets and the events that wait. Resolves to false if there is none. */
  async remove(actor: TenantActor): Promise<boolean> {
    const { db, audit } = this.#parts;
    return db.transaction(async tx => {
      const gone = await tx
        .delete(webhooks)
        .where(eq(webhooks.tenantId, actor.tenantId))
        .returning({ url: webhooks.url });
      if (gone.length === 0) return false;
      await audit.record(actor, { event: 'webhook_removed', outcome: 'ok' }, tx);
      return true;
    });
  }

  /**
   * Sends an event `webhook.test` once, now, and tells the receiver's answer.
   * @throws SwitchboardError `invalid_request` if the tenant has no webhook
   */
  async test(tenantId: string): Promise<TestResult> {
    const { clock, fetch } = this.#parts;
    const receiver = await receiverOf(this.#parts, tenantId);
    if (!receiver) throw noWebhook(tenantId);
    const nowMs = clock.now();
    const body = JSON.stringify({
      type: 'webhook.test',
      timestamp: new Date(nowMs).toISOString(),
      data: {},
    });
    const startedMs = monotonicMs(clock);
    const { status = null, problem = null } = await send(
      fetch,
      { ...receiver, id: newId('evt'), body },
      nowMs,
    );
    const took_ms = Math.round(monotonicMs(clock) - startedMs);
    return { delivered: problem === null, status, problem, took_ms };
  }

  async #addSecret(tx: Database, tenantId: string): Promise<string> {
    const id = newId('whs');
    const secret = newWebhookSecret();
    const sealed = await this.#parts.vault.seal(secretBinding({ tenantId, id }), secret);
    // Not the transaction's start, so that the secrets of one transaction after another are in order.
    await tx.insert(webhookSecrets).values({ id, tenantId, sealed, createdAt: sql`clock_timestamp()` });
    return secret;
  }

  async #info(tenantId: string): Promise<WebhookInfo> {
    const info = await this.show(tenantId);
    if (!info) throw noWebhook(tenantId);
    return info;
  }

  #require(address: string): string {
    const refuse = (why: string) => new SwitchboardError('invalid_request', `url: ${quoted(address)} ${why}`);
    const url = URL.parse(address);
    if (!url || address.length > MAX_URL_CHARS || !/^https?:\/\/[^\\\s\p{Cc}\p{Cs}]+$/u.test(address))
      throw refuse('must be an absolute https: or http: URL');
    if (url.username !== '' || url.password !== '') throw refuse('must not have a user name or password');
    if (address.includes('#')) throw refuse('must not have a fragment');
    try {
      this.#parts.guard.check(url);
    } catch (cause) {
      if (!(cause instanceof SwitchboardError)) throw cause;
      throw new SwitchboardError(
        'invalid_request',
        `url: ${quoted(address)} must be https: and public. SWITCHBOARD_ALLOW_PRIVATE_NETWORK=true also allows http: and private addresses.`,
        { cause },
      );
    }
    return address;
  }
}

const textOf = (time: Date | null | undefined): string | null => time?.toISOString() ?? null;

const noWebhook = (tenantId: string) =>
  new SwitchboardError(
    'invalid_request',
    `The tenant ${tenantId} has no webhook. Set one with \`switchboard webhook set URL\`.`,
  );
