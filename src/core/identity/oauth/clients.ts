import { setTimeout as delay } from 'node:timers/promises';
import { and, eq, isNull, lt, sql } from 'drizzle-orm';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import type { OAuthConfig, RegisteredClient } from '../../../config/index.ts';
import type { GuardedFetch } from '../../../platform/outbound/fetch.ts';
import { newId, sha256 } from '../../../platform/ids.ts';
import { SingleFlight } from '../../../platform/queues.ts';
import type { Database } from '../../../platform/database/database.ts';
import { monotonicMs } from '../../../platform/time.ts';
import { sanitise } from '../../../platform/sanitize.ts';
import type { Actor } from '../../access/audit.ts';
import type { IdentityContext } from '../context.ts';
import { oauthClients } from '../schema.ts';
import { VaultError, type Binding } from '../vault/vault.ts';
import {
  AUTH_METHODS,
  entered,
  type AuthMethod,
  type Client,
  type ClientName,
  type EnteredClient,
  type SignInClient,
  type StoredClient,
} from './client.ts';
import type { IssuerMetadata } from './metadata.ts';

/** The authorization server accepts no registration by us. */
export class RegistrationRefused extends Error {
  override readonly name = 'RegistrationRefused';
  /** `none`: it offers no kind of registration. `refused`: it refused ours, often because it accepts only pre-approved clients. */
  readonly reason: 'none' | 'refused';
  readonly issuer: string;

  constructor(reason: RegistrationRefused['reason'], issuer: string) {
    super(`${issuer}: registration ${reason}`);
    this.reason = reason;
    this.issuer = issuer;
  }
}

/** Longer than a request to the authorization server may take, so that a live holder never loses the lease. */
const LEASE_SEC = 15;
const WAIT_MS = 6_000;
const LOOK_AGAIN_MS = 50;
/** A refused registration is not repeated for this long. */
const REFUSED_MS = 60_000;
/** Later times, which some servers give in milliseconds, count as this one: a date that databases know. */
const FAR_SEC = 100_000_000_000;
/** Nor one that failed otherwise for this long. */
const FAILED_MS = 15_000;
/** How long a registration counts as known to the authorization server. */
const CHECK_MS = 10 * 60_000;
/** A secret that expires sooner is not used for a new sign-in. */
const SECRET_LEFT_SEC = 3_600;

/** A response to a registration, read tolerantly: servers send null, '' and 0 for what they do not have. */
const registrationSchema = z.object({
  client_id: z
    .string()
    .max(2_048)
    .regex(/^[\x20-\x7e]+$/),
  client_secret: z.string().max(4_096).nullish(),
  client_secret_expires_at: z.coerce.number().nullish().catch(0),
  token_endpoint_auth_method: z.enum(AUTH_METHODS).nullish().catch(undefined),
});

type Registration = z.output<typeof registrationSchema>;

/** The right to register in one row. */
interface Lease {
  readonly id: string;
  readonly leaseId: string;
}

interface Registering {
  readonly endpoint: string;
  readonly metadata: IssuerMetadata;
  readonly preferred: AuthMethod | undefined;
}

type Row = typeof oauthClients.$inferSelect;

/** Switchboard's clients at authorization servers: found, or registered at the first sign-in. */
export class Clients {
  readonly #context: IdentityContext;
  readonly #config: OAuthConfig;
  readonly #fetch: GuardedFetch;
  /** Failures by issuer. */
  readonly #failed: LRUCache<string, Error>;
  readonly #registering = new SingleFlight<SignInClient>();
  /** When a registration was last known to be good. */
  readonly #checked: LRUCache<string, true>;

  constructor(context: IdentityContext, config: OAuthConfig, fetch: GuardedFetch) {
    this.#context = context;
    this.#config = config;
    this.#fetch = fetch;
    const perf = { now: () => monotonicMs(context.clock) };
    this.#failed = new LRUCache({ max: 1_000, ttl: FAILED_MS, perf });
    this.#checked = new LRUCache({ max: 1_000, ttl: CHECK_MS, perf });
  }

