import { and, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../../../platform/database/database.ts';
import type { Actor } from '../../access/audit.ts';
import { lockUser } from '../../access/tenants.ts';
import type { CredentialValues } from '../../catalogue/credential-schema.ts';
import type { ServerHead } from '../../catalogue/entry.ts';
import {
  AccountMismatch,
  type Connections,
  type MadeBySignIn,
  type Owner,
} from '../connections/connections.ts';
import { serverIdOf, targetOf, type Holdings } from '../connections/holdings.ts';
import type { IdentityContext } from '../context.ts';
import { authSessions } from '../schema.ts';
import {
  failed,
  giveBack,
  waitingBinding,
  type SessionError,
  type SessionRow,
  type WaitingSecrets,
} from './session-store.ts';

/** Makes a connection in a transaction. */
type Put = (tx: Database, owner: Owner) => Promise<MadeBySignIn>;

/** The session was ended while its code was being exchanged. */
class SessionOver extends Error {
  override readonly name = 'SessionOver';
}

interface Parts {
  readonly context: IdentityContext;
  readonly connections: Connections;
  readonly holdings: Holdings;
}

/**
 * Writes what has come of a session whose browser came back, in one transaction: a connection, or a failure. Tokens that are not kept
 * are revoked.
 */
export class Outcomes {
  readonly #context: IdentityContext;
  readonly #connections: Connections;
  readonly #holdings: Holdings;
  #serverOf: (id: string) => ServerHead | undefined = () => undefined;

  constructor({ context, connections, holdings }: Parts) {
    this.#context = context;
    this.#connections = connections;
    this.#holdings = holdings;
  }

  /** Sets how servers are found in the catalogue. */
  findServers(serverOf: (id: string) => ServerHead | undefined): void {
    this.#serverOf = serverOf;
  }

  /** Makes a connection of tokens. @param forUsers for a shared connection: whether calls for users carry it, too */
  connect(session: SessionRow, tokens: WaitingSecrets, actor: Actor, forUsers?: boolean): Promise<void> {
    const put: Put = (tx, owner) =>
      this.#connections.put(tx, { ...owner, forUsers }, tokens, session.allowAccountChange);
    return this.#orGiveBack(session, tokens, actor, () => this.#complete(session, actor, tokens, put));
  }

  /** Makes a connection of values. */
  connectValues(session: SessionRow, values: CredentialValues, actor: Actor): Promise<void> {
    return this.#complete(session, actor, undefined, async (tx, owner) => {
      const { id } = await this.#connections.putValues(tx, owner, { values, forUsers: false });
      return { connectionId: id };
    });
  }

  /** Stores the tokens of mode `page`, sealed, until the user confirms the account. */
  wait(session: SessionRow, tokens: WaitingSecrets, actor: Actor): Promise<void> {
    return this.#orGiveBack(session, tokens, actor, () => this.#wait(session, tokens, actor));
  }

  async #wait(session: SessionRow, tokens: WaitingSecrets, actor: Actor): Promise<void> {
    // Refused now instead of after a confirmation that could not count.
    if (!session.allowAccountChange && (await this.#connections.isOther(session, tokens.account)))
      return this.fail(session, 'account_mismatch', actor, tokens);
    const sealed = await this.#context.vault.sealJson(waitingBinding(session), tokens);
    const [waits] = await this.#context.db
      .update(authSessions)
      // A user who came in time gets at least a minute to confirm.
      .set({
        status: 'confirm',
        sealed,
        expiresAt: sql`greatest(${authSessions.expiresAt}, now() + interval '1 minute')`,
      })
      .where(and(eq(authSessions.idHash, session.idHash), eq(authSessions.status, 'claimed')))
      .returning({ idHash: authSessions.idHash });
    if (!waits) await this.fail(session, 'revoked', actor, tokens);
  }

  /** Ends the session with an error and revokes granted tokens. */
  async fail(session: SessionRow, code: SessionError, actor: Actor, tokens?: WaitingSecrets): Promise<void> {
    const { db, audit, outbox } = this.#context;
    const { tenantId, userId, provider } = session;
    await db.transaction(async tx => {
      await lockUser(tx, tenantId, userId);
      const [ended] = await tx
        .update(authSessions)
        .set(failed(code))
        .where(isOpen(session))
        .returning({ idHash: authSessions.idHash });
      if (tokens) await giveBack(this.#context, tx, session, tokens);
      // The second of two concurrent decisions finds the session ended, which is not an event.
      if (!ended) return;
      const meta = { provider, code };
      await audit.record(actor, { event: 'session_failed', outcome: 'refused', tenantId, userId, meta }, tx);
    });
    outbox.kick();
  }

  /** Ends the session and revokes the tokens if the work fails on our side. */
  async #orGiveBack(
    session: SessionRow,
    tokens: WaitingSecrets,
    actor: Actor,
    work: () => Promise<void>,
  ): Promise<void> {
    try {
      await work();
    } catch (error) {
      await this.fail(session, 'interrupted', actor, tokens).catch((cause: unknown) =>
        this.#context.log.warn({ err: cause }, 'failed to revoke the tokens of a failed sign-in'),
      );
      throw error;
    }
  }

  /**
   * Makes the connection and completes the session in one transaction, unless the user was revoked in the meantime.
   * @param tokens what is given back if it fails; undefined for values
   */
  async #complete(
    session: SessionRow,
    actor: Actor,
    tokens: WaitingSecrets | undefined,
    put: Put,
  ): Promise<void> {
    const { db, audit, outbox, events } = this.#context;
    const { tenantId, userId, provider, resource } = session;
    // Nothing would ever be sent to the address that it was for.
    if (this.#hasMoved(session)) return this.fail(session, 'server_moved', actor, tokens);
    try {
      const done = await db.transaction(async tx => {
        const user = await lockUser(tx, tenantId, userId);
        if (user?.tokenEpoch !== session.epoch) return false;
        // Lock order: user, session, connection, as in a revocation and an expiry.
        await tx
          .select({ idHash: authSessions.idHash })
          .from(authSessions)
          .where(eq(authSessions.idHash, session.idHash))
          .for('update');
        const made = await put(tx, { tenantId, userId, provider, resource, askedBy: session.apiKeyId });
        const [completed] = await tx
          .update(authSessions)
          .set({ status: 'complete', finishedAt: sql`now()`, sealed: null, ...made })
          .where(isOpen(session))
          .returning({ idHash: authSessions.idHash });
        // Rolls the connection back.
        if (!completed) throw new SessionOver();
        const who = { tenantId, userId, meta: { provider } };
        await audit.record(actor, { event: 'session_completed', outcome: 'ok', ...who }, tx);
        return true;
      });
      this.#holdings.forget(tenantId, userId);
      if (!done) await this.fail(session, 'revoked', actor, tokens);
    } catch (error) {
      if (error instanceof AccountMismatch) await this.fail(session, 'account_mismatch', actor, tokens);
      else if (error instanceof SessionOver) await this.fail(session, 'revoked', actor, tokens);
      else throw error;
    }
    outbox.kick();
    events.kick();
  }

  /** Returns whether the server of a session has another address by now, or is no longer called. */
  #hasMoved({ provider, resource }: SessionRow): boolean {
    const serverId = serverIdOf(provider);
    if (serverId === undefined) return false;
    const server = this.#serverOf(serverId);
    return !server?.active || targetOf(server).resource !== resource;
  }
}

/** Selects a session while its outcome is open. */
const isOpen = ({ idHash }: SessionRow) =>
  and(eq(authSessions.idHash, idHash), inArray(authSessions.status, ['claimed', 'confirm']));