  /** Returns the address that an authorization server sends browsers back to; each has its own (RFC 9700 §4.4.2.2). */
  redirectUri(issuer: string): string {
    return this.returnUri(keyOf(issuer));
  }

  /** Returns the return URL for the key of an issuer or, without a key, the one that authorization servers share. */
  returnUri(key?: string): string {
    return `${this.#context.publicUrl()}/oauth/return${key === undefined ? '' : `/${key}`}`;
  }

  /**
   * Returns the client for new sign-ins with an authorization server: the operator's, else by a metadata document, else by
   * registration, which one process does.
   * @param preferred the method of authentication that the catalogue entry demands
   * @throws RegistrationRefused; Error if the server cannot be reached or answers nonsense
   */
  async for(metadata: IssuerMetadata, preferred: AuthMethod | undefined): Promise<SignInClient> {
    const { issuer } = metadata;
    const configured = this.#configured(metadata, preferred);
    if (configured) return { ...configured, redirectUri: this.redirectUri(issuer) };
    const row = await this.#current(issuer, this.redirectUri(issuer));
    const ofOperator = row?.byOperator ? await this.#opened(row, metadata, preferred) : undefined;
    if (ofOperator) return ofOperator;
    const document = this.#documentFor(metadata);
    if (document) return { ...document, issuer, kind: 'cimd', secret: undefined, authMethod: 'none' };
    const failed = this.#failed.get(issuer);
    if (failed) throw failed;
    return this.#registering.run(issuer, () => this.#registered(metadata, preferred));
  }

  /** Returns whether the authorization server should be asked if it still knows a client. */
  isDue({ kind, rowId }: Client): boolean {
    if (kind !== 'dcr' || rowId === undefined || this.#checked.has(rowId)) return false;
    this.#checked.set(rowId, true);
    return true;
  }

  /** Returns the client that tokens were issued to; undefined if it is gone, so that nobody can refresh or revoke them. */
  async named(name: ClientName, metadata: IssuerMetadata): Promise<Client | undefined> {
    if (name.kind === 'preregistered' && name.rowId === undefined) {
      const configured = this.#configured(metadata, undefined);
      return configured?.clientId === name.clientId ? configured : undefined;
    }
    if (name.kind === 'cimd') return { ...name, secret: undefined, authMethod: 'none' };
    const [row] = await this.#context.db
      .select()
      .from(oauthClients)
      .where(eq(oauthClients.id, name.rowId ?? ''));
    return row?.issuer === name.issuer ? this.#opened(row, metadata) : undefined;
  }

  /** Returns the client that the operator has registered with an issuer: in the settings, or entered later. */
  async ofOperator(issuer: string): Promise<Pick<RegisteredClient, 'secret' | 'allowedOrigins'> | undefined> {
    const configured = this.#config.clients.get(issuer);
    if (configured) return configured;
    const row = await this.#current(issuer, this.redirectUri(issuer));
    if (!row?.byOperator || row.sealed === null) return undefined;
    const { secret, allowedOrigins = [] } = await this.#stored(row);
    return { secret, allowedOrigins };
  }

  /** Stores a client that the operator has registered, instead of an earlier one. Tokens that were issued to that stay valid. */
  async enter(actor: Partial<Actor>, issuer: string, client: EnteredClient): Promise<void> {
    const { db, vault, audit } = this.#context;
    const id = newId('cli');
    const { id: clientId } = client;
    const redirectUri = this.redirectUri(issuer);
    await db.transaction(async tx => {
      const row = await this.#current(issuer, redirectUri, tx);
      const isSame = row?.byOperator === true && row.clientId === clientId;
      const stored = entered(client, isSame ? await this.settingsOf(row) : {});
      const sealed = await vault.sealJson(clientBinding({ id, issuer }), stored);
      // Somebody else may enter or register one at the same time.
      for (let written = 0; written === 0;) {
        await this.#retireAll(tx, issuer);
        const inserted = await tx
          .insert(oauthClients)
          .values({ id, issuer, redirectUri, clientId, sealed, byOperator: true })
          .onConflictDoNothing()
          .returning({ id: oauthClients.id });
        written = inserted.length;
      }
      await audit.record(actor, { event: 'oauth_client_entered', outcome: 'ok', meta: { issuer } }, tx);
    });
    this.#failed.delete(issuer);
  }

  /** Uses the client that the operator has entered for no more sign-ins. Resolves to false if there is none. */
  async remove(actor: Partial<Actor>, issuer: string): Promise<boolean> {
    const { db, audit } = this.#context;
    return db.transaction(async tx => {
      const removed = await this.#retireAll(tx, issuer, eq(oauthClients.byOperator, true));
      if (removed === 0) return false;
      await audit.record(actor, { event: 'oauth_client_removed', outcome: 'ok', meta: { issuer } }, tx);
      return true;
    });
  }

  async #retireAll(tx: Database, issuer: string, which?: ReturnType<typeof eq>): Promise<number> {
    const retired = await tx
      .update(oauthClients)
      .set({ retiredAt: sql`now()` })
      .where(
        and(
          eq(oauthClients.issuer, issuer),
          eq(oauthClients.redirectUri, this.redirectUri(issuer)),
          isNull(oauthClients.retiredAt),
          which,
        ),
      )
      .returning({ id: oauthClients.id });
    return retired.length;
  }

  /** Uses a registration for no more sign-ins: the authorization server no longer knows it. */
  async retire({ kind, rowId }: ClientName): Promise<void> {
    if (kind !== 'dcr' || rowId === undefined) return;
    await this.#context.db
      .update(oauthClients)
      .set({ retiredAt: sql`now()` })
      .where(and(eq(oauthClients.id, rowId), isNull(oauthClients.retiredAt)));
  }

  #configured(metadata: IssuerMetadata, preferred: AuthMethod | undefined): Client | undefined {
    const { issuer } = metadata;
    const settings = this.#config.clients.get(issuer);
    if (!settings) return undefined;
    const { id: clientId, secret, authMethod = preferred } = settings;
    return {
      issuer,
      clientId,
      kind: 'preregistered',
      secret,
      authMethod: secret === undefined ? 'none' : (authMethod ?? methodFor(metadata, WITH_SECRET)),
      scopes: settings.scopes,
    };
  }

  /**
   * Returns the client that a metadata document of ours describes. Anybody may name that document, so that a hostile authorization
   * server could have another one's codes sent here: it is used only where the response names its issuer (RFC 9207).
   */
  #documentFor(metadata: IssuerMetadata): Pick<SignInClient, 'clientId' | 'redirectUri'> | undefined {
    const methods = metadata.token_endpoint_auth_methods_supported;
    const isTaken =
      metadata.client_id_metadata_document_supported === true &&
      metadata.authorization_response_iss_parameter_supported === true &&
      (methods?.includes('none') ?? true);
    if (!isTaken) return undefined;
    const clientId = this.metadataUrl();
    return clientId === undefined ? undefined : { clientId, redirectUri: this.returnUri() };
  }

  async #registered(metadata: IssuerMetadata, preferred: AuthMethod | undefined): Promise<SignInClient> {
    const { issuer, registration_endpoint: endpoint } = metadata;
    const redirectUri = this.redirectUri(issuer);
    if (endpoint === undefined) throw new RegistrationRefused('none', issuer);
    const deadlineMs = performance.now() + WAIT_MS;
    for (;;) {
      const row = await this.#current(issuer, redirectUri);
      const client = row && (await this.#opened(row, metadata));
      if (client) return client;
      if (row?.clientId != null)
        await this.retire({ issuer, clientId: row.clientId, kind: 'dcr', rowId: row.id });
      const lease = await this.#lease(row, issuer, redirectUri);
      if (lease !== undefined) return this.#register(lease, { endpoint, metadata, preferred });
      if (performance.now() > deadlineMs)
        throw new Error(`another process has been registering a client at ${issuer} for too long`);
      await delay(LOOK_AGAIN_MS * (1 + Math.random()));
    }
  }

  /** Returns the registration for new sign-ins, or the row of one under way. */
  async #current(
    issuer: string,
    redirectUri: string,
    db: Database = this.#context.db,
  ): Promise<Row | undefined> {
    const [row] = await db
      .select()
      .from(oauthClients)
      .where(
        and(
          eq(oauthClients.issuer, issuer),
          eq(oauthClients.redirectUri, redirectUri),
          isNull(oauthClients.retiredAt),
        ),
      );
    return row;
  }

  /** Takes the right to register; undefined if another process has it. */
  async #lease(row: Row | undefined, issuer: string, redirectUri: string) {
    const leaseId = newId('lease');
    const leaseUntil = sql`now() + make_interval(secs => ${LEASE_SEC})`;
    const { db } = this.#context;
    const id = newId('cli');
    const [taken] =
      row?.clientId === null
        ? await db
            .update(oauthClients)
            .set({ leaseId, leaseUntil })
            .where(and(eq(oauthClients.id, row.id), lt(oauthClients.leaseUntil, sql`now()`)))
            .returning({ id: oauthClients.id })
        : await db
            .insert(oauthClients)
            .values({ id, issuer, redirectUri, leaseId, leaseUntil })
            .onConflictDoNothing()
            .returning({ id: oauthClients.id });
    return taken && { id: taken.id, leaseId };
  }

  /** Registers a client (RFC 7591 §3), and stores it under the lease. A failure is remembered for a while. */
  async #register(lease: Lease, { endpoint, metadata, preferred }: Registering): Promise<SignInClient> {
    const { issuer } = metadata;
    try {
      const wanted = preferred ?? methodFor(metadata, AUTH_METHODS);
      return await this.#store(lease, metadata, wanted, await this.#request(endpoint, issuer, wanted));
    } catch (error) {
      await this.#context.db.delete(oauthClients).where(and(holds(lease), isNull(oauthClients.clientId)));
      const failure = error instanceof Error ? error : new Error(String(error));
      this.#failed.set(issuer, failure, error instanceof RegistrationRefused ? { ttl: REFUSED_MS } : {});
      throw error;
    }
  }

  async #store(
    lease: Lease,
    metadata: IssuerMetadata,
    wanted: AuthMethod,
    made: Registration,
  ): Promise<SignInClient> {
    const { id } = lease;
    const { issuer } = metadata;
    const { db, vault, clock } = this.#context;
    const secret = made.client_secret ?? '';
    const authMethod = secret === '' ? 'none' : (made.token_endpoint_auth_method ?? withSecret(wanted));
    const stored: StoredClient = { authMethod, ...(secret === '' ? {} : { secret }) };
    const expiresAt = Math.min(made.client_secret_expires_at ?? 0, FAR_SEC);
    const leftSec = expiresAt - clock.now() / 1_000;
    if (expiresAt > 0 && leftSec < SECRET_LEFT_SEC) throw new RegistrationRefused('refused', issuer);
    const [row] = await db
      .update(oauthClients)
      .set({
        clientId: made.client_id,
        sealed: await vault.sealJson(clientBinding({ id, issuer }), stored),
        secretExpiresAt: expiresAt > 0 ? sql`to_timestamp(${expiresAt})` : null,
        leaseId: null,
        leaseUntil: null,
      })
      .where(holds(lease))
      .returning();
    const client = row && (await this.#opened(row, metadata));
    if (!client) throw new Error(`the registration at ${issuer} was overtaken`);
    this.#checked.set(id, true);
    return client;
  }

  async #request(endpoint: string, issuer: string, authMethod: AuthMethod) {
    const publicUrl = this.#context.publicUrl();
    const response = await this.#fetch(endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json' },
      body: JSON.stringify({
        ...this.#document([this.redirectUri(issuer)], authMethod),
        application_type: isLoopback(publicUrl) ? 'native' : 'web',
      }),
    });
    const text = await response.text();
    if (response.status === 200 || response.status === 201) {
      const read = registrationSchema.safeParse(parsed(text));
      if (read.success) return read.data;
      throw new Error(`the registration at ${issuer} returned no client`);
    }
    this.#context.log.warn(
      { issuer, status: response.status, body: sanitise(text, 2_000) },
      'an authorization server refused to register a client',
    );
    if (response.status === 429 || response.status >= 500)
      throw new Error(`the registration endpoint of ${issuer} returned HTTP ${response.status}`);
    throw new RegistrationRefused('refused', issuer);
  }

  /** Returns the address of the document that describes Switchboard, if authorization servers can read it. */
  metadataUrl(): string | undefined {
    const publicUrl = this.#context.publicUrl();
    return this.#config.metadataUrl ?? (isHttps(publicUrl) ? `${publicUrl}${DOCUMENT_PATH}` : undefined);
  }

  /** Returns the document that describes Switchboard at `DOCUMENT_PATH`. */
  document(): Readonly<Record<string, unknown>> {
    const clientId = `${this.#context.publicUrl()}${DOCUMENT_PATH}`;
    return { client_id: clientId, ...this.#document([this.returnUri()], 'none') };
  }

  #document(redirectUris: readonly string[], authMethod: AuthMethod) {
    const publicUrl = this.#context.publicUrl();
    return {
      client_name: this.#config.clientName,
      ...(isHttps(publicUrl) ? { client_uri: publicUrl } : {}),
      redirect_uris: redirectUris,
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: authMethod,
    };
  }

  /** Returns undefined for a registration that is not complete, or whose secret has expired or cannot be opened. */
  async #opened(
    row: Row,
    metadata: IssuerMetadata,
    preferred?: AuthMethod,
  ): Promise<SignInClient | undefined> {
    const { id: rowId, issuer, clientId, redirectUri, secretExpiresAt, byOperator } = row;
    if (clientId === null || row.sealed === null) return undefined;
    const isNew = row.retiredAt === null;
    const leftMs = (secretExpiresAt?.getTime() ?? Infinity) - this.#context.clock.now();
    if (isNew && leftMs < SECRET_LEFT_SEC * 1_000) return undefined;
    const { secret, scopes, ...stored } = await this.#stored(row);
    const authMethod = stored.authMethod ?? preferred ?? methodFor(metadata, WITH_SECRET);
    return {
      issuer,
      clientId,
      kind: byOperator ? 'preregistered' : 'dcr',
      rowId,
      secret,
      authMethod: secret === undefined ? 'none' : authMethod,
      scopes,
      redirectUri,
    };
  }

  #stored(row: Row): Promise<StoredClient> {
    return this.#context.vault.openJson<StoredClient>(clientBinding(row), row.sealed ?? '');
  }

  /** Returns the sealed part of a row; nothing if it cannot be opened any more. */
  settingsOf(row: Row): Promise<StoredClient> {
    return this.#stored(row).catch((error: unknown) => {
      if (error instanceof VaultError) return {};
      throw error;
    });
  }
}

const holds = ({ id, leaseId }: Lease) => and(eq(oauthClients.id, id), eq(oauthClients.leaseId, leaseId));

/** The path of the document that describes Switchboard as a client (OAuth Client ID Metadata Document). */
const DOCUMENT_PATH = '/oauth/client.json';

/** Returns the key of an issuer in the URLs of its clients. */
const keyOf = (issuer: string): string => Buffer.from(sha256(issuer)).toString('base64url').slice(0, 16);

export const clientBinding = ({ id, issuer }: Pick<Row, 'id' | 'issuer'>): Binding => ({
  table: 'oauth_clients',
  tenantId: '',
  userId: '',
  id: JSON.stringify([id, issuer]),
  purpose: 'client',
});

const WITH_SECRET = ['client_secret_basic', 'client_secret_post'] as const;

/** Returns the first method that the authorization server supports. RFC 8414 §2: client_secret_basic is the default. */
function methodFor(metadata: IssuerMetadata, methods: readonly AuthMethod[]): AuthMethod {
  const supported = metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  return methods.find(method => supported.includes(method)) ?? 'client_secret_basic';
}

/** RFC 7591 §2: client_secret_basic is the default. */
const withSecret = (wanted: AuthMethod): AuthMethod => (wanted === 'none' ? 'client_secret_basic' : wanted);

const isHttps = (url: string) => url.startsWith('https:');
const isLoopback = (url: string) => ['localhost', '127.0.0.1', '[::1]'].includes(new URL(url).hostname);

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
